"""Features of candidates for the cost model: dimensionless, so that one model serves all tasks.

In: a `Group` of candidates (or one schedule's resources).  Out: float32 [n, len(FEATURES)], and the
machine model's seconds, which come from the same facts.  Read next: `search/propose/cost_model.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.cost.cpu_facts import CpuKernel
from tilewright.cost.gpu_facts import GpuKernel
from tilewright.cost.machine_model import Times, analyse, residency, whole
from tilewright.schedule.sketch import Group
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Limits

Matrix = npt.NDArray[np.float32]
Vector = npt.NDArray[np.float64]


def features(group: Group) -> Matrix:
    """float32 [n, len(FEATURES)], a row per candidate of the group."""
    return features_and_seconds(group)[0]


def features_and_seconds(group: Group) -> tuple[Matrix, Vector]:
    """`features` and `machine_model.predict_seconds` for the price of one."""
    return describe(group.resources, len(group.rows))


def describe(resources: Resources, rows: int) -> tuple[Matrix, Vector]:
    """The same for any population of one structure; for ints, `rows` is 1."""
    kernels, times = analyse(resources, rows)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return _matrix(kernels, times, resources.target.limits, rows), whole(times, rows)


def _matrix(
    kernels: list[GpuKernel] | list[CpuKernel], times: list[Times], limits: Limits, rows: int
) -> Matrix:
    """Columns of the kernel with the most work; how it relates to the others is a column too."""
    main = max(range(len(kernels)), key=lambda i: kernels[i].work)
    kernel, time = kernels[main], times[main]
    table: dict[str, Callable[[Any, Any, Limits], Any]] = (
        GPU_COLUMNS if isinstance(kernel, GpuKernel) else CPU_COLUMNS
    )
    out = np.zeros((len(FEATURES), rows), np.float32)
    total: Any = sum(t.total for t in times)
    values: dict[str, Any] = {
        "log_work": log2(kernel.work),
        "kernels": float(len(kernels)),
        "main_share": time.total / total,
        "log_seconds_over_peak": log2(total * limits.rate(kernel.dtype) / max(kernel.work, 1)),
    }
    for part in ("compute", "shared", "cache", "memory", "latency"):
        values[f"time_{part}"] = getattr(time, part) / time.total
    values |= {name: column(kernel, time, limits) for name, column in table.items()}
    if isinstance(kernel, GpuKernel) and kernel.has_atoms:
        values |= {name: column(kernel, time, limits) for name, column in ATOM_COLUMNS.items()}
    for name, value in values.items():
        out[_POSITION[name]] = value
    np.nan_to_num(out, copy=False, nan=0.0, posinf=64.0, neginf=-64.0)
    return np.ascontiguousarray(np.clip(out, -1e6, 1e6, out=out).T)


def log2(x: Any) -> Any:
    return np.log2(np.maximum(x, 1e-9))


def log2p(x: Any) -> Any:
    """For counts that may be 0."""
    return np.log2(1.0 + np.maximum(x, 0))


# name -> (kernel, its times, limits) -> values
GPU_COLUMNS: dict[str, Callable[[GpuKernel, Times, Limits], Any]] = {
    "log_threads": lambda k, t, m: log2(k.threads),
    "log_thread_x": lambda k, t, m: log2(k.block_dims[0]),
    "log_thread_y": lambda k, t, m: log2(k.block_dims[1]),
    "log_thread_z": lambda k, t, m: log2(k.block_dims[2]),
    "log_blocks": lambda k, t, m: log2(k.blocks),
    "log_blocks_per_core": lambda k, t, m: log2(k.blocks / m.cores),
    "log_vthreads": lambda k, t, m: log2(k.vthreads),
    "warp_efficiency": lambda k, t, m: k.threads / (k.warps * m.warp_size),
    "resident_blocks": lambda k, t, m: log2(residency(k, m)),
    "occupancy": lambda k, t, m: t.occupancy,
    "waves": lambda k, t, m: log2p(k.blocks / (m.cores * t.resident)),
    "tail": lambda k, t, m: t.tail,
    "registers": lambda k, t, m: k.registers / m.registers_per_thread,
    "log_registers": lambda k, t, m: log2(k.registers),
    "shared_share": lambda k, t, m: k.shared_bytes / m.shared_bytes_per_block,
    "log_shared": lambda k, t, m: log2p(k.shared_bytes),
    "log_tile": lambda k, t, m: log2(k.tile),
    "log_chain": lambda k, t, m: log2(k.chain),
    "log_body": lambda k, t, m: log2(k.body),
    "log_rolled": lambda k, t, m: log2(k.rolled),
    "log_fma": lambda k, t, m: log2p(k.fma + k.atom_fma),
    "log_code": lambda k, t, m: log2p(k.code),
    "divisions": lambda k, t, m: k.divisions,
    "log_shared_waits": lambda k, t, m: log2p(k.shared_waits),
    "log_global_waits": lambda k, t, m: log2p(k.global_waits),
    "log_issue_per_wait": lambda k, t, m: log2p(
        k.instructions / k.warps / np.maximum(k.shared_waits + k.global_waits, 1)
    ),
    "log_spills": lambda k, t, m: log2p(k.spills),
    "issue_per_fma": lambda k, t, m: log2p(k.instructions / _fma(k)),
    "log_phases": lambda k, t, m: log2p(k.phases),
    "fma_per_phase": lambda k, t, m: log2p((k.fma + k.atom_fma) / np.maximum(k.phases, 1)),
    "log_copy_trips": lambda k, t, m: log2p(k.copy_trips),
    "copy_lanes": lambda k, t, m: k.copy_lanes,
    "vector_width": lambda k, t, m: log2(k.width),
    "shared_loads_per_fma": lambda k, t, m: log2p(8 * k.shared_load.requests / _fma(k)),
    "shared_passes_per_fma": lambda k, t, m: log2p(8 * k.shared_load.passes / _fma(k)),
    "load_conflicts": lambda k, t, m: log2(k.shared_load.waste),
    "store_conflicts": lambda k, t, m: log2(k.shared_store.waste),
    "global_loads_per_fma": lambda k, t, m: log2p(64 * k.global_load.requests / _fma(k)),
    "load_sectors": lambda k, t, m: log2p(_each(k.global_load)),
    "load_waste": lambda k, t, m: log2(k.global_load.waste),
    "store_sectors": lambda k, t, m: log2p(_each(k.global_store)),
    "store_waste": lambda k, t, m: log2(k.global_store.waste),
    "flops_per_byte": lambda k, t, m: log2(k.work / np.maximum(k.traffic, 1)),
    "reuse": lambda k, t, m: log2(k.traffic / max(k.unique, 1)),
    "bytes_per_core": lambda k, t, m: log2p(k.traffic / m.cores),
    "unique_in_cache": lambda k, t, m: log2(k.unique / m.l2_bytes),
    "intensity": lambda k, t, m: log2(k.work / max(k.unique, 1)),
    "useful": lambda k, t, m: k.anchor_share,
    "repeated": lambda k, t, m: log2(k.executed / max(k.work, 1)),
    "epilogue": lambda k, t, m: float(k.epilogue),
}
# Of kernels with matrix instructions; 0 of all others.
ATOM_COLUMNS: dict[str, Callable[[GpuKernel, Times, Limits], Any]] = {
    "log_atoms": lambda k, t, m: log2p(k.atoms),
    "log_accumulators": lambda k, t, m: log2p(k.accumulators),
    "log_atom_terms": lambda k, t, m: log2p(k.terms),
    "time_tensor": lambda k, t, m: t.tensor / t.total,
    "warps_per_quarter": lambda k, t, m: log2(k.warps * t.resident / 4),
    "issue_per_atom": lambda k, t, m: log2p(k.instructions / _atoms(k)),
    "operands_per_atom": lambda k, t, m: log2p(8 * k.operands / np.maximum(k.atoms, 1)),
    "shared_passes_per_atom": lambda k, t, m: log2p(8 * k.shared_load.passes / _atoms(k)),
    "global_loads_per_atom": lambda k, t, m: log2p(64 * k.global_load.requests / _atoms(k)),
}
CPU_COLUMNS: dict[str, Callable[[CpuKernel, Times, Limits], Any]] = {
    "log_code": lambda k, t, m: log2p(k.code),
    "log_body": lambda k, t, m: log2(k.anchor.body),
    "log_rolled": lambda k, t, m: log2(k.anchor.bodies),
    "log_chain": lambda k, t, m: log2(k.anchor.chain),
    "log_tile": lambda k, t, m: log2p(k.anchor.accumulators),
    "registers": lambda k, t, m: t.occupancy,
    "tail": lambda k, t, m: t.tail,
    "operands": lambda k, t, m: log2p(k.anchor.operands),
    "lanes": lambda k, t, m: k.anchor.lanes,
    "contiguous": lambda k, t, m: k.anchor.contiguous,
    "log_parallel": lambda k, t, m: log2(k.anchor.parallel),
    "parallel_per_core": lambda k, t, m: log2(k.anchor.parallel / m.cores),
    "log_forks": lambda k, t, m: log2(k.anchor.forks),
    "loads_per_fma": lambda k, t, m: log2p(8 * k.anchor.loads / _own(k)),
    "stores_per_fma": lambda k, t, m: log2p(64 * k.anchor.stores / _own(k)),
    "gathers": lambda k, t, m: log2p(8 * k.anchor.gathers / _own(k)),
    "other_loads": lambda k, t, m: log2p(64 * _others(k, "loads", "gathers") / _own(k)),
    "other_stores": lambda k, t, m: log2p(64 * _others(k, "stores") / _own(k)),
    "other_arithmetic": lambda k, t, m: log2p(8 * _others(k, "arithmetic") / _own(k)),
    "flops_per_byte": lambda k, t, m: log2(k.work / np.maximum(_all(k, "l2_bytes"), 1)),
    "flops_per_far_byte": lambda k, t, m: log2(k.work / np.maximum(_all(k, "memory_bytes"), 1)),
    "reuse": lambda k, t, m: log2(_all(k, "l2_bytes") / max(k.unique, 1)),
    "body_footprint": lambda k, t, m: log2(k.anchor.footprint[0] / m.l1_bytes),
    "loop_footprint": lambda k, t, m: log2(k.anchor.footprint[1] / m.l1_bytes),
    "part_footprint": lambda k, t, m: log2(k.anchor.footprint[2] / m.l2_bytes),
    "stack": lambda k, t, m: log2p(k.stack / m.l1_bytes),
    "unique_in_cache": lambda k, t, m: log2(k.unique / m.l2_bytes),
    "intensity": lambda k, t, m: log2(k.work / max(k.unique, 1)),
    "repeated": lambda k, t, m: log2(sum(s.executed for s in k.stages) / max(k.work, 1)),
    "stages": lambda k, t, m: float(len(k.stages)),
}
_COMMON = (
    "log_work", "kernels", "main_share", "log_seconds_over_peak", "time_compute", "time_shared",
    "time_cache", "time_memory", "time_latency",
)  # fmt: skip
# Those of kernels without atoms come first: trees that know no others see these alone.
PLAIN: tuple[str, ...] = tuple(dict.fromkeys((*_COMMON, *GPU_COLUMNS, *CPU_COLUMNS)))
FEATURES: tuple[str, ...] = (*PLAIN, *ATOM_COLUMNS)
_POSITION = {name: i for i, name in enumerate(FEATURES)}


def _fma(k: GpuKernel) -> Any:
    """Multiply-adds of a lane, in all warps of a block, those of atoms among them."""
    return np.maximum((k.fma + k.atom_fma) * k.warps, 1)


def _atoms(k: GpuKernel) -> Any:
    return np.maximum(k.atoms * k.warps, 1)


def with_atoms(rows: Matrix) -> npt.NDArray[np.bool_]:
    """Which rows are of kernels with matrix instructions."""
    return np.asarray(rows[:, _POSITION["log_atoms"]] > 0)


def _each(memory: Any) -> Any:
    return memory.passes / np.maximum(memory.requests, 1)


def _all(k: CpuKernel, name: str) -> Any:
    return sum(getattr(s, name) for s in k.stages)


def _others(k: CpuKernel, *names: str) -> Any:
    return sum(getattr(s, n) for s in k.stages if s is not k.anchor for n in names)


def _own(k: CpuKernel) -> Any:
    return np.maximum(k.anchor.arithmetic, 1)
