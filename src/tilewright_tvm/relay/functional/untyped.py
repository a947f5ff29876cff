"""Graphs over variables that have no type yet, and the types that they get.

In: functions of variables made by `relay.var("x")`.  Out: calls whose types wait; the same function
with the types that its operators and its callers tell.  Operators that must see shapes to be made
are `OpenCall`s until then.
Read next: `later.py` (functions that are called again), `graph/expr.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import HOW_TO_TYPE, untyped
from tilewright.graph.expr import (
    Call,
    Expr,
    Function,
    Tuple,
    TupleGetItem,
    Type,
    Var,
    post_order,
)
from tilewright.graph.leaves import const
from tilewright.graph.traversal import rewrite, substitute, twin


class OpenCall(Call):
    """An operator of values without types: `function` is called again as soon as types are known.

    attrs: what the user gave by the operator's names, and its defaults
    """

    __slots__ = ("again",)

    def __init__(
        self, op: Any, args: Sequence[Expr], attrs: Mapping[str, Any], again: Callable[..., Expr]
    ) -> None:
        super().__init__(op, args, attrs)
        self.again = again

    def with_parts(self, parts: Sequence[Expr]) -> Expr:
        return self.again(*parts)

    @property
    def usual(self) -> Mapping[str, Any]:
        return {} if isinstance(self.op, Function) else self.op.attrs


def open_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> OpenCall | None:
    """What stands for `function(*args, **kwargs)` where it is an operator of the table."""
    from tilewright.graph.op import TABLE

    names = (getattr(function, "door_name", "").removeprefix("relay."), function.__name__)
    op = next((TABLE[n] for n in names if n in TABLE), None)
    if op is None:
        return None
    given = inspect.signature(function).bind(*args, **kwargs)
    given.apply_defaults()
    bound = {k: v for k, v in given.arguments.items() if not isinstance(v, dict)}
    for values in (v for v in given.arguments.values() if isinstance(v, dict)):
        bound |= values
    read = [n for n, k in zip(bound, range(len(op.inputs)), strict=False) if bound[n] is not None]
    if len(read) < len(op.inputs) or any(isinstance(v, Expr) for v in _others(bound, read)):
        return None
    read_values = [_value(bound[n]) for n in read]

    def again(*parts: Expr) -> Expr:
        made: Expr = function(**{**bound, **dict(zip(read, parts, strict=True))})
        return made

    return OpenCall(op, read_values, {k: v for k, v in bound.items() if k not in read}, again)


def typed(function: Function) -> Function:
    """`function` with the types that its operators tell its variables, and callers the functions
    that they call.

    Raises ModelError that names the variables without one.
    """
    if not function.waits or not _has_open(function):
        return function
    body = infer(function.body)
    made = function.with_body(body)
    if names := untyped(made):
        reason = "its shape is not known" if len(names) == 1 else "their shapes are not known"
        raise ModelError(f"%{', %'.join(names)}", reason, HOW_TO_TYPE)
    return made


def has_untyped(function: Function) -> bool:
    """Whether there are variables to which nothing tells a type."""
    return bool(untyped(function)) and bool(untyped(function.with_body(infer(function.body))))


def infer(body: Expr) -> Expr:
    """`body`, made as far as types are known."""
    left = _open_count(body)
    while left:
        body = _again(body)
        now = _open_count(body)
        if now >= left:
            break
        left = now
    return body


def _again(body: Expr) -> Expr:
    def visit(old: Expr, node: Expr) -> Expr:
        if not node.waits or not isinstance(node, Call):
            return with_types(node) if node.waits else node
        if not isinstance(node.op, Function):
            return node.with_parts(node.args)
        if any(a.waits for a in node.args):
            return node
        return Call(specialised(node.op, [a.checked_type for a in node.args]), node.args)

    return rewrite(body, visit)


def with_types(node: Expr) -> Expr:
    """A tuple, or a value of one, made again."""
    return twin(node) if isinstance(node, (Tuple, TupleGetItem)) else node


def specialised(function: Function, types: Sequence[Type]) -> Function:
    """`function` of parameters that have these types where they had none."""
    if len(types) != len(function.params) or not function.waits:
        return function
    params = [
        p if p.is_typed else Var(p.name_hint, t)
        for p, t in zip(function.params, types, strict=True)
    ]
    there: dict[Expr, Expr] = dict(zip(function.params, params, strict=True))
    return Function(params, infer(substitute(function.body, there)), attrs=function.attrs)


def _has_open(function: Function) -> bool:
    return bool(untyped(function)) or any(isinstance(n, OpenCall) or _calls_open(n)
                                          for n in post_order(function.body))  # fmt: skip


def _calls_open(node: Expr) -> bool:
    return isinstance(node, Call) and isinstance(node.op, Function) and node.op.waits


def _open_count(body: Expr) -> int:
    return sum(n.waits for n in post_order(body))


def _value(given: Any) -> Expr:
    if isinstance(given, Expr):
        return given
    if isinstance(given, (list, tuple)) and any(isinstance(v, Expr) for v in given):
        return Tuple([_value(v) for v in given])
    return const(given)


def _others(bound: Mapping[str, Any], read: Sequence[str]) -> list[Any]:
    return [v for k, v in bound.items() if k not in read]
