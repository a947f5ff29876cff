"""`relay.expr`: the kinds of node of a graph, where TVM has them.

Read next: `graph/expr.py`.
"""

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import Constant, Expr, GlobalVar, Tuple, TupleGetItem, Var
from tilewright.graph.leaves import const, var
from tilewright_tvm.relay.functional.nodes import Call, Function, RefCreate, RefRead, RefWrite
from tilewright_tvm.relay.functional.scope import If, Let, bind
from tilewright_tvm.relay.text.whole import Annotate, astext

RelayExpr = Expr


class TupleWrapper(Sequence[Expr]):
    """The first `size` values of a tuple, as a list of them.  Operators with several results give
    the tuple itself, which counts and indexes just so."""

    @door(ModelError)
    def __init__(self, tuple_value: Expr, size: int) -> None:
        if not 0 <= size <= len(tuple_value):
            raise ModelError(
                f"TupleWrapper(size={size})", f"the tuple has {len(tuple_value)} values",
                "Leave the wrapper out: x[0], x[1], ... are the values of a tuple.",
            )  # fmt: skip
        self.tuple_value, self.size = tuple_value, size

    def astuple(self) -> Expr:
        return self.tuple_value

    def astext(self, show_meta_data: bool = True, annotate: Annotate | None = None) -> str:
        return astext(self.tuple_value, show_meta_data, annotate)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: Any) -> Any:
        return [self.tuple_value[k] for k in range(self.size)][index]


__all__ = [
    "Call", "Constant", "Expr", "Function", "GlobalVar", "If", "Let", "RefCreate", "RefRead",
    "RefWrite", "RelayExpr", "Tuple", "TupleGetItem", "TupleWrapper", "Var",
    "bind", "const", "var",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    raise absent("relay.expr", name, {"Match": "Use relay.Match."})
