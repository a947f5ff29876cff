"""`autotvm.callback`: what a tuner calls after each trial: `log_to_file`, `progress_bar`."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import SpaceError, absent
from tilewright.measure.database import Database
from tilewright.search.tuners import MeasureInput, MeasureResult, format_si

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], None]


def log_to_file(file_out: str | os.PathLike[str], protocol: str = "json") -> Callback:
    """Append every trial, failures included, as one line of JSON to `file_out`."""
    if protocol != "json":
        raise SpaceError(
            f"log_to_file(protocol={protocol!r})", "only JSON lines are written", 'Use "json".'
        )
    database = Database(file_out)

    def callback(
        tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        for given, result in zip(inputs, results, strict=True):
            if result.record is not None:
                database.append(result.record, given.task.dag.to_json())

    return callback


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """A line that is rewritten after each trial:
    `[Task  1/12]  Current/Best:  541.83/3570.66 GFLOPS | Progress: (960/2000) | 1001.31 s Done.`
    """
    format_si(0.0, si_prefix)
    start, done = time.time(), 0

    def callback(
        tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        nonlocal done
        done += len(inputs)
        current = 0.0
        for given, result in zip(inputs, results, strict=True):
            if result.error_no == 0:
                current = given.task.flop / (sum(result.costs) / len(result.costs))
        now, best = format_si(current, si_prefix), format_si(tuner.best_flops, si_prefix)
        end = " Done.\n" if done >= total or not tuner.has_next() else ""
        sys.stdout.write(
            f"\r{prefix} Current/Best: {now:7.2f}/{best:7.2f} {si_prefix}FLOPS | "
            f"Progress: ({done}/{total}) | {time.time() - start:.2f} s{end}"
        )
        sys.stdout.flush()

    return callback


_ELSEWHERE = {
    "Monitor": "Write a log and read it with load_from_file, or run `tilewright records LOG`.",
    "log_to_database": "Use log_to_file.",
}


def __getattr__(name: str) -> Any:
    raise absent("autotvm.callback", name, _ELSEWHERE)
