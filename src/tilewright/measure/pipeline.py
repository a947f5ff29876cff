"""`Pipeline`: candidates go in, records come out in the same order; builds and trials overlap.

In: `Job`s, a builder, a runner, the database that records go to.  Out: `Record`s.
On a device of its own, trials run while candidates build.  Where the device is the CPU that also
compiles, building and timing take turns in slices.  Read next: `local.py`, then the room `search`.
"""

from __future__ import annotations

import heapq
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from tilewright.base.artifact import Artifact
from tilewright.base.errors import (
    DeviceError,
    DeviceLost,
    InternalError,
    RecordError,
    TargetError,
)
from tilewright.measure.database import Database
from tilewright.measure.jobs import Builder, Built, Job, RunJob, Runner, RunResult
from tilewright.measure.record import Key, Record, Result, make_record, own_versions
from tilewright.measure.reference import Reference
from tilewright.targets.target import Target

T = TypeVar("T")
Program = tuple[Key, Reference | None, str]  # task, what it is compared with, digest of its source
SLICE_SECONDS = 1.0
DRIFT = 0.05  # the incumbent's time may change by this much within a slice


@dataclass(order=True)
class _Slot:
    """A job on its way; ordered by proposal.

    program: known when it is built; again: the device was lost under it, so it is tried once more
    """

    number: int
    job: Job = field(compare=False)
    exclusive: bool = field(compare=False)
    built: Built = field(default_factory=Built, compare=False)
    program: Program | None = field(default=None, compare=False)
    result: RunResult = field(default_factory=RunResult, compare=False)
    again: bool = field(default=False, compare=False)
    record: Record | None = field(default=None, compare=False)


@dataclass(frozen=True)
class _Incumbent:
    """The best candidate of a task so far, kept to be timed again."""

    job: Job
    artifact: Artifact
    seconds: float
    least: float  # of its costs


