"""Terms of sums that depend on a maximum as exp(x - maximum) does.

In: an expression, which tensors are the maximum.  Out: whether it is proportional to exp(-maximum):
exp(x - m), such a term times or over what does not depend on m, converted, or zero.  A sum of such
terms is, and times exp(m - m') it is the sum that m' would have given.
Read next: `tree/running.py`, `steps/pieces.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor


def proportional(
    term: Expr, largest: Collection[Tensor], passed: Mapping[Tensor, Expr] | None = None
) -> bool:
    """Whether a term is proportional to exp(-largest).

    passed: what stages compute that it reads, and that may depend on it themselves
    """
    bodies = passed or {}

    def depends(e: Expr) -> bool:
        return any(n.op == "read" and (n.attr in largest or n.attr in bodies) for n in E.walk(e))

    def is_largest(e: Expr) -> bool:
        while e.op == "cast":
            (e,) = e.args
        return e.op == "read" and e.attr in largest

    def follows(e: Expr) -> bool:
        if e.op == "const":
            return not e.attr
        if e.op == "cast":
            return follows(e.args[0])
        if e.op == "read":
            return e.attr in bodies and follows(bodies[e.attr])
        if e.op in ("if_then_else", "select"):
            return not depends(e.args[0]) and all(map(follows, e.args[1:]))
        if e.op == "mul":
            one, other = e.args
            return (follows(one) and not depends(other)) or (follows(other) and not depends(one))
        if e.op == "div":
            return follows(e.args[0]) and not depends(e.args[1])
        if e.op == "call" and e.attr == "exp":
            (power,) = e.args
            plain = power.op == "sub" and is_largest(power.args[1])
            return plain and not depends(power.args[0])
        return False

    return follows(term)
