"""`default_schedule`: a legal, sensible schedule for any DAG on any target: everything builds.

In: a ComputeDAG and a Target.  Out: a closed `Schedule`: what the template of its anchor proposes
untuned, else cheap stages inlined, epilogues computed where their anchor is, loops spread over
blocks and threads, or over cores and vectors.  Read next: `template.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.row_reductions import dear_rows, schedule_rows
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sums import block_sums
from tilewright.schedule.template import fallback_schedule
from tilewright.schedule.thread_loops import deal, over_blocks, over_vectors
from tilewright.schedule.tree.chains import may_be_long
from tilewright.schedule.vectors import (
    MAX_STRIDE,
    MIN_PARALLEL_WORK,
    flat_from,
    gpu_vector,
    gpu_write,
    inlined_body,
    lane_axis,
    lanes_inside,
    lanes_of,
    stride_along,
)
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.opaque import OpaqueOp
from tilewright.te.tensor import CONSTANTS_ATTR, ComputeOp, IterVar

UNROLLED_STEPS = 64
OPEN_THREADS = 128  # of a block, where nobody knows how many there will be


def default_schedule(dag: ComputeDAG, target: Target) -> Schedule:
    """The schedule used where no record exists.  Never fails for a well-formed DAG."""
    if dag.symbols:
        return open_schedule(dag, target)
    some = not _has_fixed(dag) and all(0 not in op.shape for op in dag.ops)
    proposed = fallback_schedule(dag, target) if some else None
    return proposed if proposed is not None else generic_schedule(dag, target)


def _has_fixed(dag: ComputeDAG) -> bool:
    return any(op.why_fixed for op in dag.compute_ops)


def generic_schedule(dag: ComputeDAG, target: Target) -> Schedule:
    """`default_schedule` without templates."""
    s = Schedule(dag)
    inline_cheap_stages(s, () if target.has_threads else [*padded_inputs(s), *dear_rows(s)])
    schedule_roots(s, target, () if _has_fixed(dag) else schedule_rows(s, target))
    block_sums(s)
    return s


def open_schedule(dag: ComputeDAG, target: Target) -> Schedule:
    """Schedule a computation whose extents are variables: cheap stages inlined, elements of the
    others spread over blocks of threads, or rows over cores."""
    s = Schedule(dag)
    inline_cheap_stages(s)
    for stage in s.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or stage.attach_kind != "root" or not op.axis:
            continue
        if op.why_fixed:
            continue
        _open_stage(stage, target)
    block_sums(s)
    return s


def _open_stage(stage: Stage, target: Target) -> None:
    axes = stage.op.axis
    if not target.has_threads:
        stage.parallel(axes[0])
        return
    over_blocks(stage, axes, OPEN_THREADS)


def schedule_stage(s: Schedule, stage: Stage, target: Target) -> None:
    """One stage that is computed on its own; the others stay as they are."""
    if isinstance(stage.op, ComputeOp) and stage.op.why_fixed:
        return  # it is as it is written; steps run in order, whatever else could run at once
    if s.dag.symbols and stage.op.axis:
        _open_stage(stage, target)
    elif target.has_threads:
        _gpu(s, stage, target)
    elif isinstance(stage.op, ComputeOp):
        cpu_stage(s, stage, target)


def schedule_roots(s: Schedule, target: Target, done: Collection[Stage] = ()) -> None:
    """Schedule every stage that is computed on its own and not among `done`."""
    for stage in reversed(list(s.stages)):
        if not isinstance(stage.op, ComputeOp) or stage.attach_kind != "root" or stage in done:
            continue
        if stage.op.why_fixed or _prepacked(stage.op):
            continue
        if target.has_threads:
            _gpu(s, stage, target)
        else:
            cpu_stage(s, stage, target)


def _prepacked(op: ComputeOp) -> bool:
    """A packed constant: nothing computes it at run time."""
    return op.tag == "pack" and op.input_tensors[0].op.constant


def padded_inputs(s: Schedule) -> list[Stage]:
    """Stages that choose between values (padding) and feed a reduction: a condition at every step
    of the reduction costs more on a CPU than a pass over the stage."""
    return [
        stage
        for stage in s.stages
        if isinstance(stage.op, ComputeOp)
        and any(n.op in ("if_then_else", "select") for n in E.walk(stage.op.body))
        and any(isinstance(r.op, ComputeOp) and r.op.combiner is not None for r in s.readers(stage))
    ]


def inline_cheap_stages(s: Schedule, keep: Collection[Stage] = ()) -> None:
    """Inline stages that only move or combine few values; keep what would be recomputed dearly."""
    for stage in s.stages:
        op = stage.op
        if (
            not isinstance(op, ComputeOp)
            or op.combiner is not None
            or stage.is_output
            or stage in keep
            or op.why_fixed
            or any(isinstance(reader.op, OpaqueOp) for reader in s.readers(stage))
        ):
            continue
        if op.tag == "pack" or CONSTANTS_ATTR in op.attrs or stage.attach_kind != "root":
            continue
        readers = s.readers(stage)
        dear = any(n.op == "call" or _chosen_by_data(n) for n in E.walk(op.body))
        reduced = any(isinstance(r.op, ComputeOp) and r.op.combiner is not None for r in readers)
        if not dear or (len(readers) == 1 and not reduced):
            stage.compute_inline()


def _chosen_by_data(node: Expr) -> bool:
    """A read at an index that is read: it waits for two loads, of which the second is a gather."""
    return node.op == "read" and any(n.op == "read" for n in E.walk(*node.args))


def epilogue_anchor(s: Schedule, stage: Stage) -> Stage | None:
    """A reduction that only `stage` reads, element for element, so both can share one loop nest."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    if op.combiner is not None:
        return None
    for producer in s.stages:
        p = producer.op
        if (
            not isinstance(p, ComputeOp)
            or p.combiner is None
            or producer.is_output
            or p.shape != op.shape
        ):
            continue
        if producer.attach_kind == "root" and reads_elementwise(s, stage, producer):
            return producer
    return None


