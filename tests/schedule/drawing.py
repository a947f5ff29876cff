"""Random legal schedules for any DAG: the fuel of the property tests of the core.

`draw_schedule` makes steps that are legal by construction or dropped when refused; what it returns
always lowers.  Factors are small and rarely divide: guards, clipping and tails occur all the time.
"""

from __future__ import annotations

import random
from contextlib import suppress
from random import Random

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.stmt import BLOCK_TAGS, THREAD_TAGS
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import AxisCopy, ComputeOp, IterVar, PlaceholderOp


def draw_schedule(
    dag: ComputeDAG, rng: random.Random, *, gpu: bool, units: bool = False
) -> Schedule:
    """A random schedule of `dag` with small, mostly uneven tiles.

    units: stages also get loops that stand for no axis, split and bound like others
    """
    s = Schedule(dag)
    draw_products(s, Random(str(rng.getstate())), 0.3)
    _draw_dataflow(s, rng, gpu)
    for stage in list(reversed(s.stages)):
        if isinstance(stage.op, PlaceholderOp) or stage.attach_kind == "inline":
            continue
        if not stage.is_output and rng.random() < 0.75:
            _draw_attachment(s, stage, rng)
        if stage.attach_kind == "root":
            stage.set_scope("global")
        if units and rng.random() < 0.5:
            stage.split(stage.fuse(), nparts=rng.randint(1, 3))
        _draw_loops(stage, rng, gpu)
    if gpu:
        _draw_copies(s, random.Random(len(s.steps)))
        _draw_swizzles(s, random.Random(len(s.steps)))
    return s


def _draw_swizzles(s: Schedule, rng: random.Random) -> None:
    for stage in _compute_stages(s):
        if stage.scope == "shared" and rng.random() < 0.4:
            stage.swizzle(rng.choice([32, 64, 128]))


def _draw_copies(s: Schedule, rng: random.Random) -> None:
    """Asynchronous copies and rings of stages in shared memory, where they are copies."""
    for stage in _compute_stages(s):
        if stage.attach_kind != "scope" or stage.scope != "shared" or rng.random() < 0.3:
            continue
        before = len(s.steps)
        try:
            stage.async_copy() if rng.random() < 0.2 else stage.pipeline(rng.randint(0, 5))
            LoopTree(s)
        except ScheduleError:
            stage.slots = 0
            del s.steps[before:]


def _declared(axis: IterVar) -> IterVar:
    """The axis that a user holds: stages may have copies of those that share a name or a sum."""
    return axis.declared if isinstance(axis, AxisCopy) else axis


def _compute_stages(s: Schedule) -> list[Stage]:
    return [st for st in s.stages if isinstance(st.op, ComputeOp)]


def draw_products(s: Schedule, rng: Random, share: float) -> None:
    """Matrix products of sums of products, whole extents, and factors in another layout.

    share: of what could be changed
    """
    for stage in _compute_stages(s):
        if stage.op.combiner is None or rng.random() > share:
            continue
        tensor = stage.tensor
        for _ in range(3 if rng.random() < 0.6 else 0):
            with suppress(ScheduleError):
                tensor = s.as_product(tensor, *_draw_groups(s[tensor].op, rng))
                break
        for _ in range(3 if rng.random() < 0.7 else 0):
            axes = [*s[tensor].op.axis, *s[tensor].op.reduce_axis]
            some = rng.sample(axes, rng.randint(1, len(axes)))
            with suppress(ScheduleError):
                s.pad(tensor, {_declared(ax): rng.randint(2, 4) for ax in some})
                break
    for stage in list(s.stages):
        is_input = isinstance(stage.op, PlaceholderOp)
        n = len(stage.op.shape)
        if not n or rng.random() > (share / 3 if is_input else 0.7):
            continue
        if is_input or "packing" in stage.op.attrs:
            blocks = [[rng.randint(2, 3) for _ in range(rng.choice((0, 1, 2)))] for _ in range(n)]
            parts = [n * (j + 1) + d for d, own in enumerate(blocks) for j in range(len(own))]
            order = [*range(n), *parts]
            rng.shuffle(order)
            s.pack(stage.tensor, blocks, order)


