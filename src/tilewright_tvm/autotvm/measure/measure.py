"""A runner of one's own, by AutoTVM's signature, and the numbers of what fails.

In: configurations and what was built of them.  Out: costs that a tuner learns from.  Nobody
verifies them: logs say so, and no network is built from such a record.
Read next: `measure/jobs.py` (what every runner is), `autotvm/tuners.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from typing import Any, NamedTuple

from tilewright.base.artifact import Artifact
from tilewright.base.doors import door
from tilewright.base.errors import SpaceError, absent
from tilewright.measure.jobs import RunJob, RunResult
from tilewright.measure.record import MOST_SECONDS, ErrorKind
from tilewright.schedule.task import Task
from tilewright.search.jobs import candidate_of
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target
from tilewright_tvm.autotvm.results import ERROR_NUMBERS, MeasureInput, MeasureResult

__all__ = ["BuildResult", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Runner"]


class MeasureErrorNo(IntEnum):
    """What `MeasureResult.error_no` says, by AutoTVM's names and numbers."""

    NO_ERROR = 0
    INSTANTIATION_ERROR = 1
    COMPILE_HOST = 2
    COMPILE_DEVICE = 3
    RUNTIME_DEVICE = 4
    WRONG_ANSWER = 5
    BUILD_TIMEOUT = 6
    RUN_TIMEOUT = 7
    UNKNOWN_ERROR = 8


_KINDS: dict[int, ErrorKind] = {
    **{number: kind for kind, number in reversed(ERROR_NUMBERS.items())},
    MeasureErrorNo.COMPILE_DEVICE: "compile", MeasureErrorNo.BUILD_TIMEOUT: "timeout",
}  # fmt: skip


class BuildResult(NamedTuple):
    """artifact: what was built; arg_info: (shape, dtype) of each argument"""

    artifact: Artifact | None
    arg_info: Sequence[tuple[tuple[int, ...], str]]


class Runner(ABC):
    """Subclass it, define `run`, and hand it to `measure_option(runner=)`.

    timeout:    seconds that a trial may take, which `run` has to keep itself
    n_parallel: trials at once, each in a thread of its own
    task:       the one that is tuned

    What `run` says is not verified: the tuner goes by it, and so do its `best_config` and
    `best_flops`, but no network is ever built from its records.  get_build_kwargs is not asked for:
    targets know their limits.
    """

    @door(SpaceError, "Runner")
    def __init__(self, timeout: float = 5, n_parallel: int | None = None) -> None:
        if not timeout > 0 or (n_parallel is not None and n_parallel < 1):
            raise SpaceError(
                f"Runner(timeout={timeout}, n_parallel={n_parallel})", "both must be positive",
                "Try Runner(10, 1).",
            )  # fmt: skip
        self.timeout, self.n_parallel = timeout, n_parallel or 1
        self.task: Task | None = None
        self._threads: ThreadPoolExecutor | None = None

    @abstractmethod
    def run(
        self, measure_inputs: Sequence[MeasureInput], build_results: Sequence[BuildResult]
    ) -> Sequence[MeasureResult]:
        """What came of each input; one trial fails with an error number, not with an exception."""

    def set_task(self, task: Task) -> None:
        """What is tuned from now on."""
        self.task = task

    def describe(self, target: Target) -> DeviceSpec:
        """Nothing is known of the device."""
        return DeviceSpec(target.kind)

    def submit(self, run: RunJob) -> Future[RunResult]:
        """Begin to try one candidate.  The future raises what `run` raises, and SpaceError for
        anything but one MeasureResult."""
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.n_parallel, thread_name_prefix="runner")
        return self._threads.submit(self._tried, run)

    def probe(self, target: Target) -> None:  # noqa: B027
        """Whether a device was lost only `run` can know."""

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
            self._threads = None

    def _tried(self, run: RunJob) -> RunResult:
        task = self.task
        if task is None:
            raise SpaceError(
                f"{type(self).__name__}.run", "it does not know the task", "Call set_task first."
            )
        found = candidate_of(task, run.job.origin, run.job.decisions)
        assert found is not None  # tuners propose what the task has
        config = found.sketch.space.get(found.index)
        built = BuildResult(run.artifact, [(t.shape, t.dtype) for t in task.dag.args])
        given = MeasureInput(task.target, task, config)
        return _told(type(self).__name__, self.run([given], [built]))


def _told(name: str, results: Any) -> RunResult:
    """Raises SpaceError for anything but one result."""
    try:
        (result,) = results
        costs, number, spent = tuple(result.costs), int(result.error_no), float(result.all_cost)
        if not number:
            costs = tuple(float(cost) for cost in costs)
    except (TypeError, ValueError, AttributeError):
        raise SpaceError(
            f"{name}.run", f"it gave {results!r:.100} for one input",
            "Return a list with a MeasureResult(costs, error_no, all_cost, timestamp) for each.",
        ) from None  # fmt: skip
    if number:
        message = "; ".join(map(str, costs))
        return RunResult(error=_KINDS.get(number, "run"), message=message, seconds=spent)
    if not costs or not all(0 < cost < MOST_SECONDS for cost in costs):
        raise SpaceError(
            f"{name}.run", f"costs of {costs!r:.100}", "Give positive seconds, one for each repeat."
        )
    return RunResult(costs, seconds=spent)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.measure.measure", name, {})
