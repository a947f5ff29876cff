"""Fusion: which operators share a kernel.

In: a module of plain calls.  Out: an equal module whose main calls fused functions, one per
kernel; views, and what `views.py` finds, stay outside, they cost nothing.  Read next:
`printer.py` for how it looks, `views.py`.

A group is one anchor (or reduction) and the elementwise steps behind it, or elementwise and moving
steps alone.  It has one result, the value of its last step.  No step is computed twice: a value
read by several groups ends its group, whatever came before it in that group stays inside.  This is
TVM's partition, except that elementwise steps in front of an anchor or reduction stay outside, but
for conversions to wider floats in front of a reduction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.graph.counts import counted
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    Var,
    children,
    post_order,
)
from tilewright.graph.layers import adopt, joined, layers_of
from tilewright.graph.op import TABLE, Pattern
from tilewright.graph.passes.attention import attentions
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.passes.grouped_heads import spread_heads
from tilewright.graph.passes.indices import is_few, is_whole
from tilewright.graph.passes.norms import widens
from tilewright.graph.passes.pairs import FEW
from tilewright.graph.passes.views import memory_views
from tilewright.graph.traversal import (
    each_function,
    is_call,
    op_name,
    rewrite,
    users,
    with_body,
)
from tilewright.schedule.rows_behind import is_row

JOINS = (Pattern.ELEMENTWISE, Pattern.BROADCAST)
MOVES = ("transpose", "strided_slice")
ROWS = ("nn.dense", "nn.dense_narrow")  # whose kernels norm few rows and join gates

# Operators of one kernel.  They become one expression, and what walks expressions goes as deep as
# they are: up to 25 calls for each operator, of the thousand that Python allows.  The longest
# groups of networks in use have about ten; at the cut one value goes through memory, which is
# little beside the arithmetic of so many operators.
LONGEST = 24
# Operators in the text of that expression, where each value is written out for each of its readers:
# it may double with every operator.
LARGEST = 256


@dataclass(eq=False)
class Group:
    """Steps that become one kernel, in order; the last one is the result.

    anchor: the greatest pattern among them
    sizes:  of each step, how many operators its expression has when it is written out
    """

    steps: list[Call]
    anchor: Pattern
    sizes: dict[Expr, int]

    @property
    def result(self) -> Call:
        return self.steps[-1]

    def with_steps(self, more: Sequence[Call]) -> Group | None:
        """Give the group with `more` behind it; None where that is too much for one kernel."""
        sizes = dict(self.sizes)
        for step in more:
            op = TABLE[op_name(step)]
            sizes[step] = 1 + op.reads * sum(sizes.get(a, 0) for a in _operands(step))
        if len(self.steps) + len(more) > LONGEST or sizes[more[-1]] > LARGEST:
            return None
        anchor = max(self.anchor, *(TABLE[op_name(n)].pattern for n in more))
        return Group([*self.steps, *more], anchor, sizes)


def fuse(mod: IRModule) -> IRModule:
    """Put each group of operators into a function of its own.

    conv2d -> add -> relu                  one group: an anchor takes the elementwise steps after it
    add(conv_a, conv_b)                    joins conv_a, the result of conv_b is an input
    s = add(conv, x); f(s), conv(s)        s ends the group of conv: it is read twice
    s = add(conv, x); s * sigmoid(s)       one group: all that reads s meets again
    y = dense; y[:, ::2] * y[:, 1::2]      one group
    exp -> transpose -> add                one group without an anchor
    concatenate(exp(x), slice(y))          one group: each element is computed once
    exp(x) * sigmoid(y)                    one group: neither of its two chains has an anchor
    exp -> slice                           one group, which computes what is kept
    take(table, indices) -> add            one group, also where `indices` are computed
    more than LONGEST operators            several groups; also where the text would be too large
    softmax                                a group of its own
    standardize(cast(x))                   one group, if the cast loses nothing and is read once
    """
    return each_function(mod, lambda f: with_body(f, _fused(f.body)))


def fuse_norms(mod: IRModule) -> IRModule:
    """Do `fuse` with norms of few rows in the groups of the products that alone read them."""
    return each_function(mod, lambda f: with_body(f, _fused(f.body, norms=True)))


def fuse_attention(mod: IRModule, norms: bool = False, behind: bool = False) -> IRModule:
    """Do `fuse` with each attention, softmax(a b) c, in one group; norms: see `fuse_norms`; behind:
    norms that alone read a product of more rows are in its group."""

    def change(f: Function) -> Function:
        whole = attentions(f.body)
        return with_body(f, _fused(f.body, whole=whole, norms=norms, behind=behind))

    return each_function(spread_heads(mod), change)


def separate(mod: IRModule) -> IRModule:
    """Do `fuse` with every operator in a group of its own."""
    return each_function(mod, lambda f: with_body(f, _fused(f.body, join=False)))


def partition(
    body: Expr, join: bool = True, whole: Sequence[Sequence[Call]] = (), norms: bool = False,
    behind: bool = False,
) -> list[Group]:  # fmt: skip
    """Give the groups of `body`, in an order in which each group's inputs come before it.

    whole: steps that are groups already; norms, behind: see `fuse_norms`, `fuse_attention`
    """
    nodes = post_order(body)
    readers, position = users(body), {node: k for k, node in enumerate(nodes)}
    meets = post_dominators(nodes, readers)
    group_of: dict[Expr, Group] = {}
    for own in whole:
        group_of |= dict.fromkeys(own, Group(list(own), Pattern.OPAQUE, {}))
    outside = memory_views(body, readers, group_of) if join else set()
    outside.update(n for n in nodes if is_view(n))
    steps = [n for n in nodes if isinstance(n, Call) and op_name(n) and n not in outside]
    # anchors first: they take what elementwise steps could take as well
    for seed in sorted(steps, key=lambda n: TABLE[op_name(n)].pattern < Pattern.REDUCTION):
        if seed in group_of:
            continue
        group = Group([seed], TABLE[op_name(seed)].pattern, {seed: 1})
        while join and (more := _following(group, readers, meets, {*group_of, *outside})):
            longer = group.with_steps(sorted(more, key=position.__getitem__))
            if longer is None:
                break
            group = longer
        group_of |= dict.fromkeys(group.steps, group)
    if join:
        _merge(group_of, readers, position)
        _widen(group_of, readers, position)
    if norms:
        _norms_inside(group_of, readers)
    if behind:
        _norms_behind(group_of, readers)
    return sorted(dict.fromkeys(group_of.values()), key=lambda g: position[g.result])


def _merge(
    group_of: dict[Expr, Group],
    readers: Mapping[Expr, Sequence[Expr]],
    position: Mapping[Expr, int],
) -> None:
    """Groups without anchors whose result only one other such group reads, each element once, or
    which only move elements, become part of it: the gates of a recurrent cell, each of them a
    chain, are one kernel, and so are halves that are turned and put together again.  Where a choice
    is made is worked out for each element, if it follows from single whole numbers; so is what is
    written at one place of a cache."""
    results = sorted({g.result for g in group_of.values()}, key=position.__getitem__)
    # What moves for several readers joins them when they have become one: those come later.
    for result in (*results, *reversed(results)):
        group = group_of[result]  # with all that became part of it
        if group.result is not result:
            continue
        calls = _calls(result, readers)
        ends = {group_of.get(r) for r in calls}
        reader = next(iter(ends)) if len(ends) == 1 else None
        if reader is None or max(group.anchor, reader.anchor) > Pattern.INJECTIVE:
            continue
        moves = all(is_call(step, *MOVES) for step in group.steps)
        chosen = _is_index(reader) or all(is_call(r, "where") for r in calls)
        index = _is_index(group) and chosen
        written = len(calls) == 1 and (
            _writes_once(calls[0], result) or _writes_rows(calls[0], result, readers)
        )
        if not (moves or index or written) and not all(_takes(r, result) for r in calls):
            continue
        first, *rest = sorted([*group.steps, *reader.steps], key=position.__getitem__)
        merged = Group([first], TABLE[op_name(first)].pattern, {first: 1}).with_steps(rest)
        if merged is not None:
            group_of |= dict.fromkeys(merged.steps, merged)


def _is_index(group: Group) -> bool:
    """Whether it works out a whole number, or a bool, of a few: each reader may do it again for
    each of its elements."""
    inside = set(group.steps)
    given = [v for step in group.steps for v in _operands(step) if v not in inside]
    return all(map(is_whole, group.steps)) and all(
        isinstance(v, Constant) or is_few(v) for v in given
    )


def _writes_once(reader: Expr, value: Expr) -> bool:
    """Whether `value` is what a choice writes at one place of an axis, else its other side stays:
    `where(0..n-1 == i, value, x)`.  What it reads is little beside all of `x`."""
    if not is_call(reader, "where") or not isinstance(reader, Call):
        return False
    chosen, new, old = reader.args
    if new is not value or old is value or not is_call(chosen, "equal"):
        return False
    assert isinstance(chosen, Call)
    every, place = chosen.args
    return (
        isinstance(every, Constant)
        and is_few(place)
        and every.data.size * value.tensor_type.size == reader.tensor_type.size
        and len(np.unique(every.data)) == every.data.size
    )


def _writes_rows(reader: Expr, value: Expr, readers: Mapping[Expr, Sequence[Expr]]) -> bool:
    """Whether some of `value` are what a choice writes to places of an axis, which are as many as
    `value` has there: `where(f(0..n-1), take(value, rows), x)`.  What is kept asks for none."""
    if not is_call(reader, "take", "gather") or not isinstance(reader, Call):
        return False
    end = readers[reader][0] if len(readers[reader]) == 1 else None
    written = isinstance(end, Call) and is_call(end, "where") and end.args[1] is reader
    return reader.args[0] is value and written


def _widen(
    group_of: dict[Expr, Group],
    readers: Mapping[Expr, Sequence[Expr]],
    position: Mapping[Expr, int],
) -> None:
    """What only makes wider floats for one reduction, or for a norm in each of its passes, becomes
    part of it, which reads the narrow ones: half as many bytes, and a kernel less."""
    for step in sorted(group_of, key=position.__getitem__):
        group = group_of[step]
        ends = {group_of.get(r) for r in _calls(step, readers)}
        reader = next(iter(ends)) if len(ends) == 1 else None
        if len(group.steps) > 1 or not widens(step) or reader is None:
            continue
        norms = [s for s in reader.steps if is_call(s, "nn.standardize")]
        first = not norms or (reader.steps[0] is norms[0] and len(readers[step]) == 1)
        if not first or not (norms or reader.anchor == Pattern.REDUCTION):
            continue
        merged = Group([group.result], group.anchor, {step: 1}).with_steps(reader.steps)
        if merged is not None:
            group_of |= dict.fromkeys(merged.steps, merged)


def _norms_inside(group_of: dict[Expr, Group], readers: Mapping[Expr, Sequence[Expr]]) -> None:
    """A norm of few rows that one product alone reads, under whatever shape, becomes part of it:
    each block norms them for itself, which takes less than a kernel does."""
    for group in list(dict.fromkeys(group_of.values())):
        first = group.steps[0]
        if not is_call(first, *ROWS) or first.args[0].shape[0] > FEW:
            continue
        views: list[Call] = []
        value = first.args[0]
        while is_view(value) and isinstance(value, Call) and len(readers[value]) == 1:
            views.insert(0, value)
            value = value.args[0]
        norm = group_of.get(value)
        if norm is None or norm.result is not value or len(readers[value]) != 1:
            continue
        if [is_call(s, "nn.standardize") for s in norm.steps].count(True) != 1:
            continue
        if norm.anchor > Pattern.REDUCTION or len(norm.steps) + len(group.steps) > LONGEST:
            continue
        merged = Group([*norm.steps, *views, *group.steps], group.anchor, group.sizes)
        group_of |= dict.fromkeys(merged.steps, merged)


def _norms_behind(group_of: dict[Expr, Group], readers: Mapping[Expr, Sequence[Expr]]) -> None:
    """A norm of the rows of a product of more rows, which it alone reads, under whatever shape,
    becomes part of it: what adds up a split sum has whole rows at hand."""
    for group in list(dict.fromkeys(group_of.values())):
        first, value = group.steps[0], group.result
        views: list[Call] = []
        while len(readers[value]) == 1 and is_view(reader := readers[value][0]):
            assert isinstance(reader, Call)
            views.append(reader)
            value = reader
        ends = {group_of.get(r) for r in _calls(value, readers)}
        norm = next(iter(ends)) if len(ends) == 1 else None
        if norm is None or not is_call(first, "nn.dense"):
            continue
        if group_of[group.result] is not group or not norms_rows(norm.steps, group.steps):
            continue
        merged = Group([*group.steps, *views, *norm.steps], group.anchor, group.sizes)
        group_of |= dict.fromkeys(merged.steps, merged)


def norms_rows(norm: Sequence[Call], product: Sequence[Call]) -> bool:
    """Whether the steps of a group are one norm of rows, those of the columns of a product of more
    than a few rows and what follows it, and no more than one kernel has with that."""
    own = [s for s in norm if is_call(s, "nn.standardize")]
    first, last = product[0], product[-1]
    if len(own) != 1 or any(TABLE[op_name(s)].pattern > Pattern.REDUCTION for s in norm):
        return False
    if not is_call(first, "nn.dense") or first.shape[0] <= FEW or last.shape != first.shape:
        return False
    data, along = own[0].args[0], own[0].attrs.axis
    rank = len(data.shape)
    columns = data.shape[-1]
    rows = [k % rank for k in along] == [rank - 1] and columns == first.shape[-1]
    return (
        rows
        and is_row(columns)
        and norm[-1].shape == data.shape
        and len(product) + len(norm) <= LONGEST
    )


def _takes(reader: Expr, value: Expr) -> bool:
    """Whether each element of `reader` reads one of `value`, and no element is read twice."""
    if is_call(reader, "concatenate"):
        return isinstance(reader, Call) and list(_operands(reader)).count(value) == 1
    pattern = TABLE[op_name(reader)].pattern
    single = isinstance(reader.checked_type, TensorType)  # a batch norm gives several
    return pattern in JOINS and single and reader.shape == value.shape


def _operands(step: Call) -> list[Expr]:
    """The values that `step` reads, those in tuples too."""
    return [v for a in step.args for v in (a.fields if isinstance(a, Tuple) else (a,))]


def _calls(value: Expr, readers: Mapping[Expr, Sequence[Expr]]) -> list[Expr]:
    """Who reads `value`, by itself or in a tuple; the tuple where that is a result."""
    found: list[Expr] = []
    for reader in readers[value]:
        inside = readers[reader] if isinstance(reader, Tuple) else ()
        found += inside or [reader]
    return found


def post_dominators(
    nodes: Sequence[Expr], readers: Mapping[Expr, Sequence[Expr]]
) -> dict[Expr, Expr | None]:
    """Where all that is made of each node meets again: its only reader, or behind several.

    nodes: arguments before their readers, the result of all last; it has None
    """
    found: dict[Expr, Expr | None] = {nodes[-1]: None}
    depth: dict[Expr | None, int] = {None: 0, nodes[-1]: 1}
    for node in reversed(nodes[:-1]):
        meet, *others = readers[node]
        for other in others:
            while meet is not other:
                if depth[meet] < depth[other]:
                    meet, other = other, meet
                meet = found[meet]  # type: ignore[assignment]
        found[node], depth[node] = meet, depth[meet] + 1
    return found


def _following(
    group: Group,
    readers: Mapping[Expr, Sequence[Expr]],
    meets: Mapping[Expr, Expr | None],
    kept: Collection[Expr],
) -> list[Call]:
    """What is made of the group's result up to where it meets again, if all of that may join.

    kept: what may not
    """
    end = meets[group.result]
    if end is None or group.anchor == Pattern.OPAQUE:
        return []
    found: dict[Expr, None] = {}
    waiting: list[tuple[Expr, Expr]] = [(r, group.result) for r in readers[group.result]]
    while waiting:
        if len(group.steps) + len(found) > LONGEST:
            break
        node, arg = waiting.pop()
        if node in kept or not _may_follow(node, arg, group, len(readers[group.result]) == 1):
            return []
        if node not in found and node is not end:
            waiting += [(r, node) for r in readers[node]]
        found[node] = None
    return [n for n in found if isinstance(n, Call)]


def _may_follow(node: Expr, arg: Expr, group: Group, alone: bool) -> bool:
    """alone: nothing else reads the group's result."""
    if not op_name(node) or not isinstance(node.checked_type, TensorType):
        return False
    pattern = TABLE[op_name(node)].pattern
    if pattern in JOINS:
        return node.shape == arg.shape
    if is_call(arg, *ROWS) and _is_side_by_side(node, arg):
        return True
    moves = pattern == Pattern.INJECTIVE and group.anchor <= Pattern.INJECTIVE
    return (
        alone
        and moves
        and isinstance(arg.checked_type, TensorType)
        and node.tensor_type.size <= arg.tensor_type.size  # nothing is computed twice
    )


