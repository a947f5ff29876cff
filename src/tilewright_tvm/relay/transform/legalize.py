"""Operators become what users' functions make of them; casts belong to their readers.

In: a module, and an attribute of operators that holds functions (`../op_attributes.py`).  Out: a
module of the same types.  Read next: `graph/passes/layouts.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.doors import check_arguments
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr, IRModule, Var, post_order
from tilewright.graph.functions.layout import in_layout
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    substitute,
    users,
    with_body,
    with_children,
)
from tilewright_tvm.relay.functional.untyped import infer
from tilewright_tvm.relay.op_attributes import attribute


def legalize(mod: IRModule, key: str) -> IRModule:
    """Each call becomes what `f(attrs, inputs, types)` gives, where its operator has a function of
    that name; types: of the inputs and of the result.  None: it stays.

    Raises ModelError for a result that is no value of the graph, or of another type.
    """
    return _replaced(mod, key, lambda n: (n.attrs, [*n.args], [*_types(n), n.checked_type]))


def alter_layouts(mod: IRModule, key: str) -> IRModule:
    """`legalize` with functions `f(attrs, inputs, types, result_type)`, which may call the operator
    in other layouts: inputs are then brought into these, and the result back.
    """
    return _replaced(
        mod, key, lambda n: (n.attrs, [*n.args], _types(n), n.checked_type), _in_other_layouts
    )


def _in_other_layouts(node: Call, function: Callable[..., Any]) -> Expr | None:
    """What `function` makes of inputs in the layouts that it asks for; None where it asks for none.

    It is called with variables without a type, so the layouts are read from the call that it makes.
    """
    inputs: list[Expr] = [Var(f"input_{k}") for k in range(len(node.args))]
    made = function(node.attrs, list(inputs), _types(node), node.checked_type)
    calls = [n for n in post_order(made) if isinstance(n, Call) and n.op is node.op]
    if len(calls) != 1:
        return None
    asked = calls[0].attrs
    there: dict[Expr, Expr] = {}
    for name, key in (("data", "data_layout"), ("weight", "kernel_layout"), ("data", "layout")):
        if key in asked and name in node.op.inputs:  # type: ignore[union-attr]
            k = node.op.inputs.index(name)  # type: ignore[union-attr]
            there[inputs[k]] = in_layout(node.args[k], node.attrs[key], asked[key])
    there |= {v: a for v, a in zip(inputs, node.args, strict=True) if v not in there}
    result = infer(substitute(made, there))
    key = "data_layout" if "data_layout" in asked else "layout"
    return in_layout(result, asked.get("out_layout") or asked[key], node.attrs[key])


def _types(node: Call) -> list[Any]:
    return [a.checked_type for a in node.args]


_LAYOUTS = ("data_layout", "kernel_layout", "layout")


def _misread(node: Call, made: Expr) -> bool:
    """Whether `made` calls the operator on the same inputs as if they had other layouts."""
    return any(
        isinstance(n, Call) and n.op is node.op and set(n.args) & set(node.args)
        and any(n.attrs.get(k) != node.attrs.get(k) for k in _LAYOUTS)
        for n in post_order(made)
        if n is not node
    )  # fmt: skip


def _replaced(
    mod: IRModule,
    key: str,
    given: Callable[[Call], tuple[Any, ...]],
    otherwise: Callable[[Call, Callable[..., Any]], Expr | None] = lambda node, function: None,
) -> IRModule:
    """otherwise: what is tried where the function fails, or gives a value of another type"""

    def visit(old: Expr, node: Expr) -> Expr:
        function = attribute(op_name(node), key) if op_name(node) else None
        if function is None or not isinstance(node, Call):
            return node
        place = f"{key} of {op_name(node)}"
        arguments = given(node)
        check_arguments(function, arguments, place, ModelError)
        try:
            made = function(*arguments)
        except ModelError:
            made = otherwise(node, function)
            if made is None:
                raise
        if made is None:
            return node
        if not isinstance(made, Expr):
            raise ModelError(
                place, f"the function gave a {type(made).__name__}",
                "Return a value of relay, or None to leave the call as it is.",
            )  # fmt: skip
        if made.checked_type != node.checked_type or _misread(node, made):
            made = otherwise(node, function) or made
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
