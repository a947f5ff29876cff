"""How candidates are built and run, and what comes of it, by the auto-scheduler's names.

In: options.  Out: builders, runners, `TuningOptions`; records as inputs and results.
Read next: `measure/local.py`, `records.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tilewright import te
from tilewright.auto_scheduler.computation import Computation
from tilewright.auto_scheduler.compute_dag import ComputeDAG
from tilewright.autotvm.results import ERROR_NUMBERS
from tilewright.base.errors import RecordError, SpaceError, TilewrightError
from tilewright.farm.runner import FarmRunner
from tilewright.measure import local
from tilewright.measure.jobs import Builder, Runner
from tilewright.measure.local import BuildFunction
from tilewright.measure.record import Record
from tilewright.schedule.schedule import Schedule


class LocalBuilder(local.LocalBuilder):
    """Builds in `n_parallel` processes (default: one per core), `timeout` seconds each at most.

    build_func: "default", or a function, see `measure.LocalBuilder`
    """

    def __init__(
        self, timeout: float = 15, n_parallel: int | None = None,
        build_func: BuildFunction = "default",
    ) -> None:  # fmt: skip
        super().__init__(timeout, n_parallel, build_func=build_func)


class LocalRunner(local.LocalRunner):
    """Runs candidates in a process of its own, with the auto-scheduler's defaults.

    device: which device of the target's kind; the rest: see `measure.LocalRunner`
    """

    def __init__(
        self, timeout: float = 10, number: int = 3, repeat: int = 1, min_repeat_ms: float = 100,
        cooldown_interval: float = 0.0, enable_cpu_cache_flush: bool = False, device: int = 0, *,
        race: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
            race=race, index=device,
        )  # fmt: skip


class RPCRunner(FarmRunner):
    """Runs candidates on all devices that the tracker at host:port has for `key`, one on each.

    host, port: default: TVM_TRACKER_HOST and TVM_TRACKER_PORT; device: which one of the target's
    kind each server has; the rest: see `LocalRunner`
    n_parallel is accepted and not needed: there are as many trials as devices.
    Raises DeviceError where the tracker cannot be reached.
    """

    def __init__(
        self, key: str, host: str | None = None, port: int | None = None, priority: int = 1,
        n_parallel: int | None = 1, timeout: float = 10, number: int = 3, repeat: int = 1,
        min_repeat_ms: float = 100, cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False, device: int = 0, *, race: bool = True,
        certificates: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            key, host, port, priority=priority, timeout=timeout, number=number, repeat=repeat,
            min_repeat_ms=min_repeat_ms, cooldown_interval=cooldown_interval,
            enable_cpu_cache_flush=enable_cpu_cache_flush, race=race, index=device,
            certificates=certificates,
        )  # fmt: skip


class LocalRPCMeasureContext:
    """An older name for the same isolation: `.runner` is a `LocalRunner`.

    priority and n_parallel are accepted and not needed: there is one device, and one user of it.
    """

    def __init__(
        self, priority: int = 1, n_parallel: int = 1, timeout: float = 10, number: int = 3,
        repeat: int = 1, min_repeat_ms: float = 0, cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False, device: int = 0,
    ) -> None:  # fmt: skip
        self.runner = LocalRunner(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
            device,
        )  # fmt: skip

    def __del__(self) -> None:
        runner = getattr(self, "runner", None)
        if runner is not None:
            runner.close()


class PythonBasedMeasureCallback(ABC):
    """Subclass it: `callback` is called after each trial, in the order of proposals."""

    @abstractmethod
    def callback(
        self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None: ...


@dataclass
class TuningOptions:
    """num_measure_trials: candidates to measure (of a `TaskScheduler`, in all); 0: see `seconds`
    early_stopping:         end after so many trials without any improvement
    num_measures_per_round: proposals made at once, at most
    verbose:                0: silent
    builder, runner:        "local", or objects
    measure_callbacks:      `RecordToFile`s, functions (policy, inputs, results)
    seconds:                time to spend, instead of or besides a number of trials
    """

    num_measure_trials: int = 0
    early_stopping: int | None = None
    num_measures_per_round: int = 64
    verbose: int = 1
    builder: Any = "local"
    runner: Any = "local"
    measure_callbacks: Any = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        _whole(self, "num_measure_trials", 0)
        _whole(self, "num_measures_per_round", 1)
        if self.early_stopping is not None and self.early_stopping < 0:
            self.early_stopping = None  # as TVM has it
        if self.seconds is not None and not self.seconds > 0:
            raise SpaceError(f"TuningOptions(seconds={self.seconds})", "it must be more than zero")
        if not self.num_measure_trials and self.seconds is None:
            raise SpaceError(
                "TuningOptions(num_measure_trials=0)", "nothing would be measured",
                "Give a number of trials (1000 is a good one for a task), or seconds=.",
            )  # fmt: skip
        for role, value, protocol in (
            ("builder", self.builder, Builder), ("runner", self.runner, Runner),
        ):  # fmt: skip
            if not isinstance(value, protocol) and not (
                isinstance(value, str) and value == "local"
            ):
                hint = f'Use auto_scheduler.Local{role.capitalize()}() or "local".'
                if isinstance(value, LocalRPCMeasureContext):
                    hint = "Pass its .runner."
                raise SpaceError(f"TuningOptions({role}={value!r})", f"not a {role}", hint)
        given = self.measure_callbacks
        listed = [] if given is None else given if isinstance(given, (list, tuple)) else [given]
        for callback in listed:
            if not callable(callback) and not hasattr(callback, "callback"):
                raise SpaceError(
                    f"TuningOptions(measure_callbacks=[{callback!r}])", "it cannot be called",
                    'Use RecordToFile("log.json"), or a function (policy, inputs, results).',
                )  # fmt: skip
        self.measure_callbacks = list(listed)


def checked_options(call: str, options: Any) -> TuningOptions:
    """`options`, which `call` was given.  Raises SpaceError for anything else."""
    if isinstance(options, TuningOptions):
        return options
    raise SpaceError(
        f"{call}({options!r})", "not TuningOptions",
        'Use TuningOptions(num_measure_trials=1000, measure_callbacks=[RecordToFile("log.json")]).',
    )  # fmt: skip


def _whole(options: TuningOptions, name: str, least: int) -> None:
    value = getattr(options, name)
    if not isinstance(value, int) or value < least:
        raise SpaceError(f"TuningOptions({name}={value!r})", f"not a whole number from {least}")


def replayed(record: Record, dag: te.ComputeDAG | None) -> Schedule:
    """The measured schedule.  Raises RecordError where it cannot be made again."""
    if dag is None:
        raise no_computation(record)
    try:
        return Schedule.replay(dag, record.steps)
    except TilewrightError as error:
        raise RecordError(
            f"record of {record.task.name}", f"its steps do not apply here ({error})",
            "Tune the task again.",
        ) from None  # fmt: skip


def no_computation(record: Record) -> RecordError:
    return RecordError(
        f"record of {record.task.name}", "the log does not tell its computation for a known target",
        "Use a log that was not edited.",
    )  # fmt: skip


@dataclass(frozen=True)
class MeasureInput:
    """What a record is of.  dag, search_task: None where the log does not tell the computation"""

    record: Record
    dag: ComputeDAG | None
    search_task: Computation | None = None

    @cached_property
    def state(self) -> Schedule:
        """The measured schedule.  Raises RecordError where it cannot be made again."""
        return replayed(self.record, self.dag)

    @property
    def task(self) -> Computation:
        """The `SearchTask`.  Raises RecordError where the log does not tell it."""
        if self.search_task is None:
            raise no_computation(self.record)
        return self.search_task


@dataclass(frozen=True)
class MeasureResult:
    """costs: seconds per repeat, infinity for a failure; error_no: 0 for success, see ERROR_NUMBERS
    error_msg: the full text; all_cost: wall seconds; timestamp: since the epoch
    """

    costs: tuple[float, ...]
    error_no: int
    error_msg: str
    all_cost: float
    timestamp: float

    @staticmethod
    def of(record: Record) -> MeasureResult:
        r = record.result
        return MeasureResult(
            r.costs or (float("inf"),), 0 if r.error is None else ERROR_NUMBERS[r.error], r.message,
            r.build_s + r.run_s, record.timestamp,
        )  # fmt: skip

    def __str__(self) -> str:
        costs = ",".join(f"{c:.6g}" for c in self.costs)
        return (
            f"MeasureResult(cost:[{costs}], error_no:{self.error_no}, "
            f"all_cost:{self.all_cost:.2f}, Tstamp:{self.timestamp:.2f})"
        )
