"""Several expressions as one: the body of a stage that gives several tensors.

In: expressions.  Out: one `tuple` expression, which substitutes, transforms and walks like any
other, and its parts.  It is a root, or what a reduction at a root reduces.  Read next: `expr.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.dtype import INT32
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr


def together(values: Sequence[Expr]) -> Expr:
    """One expression for the values of a stage: the value itself where there is one.  The type of
    several says nothing: theirs may differ."""
    return values[0] if len(values) == 1 else E.make("tuple", tuple(values), None, INT32)


def parts(node: Expr) -> tuple[Expr, ...]:
    """What `together` put together."""
    return node.args if node.op == "tuple" else (node,)
