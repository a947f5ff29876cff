"""Operators become what users' functions make of them; casts belong to their readers.

In: a module, and an attribute of operators that holds functions (`../op/registered.py`).  Out: a
module of the same types.  Read next: `layouts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.doors import check_arguments
from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import Call, Expr, IRModule
from tilewright.relay.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
    with_children,
)
from tilewright.relay.op.registered import attribute


def legalize(mod: IRModule, key: str) -> IRModule:
    """Each call becomes what `f(attrs, inputs, types)` gives, where its operator has a function of
    that name; types: of the inputs and of the result.  None: it stays.

    Raises ModelError for a result that is no value of the graph, or of another type.
    """
    return _replaced(mod, key, lambda n: (n.attrs, [*n.args], [*_types(n), n.checked_type]))


def alter_layouts(mod: IRModule, key: str) -> IRModule:
    """`legalize` with functions `f(attrs, inputs, types, result_type)`."""
    return _replaced(mod, key, lambda n: (n.attrs, [*n.args], _types(n), n.checked_type))


def _types(node: Call) -> list[Any]:
    return [a.checked_type for a in node.args]


def _replaced(mod: IRModule, key: str, given: Callable[[Call], tuple[Any, ...]]) -> IRModule:
    def visit(old: Expr, node: Expr) -> Expr:
        function = attribute(op_name(node), key) if op_name(node) else None
        if function is None or not isinstance(node, Call):
            return node
        place = f"{key} of {op_name(node)}"
        arguments = given(node)
        check_arguments(function, arguments, place, ModelError)
        made = function(*arguments)
        if made is None:
            return node
        if not isinstance(made, Expr):
            raise ModelError(
                place, f"the function gave a {type(made).__name__}",
                "Return a value of relay, or None to leave the call as it is.",
            )  # fmt: skip
        if made.checked_type != node.checked_type:
            raise ModelError(
                place, f"the function gave {made.checked_type} for {node.checked_type}",
                "Transform the result back with relay.layout_transform, or use ConvertLayout.",
            )  # fmt: skip
        return made

    return each_function(mod, lambda f: with_body(f, rewrite(f.body, visit)))


def canonicalize_casts(mod: IRModule) -> IRModule:
    """A cast to a wider type that several values read becomes one for each of them, so that it can
    join each reader's kernel and the narrow value is what goes through memory.

    y = cast(x); y + a, y + b  ->  cast(x) + a, cast(x) + b
    """

    def change(body: Expr) -> Expr:
        readers = users(body)
        first: dict[Expr, Expr] = {}

        def visit(old: Expr, node: Expr) -> Expr:
            if not isinstance(old, Call) or not isinstance(node, Call):
                return node
            parts = []
            for was, now in zip(old.args, node.args, strict=True):
                widens = is_call(was, "cast") and was.dtype.bits > was.args[0].dtype.bits  # type: ignore[attr-defined]
                if widens and isinstance(now, Call) and len(readers[was]) > 1:
                    mine = first.setdefault(was, old) is old
                    now = now if mine else Call(now.op, now.args, now.attrs)
                parts.append(now)
            return with_children(node, tuple(parts))

        return rewrite(body, visit)

    return each_function(mod, lambda f: with_body(f, change(f.body)))
