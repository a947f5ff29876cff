"""Loop nests from a loop tree with integer bounds: the first pass of lowering.

In: a `LoopTree` and its `Bounds` (ints).  Out: one `Kernel` per root stage (one for all on a CPU),
with flat indices relative to each buffer's region, guards where bounds say so, and loops of kind
vectorized and vthread still in place.  Read next: `threads.py`, `loops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.base.artifact import Packing
from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    BLOCK_TAGS,
    THREAD_TAGS,
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Stmt,
    Store,
    Thread,
    load,
    seq,
)
from tilewright.lowering.overhang import fresh_loops, whole_tile
from tilewright.schedule.space.decision import evaluate
from tilewright.schedule.steps.loops import SplitRelation
from tilewright.schedule.tree.accumulators import (
    accumulator_axes,
    first_reduction,
    has_accumulator,
)
from tilewright.schedule.tree.loop_tree import Base, Bounds, LoopTree, Node, Quotient
from tilewright.te.tensor import Combiner, IterVar, Tensor, reduction_of

# Elements that an overhanging tile may read behind a workspace, and how many more follow: a vector
# of every second or third element is read as a whole.
_MAX_BEHIND = 1 << 14
_SLACK = 64

# Position of a leaf -> what becomes of the loop nest from that leaf inwards.
Around = Mapping[int, Callable[[Stmt], Stmt]]
_NOTHING: Around = {}

_KIND = {"vectorize": "vectorized", "unroll": "unrolled", "parallel": "parallel"}


@dataclass
class Nests:
    """What the later passes need to know beside the kernels.

    unroll_limit: loop variable -> auto_unroll_max_step in force there
    """

    kernels: list[Kernel]
    buffers: dict[Tensor, Buffer]
    unroll_limit: dict[Expr, int] = field(default_factory=dict)


def build_nests(tree: LoopTree, bounds: Bounds, name: str, gpu: bool) -> Nests:
    """All kernels of the schedule; on a CPU consecutive root stages share one kernel."""
    return _Builder(tree, bounds, gpu).run(name)


class _Builder:
    def __init__(self, tree: LoopTree, bounds: Bounds, gpu: bool) -> None:
        self.tree, self.bounds, self.gpu = tree, bounds, gpu
        self.buffers: dict[Tensor, Buffer] = {}
        self.unroll_limit: dict[Expr, int] = {}
        self.strides = {node: [int(s) for s in bounds.strides(node)] for node in tree.nodes}
        for op in tree.schedule.dag.placeholders:
            tensor = op.output_tensor
            self.buffers[tensor] = Buffer(
                op.name, op.dtype, math.prod(op.shape), "global", op.shape
            )
        for node in tree.nodes:
            shape = tuple(int(e) for e in bounds.region(node))
            size = int(bounds.elements(node))
            packing = None
            if node in tree.prepacked:
                source = tree.prepacked[node]
                packing = Packing(source.shape, node.op.attrs["blocks"], node.op.attrs["order"])
            buffer = Buffer(node.name, node.op.dtype, size, node.scope, shape, packing)
            self.buffers[node.stage.tensor] = buffer
            if packing is not None:
                self.buffers[source] = buffer  # the argument is the packed constant

    def run(self, name: str) -> Nests:
        builders = []
        roots = self.tree.roots
        for k, root in enumerate(roots):
            label = name if len(roots) == 1 else f"{name}_{k}"
            builders.append(_KernelBuilder(self, root, label))
        if not self.gpu:
            self._speculate(builders)
        return Nests([b.run() for b in builders], self.buffers, self.unroll_limit)

    def _speculate(self, builders: list[_KernelBuilder]) -> None:
        """Let tiles overhang: what a stage computes beyond its tensor is never used, so it needs no
        guard if all it reads is memory.  Workspaces grow by the few elements that are then read
        behind them.
        """
        behind: dict[Tensor, int] = {}
        for builder in builders:
            builder.speculate(behind)
        for tensor, last in behind.items():
            old = self.buffers[tensor]
            self.buffers[tensor] = replace(old, size=last + 1 + _SLACK)

    def make_room(self, node: Node) -> None:
        """Storage for every iteration of an unguarded node, also those beyond its extents."""
        shape = tuple(int(self.bounds.reach[ax]) for ax in node.op.axis)
        strides, step = [1] * len(shape), 1
        for d in reversed(self.tree.storage_order(node)):
            strides[d] = step
            step *= shape[d]
        self.strides[node] = strides
        old = self.buffers[node.stage.tensor]
        self.buffers[node.stage.tensor] = replace(old, size=step, shape=shape)


class _KernelBuilder:
    """One kernel: the nest of a root stage with everything computed inside it."""

    def __init__(self, owner: _Builder, root: Node, name: str) -> None:
        self.owner, self.tree, self.bounds = owner, owner.tree, owner.bounds
        self.buffers, self.root, self.name = owner.buffers, root, name
        self.nodes = self.tree.subtree(root)
        self.launch = {tag: int(e) for tag, e in self.bounds.launch(root).items()}
        self.thread_var = {tag: E.var(tag.replace("Idx.", "_")) for tag in sorted(self.launch)}
        ranges = {self.thread_var[tag]: (0, e - 1) for tag, e in self.launch.items()}
        self.leaf: dict[IterVar, Expr] = {}
        for node in self.nodes:
            for ax in node.stage.leaf_iter_vars:
                self.leaf[ax] = self._leaf_value(node, ax, ranges)
        self.simplify = Simplifier(ranges)
        self.values: dict[IterVar, Expr] = {}
        for node in self.nodes:
            self._axis_values(node)
        self.region_base = {
            node: [self.simplify(self._base(b)) for b in self.bounds.base[node]]
            for node in self.nodes
        }
        self.used: dict[Buffer, None] = {}
        self.dropped: dict[Node, set[Expr]] = {}  # guards left out

    def speculate(self, behind: dict[Tensor, int]) -> None:
        """Drop the guards that private nodes can do without.
        behind: the last element read, where that lies behind the end of a workspace; grows."""
        for node in self.nodes:
            if node.parent is None or node.stage.aligned:
                continue
            kept = [t for t in self._tests(node, ("spatial",)) if self.simplify(t).op != "const"]
            fixed = self._told_apart(node)
            free = [test for test in kept if test not in fixed]
            if not free:
                continue
            self.owner.make_room(node)
            for dropped in (free, *([test] for test in free)):
                rest = [test for test in kept if test not in dropped]
                if dropped[0] in kept and self._reads_behind(node, rest) is not None:
                    kept = rest
                    self.dropped.setdefault(node, set()).update(dropped)
            for tensor, last in (self._reads_behind(node, kept) or {}).items():
                behind[tensor] = max(last, behind.get(tensor, 0))
        self.used.clear()

    def _told_apart(self, node: Node) -> set[Expr]:
        """Guards of a reduction without which an iteration beyond an inner loop would add to an
        element that belongs to the next iteration of the outer one."""
        if node.op.combiner is None:
            return set()
        inner: set[IterVar] = set()
        for r in node.stage.relations:
            if isinstance(r, SplitRelation):
                inner |= {r.inner, r.outer} if r.parent in inner else {r.inner}
            elif r.outer in inner:
                inner.add(r.fused)
        axes = inner & self.bounds.guards[node].keys()
        return {self.values[ax] < int(self.bounds.extent[ax]) for ax in axes}

    def _reads_behind(self, node: Node, guards: list[Expr]) -> dict[Tensor, int] | None:
        """Workspace -> last element that `node` reads behind its end where only `guards` hold; None
        if a read might fault, or meet what nobody wrote."""
        found: dict[Tensor, int] = {}
        holds = self.simplify.assuming(E.all_of(*guards)) if guards else self.simplify
        for e in E.walk(node.body):
            if e.op != "read":
                continue
            producer = self.tree.of_stage.get(self.tree.schedule[e.attr])
            low, high = self._read_interval(node, e, holds)
            over = high - self.buffers[e.attr].size
            if low < 0 or over >= _MAX_BEHIND:
                return None
            if producer is None:
                if over >= 0:
                    return None
                continue
            private = producer.parent is not None
            if producer.stage.aligned:
                return None
            if private and self._guards(producer, ("spatial",)).op != "const":
                return None
            if over >= 0:
                if private or producer.stage.is_output or producer in self.tree.prepacked:
                    return None
                found[e.attr] = max(int(high), found.get(e.attr, 0))
        return found

    def _read_interval(self, node: Node, read: Expr, holds: Simplifier) -> tuple[float, float]:
        """Bounds of the flat index: as a whole, or by dimension, which guards speak of."""
        low, high = holds.interval(self._value(node, read).args[0])
        producer = self.tree.of_stage.get(self.tree.schedule[read.attr])
        if producer is not None and producer.parent is not None:
            return low, high
        mapping = self._coordinates(node)
        first = last = 0.0
        for index, stride in zip(read.args, self._strides(producer, read.attr), strict=True):
            least, most = holds.interval(E.substitute(index, mapping))
            first, last = first + least * stride, last + most * stride
        return max(low, first), min(high, last)

    def run(self) -> Kernel:
        body = self._emit(self.root)
        threads = tuple(Thread(tag, self.thread_var[tag], e) for tag, e in self.launch.items())
        params = tuple(b for b in self.used if b.scope == "global")
        return Kernel(self.name, params, body, threads)

    # -- values of axes --------------------------------------------------------------------------
    def _leaf_value(self, node: Node, axis: IterVar, ranges: dict[Expr, tuple[int, int]]) -> Expr:
        extent = int(self.bounds.extent[axis])
        tag = node.stage.binds.get(axis, "")
        if extent == 1:
            return E.const(0)
        if tag and tag != "vthread":
            return self.thread_var[tag]
        value = E.var(axis.name)
        ranges[value] = (0, extent - 1)
        return value

    def _axis_values(self, node: Node) -> None:
        """Every axis of the node as an expression of its leaves, from the leaves up."""
        for ax in node.stage.leaf_iter_vars:
            self.values[ax] = self.leaf[ax]
        for r in reversed(node.stage.relations):
            if isinstance(r, SplitRelation):
                factor = int(self.bounds.factor[r])
                self.values[r.parent] = self.values[r.outer] * factor + self.values[r.inner]
            else:
                inner = int(self.bounds.extent[r.inner])
                self.values[r.outer] = self.values[r.fused] // inner
                self.values[r.inner] = self.values[r.fused] % inner

    def _base(self, base: Base) -> Expr:
        result = E.const(int(base.constant))
        for atom, c in base.terms.items():
            if isinstance(atom, Quotient):
                inner = self._base(atom.base)
                k = int(atom.k)
                value = inner // k if atom.kind == "div" else inner % k
            else:
                value = self.values[atom]
            result = result + value * int(c)
        return result

    # -- reads and writes --------------------------------------------------------------------------
    def _flat(self, node: Node, index: Sequence[Expr]) -> Expr:
        """Flat position in the node's buffer of an index into its whole tensor."""
        flat = E.const(0)
        strides = self.owner.strides[node]
        for i, base, stride in zip(index, self.region_base[node], strides, strict=True):
            flat = flat + (i - base) * stride
        return self.simplify(flat)

    def _read(self, node: Expr) -> Expr:
        tensor: Tensor = node.attr
        buffer = self.buffers[tensor]
        self.used[buffer] = None
        producer = self.tree.of_stage.get(self.tree.schedule[tensor])
        if producer is None or producer.parent is None:
            flat = E.const(0)
            strides = self._strides(producer, tensor)
            for index, stride in zip(reversed(node.args), reversed(strides), strict=True):
                flat = index * stride + flat
            return load(buffer, self.simplify(flat))
        return load(buffer, self._flat(producer, node.args))

    def _value(self, node: Node, expression: Expr) -> Expr:
        """The expression over leaf variables, reads turned into loads, conditions simplified."""
        mapping = self._coordinates(node)

        def rule(e: Expr) -> Expr | None:
            if e.op == "read":
                return self._read(e)
            return self.simplify(e) if e.dtype == "bool" else None

        return E.transform(E.substitute(expression, mapping), rule)

    def _strides(self, producer: Node | None, tensor: Tensor) -> list[int]:
        """Strides of a tensor that is stored as a whole; producer: None for an input."""
        if producer is not None:
            return self.owner.strides[producer]
        strides = [1] * len(tensor.shape)
        for d in reversed(range(1, len(strides))):
            strides[d - 1] = strides[d] * tensor.shape[d]
        return strides

    def _coordinates(self, node: Node) -> dict[Expr, Expr]:
        axes = (*node.op.axis, *node.op.reduce_axis)
        return {ax.var: self._coordinate(node, ax) for ax in axes}

    def _coordinate(self, node: Node, axis: IterVar) -> Expr:
        value = self.values[axis]
        if axis.kind == "spatial":
            value = self.region_base[node][node.op.axis.index(axis)] + value
        return self.simplify(value)

    def _store_index(self, node: Node) -> Expr:
        return self._flat(node, [self._coordinate(node, ax) for ax in node.op.axis])

    # -- guards ------------------------------------------------------------------------------------
    def _guards(self, node: Node, kinds: tuple[str, ...]) -> Expr:
        dropped = self.dropped.get(node, ())
        return self.simplify(E.all_of(*(t for t in self._tests(node, kinds) if t not in dropped)))

    def _tests(self, node: Node, kinds: tuple[str, ...]) -> list[Expr]:
        """What holds for the elements that the node must compute, where its loops do not say so."""
        tests = []
        for ax, flag in self.bounds.guards[node].items():
            if flag and ax.kind in kinds:
                tests.append(self.values[ax] < int(self.bounds.extent[ax]))
        tests += [self.values[ax] < int(self.bounds.extent[ax]) for ax in self._carried(node)]
        for ax, (below, above) in zip(node.op.axis, self.bounds.outside[node], strict=True):
            if below:
                tests.append(self._coordinate(node, ax) >= 0)
            if above:
                tests.append(self._coordinate(node, ax) < ax.size)
        return tests

    def _carried(self, node: Node) -> list[IterVar]:
        """Uneven axes of the stages around `node` whose guards it repeats."""
        flags = (item for n, _ in self.tree.path(node) for item in self.bounds.guards[n].items())
        return list(dict.fromkeys(ax for ax, flag in flags if flag and ax in node.carried))

    def _lanes(self, node: Node, *, reduce: bool = True, once: bool = True) -> Expr:
        """Which threads of the block take part: those inside the stage's own extents (`reduce`: of
        its reduction axes too) and, if `once`, a single one of those that would only repeat the
        work on memory that all of them see."""
        tests = []
        bound = [
            (ax, tag) for ax, tag in node.stage.binds.items() if reduce or ax.kind == "spatial"
        ]
        bound += self._lanes_around(node)
        for ax, tag in bound:
            if tag != "vthread" and int(self.bounds.extent[ax]) < self.launch[tag]:
                tests.append(self.thread_var[tag] < int(self.bounds.extent[ax]))
        if once and node.scope != "local":
            mine = {tag for ax, tag in node.stage.binds.items() if ax.kind == "spatial"}
            sharing = (THREAD_TAGS, BLOCK_TAGS) if node.scope == "global" else (THREAD_TAGS,)
            for tags in sharing:
                for tag, extent in self.launch.items():
                    if tag in tags and tag not in mine and extent > 1:
                        tests.append(self.thread_var[tag].equal(0))
        return E.all_of(*tests)

    def _lanes_around(self, node: Node) -> list[tuple[IterVar, str]]:
        """Thread axes of other stages that the node's region starts from: lanes beyond them have
        no region."""
        leaves: dict[IterVar, None] = {}
        for base in self.bounds.base[node]:
            self._collect_leaves(base, leaves)
        return [(ax, self.tree.tag_of[ax]) for ax in leaves if ax in self.tree.tag_of]

    def _collect_leaves(self, base: Base, into: dict[IterVar, None]) -> None:
        for atom in base.terms:
            if isinstance(atom, Quotient):
                self._collect_leaves(atom.base, into)
            else:
                into |= dict.fromkeys(self.tree.leaves_under[atom])

    # -- statements --------------------------------------------------------------------------------
    def _emit(self, node: Node) -> Stmt:
        combiner = node.op.combiner
        if combiner is None:
            return self._nest(node, 0, self._copy(node))
        if any(ax.kind == "reduce" for ax in node.stage.binds):
            return self._emit_cross_thread(node, combiner)
        return self._emit_whole_or_partial(node, combiner)

    def _emit_whole_or_partial(self, node: Node, combiner: Combiner) -> Stmt:
        """A private reduction whose guards decide which elements of a tile exist gets two loop
        nests: one without these guards for tiles that lie inside, one with them.
        """
        private = node.parent is not None and not node.children
        own = {self.leaf[ax] for ax in node.stage.leaf_iter_vars}
        guard = self._guards(node, ("spatial",))
        inside = whole_tile(guard, own, self.simplify) if private and not self.owner.gpu else None
        if inside is None:
            return self._emit_reduction(node, combiner)
        partial = fresh_loops(self._emit_reduction(node, combiner), self.owner.unroll_limit)
        self.dropped.setdefault(node, set()).update(self._tests(node, ("spatial",)))
        whole = self._emit_reduction(node, combiner)
        return If(inside, whole, partial)

    def _copy(self, node: Node) -> Stmt:
        buffer = self._target(node)
        value = self._value(node, node.body)
        guard = E.binary("and", self._lanes(node), self._guards(node, ("spatial",)))
        return _guarded(guard, Store(buffer, self._store_index(node), value))

    def _target(self, node: Node) -> Buffer:
        buffer = self.buffers[node.stage.tensor]
        self.used[buffer] = None
        return buffer

    def _emit_reduction(self, node: Node, combiner: Combiner) -> Stmt:
        if has_accumulator(node):
            return self._emit_accumulated(node, combiner)
        buffer, index = self._target(node), self._store_index(node)
        lanes, spatial = self._lanes(node), self._guards(node, ("spatial",))
        first = first_reduction(node)
        again = self._again(node, first, "init")
        init = Store(buffer, E.substitute(index, again), combiner.identity)
        init_guard = E.substitute(E.binary("and", lanes, spatial), again)
        start = self._loops(node, first, _guarded(init_guard, init), again)
        value = self._value(node, _reduced(node))
        guard = E.binary("and", lanes, self._guards(node, ("spatial", "reduce")))
        update = _guarded(guard, Store(buffer, index, combiner.combine(load(buffer, index), value)))
        return self._nest(node, 0, update, {first: lambda nest: seq(start, nest)})

    def _emit_accumulated(self, node: Node, combiner: Combiner) -> Stmt:
        """A reduction into a local buffer of the accumulator's type, stored when it is complete.

        rewrite:  C[i] = float16(sum(k, e(i, k)))
                  ->   C.acc[i] = 0; for k: for i: C.acc[i] += e(i, k); for i: C[i] = C.acc[i]
        """
        buffer, index = self._target(node), self._store_index(node)
        lanes, spatial = self._lanes(node), self._guards(node, ("spatial",))
        leaves, axes = node.stage.leaf_iter_vars, accumulator_axes(node)
        first = first_reduction(node)
        outermost = min([first, *(leaves.index(ax) for ax in axes)])
        _refuse_parallel(node, leaves[outermost:])
        shape = tuple(int(self.bounds.extent[ax]) for ax in axes)
        kind, size = node.op.accumulator, math.prod(shape)
        acc = Buffer(f"{node.name}.acc", kind, size, "local", shape)
        at = E.const(0)
        for ax, extent in zip(axes, shape, strict=True):
            at = at * extent + self.leaf[ax]
        at = self.simplify(at)
        again = self._again(node, first, "init")
        init = Store(acc, E.substitute(at, again), combiner.identity)
        start = self._loops(node, first, init, again)
        value = self._value(node, _reduced(node))
        guard = E.binary("and", lanes, self._guards(node, ("spatial", "reduce")))
        update = _guarded(guard, Store(acc, at, combiner.combine(load(acc, at), value)))
        again = self._again(node, first, "out")
        result = E.cast(buffer.dtype, load(acc, E.substitute(at, again)))
        done = Store(buffer, E.substitute(index, again), result)
        done_guard = E.substitute(E.binary("and", lanes, spatial), again)
        end = self._loops(node, first, _guarded(done_guard, done), again)
        whole = {first: lambda nest: seq(start, nest, end)}
        if outermost == first:
            whole = {first: lambda nest: Allocate(acc, seq(start, nest, end))}
        else:
            whole[outermost] = lambda nest: Allocate(acc, nest)
        return self._nest(node, 0, update, whole)

    def _again(self, node: Node, first: int, suffix: str) -> dict[Expr, Expr]:
        """Fresh variables for the spatial loops from leaf `first` inwards."""
        fresh: dict[Expr, Expr] = {}
        for ax in node.stage.leaf_iter_vars[first:]:
            old = self.leaf[ax]
            if ax.kind == "spatial" and old.op == "var" and old not in self.thread_var.values():
                fresh[old] = E.var(f"{ax.name}.{suffix}")
                self.simplify.ranges[fresh[old]] = self.simplify.ranges[old]
        return fresh

    def _loops(self, node: Node, first: int, body: Stmt, again: dict[Expr, Expr]) -> Stmt:
        for ax in reversed(node.stage.leaf_iter_vars[first:]):
            if ax.kind == "spatial" and self.leaf[ax] in again:
                body = self._loop(node, ax, body, again[self.leaf[ax]])
        return body

    def _nest(self, node: Node, k: int, innermost: Stmt, around: Around = _NOTHING) -> Stmt:
        """Loops from leaf k inwards; `around` what a reduction does about those from a leaf on."""
        leaves = node.stage.leaf_iter_vars
        if k == len(leaves):
            return innermost
        axis = leaves[k]
        children = [c for c in self.nodes if c.parent is node and c.attach_axis is axis]
        before = [self._emit(child) for child in children]
        body = seq(*before, self._nest(node, k + 1, innermost, around))
        for child in reversed(children):
            body = Allocate(self.buffers[child.stage.tensor], body)
        nest = self._loop(node, axis, body)
        return around[k](nest) if k in around else nest

    def _loop(self, node: Node, axis: IterVar, body: Stmt, var: Expr | None = None) -> Stmt:
        var = var if var is not None else self.leaf[axis]
        if var.op == "const" or var in self.thread_var.values():
            return body
        kind = (
            "vthread"
            if axis in node.stage.binds
            else _KIND.get(node.stage.annotations.get(axis, ""), "serial")
        )
        limit = self._pragma(node, axis)
        if limit:
            self.owner.unroll_limit[var] = limit
        return For(var, int(self.bounds.extent[axis]), body, kind)

    def _pragma(self, node: Node | None, axis: IterVar | None) -> int:
        """auto_unroll_max_step in force at a loop: the nearest enclosing pragma."""
        while node is not None:
            entry = node.stage.pragmas.get("auto_unroll_max_step")
            if entry is not None:
                leaves = node.stage.leaf_iter_vars
                if (
                    axis is None
                    or entry[0] not in leaves
                    or leaves.index(entry[0]) <= leaves.index(axis)
                ):
                    return int(evaluate(entry[1], self.bounds.assignment))
            axis, node = node.attach_axis, node.parent
        return 0

    def _emit_cross_thread(self, node: Node, combiner: Combiner) -> Stmt:
        """Each thread reduces its share into a register; shared memory combines the shares."""
        leaves = node.stage.leaf_iter_vars
        first = first_reduction(node)
        if any(
            ax.kind == "spatial" and self.leaf[ax].op == "var" and ax not in node.stage.binds
            for ax in leaves[first:]
        ):
            raise LoweringError(
                f"{node.name}", "a spatial loop inside a reduction over threads",
                "Reorder: spatial loops first, then the reduction.",
            )  # fmt: skip
        around = [ax for _, ax in self.tree.path(node)] + leaves[:first]
        for ax in around:
            if self.tree.tag_of.get(ax) == "vthread" and int(self.bounds.extent[ax]) > 1:
                raise LoweringError(
                    node.name, f"a reduction over threads inside the virtual thread {ax.name}",
                    "Leave that loop unbound, or bind it to blockIdx.",
                )  # fmt: skip
        dtype, zero = node.op.accumulator, E.const(0)
        tags = [tag for tag in self.launch if tag.startswith("threadIdx")]
        reduced = [
            t
            for t in tags
            if any(ax.kind == "reduce" and b == t for ax, b in node.stage.binds.items())
        ]
        kept = [t for t in tags if t not in reduced]
        width = math.prod(self.launch[t] for t in reduced)
        groups = math.prod(self.launch[t] for t in kept)
        partial = Buffer(f"{node.name}.partial", dtype, 1, "local", (1,))
        board = Buffer(f"{node.name}.board", dtype, width * groups, "shared", (groups, width))
        lane, group = self._linear(reduced), self._linear(kept)
        mine = self.simplify(group * width + lane)
        value = self._value(node, _reduced(node))
        guard = E.binary(
            "and", self._lanes(node, once=False), self._guards(node, ("spatial", "reduce"))
        )
        update: Stmt = _guarded(
            guard, Store(partial, zero, combiner.combine(load(partial, zero), value))
        )
        for ax in reversed(leaves[first:]):
            if ax not in node.stage.binds:
                update = self._loop(node, ax, update)
        combine: list[Stmt] = []
        stride = 1
        while stride * 2 < width:
            stride *= 2
        while stride >= 1:
            test = E.all_of(lane < stride, lane + stride < width)
            both = combiner.combine(load(board, mine), load(board, self.simplify(mine + stride)))
            combine += [_guarded(self.simplify(test), Store(board, mine, both)), Barrier()]
            stride //= 2
        result = E.cast(node.op.dtype, load(board, self.simplify(group * width)))
        final = E.binary("and", self._lanes(node, reduce=False), self._guards(node, ("spatial",)))
        steps = seq(
            Store(partial, zero, combiner.identity),
            update,
            Store(board, mine, load(partial, zero)),
            Barrier(),
            *combine,
            _guarded(final, Store(self._target(node), self._store_index(node), result)),
            Barrier(),
        )
        return self._nest_outer(node, first, Allocate(board, Allocate(partial, steps)))

    def _linear(self, tags: list[str]) -> Expr:
        index = E.const(0)
        for tag in sorted(tags, reverse=True):
            index = index * self.launch[tag] + (self.thread_var[tag] if self.launch[tag] > 1 else 0)
        return self.simplify(index)

    def _nest_outer(self, node: Node, upto: int, body: Stmt) -> Stmt:
        for k in reversed(range(upto)):
            axis = node.stage.leaf_iter_vars[k]
            children = [c for c in self.nodes if c.parent is node and c.attach_axis is axis]
            body = seq(*(self._emit(c) for c in children), body)
            for child in reversed(children):
                body = Allocate(self.buffers[child.stage.tensor], body)
            body = self._loop(node, axis, body)
        inside = [
            c
            for c in self.nodes
            if c.parent is node and c.attach_axis in node.stage.leaf_iter_vars[upto:]
        ]
        if inside:
            raise LoweringError(
                node.name, f"{inside[0].name} is computed inside a reduction over threads",
                "Attach it outside the reduction loops.",
            )  # fmt: skip
        return body


def _reduced(node: Node) -> Expr:
    """What the node reduces, after inlining."""
    root = reduction_of(node.body)
    assert root is not None
    return root.args[0]


def _refuse_parallel(node: Node, inside: Sequence[IterVar]) -> None:
    for ax in inside:
        if node.stage.annotations.get(ax) == "parallel":
            raise LoweringError(
                f"parallel({node.name}.{ax.name})",
                f"partial results of {node.name} are {node.op.accumulator} and private to a thread,"
                " but this loop is inside the reduction",
                "Reorder: the parallel loop outside the reduction loops; or cache_write the stage "
                "first.",
            )  # fmt: skip


def _guarded(test: Expr, body: Stmt) -> Stmt:
    if test.op == "const":
        return body if test.attr else seq()
    return If(test, body)
