"""Fusion: which operators share a kernel.

In: a module of plain calls.  Out: an equal module whose main calls primitive functions, one per
kernel; views stay outside, they cost nothing.  Read next: `printer.py` for how it looks,
`memory.py`.

A group is one anchor (or reduction) and the elementwise steps behind it, or elementwise and moving
steps alone.  It has one result, the value of its last step.  No step is computed twice: a value
read by several groups ends its group, whatever came before it in that group stays inside.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.relay.expr import Call, Constant, Expr, Function, IRModule, TensorType, Tuple, Var
from tilewright.relay.graph import (
    children,
    each_function,
    op_name,
    post_order,
    rewrite,
    users,
    with_body,
)
from tilewright.relay.op import TABLE, Pattern
from tilewright.relay.passes.dead_code import is_view

JOINS = (Pattern.ELEMENTWISE, Pattern.BROADCAST)


@dataclass(eq=False)
class Group:
    """Steps that become one kernel, in order; the last one is the result."""

    steps: list[Call] = field(default_factory=list)
    anchor: Pattern = Pattern.ELEMENTWISE
    work: int = 0  # a measure of the heaviest step: elements read times elements written

    @property
    def result(self) -> Call:
        return self.steps[-1]


def fuse(mod: IRModule) -> IRModule:
    """Put each group of operators into a primitive function.

    conv2d -> add -> relu                  one group: an anchor takes the elementwise steps after it
    add(conv_a, conv_b)                    joins the heavier of both, the other's result is an input
    s = add(conv, x); f(s), g(s)           s ends the group of conv: it is read twice
    exp -> transpose -> add                one group without an anchor
    softmax                                a group of its own
    """
    return each_function(mod, lambda f: with_body(f, _fused(f.body)))


def separate(mod: IRModule) -> IRModule:
    """`fuse` with every operator in a group of its own."""
    return each_function(mod, lambda f: with_body(f, _fused(f.body, join=False)))


def partition(body: Expr, join: bool = True) -> list[Group]:
    """The groups of `body`, in an order in which each group's inputs come before it."""
    readers = users(body)
    group_of: dict[Expr, Group] = {}
    groups: list[Group] = []
    for node in post_order(body):
        if not isinstance(node, Call) or not op_name(node) or is_view(node):
            continue
        home = _home(node, group_of, readers) if join else None
        if home is None:
            home = Group()
            groups.append(home)
        home.steps.append(node)
        home.anchor = max(home.anchor, TABLE[op_name(node)].pattern)
        home.work = max(home.work, _work(node))
        group_of[node] = home
    position = {node: k for k, node in enumerate(post_order(body))}
    return sorted(groups, key=lambda g: position[g.result])


def _home(node: Call, group_of: dict[Expr, Group], readers: dict[Expr, list[Expr]]) -> Group | None:
    """The group of an argument that `node` may join: the heaviest."""
    candidates = []
    for arg in dict.fromkeys(node.args):
        group = group_of.get(arg)
        if group is None or group.result is not arg or len(readers[arg]) > 1:
            continue
        if _may_follow(node, arg, group):
            candidates.append(group)
    return max(candidates, key=lambda g: (g.anchor, g.work), default=None)


def _may_follow(node: Call, arg: Expr, group: Group) -> bool:
    pattern = TABLE[op_name(node)].pattern
    if group.anchor == Pattern.OPAQUE or not isinstance(node.checked_type, TensorType):
        return False
    if pattern in JOINS:
        return node.shape == arg.shape
    moves = pattern == Pattern.INJECTIVE and group.anchor <= Pattern.INJECTIVE
    return moves and node.tensor_type.size == arg.tensor_type.size


def _work(node: Call) -> int:
    def size(e: Expr) -> int:
        t = e.checked_type
        return (
            t.size
            if isinstance(t, TensorType)
            else sum(f.size for f in t.fields if isinstance(f, TensorType))
        )

    inputs = [size(a) for a in node.args]
    return size(node) * (
        inputs[1] if op_name(node) in ("nn.conv2d", "nn.dense") else max(inputs, default=1)
    )


def _fused(body: Expr, join: bool = True) -> Expr:
    group_of_result: dict[Expr, Group] = {g.result: g for g in partition(body, join)}

    def visit(old: Expr, node: Expr) -> Expr:
        group = group_of_result.get(old)
        return node if group is None else _call_of(group, outside)

    # Inner steps are rebuilt by `_call_of`; everything else maps one to one.
    outside: dict[Expr, Expr] = {}

    def remember(old: Expr, node: Expr) -> Expr:
        outside[old] = visit(old, node)
        return outside[old]

    return rewrite(body, remember)


def _call_of(group: Group, outside: dict[Expr, Expr]) -> Call:
    """The call of a new primitive function; outside: what the values it reads have become."""
    inside: dict[Expr, Expr] = {}
    params: list[Var] = []
    args: list[Expr] = []

    def parameter(value: Expr) -> Expr:
        if isinstance(value, Constant) and value.data.size == 1:
            return value  # a single number becomes part of the kernel
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

    for step in group.steps:
        inside[step] = Call(step.op, [resolve(a) for a in step.args], step.attrs)
    name = "_".join(["fused", *(op_name(s).replace(".", "_") for s in group.steps)])
    body = inside[group.result]
    return Call(Function(params, body, attrs={"primitive": True, "name": name}), args)
