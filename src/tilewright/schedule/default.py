"""`default_schedule`: a legal, sensible schedule for any DAG on any target, so nothing ever fails to build.

In: a ComputeDAG and a Target.  Out: a closed `Schedule`: cheap stages inlined, epilogues computed where
their anchor is, loops spread over blocks and threads or over cores and vectors.
"""

from __future__ import annotations

from math import prod

from tilewright.base.dtype import BYTES
from tilewright.base.target import Target
from tilewright.ir import expr as E
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, IterVar

MIN_PARALLEL_WORK = 1 << 14  # elements or reduction steps below which threads of a CPU cost more


def default_schedule(dag: ComputeDAG, target: Target) -> Schedule:
    """The schedule used where no record exists.  Never fails for a well-formed DAG."""
    s = Schedule(dag)
    inline_cheap_stages(s)
    for stage in reversed(s.stages):
        if not isinstance(stage.op, ComputeOp) or stage.attach_kind != "root":
            continue
        schedule_stage(s, stage, target)
    return s


def schedule_stage(s: Schedule, stage: Stage, target: Target) -> None:
    """The default loops of one stage that is computed on its own, an epilogue's anchor included."""
    (_gpu if target.is_gpu else _cpu)(s, stage, target)


def inline_cheap_stages(s: Schedule) -> None:
    """Inline stages that only move or combine few values; keep what would be recomputed dearly."""
    for stage in s.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or op.combiner is not None or stage.is_output:
            continue
        readers = s.readers(stage.tensor)
        dear = any(n.op == "call" for n in E.walk(op.body))
        reduced = any(isinstance(r.op, ComputeOp) and r.op.combiner is not None for r in readers)
        if not dear or (len(readers) == 1 and not reduced):
            stage.compute_inline()


def epilogue_anchor(s: Schedule, stage: Stage) -> Stage | None:
    """A reduction that only `stage` reads, element for element, so both can share one loop nest."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    if op.combiner is not None:
        return None
    for producer in s.stages:
        p = producer.op
        if not isinstance(p, ComputeOp) or p.combiner is None or producer.is_output or p.shape != op.shape:
            continue
        if producer.attach_kind == "root" and _reads_elementwise(s, stage, producer):
            return producer
    return None


def _reads_elementwise(s: Schedule, reader: Stage, producer: Stage) -> bool:
    """Whether every path from `producer` to the outputs goes through `reader`, index for index."""
    todo = [producer]
    while todo:
        stage = todo.pop()
        for user in s.readers(stage.tensor):
            assert isinstance(user.op, ComputeOp)
            own = [ax.var for ax in user.op.axis]
            for n in E.walk(user.op.body):
                if n.op == "read" and n.attr is stage.tensor and not all(
                    a is b for a, b in zip(n.args, own, strict=False)
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
    steps = prod((ax.extent for ax in op.reduce_axis), start=1)  # type: ignore[misc]
    limit = target.limits.max_threads_per_block
    if op.combiner is not None and steps >= 2 * target.limits.warp_size and points < 64 * target.limits.cores:
        _gpu_cross_thread(stage, min(limit, 128 if steps >= 512 else 32))
        return
    threads = min(limit, 128)
    while threads > 32 and points < threads * target.limits.cores:
        threads //= 2
    if not stage.leaf_iter_vars or not op.axis:
        return
    anchor = epilogue_anchor(s, stage)
    fused = stage.fuse(*op.axis)
    block, thread = stage.split(fused, factor=threads)
    stage.bind(block, "blockIdx.x")
    stage.bind(thread, "threadIdx.x")
    if anchor is not None:
        anchor.set_scope("local")
        anchor.compute_at(stage, thread)


def _gpu_cross_thread(stage: Stage, threads: int) -> None:
    """One block per output element; its threads share the reduction."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    if op.axis:
        stage.bind(stage.fuse(*op.axis), "blockIdx.x")
    reduce = stage.fuse(*op.reduce_axis)
    _, lane = stage.split(reduce, factor=threads)
    stage.bind(lane, "threadIdx.x")


def _cpu(s: Schedule, stage: Stage, target: Target) -> None:
    op = stage.op
    assert isinstance(op, ComputeOp)
    if not op.axis:
        return
    work = prod(op.shape) * prod((ax.extent for ax in op.reduce_axis), start=1)  # type: ignore[misc]
    anchor = epilogue_anchor(s, stage)
    if anchor is not None:
        assert isinstance(anchor.op, ComputeOp)
        work *= prod((ax.extent for ax in anchor.op.reduce_axis))  # type: ignore[misc]
    *outer, last = op.axis
    lanes = target.limits.vector_bytes // BYTES[op.dtype]
    width = int(last.extent)  # type: ignore[arg-type]
    while lanes > 1 and width % lanes:
        lanes //= 2
    inner: IterVar | None = None
    if lanes > 1:
        rest, inner = stage.split(last, factor=lanes)
        outer.append(rest)
    else:
        outer.append(last)
    if op.combiner is not None and inner is not None:
        stage.reorder(*outer, *op.reduce_axis, inner)
    if inner is not None:
        stage.vectorize(inner)
    fused = stage.fuse(*outer)
    if work >= MIN_PARALLEL_WORK and target.limits.cores > 1:
        stage.parallel(fused)
    if anchor is not None:
        anchor.set_scope("local")
        anchor.compute_at(stage, fused)
        assert isinstance(anchor.op, ComputeOp)
        if lanes > 1:
            axis = anchor.op.axis[-1]
            anchor.reorder(*anchor.op.axis[:-1], *anchor.op.reduce_axis, axis)
            anchor.vectorize(axis)