def _is_side_by_side(node: Expr, product: Expr) -> bool:
    """Whether `node` is every n-th column of a product: see `pairs.py`."""
    if not is_call(node, "strided_slice") or not isinstance(node, Call):
        return False
    (rows, columns), step = product.shape, node.attrs.strides[-1]
    return step > 1 and node.shape == (rows, columns // step)


def _fused(
    body: Expr, join: bool = True, whole: Sequence[Sequence[Call]] = (), norms: bool = False,
    behind: bool = False,
) -> Expr:  # fmt: skip
    groups = partition(body, join, whole, norms, behind)
    group_of_result: dict[Expr, Group] = {g.result: g for g in groups}
    new: dict[Expr, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        group = group_of_result.get(old)
        new[old] = node if group is None else _call_of(group, new)
        return new[old]

    return rewrite(body, visit)


def _is_text(value: Constant) -> bool:
    """Whether a constant is part of the text of a kernel: one number, or a table whose elements
    follow from where they stand, which costs less than to read it."""
    return value.tensor_type.size == 1 or counted(value) is not None


def _call_of(group: Group, outside: Mapping[Expr, Expr]) -> Call:
    """The call of a new function; outside: what the values it reads have become."""
    inside: dict[Expr, Expr] = {}
    params: list[Var] = []
    args: list[Expr] = []

    def parameter(value: Expr) -> Expr:
        p = Var(f"p{len(params)}", value.checked_type)
        params.append(p)
        args.append(outside[value])
        return p

    def resolve(value: Expr) -> Expr:
        if value not in inside:
            if isinstance(value, Tuple):
                inside[value] = Tuple([resolve(f) for f in children(value)])
            else:
                inside[value] = parameter(value)
        return inside[value]

    def operand(step: Call, value: Expr) -> Expr:
        elementwise = TABLE[op_name(step)].pattern in JOINS
        known = elementwise and isinstance(value, Constant) and _is_text(value)
        return value if known else resolve(value)

    for step in group.steps:
        made = Call(step.op, [operand(step, a) for a in step.args], step.attrs)
        inside[step] = adopt(made, layers_of(step))
    name = "_".join(["fused", *(op_name(s).replace(".", "_") for s in group.steps)])
    body = inside[group.result]
    heads = sorted(group.steps, key=lambda s: -TABLE[op_name(s)].pattern)
    made = Call(Function(params, body, attrs={"name": name}), args)
    made.layers = joined(map(layers_of, heads))
    return made
