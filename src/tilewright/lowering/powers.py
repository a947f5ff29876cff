"""Exponentials between two products of matrix instructions: by the unit for powers of two.

In: the value that a lane computes of sums that its warp holds.  Out: the same, in fewer
instructions.  Read next: `folds.py`, `fragments.py`.

rewrite:  exp(x)   ->   two_to(x * log2(e))
The product's rounding moves the result by |x| 2^-24 of itself.  What a softmax takes it of is not
above 0, where that is below 2^-25 of the largest term: less than any rounding to a half.
"""

from __future__ import annotations

import math

from tilewright.base.dtype import FLOAT32
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

LOG2_E = math.log2(math.e)


def in_powers_of_two(value: Expr) -> Expr:
    """`value` with powers of two in the place of exponentials of float32."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "call" or node.attr != "exp" or node.dtype is not FLOAT32:
            return None
        (power,) = node.args
        return E.call("two_to", in_powers_of_two(power) * LOG2_E)

    return E.transform(value, rule)