def _draw_groups(op: ComputeOp, rng: Random) -> tuple[list[IterVar], ...]:
    """Axes for m, n and k: those along which one read of the body varies, shuffled."""
    reads = [n for n in E.walk(op.body) if n.op == "read"]
    follows = [E.free_variables(*n.args) for n in reads[:2]]
    groups: tuple[list[IterVar], ...] = ([], [], [])
    for ax in rng.sample(op.axis, len(op.axis)):
        among = [k for k, variables in enumerate(follows) if ax.var in variables]
        if among and rng.random() < 0.9:
            groups[rng.choice(among)].append(_declared(ax))
    for ax in rng.sample(op.reduce_axis, len(op.reduce_axis)):
        if not groups[2] or rng.random() < 0.7:
            groups[2].append(_declared(ax))
    return groups


def _draw_dataflow(s: Schedule, rng: random.Random, gpu: bool) -> None:
    for stage in _compute_stages(s):
        if not stage.is_output and stage.op.combiner is None and rng.random() < 0.5:
            stage.compute_inline()
    for stage in list(s.stages):
        if isinstance(stage.op, PlaceholderOp) and len(stage.op.shape) > 0 and rng.random() < 0.15:
            n = len(stage.op.shape)
            blocks = tuple(rng.choice([1, 1, 2, 3]) for _ in range(n))
            order = [*range(n), *(n + d for d in range(n) if blocks[d] > 1)]
            rng.shuffle(order)
            s.pack(stage.tensor, blocks, order)
    for stage in _compute_stages(s):
        if stage.attach_kind == "inline":
            continue
        if stage.op.combiner is not None and rng.random() < 0.25:
            axis = _declared(rng.choice(stage.op.reduce_axis))
            if rng.random() < 0.6:
                axis = rng.choice(stage.split(axis, factor=rng.randint(1, 3)))
            s.rfactor(stage.tensor, axis, rng.randint(0, len(stage.op.axis)))
        elif rng.random() < 0.35:
            s.cache_write(
                stage.tensor, rng.choice(["local", "shared"] if gpu else ["local", "global"])
            )
    for stage in list(s.stages):
        readers = [r for r in s.readers(stage) if r.attach_kind != "inline"]
        if readers and stage.op.shape and rng.random() < 0.35:
            chosen = rng.sample(readers, rng.randint(1, len(readers)))
            scope = rng.choice(["shared", "local"] if gpu else ["local", "global"])
            tensor = stage.tensor
            if len(stage.tensors) > 1:
                tensor = rng.choice(stage.tensors)
                chosen = [r for r in chosen if tensor in r.op.input_tensors]
                if not chosen:
                    continue
            copy = s.cache_read(tensor, scope, [r.tensor for r in chosen])
            if rng.random() < 0.3:
                s.cache_read(copy, "local", [r.tensor for r in chosen])


def _draw_attachment(s: Schedule, stage: Stage, rng: random.Random) -> None:
    """Attach at a random loop that has all readers inside it, if one is found in a few tries."""
    hosts = [st for st in _compute_stages(s) if st is not stage and st.attach_kind != "inline"]
    for _ in range(4):
        host = rng.choice(hosts) if hosts else None
        if host is None or not host.leaf_iter_vars:
            continue
        before = len(s.steps)
        try:
            stage.compute_at(host, rng.choice(host.leaf_iter_vars))
            check_readers(s)
            return
        except ScheduleError:
            if len(s.steps) > before:
                stage.compute_root()
                del s.steps[before:]


def check_readers(s: Schedule) -> None:
    """Raise if a reader is outside the loop; other stages may still be in an unfinished state."""
    scopes = [(st, st.scope) for st in s.stages]
    for st, _ in scopes:
        if st.attach_kind == "root":
            st.scope = "global"
    try:
        LoopTree(s)
    finally:
        for st, scope in scopes:
            st.scope = scope


