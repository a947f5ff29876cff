"""Tasks of a network: what to tune so that `relay.build` becomes faster.

In: a module and its parameters.  Out: `Task`s: the kernels as `relay.build` compiles them.
Read next: `computation.py`, `build.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from tilewright.base.concurrency import cached_property, lock
from tilewright.base.dtype import DType
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import (
    Call,
    Expr,
    Function,
    IRModule,
    post_order,
)
from tilewright.graph.layers import of_each
from tilewright.graph.op import TABLE, Op, Pattern
from tilewright.graph.pass_options import USUAL, PassOptions
from tilewright.graph.passes import (
    Pass,
    eliminate_dead_code,
    fold_shift,
    fuse,
    fuse_attention,
    fuse_norms,
    halve_gates,
    join_gates,
    join_readers,
    join_small,
    join_writes,
    norms_beside,
    optimize,
    pair_gates,
    passes_of,
    write_last,
)
from tilewright.graph.passes.attention import has_attention, is_attention
from tilewright.graph.passes.halves import halve_gates_of
from tilewright.graph.passes.pairs import pair_gates_of
from tilewright.graph.passes.single_pixels import single_pixels_dense
from tilewright.graph.passes.steps import steps_to_channels
from tilewright.graph.passes.whole_numbers import BYTES, multiply_bytes
from tilewright.graph.printer import structural_key
from tilewright.graph.traversal import is_constant, op_name
from tilewright.ir.atoms import ATOMS, GROUP_ATOMS
from tilewright.network.alternatives import Alternative, Transformed, alternatives
from tilewright.network.computation import compute_dag
from tilewright.network.user_templates import registered
from tilewright.schedule.task import Task, task_of_dag
from tilewright.schedule.template import anchor_sketches, find_anchor
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG
from tilewright.topi.templates.gpu_rows import KINDS

FEW_ROWS = "template:attention.rows"
HALF = 2  # bytes
FEW_TERMS = 16  # one instruction of halves, two of float32


@dataclass(frozen=True, eq=False)
class FusedGroup:
    """A kernel of the network and everything that calls it.

    name, args: for people: the anchor's workload, with what follows it: ``conv2d_nchw+add+relu``
    calls:      nodes of main that run it, in order; they differ in their weights
    transformed: argument of the calls -> how the kernel reads that constant
    instead_of: key of the group of which this is another implementation; ""
    """

    name: str
    args: tuple[Any, ...]
    dag: ComputeDAG
    calls: tuple[Call, ...]
    transformed: Mapping[int, Transformed] = field(default_factory=dict)
    instead_of: str = ""

    @cached_property
    def key(self) -> str:
        return self.dag.hash

    @property
    def is_simple(self) -> bool:
        """Whether it only computes element by element and moves: no reduction is in it."""
        return all(op.combiner is None for op in self.dag.compute_ops)


def prepare(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    pass_options: PassOptions = USUAL,
) -> IRModule:
    """Give the module whose groups become kernels."""
    return groupings(mod, params, pass_options)[0]


def groupings(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    pass_options: PassOptions = USUAL,
    target: Target | None = None,
    known: Groupings | None = None,
) -> list[IRModule]:
    """Give the module in each of the ways to group its operators into kernels, see `ungrouped`
    and `ways_to_group`.  known: what a search asks again and again"""
    known = known or Groupings()
    return known.ways(*known.ungrouped(mod, params, pass_options, target), target)


def ungrouped(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    pass_options: PassOptions = USUAL,
    target: Target | None = None,
) -> tuple[IRModule, Pass]:
    """Give the module before its operators are grouped, and the pass that groups them.

    target: that it is built for, whose matrix units want full channels, and which may multiply
            some types faster than others; None: any
    """
    *before, last = passes_of(pass_options)
    if large := large_of(target):
        own: dict[Pass, Pass] = {
            pair_gates: pair_gates_of(large), halve_gates: halve_gates_of(large)
        }  # fmt: skip
        before = [own.get(p, p) for p in before]
    if target is not None and pass_options.opt_level >= 3 and bytes_of(target):
        before += [multiply_bytes, fold_shift, eliminate_dead_code]
    made = optimize(mod, params, before, instruments=pass_options.instruments)
    free = target is not None and last is fuse and pass_options.layouts
    filled = filled_by(target) if target is not None and free else {}
    if filled:
        made = steps_to_channels(single_pixels_dense(made, filled), filled)
    return made, last


class Groupings:
    """`ungrouped` and `ways_to_group`, of the same modules each worked out once.

    A search asks for its tasks, for what runs untuned and for what its log makes of the network,
    and large weights take seconds each time.  For several threads; it lives as long as the search.
    """

    def __init__(self) -> None:
        self._lock = lock()
        self._ungrouped: dict[tuple[Hashable, ...], tuple[object, tuple[IRModule, Pass]]] = {}
        self._ways: dict[tuple[Hashable, ...], tuple[IRModule, list[IRModule]]] = {}

    def ungrouped(
        self, mod: IRModule | Function, params: Mapping[str, Any] | None,
        pass_options: PassOptions, target: Target | None,
    ) -> tuple[IRModule, Pass]:  # fmt: skip
        """Give what `ungrouped` does; passes that somebody watches run each time."""
        if pass_options.instruments:
            return ungrouped(mod, params, pass_options, target)
        functions = mod.functions if isinstance(mod, IRModule) else {"main": mod}
        held = dict(functions), dict(params or {})
        ids = (frozenset((str(name), id(part)) for name, part in of.items()) for of in held)
        key = (*ids, pass_options, *_of(target))
        with self._lock:
            if key not in self._ungrouped:
                self._ungrouped[key] = held, ungrouped(mod, params, pass_options, target)
            return self._ungrouped[key][1]

    def ways(self, mod: IRModule, last: Pass, target: Target | None) -> list[IRModule]:
        """Give what `ways_to_group` does; of a module that `ungrouped` gave it is kept."""
        key = (id(mod), last, *_of(target))
        with self._lock:
            if not any(mod is made for _, (made, _) in self._ungrouped.values()):
                return ways_to_group(mod, last, target)
            if key not in self._ways:
                self._ways[key] = mod, ways_to_group(mod, last, target)
            return self._ways[key][1]


def _of(target: Target | None) -> tuple[Hashable, ...]:
    return () if target is None else (str(target), target.fingerprint, target.limits)


def filled_by(target: Target) -> dict[DType, int]:
    """Give the types of floats that the matrix instructions of a target multiply, in the precision
    that it is asked for, and of each how many terms few instructions sum up."""
    atoms = [atom for name, atom in ATOMS.items() if target.allows(name)]
    return {a.a.dtype: max(a.extents["k"], FEW_TERMS) for a in atoms if a.a.dtype.is_float}


def large_of(target: Target | None) -> frozenset[DType]:
    """Give the types of halves that groups of warps multiply, as the target is asked to."""
    allowed = (a.a.dtype for n, a in GROUP_ATOMS.items() if target is not None and target.allows(n))
    return frozenset(kind for kind in allowed if kind.is_float and kind.bytes == HALF)


def bytes_of(target: Target) -> frozenset[DType]:
    """Give the types of bytes for which it has a unit of its own; elsewhere int32 is as fast."""
    allowed = {atom.a.dtype for name, atom in ATOMS.items() if target.allows(name)}
    return frozenset(allowed & set(BYTES))


def ways_to_group(mod: IRModule, last: Pass, target: Target | None = None) -> list[IRModule]:
    """Give the usual grouping, and, where there is attention, one in which each attention is a
    kernel.

    last:   the pass that groups
    target: norms of few rows are part of products on devices whose template for those has them,
            and of products of more rows in a further way, where there are any; where a launch of a
            kernel costs as much as it computes, kernels have several results
    """
    if last is not fuse:
        return [last(mod)]
    norms = target is not None and bool(set(target.device_kind.templates).intersection(KINDS))
    whole = [fuse_attention(mod, norms)] if has_attention(mod) else []
    ways = [fuse_norms(mod) if norms else fuse(mod), *whole]
    if norms and target is not None and target.atoms:
        behind = norms_beside(fuse_attention(mod, norms, behind=True))
        ways += [behind] if _kernels(behind) < _kernels(ways[-1]) else []
    if target is None or not target.has_threads:
        return ways
    ways = [join_readers(way) for way in ways]
    if target.waits:
        ways = [write_last(way, partial(_is_of_few_rows, target, {})) for way in ways]
    ways = [join_small(join_writes(way)) for way in ways]
    return [join_gates(way) for way in ways] if target.atoms else ways


def _kernels(mod: IRModule) -> int:
    nodes = post_order(mod["main"].body)
    return sum(isinstance(n, Call) and isinstance(n.op, Function) for n in nodes)


def _is_of_few_rows(target: Target, known: dict[str, bool], call: Call) -> bool:
    """Whether the template for attention of few rows has members for a kernel.

    known: what was found for others, by what they compute
    """
    assert isinstance(call.op, Function)
    key = structural_key(call.op)
    if key not in known:
        dag = compute_dag(call.op, [is_constant(a) for a in call.args])
        sketches = [s for s in anchor_sketches(dag, target) if s.origin == FEW_ROWS]
        known[key] = any(s.legal(np.arange(len(s.space))).any() for s in sketches)
    return known[key]


def fused_groups(main: Function) -> list[FusedGroup]:
    """Give the distinct groups of a prepared function, in the order in which they first run."""
    found: dict[str, tuple[ComputeDAG, list[Call]]] = {}
    known: dict[tuple[str, tuple[bool, ...]], ComputeDAG] = {}
    for node in post_order(main.body):
        if isinstance(node, Call) and isinstance(node.op, Function):
            constant = tuple(is_constant(a) for a in node.args)
            key = structural_key(node.op), constant
            dag = known.get(key) or known.setdefault(key, compute_dag(node.op, constant))
            found.setdefault(dag.hash, (dag, []))[1].append(node)
    return [
        FusedGroup(*label_of(calls[0].op, dag), dag, tuple(calls)) for dag, calls in found.values()
    ]


def groups_of(mod: IRModule) -> list[FusedGroup]:
    """Give the kernels of a network whose operators are not grouped yet."""
    return fused_groups(fuse(mod)["main"])


def groups_of_body(body: Expr) -> list[FusedGroup]:
    """Give the kernels that compute an expression."""
    return groups_of(eliminate_dead_code(IRModule.from_expr(body)))


def every_alternative(
    function: Function, constant: Sequence[bool], target: Target
) -> Iterator[Alternative]:
    """Give Winograd's computations, and those that users registered."""
    yield from alternatives(function, constant, target)
    yield from registered(function, constant, target)


