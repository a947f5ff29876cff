"""Floats of eight bits, e4m3, as whole numbers: what expressions and printers know of them.

In: the bits, an int32 with the sign of the byte.  Out: the number in units of the least one.
Read next: `expr.py`.
"""

from __future__ import annotations

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

UNIT = 2.0**-9  # the least positive number
GREATEST = 448.0
NO_NUMBER = 480.0  # what 0x7f and 0xff count as, which are no numbers: nobody writes them


def whole_number(bits: Expr) -> Expr:
    """The number, over `UNIT`, as int32; of bits that are none `NO_NUMBER` over it."""
    exponent = E.binary("bitand", E.binary("shr", bits, 3), 15)
    digits = E.binary("bitand", bits, 7) + E.minimum(exponent, 1) * 8
    size = E.binary("shl", digits, E.maximum(exponent - 1, 0))
    return E.select(bits < -1, -size, size)
