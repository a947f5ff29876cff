"""`default_schedule`: a legal, sensible schedule for any DAG on any target: everything builds.

In: a ComputeDAG and a Target.  Out: a closed `Schedule`: what the template of its anchor proposes
untuned, else cheap stages inlined, epilogues computed where their anchor is, loops spread over
blocks and threads, or over cores and vectors.  Read next: `template.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf, prod

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.template import fallback_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, IterVar

MIN_PARALLEL_WORK = 1 << 14  # elements or reduction steps below which threads of a CPU cost more
MAX_STRIDE = 4  # elements between lanes up to which a vector is read by wide loads and shuffles
UNROLLED_STEPS = 64


def default_schedule(dag: ComputeDAG, target: Target) -> Schedule:
    """The schedule used where no record exists.  Never fails for a well-formed DAG."""
    proposed = fallback_schedule(dag, target)
    return proposed if proposed is not None else generic_schedule(dag, target)


def generic_schedule(dag: ComputeDAG, target: Target) -> Schedule:
    """`default_schedule` without templates."""
    s = Schedule(dag)
    inline_cheap_stages(s, keep=() if target.has_threads else padded_inputs(s))
    schedule_roots(s, target)
    return s


def schedule_roots(s: Schedule, target: Target, done: Collection[Stage] = ()) -> None:
    """Schedule every stage that is computed on its own and not among `done`."""
    for stage in reversed(list(s.stages)):
        if not isinstance(stage.op, ComputeOp) or stage.attach_kind != "root" or stage in done:
            continue
        if target.has_threads:
            _gpu(s, stage, target)
        elif not _prepacked(stage.op):
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
        and any(
            isinstance(r.op, ComputeOp) and r.op.combiner is not None
            for r in s.readers(stage.tensor)
        )
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
        ):
            continue
        if op.tag == "pack" or stage.attach_kind != "root":
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
    """Whether every path from `producer` to the outputs goes through `reader`, index for index."""
    todo = [producer]
    while todo:
        stage = todo.pop()
        for user in s.readers(stage.tensor):
            assert isinstance(user.op, ComputeOp)
            own = [ax.var for ax in user.op.axis]
            for n in E.walk(user.op.body):
                if (
                    n.op == "read"
                    and n.attr is stage.tensor
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
        and steps >= 2 * target.limits.warp_size
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
    lanes = _lanes(op, chain.size, target)
    if lanes < 4 or _stride(_inlined(s, stage), chain.var) > MAX_STRIDE:
        return
    _, lane = stage.split(chain, factor=lanes)
    _lanes_inside(s[s.rfactor(stage.tensor, lane)])


def _cpu_elementwise(s: Schedule, stage: Stage, target: Target) -> None:
    """rewrite: for i: for j: C[i, j]   ->   parallel for ij.o: vectorized for ij.i: C[..]"""
    op = stage.op
    assert isinstance(op, ComputeOp)
    first = _flat_from(s, stage)
    flat = stage.fuse(*op.axis[first:])
    lanes = _lanes(op, prod(op.shape[first:]), target)
    loops = list(op.axis[:first])
    if lanes > 1:
        outer, lane = stage.split(flat, factor=lanes)
        stage.vectorize(lane)
        loops.append(outer)
    else:
        loops.append(flat)
    _spread(stage, loops, prod(op.shape), target)


def _flat_from(s: Schedule, stage: Stage) -> int:
    """The first of the last axes that can be one axis: every tensor is read along all of them, in
    their order and with their extents, or along none."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    body = _inlined(s, stage)
    reads = [n for n in E.walk(body) if n.op == "read"]
    inside = {ax.var for ax in op.axis[-1:]}
    first = len(op.axis) - 1
    while first > 0:
        axes = op.axis[first - 1 :]
        own = [ax.var for ax in axes]
        inside = set(own)
        for n in reads:
            tail, rest = n.args[-len(own) :], n.args[: -len(own)]
            along = len(tail) == len(own) and all(a is v for a, v in zip(tail, own, strict=True))
            if along and n.attr.shape[-len(own) :] == op.shape[first - 1 :]:
                if inside & E.free_variables(*rest):
                    return first
            elif inside & E.free_variables(*n.args):
                return first
        if _used_outside_reads(body, inside):
            return first
        first -= 1
    return first