def reads_elementwise(s: Schedule, reader: Stage, producer: Stage) -> bool:
    """Tell whether all paths from `producer` to outputs go through `reader`, index for index."""
    todo = [producer]
    while todo:
        stage = todo.pop()
        for user in s.readers(stage):
            assert isinstance(user.op, ComputeOp)
            own = [ax.var for ax in user.op.axis]
            for n in E.walk(user.op.body):
                if (
                    n.op == "read"
                    and n.attr in stage.tensors
                    and not all(a is b for a, b in zip(n.args, own, strict=False))
                ):
                    return False
            if user is reader:
                continue
            if user.attach_kind != "inline":
                return False
            todo.append(user)
    return True


def _gpu(s: Schedule, stage: Stage, target: Target) -> None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    points = prod(op.shape, start=1)
    steps = prod((ax.size for ax in op.reduce_axis), start=1)
    limit = target.limits.max_threads_per_block
    if (
        op.combiner is not None
        and steps >= max(2 * target.limits.warp_size, 32)
        and points < 64 * target.limits.cores
    ):
        _gpu_cross_thread(stage, min(limit, 128 if steps >= 512 else 32))
        return
    threads = min(limit, 128)
    while threads > 32 and points < threads * target.limits.cores:
        threads //= 2
    if not stage.leaf_iter_vars or not op.axis:
        return
    anchor = epilogue_anchor(s, stage)
    few = points < 64 * target.limits.cores
    if anchor is not None and isinstance(anchor.op, ComputeOp) and few and may_be_long(anchor.op):
        block = stage.fuse(*op.axis)
        stage.bind(block, "blockIdx.x")
        anchor.set_scope("shared")
        anchor.compute_at(stage, block)
        _share_reduction(anchor, min(limit, 128))
        return
    wide = None
    if anchor is None:
        wide = gpu_vector(s, stage, target) or gpu_write(s, stage, target)
    if wide is not None:
        over_vectors(stage, wide, threads)
        return
    _, thread = over_blocks(stage, op.axis, threads)
    if anchor is not None:
        anchor.set_scope("local")
        anchor.compute_at(stage, thread)


