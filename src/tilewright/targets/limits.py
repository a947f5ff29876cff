"""`Limits`: the numbers of a device that legality masks, templates and models need.

Each kind has portable ones (`llvm.py`, `cuda.py`, `opencl.py`); a real device reports its own.
Read next: `kind.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple

from tilewright.base.dtype import FLOAT32, DType


class AtomRate(NamedTuple):
    """A matrix instruction of a warp, or of a group, by the name that `ir.atoms` has for it: for
    all numbers of columns of a group's the one with N in their place.

    rate:    operations per second of the whole device, a multiply-add being two, with sums in
             float32
    latency: cycles until the sum can be added to again
    """

    name: str
    rate: float
    latency: float


def family(atom: str) -> str:
    """The name that stands for all numbers of columns, and orders of the depth: m64nNk16.float16
    for m64n128k16.float16, m16n8k16.float16 for m16n8k16.crossed.float16."""
    return re.sub(r"^m64n\d+", "m64nN", atom).replace(".crossed.", ".")


@dataclass(frozen=True)
class Limits:
    """Hardware limits and rates.  Rates are per second; 0 means "does not apply".

    rates: of the unit that adds and multiplies numbers, by element type; of the one that multiplies
           matrices see `atoms`: what it reaches depends on the instruction, not on the type alone
    """

    max_threads_per_block: int = 0
    max_block: tuple[int, int, int] = (0, 0, 0)  # x, y, z
    max_grid: tuple[int, int, int] = (0, 0, 0)
    shared_bytes_per_block: int = 0
    shared_bytes_per_core: int = 0
    registers_per_block: int = 0
    registers_per_thread: int = 0
    warp_size: int = 1
    max_threads_per_core: int = 0
    max_blocks_per_core: int = 0
    cores: int = 1  # multiprocessors of a GPU, cores of a CPU
    vector_bytes: int = 16
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    l3_bytes: int = 0
    rates: tuple[tuple[DType, float], ...] = ()  # operations of arithmetic; a multiply-add is two
    atoms: tuple[AtomRate, ...] = ()  # matrix instructions that the device has; no others
    memory_bandwidth: float = 0.0
    l2_bandwidth: float = 0.0
    launch_seconds: float = 0.0
    max_unrolled_body: int = 4096  # innermost operations of straight-line code: bounds compile time
    max_stack_bytes: int = 64 << 10  # local buffers of one CPU thread

    @property
    def register_bytes(self) -> int:
        """What the registers of a thread hold: the largest local buffer that is no memory."""
        return max(self.registers_per_thread * 4, self.vector_registers * self.vector_bytes)

    def reported(self, device: Mapping[str, Any]) -> Limits:
        """The same with what a device reports, by the names of these fields, in its place."""
        return replace(self, **device)

    def rate(self, dtype: DType) -> float:
        """Peak operations of arithmetic in `dtype` per second.

        A type without a rate has that of its compute type, and then that of float32; 1.0 where not
        even that is known.
        """
        known = dict(self.rates)
        found = (known[t] for t in (dtype, dtype.compute, FLOAT32) if t in known)
        return next(found, 1.0)

    def atom(self, name: str) -> AtomRate:
        """The matrix instruction of that name; it takes for ever where the device has none."""
        found = (known for known in self.atoms if known.name in (name, family(name)))
        return next(found, AtomRate(name, 0.0, inf))


def rates(float32: float, **per_float32: float) -> tuple[tuple[DType, float], ...]:
    """`Limits.rates` from that of float32 and, for other types, multiples of it."""
    others = ((DType(name), float32 * share) for name, share in per_float32.items())
    return (FLOAT32, float32), *others