def implementations(group: FusedGroup, target: Target) -> list[FusedGroup]:
    """Give other computations of a group, for the same calls; see `alternatives.py`."""
    function = group.calls[0].op
    assert isinstance(function, Function)
    constant = [is_constant(a) for a in group.calls[0].args]
    return [
        FusedGroup(*label_of(function, a.dag), a.dag, group.calls, a.transformed, group.key)
        for a in every_alternative(function, constant, target)
    ]


def fused_tasks(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    target: TargetLike | None = None,
    include_simple: bool = False,
    every_implementation: bool = False,
    pass_options: PassOptions = USUAL,
    known: Groupings | None = None,
) -> list[Task]:
    """Give a task per distinct kernel of the network, in network order; weight: how often it runs.

    Constant operands (weights) are constant placeholders, so templates may pack them.
    An attention is a task as one kernel, and so is each of the kernels that it is otherwise: the
    build takes what turns out faster.
    include_simple: also kernels without a reduction (contraction, pooling, softmax, sum, ...)
    every_implementation: behind each kernel its alternatives (`implementations`), as tasks that
        are `instead_of` it
    known: see `groupings`
    """
    chosen = resolve_target(target)
    groups: dict[str, FusedGroup] = {}
    for grouped in groupings(mod, params, pass_options, chosen, known):
        for group in fused_groups(grouped["main"]):
            groups.setdefault(group.key, group)
    listed = [g for g in groups.values() if include_simple or not g.is_simple]
    if every_implementation:
        listed = [each for g in listed for each in (g, *implementations(g, chosen))]
    return [_task(group, chosen) for group in listed]


