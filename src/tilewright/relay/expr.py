"""`relay.expr`: the kinds of node of a graph, where TVM has them.

Read next: `graph/expr.py`.
"""

from typing import Any

from tilewright.base.errors import absent
from tilewright.relay.graph.expr import (
    Call,
    Constant,
    Expr,
    GlobalVar,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from tilewright.relay.graph.scope import Let, bind

RelayExpr = Expr
__all__ = [
    "Call", "Constant", "Expr", "GlobalVar", "Let", "RelayExpr", "Tuple", "TupleGetItem", "Var",
    "bind", "const", "var",
]  # fmt: skip

_ELSEWHERE = dict.fromkeys(("If", "Match"), "Use relay.where, which computes both sides.") | {
    "TupleWrapper": "Operators with several results give a tuple; its parts are x[0], x[1], ..."
}


def __getattr__(name: str) -> Any:
    raise absent("relay.expr", name, _ELSEWHERE)
