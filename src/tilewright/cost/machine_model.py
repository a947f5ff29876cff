"""Seconds of a schedule in closed form: what a device of known rates would need, per candidate.

In: the facts of `gpu_facts.py` or `cpu_facts.py`, and `Limits`.  Out: seconds, and the parts they
come from.  Templates choose by it what runs untuned, and a search ranks by it what was not measured
yet; `search/propose/cost_model.py` learns the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import FLOAT32
from tilewright.cost.cpu_facts import CpuKernel, cpu_kernels
from tilewright.cost.gpu_facts import INSTRUCTION_BYTES, GpuKernel, gpu_kernels
from tilewright.schedule.sketch import Group
from tilewright.schedule.space.decision import ceil_div, maximum, minimum
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Limits

Vector = npt.NDArray[np.float64]

# Cycles of a core, about the same on all GPUs of the last ten years.
GLOBAL_LATENCY = 500
SHARED_LATENCY = 30
BARRIER = 40
JOIN = 3500  # of a block, to have its stores seen, to be counted, to see those of others
FMA_LATENCY = 4
BEGIN = 2000  # of a kernel, until its first block computes
START = 1000  # of a block: its launch, first instructions, last stores
ISSUE = 4  # warp instructions per cycle
ALONE = 2  # cycles per instruction of a warp that has no other to fill its gaps
QUARTERS = 4  # of a core, each with units of its own
LANES = 128  # multiply-adds per cycle, of float32
CODE_CACHE = 128 << 10  # bytes of instructions that a core holds
CODE_BYTES = 4  # per cycle, of instructions that do not fit there
SPILL = 2 * GLOBAL_LATENCY  # a load that goes out to local memory and back
SHARED_PER_BLOCK = 1024  # shared bytes that the system takes from each block

# Cycles of a CPU core.
CPU_FMA_PORTS = 2
CPU_FMA_LATENCY = 4
CPU_LOADS = 2
CPU_LOOP = 1.5
CPU_FORK = 3e-6  # seconds to start and join the threads
CPU_GATHER = 0.5  # cycles per element of a load that is not contiguous


@dataclass(frozen=True)
class Times:
    """Seconds of one kernel.  The parts overlap: they do not add up to `total`.

    occupancy: warps that run together on the busiest core, of those it has room for
    tail:      useful share of the cores' time, given that blocks are whole
    tensor:    of the units that multiply matrices
    """

    total: Any
    compute: Any
    shared: Any
    cache: Any
    memory: Any
    latency: Any
    occupancy: Any
    tail: Any
    resident: Any
    tensor: Any = 0.0


def predict_seconds(group: Group) -> Vector:
    """Seconds of each candidate of the group, float64 [n].  Meant for legal ones."""
    return seconds(group.resources, len(group.rows))


def seconds(resources: Resources, rows: int) -> Vector:
    """The same for any population of one structure; for ints, `rows` is 1."""
    _, times = analyse(resources, rows)
    return whole(times, rows)


def analyse(
    resources: Resources, rows: int
) -> tuple[list[GpuKernel] | list[CpuKernel], list[Times]]:
    """Facts and times of every kernel."""
    limits = resources.target.limits
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if resources.target.has_threads:
            gpu = gpu_kernels(resources, rows)
            return gpu, [gpu_times(k, limits) for k in gpu]
        cpu = cpu_kernels(resources)
        return cpu, [cpu_times(k, limits) for k in cpu]


def whole(times: list[Times], rows: int) -> Vector:
    total = np.zeros(rows)
    for t in times:
        total += t.total
    return np.nan_to_num(total, nan=1e3, posinf=1e3)


# -- GPU -------------------------------------------------------------------------------------------


def residency(k: GpuKernel, limits: Limits) -> Any:
    """Blocks that fit on one core together, at least 1."""
    threads = k.warps * limits.warp_size + k.loading
    most = minimum(limits.max_blocks_per_core, limits.max_threads_per_core // threads)
    registers = ceil_div(maximum(k.registers, 32), 8) * 8 * threads
    most = minimum(most, limits.shared_bytes_per_core // (k.shared_bytes + SHARED_PER_BLOCK))
    return maximum(minimum(most, limits.registers_per_block // registers), 1)


def gpu_times(k: GpuKernel, limits: Limits) -> Times:
    """A block is a chain of phases (load, barrier, compute); others on its core fill the gaps.

    Asynchronous copies take no time of their own while what was asked for before is computed with.
    """
    cycle = 2 * LANES * limits.cores / limits.rate(FLOAT32)
    resident = residency(k, limits)
    busiest = ceil_div(k.blocks, limits.cores)  # blocks of the busiest core
    together = minimum(resident, busiest)
    rounds = ceil_div(busiest, resident)
    spill = maximum(k.registers / limits.registers_per_thread, 1.0) ** 2

    missing = 1 - minimum(CODE_CACHE / maximum(k.code, 1), 1.0)  # share of the code
    fetch = missing * INSTRUCTION_BYTES / CODE_BYTES  # cycles an instruction waits to be fetched

    # What one block takes of its core's units, in cycles.
    issue = k.instructions * (1 + fetch) / ISSUE * spill
    shared = k.shared_load.passes + k.shared_store.passes
    load_unit = (k.global_load.passes + k.global_store.passes) / 4
    tensor = k.tensor / cycle
    arithmetic = soft_max(issue, tensor) if k.has_atoms else issue
    units = soft_max(arithmetic, shared + load_unit)

    # What one warp of it waits for, in cycles.
    own = k.instructions / k.warps * (ALONE + fetch)
    dependent = k.fma * FMA_LATENCY / minimum(maximum(k.tile, 1), 8)
    busy = maximum(own, dependent) + k.shared_waits * SHARED_LATENCY
    if k.has_atoms:  # a warp has one of the units that multiply matrices
        chained = maximum(k.tensor_wait, QUARTERS * tensor / k.warps)
        busy = maximum(busy, chained + k.shared_waits * SHARED_LATENCY)
    fills = k.global_waits * GLOBAL_LATENCY + k.spills * SPILL + k.barriers * BARRIER
    fills = fills + k.joins * JOIN
    computing = soft_max(busy, units)
    for ring in k.rings:
        each = computing / maximum(ring.waits, 1)  # from one wait to the next
        rest = maximum(GLOBAL_LATENCY - ring.ahead * each, 0)
        fills = fills + ring.starts * GLOBAL_LATENCY + (ring.waits - ring.starts) * rest
    alone = computing + fills + START

    core = BEGIN + rounds * soft_max(alone, together * units)
    cache = k.traffic / limits.l2_bandwidth
    memory = k.unique / limits.memory_bandwidth * (1.0 if k.unique > limits.l2_bytes else 0.2)
    total = soft_max(core * cycle, soft_max(cache, memory)) + limits.launch_seconds
    slots = limits.max_threads_per_core / limits.warp_size
    return Times(
        total, busiest * issue * cycle, busiest * shared * cycle, cache, memory,
        rounds * alone * cycle, minimum(together * k.warps / slots, 1.0),
        k.blocks / (busiest * limits.cores), resident, busiest * k.tensor,
    )  # fmt: skip


def soft_max(a: Any, b: Any) -> Any:
    """Between max(a, b) and a + b: resources that overlap most of the time."""
    return (a**3 + b**3) ** (1 / 3)


# -- CPU -------------------------------------------------------------------------------------------


def cpu_times(k: CpuKernel, limits: Limits) -> Times:
    """Per stage: ports of the core, the chain of accumulators, bytes from L2 and from memory."""
    lanes = limits.vector_bytes // FLOAT32.bytes
    cycle = 2 * CPU_FMA_PORTS * lanes * limits.cores / limits.rate(FLOAT32)
    total: Any = 0
    compute: Any = 0
    latency: Any = 0
    cache: Any = 0
    memory: Any = 0
    for s in k.stages:
        spilled = maximum(s.accumulators + s.operands + 1 - limits.vector_registers, 0)
        loads = s.loads + 2 * spilled * s.bodies * s.chain
        ports = soft_max(s.arithmetic / CPU_FMA_PORTS, loads / CPU_LOADS + s.stores)
        chain = s.bodies * s.chain * CPU_FMA_LATENCY * (s.is_reduction * 1)
        core = maximum(ports, chain) + s.bodies * CPU_LOOP + s.gathers * CPU_GATHER
        speed = s.parallel / ceil_div(s.parallel, limits.cores)
        near = s.l2_bytes / (limits.l2_bandwidth / limits.cores)
        far = s.memory_bytes / (limits.memory_bandwidth / speed)
        busy = soft_max(core * cycle, near) / speed + far / speed
        total = total + busy + CPU_FORK * (s.parallel > 1) * s.forks
        compute, latency = compute + core * cycle / speed, latency + chain * cycle / speed
        cache, memory = cache + near / speed, memory + far / speed
    total = total + limits.launch_seconds
    tail = k.anchor.parallel / (ceil_div(k.anchor.parallel, limits.cores) * limits.cores)
    used = (k.anchor.accumulators + k.anchor.operands) / limits.vector_registers
    return Times(total, compute, 0.0, cache, memory, latency, used, tail, 1.0)