def _task(group: FusedGroup, target: Target) -> Task:
    made = task_of_dag(
        group.dag, target, group.name, group.args, len(group.calls), group.instead_of
    )
    return replace(made, layers=of_each(group.calls))


def _operators(body: Expr) -> list[str]:
    return [op_name(n) for n in post_order(body) if op_name(n)]


def label_of(what: Op | Function, dag: ComputeDAG) -> tuple[str, tuple[Any, ...]]:
    """Name and arguments: the anchor's workload and the operators behind it, or the operators."""
    steps = _operators(what.body) if isinstance(what, Function) else [what.name]
    workloads = [op.attrs["workload"] for op in dag.compute_ops if "workload" in op.attrs]
    if not workloads:
        inputs = [t for t in dag.args if t not in dag.outputs]
        shapes = tuple(["TENSOR", list(t.shape), t.dtype] for t in inputs)
        return "+".join(map(_short, steps)) or "identity", shapes
    if is_attention(steps):
        return "attention", tuple(workloads[0][1:])
    patterns = [TABLE[s].pattern for s in steps]
    anchored = Pattern.ANCHOR in patterns  # a norm may be before it, or behind
    anchor = find_anchor(dag) if anchored else None
    name, *args = anchor.attrs.get("workload", workloads[-1]) if anchor else workloads[-1]
    head = Pattern.ANCHOR if anchored else Pattern.REDUCTION
    heads = [k for k, pattern in enumerate(patterns) if pattern >= head]
    behind = steps[heads[-1] + 1 :] if heads else []
    return "+".join([name, *map(_short, behind)]), tuple(args)


def _short(op: str) -> str:
    return op.rpartition(".")[2]