class Pipeline:
    """`submit` jobs, then take one record per job with `next`, in the order of the jobs.

    Records are appended to `database` as soon as they are known.  The caller keeps as many jobs
    submitted as its search looks ahead; which record comes next does not depend on any timing.
    Where decisions differ but the generated source does not, one candidate of them runs; the
    others get its result, marked `same_as`.

    slice_seconds: length of a slice of building or timing, where the two take turns
    drift:         a slice in which the incumbent's time changes by more than this share is repeated
    on_error:      told when the log cannot be written; default: a Python warning
    """

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        database: Database | None = None,
        *,
        slice_seconds: float = SLICE_SECONDS,
        drift: float = DRIFT,
        on_error: Callable[[RecordError], None] | None = None,
    ) -> None:
        self.builder, self.runner = builder, runner
        self.database = Database() if database is None else database
        self.slice_seconds, self.drift = slice_seconds, drift
        self.repeated_slices = 0
        self._on_error = on_error or _warn
        self._changed = threading.Condition(threading.RLock())
        self._order: deque[_Slot] = deque()
        self._waiting: deque[_Slot] = deque()
        self._ready: list[_Slot] = []
        self._building = self._running = self._number = 0
        self._timing = self._closed = False
        self._incumbents: dict[Key, _Incumbent] = {}
        self._tried: dict[Program, RunResult] = {}
        self._twins: dict[Program, list[_Slot]] = {}  # of a program under trial: who waits for it
        self._doubtful: list[_Slot] = []  # tried, and perhaps innocent: the device may be gone
        self._gone = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        """How many jobs have been submitted whose records have not been taken."""
        return len(self._order)

    def submit(self, job: Job) -> None:
        """Add a job.  Raises TargetError or DeviceError when its device cannot be used."""
        exclusive = self.runner.exclusive(job.full_target)
        with self._changed:
            slot = _Slot(self._number, job, exclusive)
            self._number += 1
            self._order.append(slot)
            self._waiting.append(slot)
            self._start_builds()

    def next(self) -> Record:
        """The record of the oldest job that is left; waits for it.

        Raises what keeps every candidate from being measured, a missing library for example; and
        DeviceLost, after which it may be called again: no candidate is to blame, none is recorded.
        """
        with self._changed:
            if not self._order:
                raise InternalError("Pipeline.next", "no job was submitted")
            slot = self._order[0]
            while slot.record is None:
                self._raise_error()
                if self._doubtful and not self._running:
                    self._settle()
                elif slot.exclusive:
                    self._slice()
                else:
                    self._changed.wait()
            self._order.popleft()
            return slot.record

    def measure(self, jobs: Iterable[Job], ahead: int = 64) -> Iterator[Record]:
        """The records of `jobs`, in order, with at most `ahead` jobs on their way."""
        for job in jobs:
            self.submit(job)
            if len(self) >= ahead:
                yield self.next()
        while len(self):
            yield self.next()

    def final(self, jobs: Iterable[Job], rounds: int = 3) -> list[Record]:
        """Time the leaders again, in turn, verified and without a race; `rounds` times each.

        Their records are marked `final` and replace earlier costs.  Call it when no job is left.
        Raises DeviceLost, see `next`.
        """
        if self._order:
            raise InternalError("Pipeline.final", f"{len(self)} jobs are on their way")
        with self._changed:
            slots = [_Slot(i, job, True) for i, job in enumerate(jobs)]
            for slot, future in [(s, self.builder.submit(s.job)) for s in slots]:
                slot.built = future.result()
            for turn in range(rounds):
                for slot in slots:
                    if slot.built.error is None and slot.result.error is None:
                        timed = self._try(slot, None, verify=turn == 0)
                        if timed.fatal:
                            self._probe(slot.job.full_target)
                        slot.result = _joined(slot.result, timed)
            for slot in slots:
                self._finish(slot, final=True)
        return [slot.record for slot in slots if slot.record is not None]

    def best_seconds(self, key: Key) -> float | None:
        """The time to beat for a task: of this pipeline, or else of the database."""
        incumbent = self._incumbents.get(key)
        if incumbent is not None:
            return incumbent.seconds
        record = self.database.best(key)
        return None if record is None else record.seconds

    def close(self) -> None:
        """Forget the jobs that are left.  Builder and runner stay open; they are the caller's."""
        with self._changed:
            self._closed = True
            self._order.clear()
            self._waiting.clear()
            self._ready.clear()
            self._twins.clear()
            self._doubtful.clear()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Builds: started while fewer are in flight than the builder can use, and nothing is timed.

    def _start_builds(self) -> None:
        while self._waiting and self._building < self.builder.n_parallel and not self._timing:
            slot = self._waiting.popleft()
            self._building += 1
            future = self.builder.submit(slot.job)
            future.add_done_callback(partial(self._guarded, self._on_built, slot))

    def _on_built(self, slot: _Slot, future: Future[Built]) -> None:
        self._building -= 1
        slot.built = future.result()
        if slot.built.error is not None:
            self._finish(slot)
        else:
            slot.program = _program(slot)
            heapq.heappush(self._ready, slot)
        self._start_builds()
        self._start_trials()

    # Trials on a device of its own: started as soon as a device is free.

    def _start_trials(self) -> None:
        while self._ready and self._running < self.runner.n_parallel:
            if self._ready[0].exclusive or self._doubtful:
                return
            slot = heapq.heappop(self._ready)
            if self._is_twin(slot):
                continue
            self._running += 1
            run = RunJob(slot.job, slot.built.artifact, self.best_seconds(slot.job.task.key))
            future = self.runner.submit(run)
            future.add_done_callback(partial(self._guarded, self._on_tried, slot))

    def _on_tried(self, slot: _Slot, future: Future[RunResult]) -> None:
        self._running -= 1
        slot.result = future.result()
        if slot.result.fatal:
            self._doubtful.append(slot)
        else:
            self._finish(slot)
        self._start_trials()

    def _guarded(
        self, handle: Callable[[_Slot, Future[T]], None], slot: _Slot, future: Future[T]
    ) -> None:
        """Run a callback; what it raises is raised by `next`, not lost in a thread."""
        with self._changed:
            try:
                if not self._closed:
                    handle(slot, future)
            except BaseException as error:
                self._error = self._error or error
            self._changed.notify_all()

    # Trials on the CPU that also builds: slices of building and timing, in the consumer's thread,
    # so that neither a build nor the search runs while a kernel is timed.

    def _slice(self) -> None:
        self._build_slice()
        self._timing = True
        batch: list[_Slot] = []
        try:
            while self._building and self._error is None:
                self._changed.wait()
            self._time_slice(batch)
        finally:  # also when interrupted: what was measured is recorded
            for slot in batch:
                self._finish(slot)
            self._timing = False
            self._start_builds()

    def _build_slice(self) -> None:
        """Wait until everything is built, or a slice is over and something is ready."""
        end = time.monotonic() + self.slice_seconds
        while (self._waiting or self._building) and self._error is None:
            left = end - time.monotonic()
            if left <= 0 and self._ready:
                return
            self._changed.wait(max(left, 0.0) if self._ready else None)

    def _time_slice(self, batch: list[_Slot]) -> None:
        """Try what is ready for the length of a slice; `batch` gets the slots that were tried."""
        if not self._ready:
            return
        pace = self._incumbents.get(self._ready[0].job.task.key)
        before = self._time_again(pace)
        slower = max(1.0, before / pace.least) if pace and before else 1.0
        end = time.monotonic() + self.slice_seconds
        best: dict[Key, float] = {}
        while self._ready and (not batch or time.monotonic() < end):
            slot = heapq.heappop(self._ready)
            if self._is_twin(slot):
                continue
            key = slot.job.task.key
            known = self.best_seconds(key)
            limits = [best[key]] if key in best else []
            limits += [known * slower] if known is not None else []
            slot.result = self._try(slot, min(limits, default=None))
            if slot.result.fatal:
                self._doubtful.append(slot)
                break
            batch.append(slot)
            if slot.result.costs and not slot.result.raced:
                best[key] = min(best.get(key, float("inf")), _median(slot.result.costs))
        after = self._time_again(pace)
        if before and after and abs(after - before) > self.drift * min(before, after):
            self._repeat(batch)

    def _repeat(self, batch: list[_Slot]) -> None:
        """The machine's speed changed on the way: time those again that were timed in full."""
        self.repeated_slices += 1
        for slot in batch:
            if slot.result.error is None and not slot.result.raced:
                again = self._try(slot, None, verify=False)
                if again.fatal:
                    return
                spent = slot.result.seconds + again.seconds
                better = slot.result if again.error is not None else again  # one figure is enough
                slot.result = replace(better, verified=slot.result.verified, seconds=spent)

    def _time_again(self, incumbent: _Incumbent | None) -> float | None:
        if incumbent is None:
            return None
        run = RunJob(incumbent.job, incumbent.artifact, None, verify=False, race=False)
        costs = self.runner.submit(run).result().costs
        return min(costs) if costs else None

    def _try(self, slot: _Slot, best_seconds: float | None, verify: bool = True) -> RunResult:
        race = best_seconds is not None
        run = RunJob(slot.job, slot.built.artifact, best_seconds, verify, race)
        return self.runner.submit(run).result()

    # A device that may be lost: no trial starts until `next` has looked for it.

    def _settle(self) -> None:
        """Record the doubtful slots as failures, or once the device is back, try them again.

        One that loses the device twice is not tried a third time.
        """
        self._probe(self._doubtful[0].job.full_target)
        doubtful, self._doubtful = self._doubtful, []
        for slot in doubtful:
            if self._gone and not slot.again:
                slot.again = True
                heapq.heappush(self._ready, slot)
            else:
                self._finish(slot)
        self._gone = False
        self._start_trials()

    def _probe(self, target: Target) -> None:
        try:
            self.runner.probe(target)
        except (DeviceError, TargetError) as error:
            self._gone = True
            raise DeviceLost(
                f"device of {target}", f"lost in mid-search ({error.place}: {error.reason})",
                error.way_out or "Run `tilewright doctor`.",
            ) from None  # fmt: skip

    # Equal programs: whichever is ready first runs.

    def _is_twin(self, slot: _Slot) -> bool:
        """True when the slot needs no trial: it gets the result of an equal program, perhaps later.

        Failures are shared, too: a program that hangs would cost another deadline.
        """
        if slot.program is None or slot.again:
            return False
        if slot.program in self._tried:
            slot.result = self._tried[slot.program]
            self._finish(slot)
        elif slot.program in self._twins:
            self._twins[slot.program].append(slot)
        else:
            self._twins[slot.program] = []
            return False
        return True

    # Records

    def _finish(self, slot: _Slot, final: bool = False) -> None:
        job, built, tried = slot.job, slot.built, slot.result
        result = Result(
            costs=tried.costs, error=built.error or tried.error,
            message=built.message or tried.message, build_s=round(built.seconds, 6),
            run_s=round(tried.seconds, 6), raced=tried.raced, verified=tried.verified, final=final,
            same_as=tried.same_as,
        )  # fmt: skip
        compiler = built.artifact.meta.get("compiler") if built.artifact else None
        slot.record = make_record(
            job.task, result, origin=job.origin, decisions=job.decisions, steps=job.steps,
            device=tried.device, seed=job.seed, trial=job.trial,
            versions=own_versions() | ({"compiler": str(compiler)} if compiler else {}),
        )  # fmt: skip
        self._crown(slot)
        slot.built = Built()  # thousands of artefacts would fill the memory
        try:
            self.database.append(slot.record, job.dag)
        except RecordError as error:
            self._on_error(error)
        if slot.program is not None and tried.same_as is None:
            self._tried[slot.program] = replace(tried, same_as=job.trial, seconds=0.0)
            for twin in self._twins.pop(slot.program, ()):
                self._is_twin(twin)
        self._changed.notify_all()

    def _crown(self, slot: _Slot) -> None:
        result, artifact = slot.result, slot.built.artifact
        if not result.costs or result.raced or not result.verified or artifact is None:
            return
        key, seconds = slot.job.task.key, _median(result.costs)
        known = self._incumbents.get(key)
        if known is None or seconds < known.seconds:
            self._incumbents[key] = _Incumbent(slot.job, artifact, seconds, min(result.costs))

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _program(slot: _Slot) -> Program | None:
    """None where nothing was really built."""
    artifact = slot.built.artifact
    if artifact is None:
        return None
    return slot.job.task.key, slot.job.reference, artifact.source.digest()


def _joined(first: RunResult, second: RunResult) -> RunResult:
    """Two trials of one candidate as one; a failure of the second is a failure of both."""
    spent = first.seconds + second.seconds
    if second.error is not None:
        return replace(second, seconds=spent)
    verified = first.verified or second.verified
    return replace(second, costs=first.costs + second.costs, verified=verified, seconds=spent)


def _median(costs: tuple[float, ...]) -> float:
    return Result(costs=costs).seconds


def _warn(error: RecordError) -> None:
    warnings.warn(str(error), RuntimeWarning, stacklevel=2)
