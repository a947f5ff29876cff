"""Floats of eight bits, e4m3, as whole numbers: what expressions and printers know of them.

In: the bits, an int32 with the sign of the byte.  Out: the number in units of the least one.
Read next: `expr.py`.
"""

from __future__ import annotations

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

UNIT = 2.0**-9  # the least positive number
GREATEST = 448.0


def whole_number(bits: Expr) -> Expr:
    """The number, over `UNIT`, as int32; bits of no number (0x7f, 0xff) are 480 over it."""
    exponent = E.binary("bitand", E.binary("shr", bits, 3), 15)
    digits = E.binary("bitand", bits, 7) + E.minimum(exponent, 1) * 8
    size = E.binary("shl", digits, E.maximum(exponent - 1, 0))
    return E.select(bits < 0, -size, size)
