"""`autotvm.callback`: what a tuner calls after each trial: `log_to_file`, `progress_bar`."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.autotvm.tuners import MeasureInput, MeasureResult, format_si
from tilewright.base.errors import RecordError, SpaceError, absent
from tilewright.base.terminal import say
from tilewright.measure.database import Database

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], None]


def log_to_file(file_out: str | os.PathLike[str], protocol: str = "json") -> Callback:
    """Append every trial, failures included, as one line of JSON to `file_out`.

    What cannot be written does not stop a search; `Tuner.tune` ends with the RecordError that says
    where it was saved.
    """
    if protocol != "json":
        raise SpaceError(
            f"log_to_file(protocol={protocol!r})", "only JSON lines are written", 'Use "json".'
        )
    return _FileLog(Database(file_out, on_error=_warn))


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """A line that is rewritten after each trial:
    `[Task  1/12]  Current/Best:  541.83/3570.66 GFLOPS | Progress: (960/2000) | 1001.31 s Done.`
    """
    format_si(0.0, si_prefix)
    return _ProgressBar(total, prefix, si_prefix)


class _FileLog:
    """flush: what could not be written is saved elsewhere, or RecordError says what is lost"""

    def __init__(self, database: Database) -> None:
        self.flush = database.flush
        self._append = database.append

    def __call__(
        self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        for given, result in zip(inputs, results, strict=True):
            if result.record is not None:
                self._append(result.record, given.task.dag.to_json())


def _warn(error: RecordError) -> None:
    warnings.warn(str(error), RuntimeWarning, stacklevel=2)


class _ProgressBar:
    """The line ends with "Done." once: at the last of `total` trials, or when the tuner is through
    with fewer and calls `finish`.
    """

    def __init__(self, total: int, prefix: str, si_prefix: str) -> None:
        self.total, self.prefix, self.si_prefix = total, prefix, si_prefix
        self.start, self.done = time.time(), 0
        self.current = self.best = 0.0

    def __call__(
        self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        before, self.done = self.done, self.done + len(inputs)
        self.current, self.best = 0.0, tuner.best_flops
        for given, result in zip(inputs, results, strict=True):
            if result.error_no == 0:
                self.current = given.task.flop / (sum(result.costs) / len(result.costs))
        self._write(" Done.\n" if before < self.total <= self.done else "")

    def finish(self) -> None:
        if self.done < self.total:
            self._write(" Done.\n")

    def _write(self, end: str) -> None:
        now, best = (format_si(flops, self.si_prefix) for flops in (self.current, self.best))
        say(
            f"\r{self.prefix} Current/Best: {now:7.2f}/{best:7.2f} {self.si_prefix}FLOPS | "
            f"Progress: ({self.done}/{self.total}) | {time.time() - self.start:.2f} s",
            end=end,
        )


_ELSEWHERE = {
    "Monitor": "Write a log and read it with load_from_file, or run `tilewright records LOG`.",
    "log_to_database": "Use log_to_file.",
}


def __getattr__(name: str) -> Any:
    raise absent("autotvm.callback", name, _ELSEWHERE)