def _gpu_cross_thread(stage: Stage, threads: int) -> None:
    """One block per output element; its threads share the reduction."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    if op.axis:
        stage.bind(stage.fuse(*op.axis), "blockIdx.x")
    _share_reduction(stage, threads)


def _share_reduction(stage: Stage, threads: int) -> None:
    deal(stage, stage.fuse(*stage.op.reduce_axis), threads)


# -- CPU -------------------------------------------------------------------------------------------


def cpu_stage(s: Schedule, stage: Stage, target: Target) -> None:
    """Cores over the outer loops, vectors over the innermost axis, reductions in registers."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    if not op.axis:
        _cpu_scalar(s, stage, target)
        return
    if op.combiner is not None:
        _cpu_reduction(s, stage, s[s.cache_write(stage.tensor, "local")], target)
        return
    anchor = epilogue_anchor(s, stage)
    if anchor is None:
        _cpu_elementwise(s, stage, target)
        return
    anchor.set_scope("local")
    _cpu_reduction(s, stage, anchor, target)


def _cpu_scalar(s: Schedule, stage: Stage, target: Target) -> None:
    """One number: a reduction gets as many partial results as a vector has lanes.

    rewrite: for k: C += e(k)   ->   for k.o: vector P += e(k.o, lanes); for lane: C += P[lane]
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    if op.combiner is None:
        return
    chain = op.reduce_axis[-1]
    lanes = lanes_of(op, chain.size, target)
    if lanes < 4 or stride_along(inlined_body(s, stage), chain.var) > MAX_STRIDE:
        return
    _, lane = stage.split(chain, factor=lanes)
    lanes_inside(s[s.rfactor(stage.tensor, lane)])


def _cpu_elementwise(s: Schedule, stage: Stage, target: Target) -> None:
    """rewrite: for i: for j: C[i, j]   ->   parallel for ij.o: vectorized for ij.i: C[..]"""
    op = stage.op
    assert isinstance(op, ComputeOp)
    end = lane_axis(op) + 1
    first = flat_from(s, stage, end)
    flat = stage.fuse(*op.axis[first:end])
    lanes = lanes_of(op, prod(op.shape[first:end]), target)
    loops = [*op.axis[:first], *op.axis[end:]]
    if end < len(op.axis):
        stage.reorder(*loops, flat)
    if lanes > 1:
        outer, lane = stage.split(flat, factor=lanes)
        stage.vectorize(lane)
        loops.append(outer)
    else:
        loops.append(flat)
    _spread(stage, loops, prod(op.shape), target)


def _cpu_reduction(s: Schedule, stage: Stage, acc: Stage, target: Target) -> None:
    """Vectors of elements of `stage` where neighbours read neighbours, else along the reduction.

    rewrite: for i: for k: C[i] += e(i, k)
       ->    parallel for i.o: {for k: vector acc += e(i.o, k); C[..] = acc}
    """
    op, source = stage.op, acc.op
    assert isinstance(op, ComputeOp) and isinstance(source, ComputeOp)
    work = prod((*op.shape, *(ax.size for ax in source.reduce_axis)))
    place = lane_axis(op)
    body = inlined_body(s, acc)
    lanes = lanes_of(op, op.shape[place], target)
    if lanes > 1 and stride_along(body, source.axis[place].var) <= MAX_STRIDE:
        outer, lane = stage.split(op.axis[place], factor=lanes)
        loops = [*op.axis[:place], outer, *op.axis[place + 1 :]]
        stage.reorder(*loops, lane)
        stage.vectorize(lane)
        acc.compute_at(stage, _spread(stage, loops, work, target))
        last = source.axis[place]
        acc.reorder(*source.reduce_axis, *(ax for ax in source.axis if ax is not last), last)
        acc.vectorize(last)
        acc.pragma(source.reduce_axis[0], "auto_unroll_max_step", UNROLLED_STEPS)
        return
    chain = source.reduce_axis[-1]
    lanes = lanes_of(op, chain.size, target)
    share = stride_along(body, chain.var) <= MAX_STRIDE and lanes >= 4 and chain.size >= 2 * lanes
    partial = None
    if share:
        _, lane = acc.split(chain, factor=lanes)
        partial = s[s.rfactor(acc.tensor, lane, len(source.axis))]
        partial.set_scope("local")
    at = _spread(stage, list(op.axis), work, target)
    acc.compute_at(stage, at)
    if partial is not None:
        partial.compute_at(stage, at)
        lanes_inside(partial)


def _spread(stage: Stage, loops: list[IterVar], work: int, target: Target) -> IterVar:
    """Fuse the outer loops and run them on the cores, if the work is worth it."""
    fused = stage.fuse(*loops)
    if work >= MIN_PARALLEL_WORK and target.limits.cores > 1:
        stage.parallel(fused)
    return fused
