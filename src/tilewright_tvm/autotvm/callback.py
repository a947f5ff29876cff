"""`autotvm.callback`: what a tuner calls after each trial: `log_to_file`, `progress_bar`."""

from __future__ import annotations

import io
import os
import time
import warnings
from collections.abc import Callable, Sequence
from typing import IO, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tilewright.base.doors import door
from tilewright.base.dtype import json_name
from tilewright.base.errors import RecordError, SpaceError, absent
from tilewright.base.terminal import say
from tilewright.measure.database import Database
from tilewright.measure.record import DagLine, Record, encode
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult, record_of
from tilewright_tvm.autotvm.tuners import format_si

Callback = Callable[[Any, Sequence[MeasureInput], Sequence[MeasureResult]], None]


@door(SpaceError)
def log_to_file(file_out: str | os.PathLike[str] | IO[Any], protocol: str = "json") -> Callback:
    """Append every trial, failures included, as one line of JSON to `file_out`.

    file_out: a path, or a file that is open for writing

    What cannot be written does not stop a search; `Tuner.tune` ends with the RecordError that says
    where it was saved, or what is lost.
    """
    if protocol != "json":
        raise SpaceError(
            f"log_to_file(protocol={protocol!r})", "only JSON lines are written", 'Use "json".'
        )
    if isinstance(file_out, (str, os.PathLike)):
        return _FileLog(Database(file_out, on_error=_warn))
    return _FileLog(_OpenFile(file_out))


@door(SpaceError)
def log_to_database(db: Database) -> Callback:
    """Append every trial, failures included, to a `tilewright.measure.Database`."""
    return _FileLog(db)


class Monitor:
    """Keeps what every trial gave: its operations per second, 0 for a failure, and when it was."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(
        self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        for given, result in zip(inputs, results, strict=True):
            seconds = sum(result.costs) / len(result.costs) if result.error_no == 0 else None
            self.scores.append(0.0 if seconds is None else _work(tuner, given) / seconds)
            self.timestamps.append(result.timestamp)

    def trial_scores(self) -> npt.NDArray[np.float64]:
        """Operations per second of each trial, in order."""
        return np.array(self.scores, "float64")

    def trial_timestamps(self) -> npt.NDArray[np.float64]:
        """Seconds since the epoch, of each trial."""
        return np.array(self.timestamps, "float64")


@door(SpaceError)
def progress_bar(total: int, prefix: str = "", si_prefix: str = "G") -> Callback:
    """A line that is rewritten after each trial:
    `[Task  1/12]  Current/Best:  541.83/3570.66 GFLOPS | Progress: (960/2000) | 1001.31 s Done.`
    """
    format_si(0.0, si_prefix)
    return _ProgressBar(total, prefix, si_prefix)


class _FileLog:
    """flush: what could not be written is saved elsewhere, or RecordError says what is lost"""

    def __init__(self, log: Database | _OpenFile) -> None:
        self.flush = log.flush
        self._append = log.append

    def __call__(
        self, tuner: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        for given, result in zip(inputs, results, strict=True):
            self._append(record_of(given, result), given.task.dag.to_json())


class _OpenFile:
    """What `_FileLog` needs of a `Database`, for an open file of text or bytes."""

    def __init__(self, file: IO[Any]) -> None:
        if isinstance(file, io.IOBase) and not file.writable():
            raise SpaceError(
                f"log_to_file({file!r})", "the file is not open for writing", 'Open it with "a".'
            )
        self._file, self._known = file, set[str]()
        self._lost, self._error = 0, ""

    def append(self, record: Record, dag: Any) -> None:
        lines = [encode(record)]
        if record.task.dag not in self._known:
            self._known.add(record.task.dag)
            raw = msgspec.Raw(msgspec.json.encode(dag, enc_hook=json_name))
            lines.insert(0, encode(DagLine(hash=record.task.dag, dag=raw)))
        try:
            for line in lines:
                self._file.write(line.decode() if isinstance(self._file, io.TextIOBase) else line)
            self._file.flush()
        except (OSError, ValueError) as error:  # full, or closed meanwhile
            self._lost, self._error = self._lost + 1, str(error)

    def flush(self) -> None:
        """Raises RecordError where trials could not be written."""
        if self._lost:
            raise RecordError(
                f"log_to_file({self._file!r})",
                f"{self._lost} trials could not be written ({self._error})",
                "Give the path of the file: what cannot be written is then saved elsewhere.",
            )  # fmt: skip


def _work(tuner: Any, given: MeasureInput) -> float:
    """The operations of what is tuned, whatever another implementation of it computes."""
    return float(getattr(tuner, "task", given.task).flop)


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
                self.current = _work(tuner, given) * len(result.costs) / sum(result.costs)
        self._write(" Done.\n" if before < self.total <= self.done else "")

    def finish(self) -> None:
        if self.done < self.total:
            self._write(" Done.\n")

    def _write(self, end: str) -> None:
        now, best = (format_si(flops, self.si_prefix) for flops in (self.current, self.best))
        say(
            f"{self.prefix} Current/Best: {now:7.2f}/{best:7.2f} {self.si_prefix}FLOPS | "
            f"Progress: ({self.done}/{self.total}) | {time.time() - self.start:.2f} s",
            begin="\r",
            end=end,
        )


def __getattr__(name: str) -> Any:
    raise absent("autotvm.callback", name, {})
