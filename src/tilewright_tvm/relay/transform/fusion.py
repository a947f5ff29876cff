"""`FuseOps`: which operators TVM puts into one function.

In: a module of plain calls.  Out: an equal one whose functions call functions that have the
attribute `Primitive`.  TVM's partition is what scripts compare with; a build has groups of its own
(`graph/passes/fuse.py`), in which views stay outside and long chains are cut earlier, so
`relay.build` makes its own of what is in these functions.

The rule: operators are elementwise, broadcasting, moving, reducing, anchors or opaque.  Each looks
at the node where everything made of it meets again, and joins it where all on the way may be in one
kernel: first anchors take what follows element by element, and cheap operators what they are read
by; then moving ones and tuples join; last what tuples read, where the tuple is inside a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

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
    children,
    post_order,
)
from tilewright.graph.op import TABLE, Pattern
from tilewright.graph.passes.fuse import post_dominators
from tilewright.graph.passes.inline import with_calls
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

LONGEST = 256  # operators in one function, unless `relay.FuseOps.max_depth` says another number

STOP = "annotation.stop_fusion"


class _Kind(IntEnum):
    """How a node may share a function, in rising order of what stands against it."""

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    ANCHOR = 4
    TUPLE = 5
    OPAQUE = 6


_KINDS = {pattern: _Kind[pattern.name] for pattern in Pattern}
# Operators that TVM has in another class than the table of this compiler.
_OTHER = {
    "expand_dims": _Kind.BROADCAST, "image.resize": _Kind.INJECTIVE,
    **dict.fromkeys(("argmax", "argmin"), _Kind.REDUCTION),
    **dict.fromkeys(("nn.softmax", "nn.log_softmax"), _Kind.ANCHOR),
    **dict.fromkeys(("nn.batch_norm", STOP), _Kind.OPAQUE),
}  # fmt: skip


def fuse_operators(mod: IRModule, longest: int = LONGEST) -> IRModule:
    """Put the operators of each function into functions with the attribute `Primitive`.

    longest: how many operators one of them may have
    """
    return each_function(mod, lambda f: with_body(f, _fused(f.body, longest)))


def unfused(mod: IRModule) -> IRModule:
    """Undo `fuse_operators`; groups of a script's own, and of this compiler, stay."""

    def changed(call: Call, op: Function, args: list[Expr]) -> Expr | None:
        made_here = "Primitive" in op.attrs and "name" in op.attrs
        return substitute(op.body, dict(zip(op.params, args, strict=True))) if made_here else None

    return each_function(mod, lambda f: with_body(f, with_calls(f.body, changed)))  # type: ignore[arg-type]


@dataclass(eq=False)
class _Group:
    """Nodes of one function.

    root: the node whose value it gives
    kind: the class of the root; of what has an anchor inside, that of anchors
    """

    root: Expr
    kind: _Kind
    nodes: list[Expr]


