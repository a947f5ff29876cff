"""Kernels with several results: what is made of a kernel's result element by element joins it.

In: a module of fused functions.  Out: an equal one with fewer; a function that gives several values
gives a tuple, of which main reads each once.  Read next: `fuse.py`.

A value that several groups read ends its group, so `s = add(conv, x)` and `relu(s * a + b)` are two
kernels where `s` is read again, as in residual networks whose norms come first.  The second reads
from memory what the first has just had in registers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
from tilewright.graph.layers import adopt, joined, layers_of
from tilewright.graph.op import TABLE, Pattern
from tilewright.graph.op import call as make_call
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.fuse import JOINS, Group, norms_rows
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    substitute,
    users,
    with_body,
)


def join_readers(mod: IRModule) -> IRModule:
    """Let elementwise kernels join the one whose result they read, where all else that they read
    is there when that runs.

    rewrite: s = conv_add(x, r); y = add_relu(s, b); f(s, y)
       ->    t = conv_add_add_relu(x, r, b); f(t.0, t.1)
    """
    return each_function(mod, lambda f: with_body(f, _joined(f.body)))


def norms_beside(mod: IRModule) -> IRModule:
    """Let a norm of the rows of a product that others read as well join its kernel, where all else
    that the norm reads is there when that runs.

    rewrite: s = dense_add(x, r); y = standardize_add(view(s), b); f(s, y)
       ->    t = dense_add_standardize_add(x, r, b); f(view(t.0), t.1)
    """
    return each_function(mod, lambda f: with_body(f, _beside(f.body)))


def _beside(body: Expr) -> Expr:
    nodes = post_order(body)
    readers, position = users(body), {node: k for k, node in enumerate(nodes)}
    found: dict[Expr, list[Call]] = {}
    for first in nodes:
        own = _normed(first, readers) if isinstance(first, Call) and steps_of(first) else []
        early = (
            a in own or isinstance(a, (Var, Constant)) or position[a] < position[first]
            for a in (own[-1].args if own else ())
        )
        if own and all(early):
            found[first] = own
    if not found:
        return body
    new: dict[Expr, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        if old in new:
            return new[old]
        new[old] = node
        own = found.get(old)
        if own is not None:
            rows, norm = own[-2], own[-1]  # the product itself, or a view of it
            call = call_of(own, [rows, norm], new)
            new[rows], new[norm] = TupleGetItem(call, 0), TupleGetItem(call, 1)
            if rows is not old:
                new[old] = make_call("reshape", new[rows], newshape=old.shape)
        return new[old]

    return rewrite(body, visit)


def _normed(product: Call, readers: Mapping[Expr, Sequence[Expr]]) -> list[Call]:
    """The product, perhaps a view of it, and the norm of its rows, if something else reads it."""
    for reader in readers[product]:
        through = [reader] if is_view(reader) and isinstance(reader, Call) else []
        ends = readers[reader] if through else [reader]
        others = len(readers[product]) > 1 or len(ends) > 1
        for norm in ends if others else ():
            steps = steps_of(norm)
            if isinstance(norm, Call) and steps and norms_rows(steps, steps_of(product)):
                return [product, *through, norm]
    return []


def _joined(body: Expr) -> Expr:
    together, new = _together(body), dict[Expr, Expr]()
    if not together:
        return body
    readers = users(body)

    def visit(old: Expr, node: Expr) -> Expr:
        if old in new:  # it joined an earlier one
            return new[old]
        new[old] = node
        own = together.get(old)
        if own is not None:
            results = [c for c in own if c is body or not set(own).issuperset(readers[c])]
            call = call_of(own, results, new)
            new.update(zip(results, values_of(call), strict=True))
        return new[old]

    return rewrite(body, visit)


def values_of(call: Call) -> list[Expr]:
    """Give the results of a call of a group."""
    if isinstance(call.checked_type, TensorType):
        return [call]
    return [TupleGetItem(call, k) for k in range(len(call.checked_type.fields))]


def _together(body: Expr) -> dict[Expr, list[Call]]:
    """The groups that become one, by the first of them, in order."""
    nodes = post_order(body)
    readers, position = users(body), {node: k for k, node in enumerate(nodes)}
    found: dict[Expr, list[Call]] = {}
    taken: set[Expr] = set()
    for first in nodes:
        if first in taken or not isinstance(first, Call) or not _may_lead(first):
            continue
        own = [first]
        for call in own:
            for reader in sorted(readers[call], key=position.__getitem__):
                if reader in own or reader in taken or not _may_join(reader, first):
                    continue
                assert isinstance(reader, Call)
                early = (
                    a in own or isinstance(a, (Var, Constant)) or position[a] < position[first]
                    for a in reader.args
                )
                if all(early) and is_one_kernel([*own, reader]):
                    own.append(reader)
        if len(own) > 1:
            found[first] = own
            taken.update(own)
    return found


def _may_lead(call: Call) -> bool:
    steps = steps_of(call)
    anchor = max((TABLE[op_name(s)].pattern for s in steps), default=Pattern.OPAQUE)
    return (anchor in JOINS or anchor == Pattern.ANCHOR) and not _may_be_in_place(call)


def _may_join(reader: Expr, first: Call) -> bool:
    steps = steps_of(reader)
    return (
        bool(steps)
        and not _may_be_in_place(reader)
        and all(TABLE[op_name(s)].pattern in JOINS and s.shape == first.shape for s in steps)
    )


def _may_be_in_place(call: Expr) -> bool:
    """Whether it gives elements of what it reads or others, which may be written where it reads."""
    assert isinstance(call, Call) and isinstance(call.op, Function)
    return is_call(call.op.body, "where")


def steps_of(call: Expr) -> list[Call]:
    """The operators of a group with one result; of anything else none."""
    if not isinstance(call, Call) or not isinstance(call.op, Function):
        return []
    if not isinstance(call.checked_type, TensorType):
        return []
    return [n for n in post_order(call.op.body) if isinstance(n, Call)]


def is_one_kernel(calls: Sequence[Call]) -> bool:
    """Whether calls of groups, in order, are not too much for one; see `fuse.py`."""
    body = _body_of(calls, {}, {})[calls[-1]]
    first, *rest = (n for n in post_order(body) if isinstance(n, Call))
    return Group([first], TABLE[op_name(first)].pattern, {first: 1}).with_steps(rest) is not None


def _body_of(
    calls: Sequence[Call], outside: Mapping[Expr, Expr], params: dict[Expr, Var]
) -> dict[Expr, Expr]:
    """What each call computes, in one function.

    outside: what the values that they read have become; params: takes the parameter of each
    """
    inside: dict[Expr, Expr] = {}
    for call in calls:
        if not isinstance(call.op, Function):  # a view of one of them
            view = Call(call.op, [inside[a] for a in call.args], call.attrs)
            inside[call] = adopt(view, layers_of(call))
            continue
        given: dict[Expr, Expr] = {}
        for own, arg in zip(call.op.params, call.args, strict=True):
            value = outside.get(arg, arg)
            if arg not in inside and value not in params:
                params[value] = Var(f"p{len(params)}", own.checked_type)
            given[own] = inside[arg] if arg in inside else params[value]
        inside[call] = substitute(call.op.body, given)
    return inside


def call_of(calls: Sequence[Call], results: Sequence[Call], outside: Mapping[Expr, Expr]) -> Call:
    """Give the call of one function that computes `results`.

    calls: of groups, and views between them, in order; outside: what the values that they read have
    become
    """
    params: dict[Expr, Var] = {}
    inside = _body_of(calls, outside, params)
    values = [inside[r] for r in results]
    names = [c.op.attrs["name"].removeprefix("fused_") for c in calls if isinstance(c.op, Function)]
    attrs = {"name": "_".join(["fused", *names])}
    body = values[0] if len(values) == 1 else Tuple(values)
    made = Call(Function(list(params.values()), body, attrs=attrs), list(params))
    made.layers = joined(map(layers_of, calls))
    return made
