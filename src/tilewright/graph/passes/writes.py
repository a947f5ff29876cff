"""Kernels that write to what they were given, such as caches: several of them are one.

In: a module of fused functions.  Out: an equal one in which writes that may be made at the same
time, of keys and values say, are results of one kernel.  Read next: `results.py`,
`../../network/in_place.py`, which finds the memory that they may share with an input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    post_order,
)
from tilewright.graph.layers import adopt, layers_of
from tilewright.graph.passes.attention import is_attention
from tilewright.graph.passes.common_subexpressions import eliminate_common
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.results import call_of, steps_of, values_of
from tilewright.graph.passes.views import made_by
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    substitute,
    users,
    with_body,
)

FEW = 16  # rows of queries that a kernel has for itself; see `topi/templates/attention_rows.py`
MOST = 32  # caches that a kernel writes
SMALL = 1 << 14  # elements of constants, such as positions, that are one where they are equal


def join_writes(mod: IRModule) -> IRModule:
    """Let kernels of one shape that choose between new elements and those of an input be one, where
    all that they read is there when the first of them runs.

    rewrite: k = where(here, a, keys); v = where(here, b, values); f(k, v)
       ->    t = where_where(here, a, keys, b, values); f(t.0, t.1)
    """
    return each_function(mod, lambda f: with_body(f, side_by_side(f.body, _together(f.body))))


def write_last(mod: IRModule, takes: Callable[[Call], bool]) -> IRModule:
    """Let attention of few rows read caches as they were, and choose what is new for itself; what
    nobody else reads is written when all is read, many caches by one kernel.

    takes: whether the device has a kernel for such an attention
    rewrite: k = where(here, a, keys); y = attention(q, k); (y, k)
       ->    y = where_attention(q, here, a, keys); (y, where(here, a, keys))
    """
    mod = eliminate_common(mod, lambda c: not is_view(c), SMALL)
    mod = each_function(mod, lambda f: with_body(f, _read_first(f.body, takes)))
    return each_function(mod, lambda f: with_body(f, _written_last(f.body)))


def _read_first(body: Expr, takes: Callable[[Call], bool]) -> Expr:
    new = dict[Expr, Expr]()

    def behind(value: Expr) -> list[Call]:
        """The calls from a write to what is a view of it."""
        calls: list[Call] = []
        while is_view(value) and isinstance(value, Call):
            calls.append(value)
            value = value.args[0]
        return [value, *calls[::-1]] if isinstance(value, Call) and _is_write(value) else []

    def visit(old: Expr, node: Expr) -> Expr:
        new[old] = node
        if isinstance(old, Call) and _has_few_rows(old):
            calls = dict.fromkeys(c for arg in old.args for c in behind(arg))
            made = _once(call_of([*calls, old], [old], new)) if calls else None
            if made is not None and takes(made):
                new[old] = made
        return new[old]

    return rewrite(body, visit)


def _once(call: Call) -> Call:
    """A kernel that works out once what several of its steps share, such as where something is."""
    assert isinstance(call.op, Function)
    (same,) = eliminate_common(IRModule({"main": call.op})).functions.values()
    made = Call(same, call.args)
    made.layers = layers_of(call)
    return made


def _written_last(body: Expr) -> Expr:
    instead = dict[Expr, Expr]()
    groups: dict[tuple[int, ...], list[list[Call]]] = {}
    for node in last_writes(body):
        if isinstance(node.checked_type, TensorType):
            own = groups.setdefault(node.shape, [[]])
            if len(own[-1]) == MOST:
                own.append([])
            own[-1].append(node)
    for calls in (calls for own in groups.values() for calls in own if len(calls) > 1):
        instead.update(zip(calls, values_of(call_of(calls, calls, {})), strict=True))
    return substitute(body, instead) if instead else body


def last_writes(body: Expr) -> list[Call]:
    """Give the kernels that write to inputs, of which nothing but the results is made."""
    readers = users(body)
    return [
        node
        for node in readers
        if isinstance(node, Call) and _is_write(node) and _is_result(node, body, readers)
    ]


def _is_result(value: Expr, body: Expr, readers: Mapping[Expr, Sequence[Expr]]) -> bool:
    """Whether nothing but the results of a function is made of a value."""
    parts = (isinstance(r, TupleGetItem) or is_view(r) for r in readers[value])
    return all(
        r is body or (part and _is_result(r, body, readers))
        for r, part in zip(readers[value], parts, strict=True)
    )


def _is_write(call: Call) -> bool:
    """Whether each of its results keeps elements of an input."""
    if isinstance(call.checked_type, TensorType):
        results: list[Expr] = [call]
    else:
        results = [TupleGetItem(call, k) for k in range(len(call.checked_type.fields))]
    kept = [kept_by(result) for result in results]
    return all(k is not None and isinstance(made_by(k), Var) for k in kept)


def _has_few_rows(call: Call) -> bool:
    """Whether it is an attention of few rows."""
    steps = steps_of(call)
    products = [s for s in steps if is_call(s, "nn.batch_matmul")]
    return is_attention([op_name(s) for s in steps]) and products[0].shape[-2] <= FEW


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
        if not isinstance(node, Call) or not isinstance(node.checked_type, TensorType):
            continue  # those that `write_last` has put together stay as they are
        kept = kept_by(node)
        if kept is None or not isinstance(made_by(kept), Var):
            continue
        for first, own in found.items():
            there = (is_there(a, position[first], position) for a in node.args)
            if first.shape == node.shape and all(there):
                own.append(node)
                break
        else:
            found[node] = [node]
    return found


def is_there(arg: Expr, step: int, position: Mapping[Expr, int]) -> bool:
    """Whether a value, or what it is a view of, is there before a step."""
    if isinstance(arg, (Var, Constant)) or position[arg] < step:
        return True
    part = is_view(arg) or is_call(arg, "strided_slice")
    return part and isinstance(arg, Call) and all(is_there(a, step, position) for a in arg.args)
