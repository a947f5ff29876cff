"""Products for CUDA by TVM's names: convolutions with channels or batch innermost, dense,
batch_matmul.

In: anchors of `topi.nn`.  Out: tiles of threads, slices in shared memory and in registers.
Read next: `mali.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.schedule import Stage
from tilewright.schedule.space.decision import Size
from tilewright.schedule.template import Anchored
from tilewright.schedule.thread_loops import staged
from tilewright.te.tensor import IterVar
from tilewright.topi.templates.gpu import accumulator, op_of
from tilewright.topi.templates.gpu_epilogue import inline_around
from tilewright_tvm.topi.templates import workloads
from tilewright_tvm.topi.templates.naming import GPU, by_name
from tilewright_tvm.topi.templates.tiles import define_unroll, factors, fetch, spread

STEP = 8  # channels of a slice, conv2d_hwcn
PADDING = 8  # elements between rows in shared memory, conv2d_nhwc
# TVM's later versions have a wider vector, its earlier ones do not: it comes last, so that indices
# of both are the same.
NHWC_KNOBS = {
    "tile_n": [2, 4, 8], "tile_c": [2, 4, 8], "num_thread_n": [4, 8, 16],
    "num_thread_c": [4, 8, 16], "vthread_n": [1, 2], "vthread_c": [1, 2], "step": [16, 3, 32, 64],
    "vectorize": [1, 2, 4, 8, 16],
}  # fmt: skip


def schedule_hwcn(cfg: Any, a: Anchored) -> None:
    s, last = a.schedule, inline_around(a)

    def few(tile: Any) -> bool:
        return tile.size[1] in (1, 2, 4, 8) and tile.size[2] in (1, 2, 4, 8, 16, 32)

    y, x, channel, batch = s[last].op.axis
    cfg.define_split("tile_fi", channel.size, num_outputs=4, filter=few)
    cfg.define_split("tile_ni", batch.size, num_outputs=4, filter=few)
    tensors = factors(a)
    local = accumulator(s, a.anchor, last)
    axes = {"tile_fi": channel, "tile_ni": batch}
    names = (("tile_fi",), ("tile_ni",))
    s[last].reorder(y, x, channel, batch)
    pixels = s[last].fuse(y, x)
    tiles = spread(cfg, s, last, axes, ((), *names), names, [pixels])
    s[local].compute_at(s[last], tiles.thread)
    ry, rx, rc = op_of(s, local).reduce_axis
    outer, inner = s[local].split(rc, factor=STEP)
    s[local].reorder(outer, ry, rx, inner, *s[local].op.axis)
    for tensor in tensors:
        shared = s.cache_read(tensor, "shared", [local], staged(tensor.dtype))
        own = s.cache_read(shared, "local", [local])
        s[shared].compute_at(s[local], rx)
        s[own].compute_at(s[local], inner)
        share_rows(s[shared], tiles.counts)


def share_rows(shared: Stage, counts: list[Size]) -> None:
    """Each thread copies some channels, and of these a piece of every row, four at a time."""
    *image, channel, inner = shared.op.axis
    down, channel = shared.split(channel, nparts=counts[0])
    across, inner = shared.split(inner, nparts=counts[1])
    inner, lane = shared.split(inner, factor=4)
    shared.reorder(down, across, *image, channel, inner, lane)
    shared.bind(down, "threadIdx.y")
    shared.bind(across, "threadIdx.x")
    shared.vectorize(lane)


def schedule_nhwc(cfg: Any, a: Anchored) -> None:
    """A block has one column of the image, some of the batch and some channels."""
    s, last = a.schedule, inline_around(a)
    for name, values in NHWC_KNOBS.items():
        cfg.define_knob(name, values)
    sizes = {name: cfg[name].val for name in NHWC_KNOBS}
    data, weight = factors(a)
    local = accumulator(s, a.anchor, last)
    stage = s[last]
    batch, row, column, channel = stage.op.axis
    channel, lane = stage.split(channel, factor=sizes["vectorize"])
    thread_c, channel = stage.split(channel, factor=sizes["tile_c"])
    virtual_c, thread_c = stage.split(thread_c, factor=sizes["num_thread_c"])
    block_c, virtual_c = stage.split(virtual_c, factor=sizes["vthread_c"])
    thread_n, batch = stage.split(batch, factor=sizes["tile_n"])
    virtual_n, thread_n = stage.split(thread_n, factor=sizes["num_thread_n"])
    block_n, virtual_n = stage.split(virtual_n, factor=sizes["vthread_n"])
    stage.reorder(
        row, column, block_n, block_c, virtual_n, virtual_c, thread_n, thread_c, batch, channel,
        lane,
    )  # fmt: skip
    pixel = stage.fuse(row, column)
    for loop, tag in (
        (pixel, "blockIdx.x"), (block_n, "blockIdx.y"), (block_c, "blockIdx.z"),
        (virtual_n, "vthread"), (virtual_c, "vthread"), (thread_n, "threadIdx.y"),
        (thread_c, "threadIdx.x"),
    ):  # fmt: skip
        stage.bind(loop, tag)
    stage.vectorize(lane)
    s[local].compute_at(stage, thread_c)
    ry, rx, rc = op_of(s, local).reduce_axis
    outer, inner = s[local].split(rc, factor=sizes["step"])
    *image, channels = s[local].op.axis
    s[local].reorder(outer, ry, rx, inner, *image, channels)
    s[local].vectorize(channels)
    threads = [sizes["num_thread_n"], sizes["num_thread_c"]]
    for tensor, lanes in ((data, None), (weight, sizes["vectorize"])):
        shared = s.cache_read(tensor, "shared", [local], staged(tensor.dtype))
        own = s.cache_read(shared, "local", [local])
        s[shared].compute_at(s[local], rx)
        s[own].compute_at(s[local], inner)
        share_slice(s[shared], threads, lanes)


def share_slice(shared: Stage, threads: list[Size], lanes: Size | None) -> None:
    """Copied in turn; rows are apart by a few elements more than they have."""
    *_, row, _ = shared.op.axis
    shared.storage_align(row, PADDING, PADDING - 1)
    fetch(shared, threads, in_turn=True, lanes=lanes)


def schedule_small_batch(cfg: Any, a: Anchored) -> None:
    """A block for each element, whose threads share the sum."""
    s, last = a.schedule, inline_around(a)
    depth = op_of(s, a.anchor).reduce_axis[0]
    cfg.define_split("tile_k", depth.size, num_outputs=2)
    adder = accumulator(s, a.anchor, last)
    stage = s[last]
    i, j = stage.op.axis
    stage.bind(i, "blockIdx.y")
    stage.bind(j, "blockIdx.x")
    s[adder].compute_at(stage, j)
    _, lane = cfg["tile_k"].apply(s, adder, op_of(s, adder).reduce_axis[0])
    s[adder].bind(lane, "threadIdx.x")


def schedule_large_batch(cfg: Any, a: Anchored) -> None:
    s, last = a.schedule, inline_around(a)
    i, j = s[last].op.axis
    depth = op_of(s, a.anchor).reduce_axis[0].size

    # The original filters tiles, also by their number, which it does not know yet: nothing is left,
    # and then it takes all.
    cfg.define_split("tile_x", i.size, num_outputs=4)
    cfg.define_split("tile_y", j.size, num_outputs=4)
    cfg.define_split("tile_k", depth, num_outputs=3)
    tensors = factors(a)
    local = accumulator(s, a.anchor, last)
    names = (("tile_y",), ("tile_x",))
    tiles = spread(cfg, s, last, {"tile_y": j, "tile_x": i}, names, names)
    s[local].compute_at(s[last], tiles.thread)
    outer, middle, inner = cfg["tile_k"].apply(s, local, op_of(s, local).reduce_axis[0])
    rows, columns = s[local].op.axis
    s[local].reorder(outer, middle, inner, columns, rows)
    s[local].unroll(middle)
    for tensor in tensors:
        shared = s.cache_read(tensor, "shared", [local], staged(tensor.dtype))
        own = s.cache_read(shared, "local", [local])
        s[shared].compute_at(s[local], outer)
        s[own].compute_at(s[local], middle)
        share_matrix(s[shared], tiles.counts)


def share_matrix(shared: Stage, threads: list[Size]) -> IterVar:
    """All threads of the block copy: rows down, pieces of a row across.

    Returns the loop over the rows of a thread.
    """
    *_, row, column = shared.op.axis
    down, row = shared.split(row, nparts=threads[0])
    across, column = shared.split(column, nparts=threads[1])
    shared.reorder(down, across, row, column)
    shared.bind(down, "threadIdx.y")
    shared.bind(across, "threadIdx.x")
    return row


def schedule_batch_matmul(cfg: Any, a: Anchored) -> None:
    s, last = a.schedule, inline_around(a)
    batch, y, x = s[last].op.axis
    cfg.define_split("tile_y", y.size, num_outputs=3)
    cfg.define_split("tile_x", x.size, num_outputs=3)
    cfg.define_split("tile_k", op_of(s, a.anchor).reduce_axis[0].size, num_outputs=2)
    define_unroll(cfg, (8, 16, 32, 64))
    tensors = factors(a)
    local = accumulator(s, a.anchor, last)
    names = (("tile_y",), ("tile_x",))
    tiles = spread(cfg, s, last, {"tile_y": y, "tile_x": x}, ((), *names), names, [batch])
    s[local].compute_at(s[last], tiles.thread)
    outer, inner = cfg["tile_k"].apply(s, local, op_of(s, local).reduce_axis[0])
    s[local].reorder(outer, inner, *s[local].op.axis)
    steps = cfg["auto_unroll_max_step"].val
    for stage, loop in ((s[last], tiles.inner[0]), (s[local], inner)):
        stage.pragma(loop, "auto_unroll_max_step", steps)
    for tensor in tensors:
        shared = s.cache_read(tensor, "shared", [local], staged(tensor.dtype))
        own = s.cache_read(shared, "local", [local])
        s[shared].compute_at(s[local], outer)
        s[own].compute_at(s[local], inner)
        row = share_matrix(s[shared], tiles.counts)
        s[shared].pragma(row, "auto_unroll_max_step", steps)


by_name("conv2d_hwcn.cuda", GPU, ["conv2d_hwcn"], workloads.CONV["HWCN"], schedule_hwcn)
by_name("conv2d_nhwc.gpu", GPU, ["conv2d_nhwc"], workloads.CONV["NHWC"], schedule_nhwc)
by_name("dense_small_batch.gpu", GPU, ["dense"], workloads.dense, schedule_small_batch)
by_name("dense_large_batch.gpu", GPU, ["dense"], workloads.dense, schedule_large_batch)
by_name("matmul_default.gpu", GPU, ["matmul"], workloads.matmul, schedule_small_batch)
by_name("batch_matmul.cuda", GPU, ["batch_matmul"], workloads.batch_matmul, schedule_batch_matmul)
