"""Builders and runners without hardware: results from a log, or from a function.

In: `Job`s.  Out: the same futures as the local ones, perhaps late and in any order; the search is
tested with them.  Read next: `measure/pipeline.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from tilewright.measure.database import Database
from tilewright.measure.jobs import Built, Job, RunJob, RunResult
from tilewright.measure.record import Candidate, Key, Record, candidate_of
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

Delay = Callable[[Job], float]


class NullBuilder:
    """Builds nothing.  delay: seconds that the build of a job pretends to take."""

    def __init__(self, n_parallel: int = 4, delay: Delay | None = None) -> None:
        self.n_parallel, self._delay = n_parallel, delay
        self._threads = ThreadPoolExecutor(n_parallel)

    def submit(self, job: Job) -> Future[Built]:
        return self._threads.submit(self._build, job)

    def probe(self, target: Target) -> None:
        """There is nothing to fail."""

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _build(self, job: Job) -> Built:
        if self._delay is not None:
            time.sleep(self._delay(job))
        return Built()


class ReplayRunner:
    """Gives each candidate the result it has in `source`.

    source: a database, whose last record of the candidate counts (one it does not know fails as
            "run"), or a function of the job
    delay:  seconds that a trial pretends to take
    """

    def __init__(
        self,
        source: Database | Callable[[Job], RunResult],
        n_parallel: int = 1,
        delay: Delay | None = None,
    ) -> None:
        self.n_parallel, self._delay = n_parallel, delay
        self._result = _from_log(source) if isinstance(source, Database) else source
        self._threads = ThreadPoolExecutor(n_parallel)

    def describe(self, target: Target) -> DeviceSpec:
        """Nothing is known of the device: results are those of any."""
        return DeviceSpec(target.kind)

    def submit(self, run: RunJob) -> Future[RunResult]:
        return self._threads.submit(self._run, run.job)

    def probe(self, target: Target) -> None:
        """There is no device to lose."""

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)

    def _run(self, job: Job) -> RunResult:
        if self._delay is not None:
            time.sleep(self._delay(job))
        return self._result(job)


def _from_log(database: Database) -> Callable[[Job], RunResult]:
    known: dict[tuple[Key, Candidate], Record] = {
        (r.task.of_any_device, r.candidate): r for r in database
    }

    def result(job: Job) -> RunResult:
        candidate = candidate_of(job.origin, job.decisions, job.steps)
        record = known.get((job.task.of_any_device, candidate))
        if record is None:
            return RunResult(error="run", message="the log has no record of this candidate")
        r = record.result
        return RunResult(
            r.costs, r.raced, r.verified, r.error, r.message, r.run_s, record.device,
            same_as=r.same_as, order=r.order,
        )  # fmt: skip

    return result
