"""A rough machine model of `gpu.py`: good enough to choose a configuration that nobody tuned.

In: the space of a contraction and its anchor.  Out: estimated seconds of many configurations at
once, and the index of the best.  Read next: `gpu.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.schedule.space.decision import ceil_div
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp
from tilewright.topi.templates.gpu import Roles, footprint

SAMPLE = 16384  # configurations looked at
OTHER_REGISTERS = 56
STAGE_SECONDS = 0.7e-6  # a load from memory and two barriers, with nothing to hide them
FULL_WARPS = 12  # warps of a multiprocessor from which arithmetic hides its own latency

Vector = npt.NDArray[np.float64]


def best_contraction(space: Any, op: ComputeOp, roles: Roles, target: Target) -> int:
    """The best of a fixed sample, by `estimate`."""
    rng = np.random.default_rng(0)
    indices = space.sample(SAMPLE, rng)
    return int(indices[np.argmin(estimate(space, indices, op, roles, target))])


def estimate(space: Any, indices: Any, op: ComputeOp, roles: Roles, target: Target) -> Vector:
    """Seconds of each configuration; infinite where it breaks a limit of the target."""
    limits, at = target.limits, space.decode(indices)
    extent = [ax.size for ax in op.axis]
    window = prod(ax.size for d, ax in enumerate(op.reduce_axis) if d != roles.depth)
    axes = [("tile_x", roles.columns)]
    if roles.rows is not None:
        axes.append(("tile_y", roles.rows))

    split, lanes, apart = at["split_k"], at["threads_k"], at["vthread_x"]
    channels = at["tile_f.1"] * at["tile_f.2"] * at["tile_f.3"]
    tiles = {name: at[f"{name}.1"] * at[f"{name}.2"] for name, _ in axes}
    blocks = split * ceil_div(extent[roles.channel], channels)
    for name, position in axes:
        blocks = blocks * ceil_div(extent[position], tiles[name])
    blocks = blocks * prod(extent[d] for d in roles.batch(len(extent)))
    strips = prod(at[f"{name}.1"] for name, _ in axes)
    each = prod(at[f"{name}.2"] for name, _ in axes)
    threads = at["tile_f.2"] * ceil_div(strips, apart) * lanes
    held = at["tile_f.1"] * at["tile_f.3"] * apart * each
    depth = op.reduce_axis[roles.depth].size
    own = ceil_div(ceil_div(depth, split), lanes)
    step = np.minimum(at["step_k"], own)

    inputs = footprint(op, roles, tiles)  # of one channel of the data
    slice_bytes = 4 * step * lanes * (inputs + window * channels)
    board = np.where(lanes > 1, 4 * lanes * channels * prod(tiles.values()), 0)
    shared = slice_bytes + board
    registers = held + OTHER_REGISTERS
    legal = (threads <= limits.max_threads_per_block) & (shared <= limits.shared_bytes_per_block)
    legal &= registers <= np.minimum(
        limits.registers_per_thread, limits.registers_per_block // threads
    )

    resident = np.minimum(limits.max_threads_per_core // threads, limits.max_blocks_per_core)
    resident = np.minimum(resident, limits.shared_bytes_per_core // np.maximum(shared + 1024, 1))
    resident = np.minimum(resident, limits.registers_per_block // (registers * threads))
    busiest = ceil_div(blocks, limits.cores)
    at_once = np.maximum(np.minimum(resident, busiest), 1)
    warps = ceil_div(threads, limits.warp_size)
    steps = own * window * held
    reads = own * window * (at["tile_f.1"] * at["tile_f.3"] / 2 + apart * each * 1.3)
    copies = own * lanes * (inputs * 12 + window * channels) / threads
    clock = limits.peak_flops / limits.cores / 256  # 128 multiply-adds a cycle
    busy = np.minimum(at_once * warps / FULL_WARPS, 1.0)
    issued = (steps + reads + copies) / 4  # four schedulers share one path to shared memory
    cycles = busiest * warps * np.maximum(issued, reads + copies / 2) / busy
    stages = ceil_div(own, step)
    loading = stages * STAGE_SECONDS * ceil_div(busiest, at_once) / np.minimum(at_once, 3)
    traffic = blocks * 4.0 * own * lanes * (inputs + window * channels) / limits.l2_bandwidth
    partial = split * 4.0 * prod(extent)
    adding = np.where(split > 1, 1.2e-6 + 2 * partial / limits.l2_bandwidth, 0)
    seconds = np.maximum(cycles / clock, traffic) + loading + adding + limits.launch_seconds
    return np.where(legal & (resident > 0), seconds, np.inf)
