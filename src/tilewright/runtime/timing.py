"""Timing: how often to repeat, and what is reported.

In: a plan (something with `seconds(number)`).  Out: `BenchmarkResult`, seconds of device time.
Read next: `module.py` for `time_evaluator`, `trial.py` for the race.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Protocol

from tilewright.base.errors import DeviceError

_GROWTH = 1.618  # a repeat that was too short at least grows by this


class Timed(Protocol):
    """What can be timed: plans, for one."""

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        """Mean seconds of one pass; see `drivers.Plan`."""


@dataclass(frozen=True)
class BenchmarkResult:
    """`results`: mean seconds of one call, an entry per repeat; the rest are statistics of them."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        return statistics.fmean(self.results)

    @property
    def median(self) -> float:
        return statistics.median(self.results)

    @property
    def min(self) -> float:
        return min(self.results)

    @property
    def max(self) -> float:
        return max(self.results)

    @property
    def std(self) -> float:
        return statistics.pstdev(self.results)

    def __str__(self) -> str:
        names = ("mean", "median", "min", "max", "std")
        values = (self.mean, self.median, self.min, self.max, self.std)
        head = "".join(f"{n:>12}" for n in names)
        row = "".join(f"{show_seconds(v):>12}" for v in values)
        return f"Execution time of one call over {len(self.results)} repeats\n{head}\n{row}"


def show_seconds(seconds: float) -> str:
    """`23.7 us`, `1.08 ms`: three digits and a unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def measure(
    plan: Timed,
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: float = 0,
    *,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: float = 0,
    repeats_to_cooldown: int = 1,
    cache_flush_bytes: int = 0,
) -> BenchmarkResult:
    """Time `repeat` times the mean of `number` passes of `plan`.

    A repeat shorter than `min_repeat_ms` is done again with a larger number, which later repeats
    keep. `cache_flush_bytes`: bytes of other memory written before *each* pass, so that every pass
    is cold.
    """
    if min(number, repeat, repeats_to_cooldown) < 1:
        raise DeviceError(
            f"number={number}, repeat={repeat}, repeats_to_cooldown={repeats_to_cooldown}",
            "all must be at least 1",
            "Try number=10, repeat=3.",
        )
    results = []
    for index in range(repeat):
        if cooldown_interval_ms and index and index % repeats_to_cooldown == 0:
            time.sleep(cooldown_interval_ms * 1e-3)
        zeros = 0
        while True:
            mean = plan.seconds(number, cache_flush_bytes)
            spent_ms = mean * number * 1e3
            if spent_ms >= min_repeat_ms or zeros >= limit_zero_time_iterations:
                break
            zeros += mean <= 0
            needed = min_repeat_ms / (spent_ms / number) + 1 if spent_ms > 0 else 0.0
            number = int(max(needed, number * _GROWTH + 1))
        results.append(mean)
    return BenchmarkResult(tuple(results))
