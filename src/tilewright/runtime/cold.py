"""Constants that come from memory: launches that take turns among copies of them.

Between two runs of a network its other layers pass through the caches, so that the weights of a
kernel come from memory each time, while what it computes on was written just before.  A kernel that
is timed back to back finds both in the caches.  In: kernels and their memory, which of it is
constant.  Out: what times them as in a network.  Read next: `trial.py`, `timing.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.runtime.drivers import Driver, Kernel, Launch, Memory, Plan

MOST_COPIES = 32  # small constants take little time to read, wherever they are


@dataclass(frozen=True, eq=False)
class InTurn:
    """A plan of `copies` runs, each with constants of its own, told as one run."""

    plan: Plan
    copies: int

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        """Mean seconds of one run, over at least `number` runs."""
        return self.plan.seconds(-(-number // self.copies), flush_bytes) / self.copies


def bind(kernels: Sequence[Kernel], memory: Sequence[Memory]) -> tuple[Launch, ...]:
    """One launch of each kernel; memory: of each buffer of the artefact."""
    return tuple(Launch(k, tuple(memory[i] for i in k.info.args)) for k in kernels)


def in_turn(
    driver: Driver,
    kernels: Sequence[Kernel],
    memory: Sequence[Memory],
    constants: Sequence[int],
    cold_bytes: int,
) -> InTurn | None:
    """Copies of the constants, as they are now, of `cold_bytes` together; None where one will do.

    memory: of each buffer of the artefact; constants: which of them
    """
    each = sum(memory[i].nbytes for i in constants)
    copies = min(-(-cold_bytes // each), MOST_COPIES) if each else 1
    if copies < 2:
        return None
    sets = [{i: _copy(driver, memory[i]) for i in constants} for _ in range(copies)]
    launches = [launch for held in sets for launch in bind(kernels, _with(memory, held))]
    return InTurn(driver.plan(tuple(launches)), copies)


def _with(memory: Sequence[Memory], other: Mapping[int, Memory]) -> list[Memory]:
    return [other.get(i, m) for i, m in enumerate(memory)]


def _copy(driver: Driver, memory: Memory) -> Memory:
    made = driver.allocate(memory.nbytes)
    driver.copy(memory, made, memory.nbytes)
    return made