def _draw_loops(stage: Stage, rng: random.Random, gpu: bool) -> None:
    op = stage.op
    for axis in (*op.axis, *op.reduce_axis):
        axis = _declared(axis)
        for _ in range(rng.choice([0, 0, 1, 1, 2])):
            if rng.random() < 0.7:
                axis = rng.choice(stage.split(axis, factor=rng.randint(1, 5)))
            else:
                axis = rng.choice(stage.split(axis, nparts=rng.randint(1, 5)))
    if rng.random() < 0.7:
        order = [_declared(ax) for ax in stage.leaf_iter_vars]
        rng.shuffle(order)
        if rng.random() < 0.6:
            order.sort(key=lambda ax: ax.kind == "reduce")
        stage.reorder(*order)
    _draw_fusion(stage, rng)
    if gpu:
        _draw_binding(stage, rng)
    elif stage.attach_kind == "root" and rng.random() < 0.4:
        outer = stage.leaf_iter_vars[:1]
        if outer and outer[0].kind == "spatial":
            stage.parallel(outer[0])
    free = [
        ax for ax in stage.leaf_iter_vars if ax not in stage.binds and ax not in stage.annotations
    ]
    if free and free[-1].kind == "spatial" and rng.random() < 0.35:
        stage.vectorize(free.pop())
    if free and rng.random() < 0.3:
        stage.unroll(rng.choice(free))
    if stage.leaf_iter_vars and rng.random() < 0.3:
        stage.pragma(stage.leaf_iter_vars[0], "auto_unroll_max_step", rng.choice([0, 4, 16, 64]))
    if len(op.axis) > 1 and not stage.is_output and rng.random() < 0.2:
        stage.storage_align(op.axis[0], rng.choice([2, 4, 8]), rng.randint(0, 1))
        if len(op.axis) > 1 and rng.random() < 0.5:
            stage.storage_order(op.axis[0])


def _draw_fusion(stage: Stage, rng: random.Random) -> None:
    for _ in range(rng.choice([0, 0, 1, 2])):
        leaves = stage.leaf_iter_vars
        pairs = [k for k in range(len(leaves) - 1) if leaves[k].kind == leaves[k + 1].kind]
        if pairs:
            k = rng.choice(pairs)
            stage.fuse(leaves[k], leaves[k + 1])


def _draw_binding(stage: Stage, rng: random.Random) -> None:
    spatial: list[IterVar] = [ax for ax in stage.leaf_iter_vars if ax.kind == "spatial"]
    reduce = [ax for ax in stage.leaf_iter_vars if ax.kind == "reduce"]
    if stage.attach_kind == "root" and reduce and rng.random() < 0.3:
        _draw_cross_thread(stage, spatial, reduce, rng)
    elif stage.attach_kind == "root":
        tags = [*rng.sample(BLOCK_TAGS, rng.randint(0, 2)), *["vthread"] * rng.randint(0, 2)]
        tags += rng.sample(THREAD_TAGS, rng.randint(0, 2))
        for axis, tag in zip(spatial, tags, strict=False):
            stage.bind(axis, tag)
    elif stage.scope == "shared":
        for axis, tag in zip(spatial, rng.sample(THREAD_TAGS, rng.randint(0, 2)), strict=False):
            stage.bind(axis, tag)


def _draw_cross_thread(
    stage: Stage, spatial: list[IterVar], reduce: list[IterVar], rng: random.Random
) -> None:
    """Spatial loops outside, the reduction shared by threads."""
    stage.reorder(*spatial, *reduce)
    tags = rng.sample(THREAD_TAGS, 3)
    for axis in rng.sample(reduce, rng.randint(1, min(2, len(reduce)))):
        stage.bind(axis, tags.pop())
    if spatial and rng.random() < 0.5:
        stage.bind(rng.choice(spatial), tags.pop())
    free = [ax for ax in spatial if ax not in stage.binds]
    if free and rng.random() < 0.7:
        stage.bind(free[0], rng.choice(BLOCK_TAGS))