class _Partition:
    """One body: each node's group, joined in three rounds."""

    def __init__(self, body: Expr, longest: int) -> None:
        self.longest = longest
        self.order = post_order(body)
        self.readers = users(body)
        self.meets = post_dominators(self.order, self.readers)
        self.group = {n: _Group(n, _kind(n), [n]) for n in self.order}
        self.reach = self._reach()
        for round_ in (self._cheap_and_anchors, self._moving, self._fields):
            for node in self.order:
                meet = self.meets[node]
                if meet is not None and _kind(node) != _Kind.OPAQUE and self._has_room(node, meet):
                    round_(node, meet)

    def _reach(self) -> dict[Expr, _Kind]:
        """The greatest class of steps from each node to where it meets again."""
        found: dict[Expr, _Kind] = {}
        for node in reversed(self.order):
            meet, greatest = self.meets[node], _Kind.ELEMENTWISE
            for reader in self.readers[node]:
                greatest = max(greatest, _step(node, reader))
                while reader is not meet:
                    greatest = max(greatest, found[reader])
                    reader = self.meets[reader]  # type: ignore[assignment]
            found[node] = greatest
        return found

    def _has_room(self, node: Expr, meet: Expr) -> bool:
        if self.group[node] is self.group[meet]:
            return False
        groups = {self.group[n] for n in (node, *self._between(node, meet), meet)}
        return sum(isinstance(n, Call) for g in groups for n in g.nodes) <= self.longest

    def _between(self, node: Expr, meet: Expr) -> list[Expr]:
        found: dict[Expr, None] = {}
        waiting = [r for r in self.readers[node] if r is not meet]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found[each] = None
                waiting += [r for r in self.readers[each] if r is not meet]
        return list(found)

    def _join(self, node: Expr, meet: Expr, inside: _Kind, last: Callable[[_Kind], bool]) -> None:
        """Put `node` and all up to `meet` into one group, where the classes of the groups on the
        way are at most `inside`, and `last` holds for that of `meet`."""
        between = self._between(node, meet)
        if not last(self.group[meet].kind) or any(self.group[n].kind > inside for n in between):
            return
        target = self.group[meet]
        for each in (node, *between):
            old = self.group[each]
            if old is not target:
                target.kind = _Kind.ANCHOR if old.kind == _Kind.ANCHOR else target.kind
                target.nodes += old.nodes
                self.group |= dict.fromkeys(old.nodes, target)

    def _cheap_and_anchors(self, node: Expr, meet: Expr) -> None:
        kind = self.group[node].kind
        if self.group[meet].kind == _Kind.TUPLE:
            return
        if kind == _Kind.ANCHOR and self.reach[node] == _Kind.ELEMENTWISE:
            self._join(node, meet, _Kind.BROADCAST, lambda last: last <= _Kind.BROADCAST)
        elif kind <= _Kind.BROADCAST and self.reach[node] <= _Kind.REDUCTION:
            self._join(node, meet, _Kind.INJECTIVE, lambda last: last <= _Kind.ANCHOR)

    def _moving(self, node: Expr, meet: Expr) -> None:
        kind = self.group[node].kind
        if self.group[meet].kind == _Kind.TUPLE:
            return
        if kind in (_Kind.INJECTIVE, _Kind.TUPLE):
            self._join(node, meet, _Kind.INJECTIVE, lambda last: last <= _Kind.INJECTIVE)
        elif kind <= _Kind.BROADCAST and self.reach[node] <= _Kind.REDUCTION:
            self._join(node, meet, _Kind.INJECTIVE, lambda last: last <= _Kind.ANCHOR)

    def _fields(self, node: Expr, meet: Expr) -> None:
        """What is read by a tuple that is inside a kernel."""
        if isinstance(meet, Tuple) and self.group[node].kind <= _Kind.INJECTIVE:
            self._join(node, meet, _Kind.INJECTIVE, lambda last: last <= _Kind.INJECTIVE)


def _kind(node: Expr) -> _Kind:
    if isinstance(node, Tuple):
        return _Kind.TUPLE
    if isinstance(node, TupleGetItem):
        fields = getattr(node.tuple_value.checked_type, "fields", ())
        return _Kind.INJECTIVE if all(isinstance(f, TensorType) for f in fields) else _Kind.OPAQUE
    if isinstance(node, Constant):
        return _Kind.OPAQUE if node.data.ndim else _Kind.ELEMENTWISE
    name = op_name(node)
    return _OTHER.get(name, _KINDS[TABLE[name].pattern]) if name in TABLE else _Kind.OPAQUE


def _step(node: Expr, reader: Expr) -> _Kind:
    """The class of the step from a value to what reads it: broadcasting what has the result's shape
    already is elementwise."""
    kind = _kind(reader)
    if isinstance(reader, Tuple):
        return _Kind.INJECTIVE
    types = (node.checked_type, reader.checked_type)
    if (
        kind == _Kind.BROADCAST
        and all(isinstance(t, TensorType) for t in types)
        and node.shape == reader.shape
    ):
        return _Kind.ELEMENTWISE
    return kind


def _fused(body: Expr, longest: int) -> Expr:
    partition = _Partition(body, longest)
    ends = {g.root: g for g in partition.group.values() if any(op_name(n) for n in g.nodes)}
    new: dict[Expr, Expr] = {}

    def visit(old: Expr, node: Expr) -> Expr:
        group = ends.get(old)
        if is_call(node, STOP):
            new[old] = children(node)[0]
        else:
            new[old] = node if group is None or isinstance(old, Tuple) else _call_of(group, new)
        return new[old]

    return rewrite(body, visit)


def _call_of(group: _Group, outside: Mapping[Expr, Expr]) -> Call:
    """The call of the function of `group`; outside: what the values that it reads have become."""
    inside: dict[Expr, Expr] = {}
    params: list[Var] = []
    args: list[Expr] = []
    members = set(group.nodes)
    names = []
    for node in post_order(group.root, lambda n: children(n) if n in members else ()):
        if node in members:
            inside[node] = with_children(node, tuple(inside[c] for c in children(node)))
            names += [op_name(node).replace(".", "_")] if op_name(node) else []
        else:
            inside[node] = parameter = Var(f"p{len(params)}", node.checked_type)
            params.append(parameter)
            args.append(outside[node])
    attrs = {"name": "_".join(["fused", *names]), "Primitive": 1}
    return Call(Function(params, inside[group.root], attrs=attrs), args)
