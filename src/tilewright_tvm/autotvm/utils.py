"""`autotvm.utils`: numbers in units with prefixes, as AutoTVM's progress lines show them.

In: a number.  Out: how many thousands, millions or millionths it is.
"""

from __future__ import annotations

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError

__all__ = ["format_si_prefix"]

# From 10**-24 in steps of a thousand; the space stands for no prefix.
_PREFIXES = "yzafpn\N{MICRO SIGN}m kMGTPEZY"


def format_si_prefix(x: float, si_prefix: str) -> float:
    """How many units with a prefix `x` units are: 1.024 of "k" for 1024.

    si_prefix: one of y z a f p n \u00b5 m k M G T P E Z Y, or a space for none.
    Raises SpaceError for any other.
    """
    if len(si_prefix) != 1 or si_prefix not in _PREFIXES:
        raise SpaceError(
            f"format_si_prefix({x!r}, {si_prefix!r})", "there is no such prefix",
            f"Use one of {' '.join(_PREFIXES.replace(' ', ''))}.",
        )  # fmt: skip
    power = 3 * _PREFIXES.index(si_prefix) - 24
    return x / 10.0**power if power >= 0 else x * 10.0**-power


open_doors(globals(), __all__, SpaceError)
