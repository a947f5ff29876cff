"""Kernels that write to what they were given, such as caches: several of them are one.

In: a module of fused functions.  Out: an equal one in which writes that may be made at the same
time, of keys and values say, are results of one kernel.  Read next: `results.py`,
`../../network/in_place.py`, which finds the memory that they may share with an input.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    TupleGetItem,
    Var,
    post_order,
)
from tilewright.graph.layers import adopt, layers_of
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.results import call_of, values_of
from tilewright.graph.passes.views import made_by
from tilewright.graph.traversal import each_function, is_call, rewrite, with_body


def join_writes(mod: IRModule) -> IRModule:
    """Let kernels of one shape that choose between new elements and those of an input be one, where
    all that they read is there when the first of them runs.

    rewrite: k = where(here, a, keys); v = where(here, b, values); f(k, v)
       ->    t = where_where(here, a, keys, b, values); f(t.0, t.1)
    """
    return each_function(mod, lambda f: with_body(f, side_by_side(f.body, _together(f.body))))


def kept_by(value: Expr) -> Expr | None:
    """Give the argument of a kernel of which a result of it keeps elements, each at its place, and
    which it reads for nothing else; None where there is none."""
    call, number = value, 0
    if isinstance(value, TupleGetItem):
        call, number = value.tuple_value, value.index
    if not isinstance(call, Call) or not isinstance(call.op, Function):
        return None
    whole, params = call.op.body, list(call.op.params)
    body = whole.fields[number] if isinstance(whole, Tuple) else whole
    if not is_call(body, "where") or not isinstance(body, Call):
        return None
    inside = post_order(whole)
    for side in body.args[1:]:
        reads = sum(_arguments(n).count(side) for n in inside)
        if isinstance(side, Var) and side in params and reads == 1 and side.shape == body.shape:
            return call.args[params.index(side)]
    return None


def _arguments(node: Expr) -> list[Expr]:
    if isinstance(node, Tuple):
        return list(node.fields)
    return list(node.args) if isinstance(node, Call) else []


def side_by_side(body: Expr, groups: Mapping[Expr, list[Call]]) -> Expr:
    """Give `body` with some calls as results of one, which runs where the first of them does.

    groups: by their first calls; what the others read is there then, or a view of what is
    """
    together = {first: own for first, own in groups.items() if len(own) > 1}
    new = dict[Expr, Expr]()

    def moved(arg: Expr) -> Expr:
        """A view that comes later, of what is there."""
        if arg not in new and isinstance(arg, Call):
            new[arg] = adopt(Call(arg.op, [moved(a) for a in arg.args], arg.attrs), layers_of(arg))
        return new.get(arg, arg)

    def visit(old: Expr, node: Expr) -> Expr:
        if old in new:
            return new[old]
        new[old] = node
        if old in together:
            own = together[old]
            for call in own[1:]:
                for arg in call.args:
                    moved(arg)
            new.update(zip(own, values_of(call_of(own, own, new)), strict=True))
        return new[old]

    return rewrite(body, visit) if together else body


def _together(body: Expr) -> dict[Expr, list[Call]]:
    """Writes that become one kernel, by the first of them."""
    nodes = post_order(body)
    position = {node: k for k, node in enumerate(nodes)}
    found: dict[Expr, list[Call]] = {}
    for node in nodes:
        kept = kept_by(node)
        if not isinstance(node, Call) or kept is None or not isinstance(made_by(kept), Var):
            continue
        for first, own in found.items():
            there = (_is_there(a, position[first], position) for a in node.args)
            if first.shape == node.shape and all(there):
                own.append(node)
                break
        else:
            found[node] = [node]
    return found


def _is_there(arg: Expr, step: int, position: Mapping[Expr, int]) -> bool:
    """Whether a value, or what it is a view of, is there before a step."""
    if isinstance(arg, (Var, Constant)) or position[arg] < step:
        return True
    part = is_view(arg) or is_call(arg, "strided_slice")
    return part and isinstance(arg, Call) and all(_is_there(a, step, position) for a in arg.args)