def _inlined(s: Schedule, stage: Stage) -> Expr:
    """The expression of a stage after its inlined producers took their places."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "read":
            return None
        source = s[node.attr]
        if source.attach_kind != "inline" or not isinstance(source.op, ComputeOp):
            return None
        axes = {ax.var: i for ax, i in zip(source.op.axis, node.args, strict=True)}
        return E.substitute(_inlined(s, source), axes)

    assert isinstance(stage.op, ComputeOp)
    return E.transform(stage.op.body, rule)


def _used_outside_reads(node: Expr, variables: set[Expr]) -> bool:
    waiting, seen = [node], {node}
    while waiting:
        here = waiting.pop()
        if here in variables:
            return True
        new = [a for a in here.args if a not in seen] if here.op != "read" else []
        seen.update(new)  # inlined stages are read several times, each by its readers
        waiting += new
    return False


def _cpu_reduction(s: Schedule, stage: Stage, acc: Stage, target: Target) -> None:
    """Vectors of elements of `stage` where neighbours read neighbours, else along the reduction.

    rewrite: for i: for k: C[i] += e(i, k)
       ->    parallel for i.o: {for k: vector acc += e(i.o, k); C[..] = acc}
    """
    op, source = stage.op, acc.op
    assert isinstance(op, ComputeOp) and isinstance(source, ComputeOp)
    work = prod((*op.shape, *(ax.size for ax in source.reduce_axis)))
    place = max((d for d, n in enumerate(op.shape) if n > 1), default=len(op.shape) - 1)
    body = _inlined(s, acc)
    lanes = _lanes(op, op.shape[place], target)
    if lanes > 1 and _stride(body, source.axis[place].var) <= MAX_STRIDE:
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
    lanes = _lanes(op, chain.size, target)
    share = _stride(body, chain.var) <= MAX_STRIDE and lanes >= 4 and chain.size >= 2 * lanes
    partial = None
    if share:
        _, lane = acc.split(chain, factor=lanes)
        partial = s[s.rfactor(acc.tensor, lane, len(source.axis))]
        partial.set_scope("local")
    at = _spread(stage, list(op.axis), work, target)
    acc.compute_at(stage, at)
    if partial is not None:
        partial.compute_at(stage, at)
        _lanes_inside(partial)


def _lanes_inside(partial: Stage) -> None:
    """The last axis of a stage of partial results becomes a vector inside its reduction."""
    op = partial.op
    assert isinstance(op, ComputeOp)
    *spatial, lane = op.axis
    partial.reorder(*spatial, *op.reduce_axis, lane)
    partial.vectorize(lane)


def _spread(stage: Stage, loops: list[IterVar], work: int, target: Target) -> IterVar:
    """Fuse the outer loops and run them on the cores, if the work is worth it."""
    fused = stage.fuse(*loops)
    if work >= MIN_PARALLEL_WORK and target.limits.cores > 1:
        stage.parallel(fused)
    return fused


def _lanes(op: ComputeOp, extent: int, target: Target) -> int:
    """Lanes of a vector over `extent` elements: those of the target, fewer for a short extent."""
    lanes = target.limits.vector_bytes // op.dtype.bytes
    while lanes > 1 and lanes >= 2 * extent:
        lanes //= 2
    return lanes if extent > 1 else 1


def _stride(body: Expr, variable: Expr) -> float:
    """The largest distance between what neighbours along `variable` read; infinite if unknown."""
    worst: float = 0
    for n in E.walk(body):
        if n.op != "read":
            continue
        step = 1
        for index, extent in zip(reversed(n.args), reversed(n.attr.shape), strict=True):
            if variable in E.free_variables(index):
                form = Simplifier({}).linear(index)
                rest = [
                    a for a in form.terms if a is not variable and variable in E.free_variables(a)
                ]
                worst = max(worst, inf if rest else abs(form.terms.get(variable, 0)) * step)
            step *= extent
    return worst
