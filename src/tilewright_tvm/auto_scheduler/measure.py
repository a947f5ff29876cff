"""How candidates are built and run, and what comes of it, by the auto-scheduler's names.

In: options.  Out: builders, runners, `TuningOptions`; records as inputs and results.
Read next: `results.py`, `measure/local.py`, `records.py`.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.base.terminal import say
from tilewright.driver.build import payload_of, resolve_target
from tilewright.farm.runner import FarmRunner
from tilewright.measure import local
from tilewright.measure.jobs import Builder, Job, RunJob, Runner
from tilewright.measure.local import BuildFunction
from tilewright.runtime.device import local_target
from tilewright.search.jobs import References
from tilewright_tvm.auto_scheduler.results import (
    BuildResult,
    MeasureInput,
    MeasureResult,
    recover_measure_input,
)
from tilewright_tvm.autotvm.results import ERROR_NUMBERS

__all__ = [
    "BuildResult", "LocalBuilder", "LocalRPCMeasureContext", "LocalRunner", "MeasureInput",
    "MeasureResult", "PythonBasedMeasureCallback", "RPCRunner", "TuningOptions", "checked_options",
    "recover_measure_input",
]  # fmt: skip


def job_of(given: MeasureInput, reference: Any = None) -> Job:
    """What builders and runners take."""
    task = given.task
    target, _ = local_target(resolve_target(task.target))
    payload = payload_of(given.state.schedule)
    return Job(given.record.task, payload, reference, target=target)


class Builds:
    """Building by hand, over `submit`."""

    @door(SpaceError, "LocalBuilder.build")
    def build(
        self: Any, measure_inputs: Sequence[MeasureInput], verbose: int = 1
    ) -> list[BuildResult]:
        """Build each input, in order; verbose: 0: silent.

        A failure is a result.  Raises TargetError where nothing can be built for the target.
        """
        begun: list[tuple[MeasureInput, Future[Any]]] = [
            (given, self.submit(job_of(given))) for given in measure_inputs
        ]
        found = []
        for given, future in begun:
            built = future.result()
            number = 0 if built.error is None else ERROR_NUMBERS[built.error]
            args = given.task.compute_dag.tensors
            found.append(BuildResult(built.artifact, args, number, built.message, built.seconds))
        if verbose:
            failed = sum(result.error_no != 0 for result in found)
            say(f"Built {len(found) - failed} of {len(found)} programs.")
        return found


class Runs:
    """Running by hand, over `submit`."""

    @door(SpaceError, "LocalRunner.run")
    def run(
        self: Any, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult],
        verbose: int = 1,
    ) -> list[MeasureResult]:  # fmt: skip
        """Verify and time what was built, one after the other; verbose: 0: silent.

        What was not built keeps its error.  Raises DeviceError where the device cannot be used.
        """
        if len(measure_inputs) != len(build_results):
            raise SpaceError(
                f"{type(self).__name__}.run",
                f"{len(measure_inputs)} inputs and {len(build_results)} build results",
                "Give what build(inputs) returned.",
            )  # fmt: skip
        references = References()
        try:
            found = [
                self._tried(given, built, references)
                for given, built in zip(measure_inputs, build_results, strict=True)
            ]
        finally:
            references.close()
        for result in found if verbose else ():
            say(str(result))
        return found

    def _tried(
        self: Any, given: MeasureInput, built: BuildResult, references: References
    ) -> MeasureResult:
        none = (float("inf"),)
        if built.artifact is None:
            return MeasureResult(
                none, built.error_no, built.error_msg, built.time_cost, time.time()
            )
        job = job_of(given, references.get(given.task.task))
        ran = self.submit(RunJob(job, built.artifact, race=False)).result()
        number = 0 if ran.error is None else ERROR_NUMBERS[ran.error]
        spent = built.time_cost + ran.seconds
        costs = ran.costs or none
        return MeasureResult(costs, number, ran.message, spent, time.time(), ran.verified)


class LocalBuilder(Builds, local.LocalBuilder):
    """Builds in `n_parallel` processes (default: one per core), `timeout` seconds each at most.

    build_func: "default", or a function, see `measure.LocalBuilder`
    """

    def __init__(
        self, timeout: float = 15, n_parallel: int | None = None,
        build_func: BuildFunction = "default",
    ) -> None:  # fmt: skip
        super().__init__(timeout, n_parallel, build_func=build_func)


class LocalRunner(Runs, local.LocalRunner):
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


class RPCRunner(Runs, FarmRunner):
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
