"""What TVM's `tir.stmt_functor` does with expressions: putting values in, visiting their nodes.

In: expressions of `te`.  Out: the same.  Read next: `ir/expr.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError, absent
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

__all__ = ["post_order_visit", "substitute"]


@door(ExpressionError, "tir.stmt_functor.substitute")
def substitute(node: Any, vmap: Mapping[Any, Any]) -> Expr:
    """`node` with values in the place of variables, which are the keys of `vmap`."""
    return E.substitute(E.convert(node), {E.convert(v): E.convert(x) for v, x in vmap.items()})


@door(ExpressionError, "tir.stmt_functor.post_order_visit")
def post_order_visit(stmt: Any, fvisit: Callable[..., Any]) -> None:
    """Calls `fvisit` with each node of an expression once, arguments before their users."""
    if not isinstance(stmt, Expr):
        raise ExpressionError(
            "tir.stmt_functor.post_order_visit", f"a {type(stmt).__name__} is no expression",
            "Print what lower(s, args) gives: its text shows loops, guards and buffers.",
        )  # fmt: skip
    for node in E.walk(stmt):
        fvisit(node)


__path__: list[str] = []  # so that imports of other names say what to use, too
_ELSEWHERE = dict.fromkeys(
    ("ir_transform", "pre_order_visit"), "lower(s, args) gives a Program, which prints as loops."
)


def __getattr__(name: str) -> Any:
    raise absent("tir.stmt_functor", name, _ELSEWHERE)
