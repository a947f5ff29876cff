"""Matrix instructions that a target has beside those of its limits.

In: a target.  Out: rates: of what its kind says that a thread multiplies alone, and of instructions
that users add (`schedule/own_atoms.py`).  Read next: `limits.py`, `kind.py`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Protocol

from tilewright.targets.kind import resolve
from tilewright.targets.limits import AtomRate

if TYPE_CHECKING:
    from tilewright.targets.target import Target


class Added(Protocol):
    """An instruction that a user added, for other processes, too."""

    def rate(self, target: Target) -> AtomRate | None:
        """Give how fast a target runs it; None of one that lacks it."""

    def add(self) -> None:
        """Make it known in this process."""


ADDED: dict[str, Added] = {}  # by name, in the order in which they came


def beside(target: Target, name: str) -> AtomRate | None:
    """Give the rate of such an instruction; None where the target has none of the name."""
    if name in ADDED:
        return ADDED[name].rate(target)
    return next((rate for rate in of_threads(target) if rate.name == name), None)


@cache
def of_threads(target: Target) -> tuple[AtomRate, ...]:
    """List those of the target's kind."""
    ask = target.device_kind.atoms
    return () if ask is None else tuple(resolve(ask)(target))
