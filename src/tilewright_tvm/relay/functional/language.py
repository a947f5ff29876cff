"""What functional Relay adds to the nodes of networks.

In: nodes.  Out: the answers of `graph/extension.py`, by the modules that know; TVM's names on
nodes. Read next: `nodes.py`, `later.py`, `partial.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.graph.answers import Networks
from tilewright.graph.deferred import Deferred
from tilewright.graph.expr import Call, Expr, Function, IRModule, Tuple
from tilewright.graph.extension import Writer
from tilewright.graph.op import Op
from tilewright_tvm.relay.functional.calls import tensors_only
from tilewright_tvm.relay.functional.definitions import OF_MODULES, add
from tilewright_tvm.relay.functional.equality import add_rules
from tilewright_tvm.relay.functional.infer import inferred_type
from tilewright_tvm.relay.functional.later import made_now_or_later
from tilewright_tvm.relay.functional.nodes import GeneralFunction, called, is_functional
from tilewright_tvm.relay.functional.partial import told
from tilewright_tvm.relay.functional.text import Blocks
from tilewright_tvm.relay.functional.untyped import infer, typed
from tilewright_tvm.relay.op_attributes import OF_ROWS
from tilewright_tvm.relay.text.whole import astext


class Relay(Networks):
    """Functions as values, data types, references; functions of graph values that are called again
    when it is known what they need."""

    def __init__(self) -> None:
        add_rules()
        for kind, names in _NAMES.items():
            for name, value in names.items():
                setattr(kind, name, value)

    def called(self, function: Any, args: Sequence[Any]) -> Expr | None:
        return called(function, args)

    def type_of(self, node: Expr, partly: bool) -> Any:
        known = inferred(node)
        return told(node) if known is None and partly else known

    def reason(self, node: Expr) -> str:
        if not is_functional(node):
            return ""
        return "what it is made of holds functions, data types or references"

    def typed(self, graph: Any) -> Any:
        return typed(graph) if isinstance(graph, Function) else infer(graph)

    def network(self, mod: IRModule, place: str) -> IRModule:
        return tensors_only(mod, place)

    def operation(self, operator: str, lhs: Any, rhs: Any) -> Expr:
        def apply(lhs: Any, rhs: Any) -> Expr:
            return super(Relay, self).operation(operator, lhs, rhs)

        apply.__name__ = operator
        made: Expr = made_now_or_later(apply, (lhs, rhs), {}, lambda: apply(lhs, rhs))
        return made

    def writer(self, printer: Any, node: Expr) -> Writer | None:
        general = isinstance(node, GeneralFunction)
        if not (general if isinstance(node, Function) else is_functional(node)):
            return None
        return Blocks(printer.call, printer.deferred, printer.leaf, printer.called, printer.is_key)


def inferred(node: Expr) -> Any:
    """The type of a node that waits, where it follows from what functional nodes of it tell; None
    where it does not."""
    return inferred_type(node) if is_functional(node) or isinstance(node, Function) else None


# -- names that TVM has on nodes
_NAMES: dict[type, dict[str, Any]] = {
    Expr: {
        "astext": astext,
        "astuple": lambda self: self,  # what TVM needs for operators with several results
        "span": None,  # where in a source text it was written, which is not kept
    },
    Tuple: {"tuple_value": property(lambda self: self)},
    Deferred: {"tuple_value": property(lambda self: self)},
    Op: OF_ROWS,
    Function: {"type_params": (), "told_ret_type": None},
    Call: {"type_args": ()},  # types are inferred
    IRModule: {"_add": add, "astext": astext, **OF_MODULES},
}
