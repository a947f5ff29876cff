"""`Pipeline`: candidates go in, records come out in the same order; builds and trials overlap.

In: `Job`s, a builder, a runner, the database that records go to.  Out: `Record`s.  What may happen
next is `flow.py`'s to say; here it is made to happen, in one of two ways.  On a device of its own,
trials run while candidates build, driven by their futures.  Where the device is the CPU that also
compiles, building and timing take turns in slices, driven by whoever waits for a record.
Read next: `flow.py`, `local.py`, then the room `search`.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import msgspec

from tilewright.base.artifact import Source
from tilewright.base.errors import (
    DeviceError,
    DeviceLost,
    InternalError,
    RecordError,
    TargetError,
    Unavailable,
)
from tilewright.measure.database import Database
from tilewright.measure.flow import Flow, Incumbent, Slot, blamed, cause_of, joined, median
from tilewright.measure.jobs import (
    Builder,
    Built,
    Compiles,
    Helper,
    Job,
    RunJob,
    Runner,
    RunResult,
    Starts,
    proving,
)
from tilewright.measure.record import Key, Record
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

T = TypeVar("T")
Outcome = TypeVar("Outcome", Built, RunResult)
SLICE_SECONDS = 1.0
DRIFT = 0.05  # the incumbent's time may change by this much within a slice


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

    repeats = True

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
        self._flow = Flow(self._write)
        self._running = self._reserved = 0
        self._claims: dict[int, tuple[Key, float]] = {}  # of slots that are not proven yet
        # Trials that go first; None: one as any other.
        self._urgent: deque[tuple[Slot, RunJob | None]] = deque()
        self._held: list[tuple[Slot, RunResult]] = []
        self._timing = self._closed = self._gone = False
        self._error: BaseException | None = None

    def __len__(self) -> int:
        """How many jobs have been submitted whose records have not been taken."""
        return len(self._flow.order)

    @property
    def devices(self) -> int:
        """How many candidates are tried at once."""
        return self.runner.n_parallel

    @property
    def helper(self) -> Helper | None:
        """The builder, where its processes do other work, too."""
        return self.builder if isinstance(self.builder, Helper) else None

    def start(self, target: Target, jobs: int | None = None) -> None:
        """Begin to start what so many jobs will be built by, where that takes time."""
        if isinstance(self.builder, Starts):
            self.builder.start(target, jobs)

    def describe(self, target: Target) -> DeviceSpec:
        """The device that measures for `target`."""
        return self.runner.describe(target)

    def submit(self, job: Job) -> None:
        """Add a job.  Raises TargetError or DeviceError when its device cannot be used."""
        device = self.describe(job.full_target)
        job, exclusive = _identified(job, device), device.shares_host
        with self._changed:
            self._flow.add(job, exclusive)
            self._start_builds()

    def next(self) -> Record:
        """The record of the oldest job that is left; waits for it.

        Raises what keeps every candidate from being measured, a missing library for example; and
        Unavailable, after which it may be called again: no candidate is to blame, none is recorded.
        """
        with self._changed:
            if not self._flow.order:
                raise InternalError("Pipeline.next", "no job was submitted")
            slot = self._flow.order[0]
            while slot.record is None:
                self._raise_error()
                if self._flow.doubtful:
                    self._settle()
                elif slot.exclusive:
                    self._slice()
                else:
                    self._changed.wait()
            self._flow.order.popleft()
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
        Raises Unavailable, see `next`.
        """
        if len(self):
            raise InternalError("Pipeline.final", f"{len(self)} jobs are on their way")
        with self._changed:
            known = [_identified(job, self.describe(job.full_target)) for job in jobs]
            slots = [Slot(i, job, True) for i, job in enumerate(known)]
            for slot, future in [(s, self.builder.submit(s.job)) for s in slots]:
                again = partial(self.builder.submit, slot.job)
                slot.built = self._believed(slot.job, future.result(), again)
            for turn in range(rounds):
                compiling: list[tuple[Slot, Future[Built]]] = []
                for slot in slots:
                    if slot.built.error is None and slot.result.error is None:
                        run = slot.run_job(None, verify=turn == 0, race=False, defer=self._defers)
                        timed = self._tried(slot, run)
                        slot.result = joined(slot.result, timed)
                        if timed.unproven is not None:
                            compiling.append((slot, self._compile(slot, timed.unproven)))
                for slot, future in compiling:
                    run = proving(slot.run_job(None), slot.result, future.result())
                    slot.result = self._tried(slot, run)
            for slot in slots:
                self._flow.finish(slot, final=True)
        return [slot.record for slot in slots if slot.record is not None]

    @contextmanager
    def device_free(self) -> Iterator[None]:
        """Have nothing tried meanwhile: what is under trial ends first; builds go on.  For other
        threads than the one that takes records."""
        with self._changed:
            self._reserved += 1
            while self._running and not self._closed:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._reserved -= 1
                self._guarded(self._start_trials)

    def best_seconds(self, key: Key) -> float | None:
        """The time to beat for a task: of this pipeline, or else of the database."""
        incumbent = self._flow.incumbents.get(key)
        if incumbent is not None:
            return incumbent.seconds
        record = self.database.best(key)
        return None if record is None else record.seconds

    def forget(self) -> None:
        """Drop the jobs that are left; those under trial are recorded when they end."""
        with self._changed:
            self._flow.forget()

    def close(self) -> None:
        """Forget the jobs that are left.  Builder and runner stay open; they are the caller's."""
        with self._changed:
            self._closed = True
            self._flow.forget()
            self._changed.notify_all()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Builds: started while fewer are in flight than the builder can use, and nothing is timed.

    def _start_builds(self) -> None:
        while self._flow.building < self.builder.n_parallel and not self._timing:
            slot = self._flow.to_build()
            if slot is None:
                return
            future = self.builder.submit(slot.job)
            future.add_done_callback(partial(self._guarded, self._on_built, slot))

    def _on_built(self, slot: Slot, future: Future[Built]) -> None:
        self._flow.built(slot, future.result())
        self._start_builds()
        self._start_trials()

    # Trials on a device of its own: started as soon as a device is free.

    def _start_trials(self) -> None:
        while not self._reserved and self._running < self.runner.n_parallel:
            if self._urgent:
                self._start_trial(*self._urgent.popleft())
                continue
            oldest = self._flow.next_ready
            if oldest is None or oldest.exclusive:
                return
            slot = self._flow.to_try()
            if slot is None:
                return
            self._start_trial(slot)

    def _start_trial(self, slot: Slot, run: RunJob | None = None) -> None:
        self._running += 1
        usual = slot.run_job(self._to_beat(slot.key), defer=self._defers)
        future = self.runner.submit(run or usual)
        future.add_done_callback(partial(self._guarded, self._on_tried, slot))

    def _on_tried(self, slot: Slot, future: Future[RunResult]) -> None:
        self._running -= 1
        result = future.result()
        if result.unproven is not None:
            self._claims[slot.number] = slot.key, median(result.costs)
            compiling = self._compile(slot, result.unproven)
            then = partial(self._on_compiled, result)
            compiling.add_done_callback(partial(self._guarded, then, slot))
        elif self._claims.pop(slot.number, None) is not None:
            self._flow.tried(slot, result)
            self._release(slot.key)
        elif self._claimed(slot.key) and self._beats(slot, result):
            self._held.append((slot, result))
        else:
            self._flow.tried(slot, result)
        self._start_trials()

    # What is about to be the best is tried with its threads in turns, too.  A builder compiles that
    # while others are tried, which race against it already; those that would be the best without it
    # are held until it is proven, and tried again where it turns out wrong.

    @property
    def _defers(self) -> bool:
        return isinstance(self.builder, Compiles)

    def _compile(self, slot: Slot, source: Source) -> Future[Built]:
        assert isinstance(self.builder, Compiles)
        return self.builder.compile(source, slot.job.full_target)

    def _on_compiled(self, result: RunResult, slot: Slot, future: Future[Built]) -> None:
        self._urgent.append((slot, proving(slot.run_job(None), result, future.result())))
        self._start_trials()

    def _to_beat(self, key: Key) -> float | None:
        """The best of a task, or what will be if it is proven."""
        known = self.best_seconds(key)
        return min([*self._claimed(key), *([] if known is None else [known])], default=None)

    def _claimed(self, key: Key) -> list[float]:
        return [seconds for task, seconds in self._claims.values() if task == key]

    def _beats(self, slot: Slot, result: RunResult) -> bool:
        """Whether it would be the best of what is proven."""
        known = self.best_seconds(slot.key)
        return bool(result.costs) and (known is None or median(result.costs) < known)

    def _release(self, key: Key) -> None:
        if self._claimed(key):
            return
        held, self._held = self._held, []
        for slot, result in held:
            if slot.key != key:
                self._held.append((slot, result))
            elif self._beats(slot, result):
                self._urgent.append((slot, None))
            else:
                self._flow.tried(slot, result)

    def _guarded(self, handle: Callable[..., None], *args: Any) -> None:
        """Run a callback; what it raises is raised by `next`, not lost in a thread."""
        with self._changed:
            try:
                if not self._closed:
                    handle(*args)
            except BaseException as error:
                self._error = self._error or error
            self._changed.notify_all()

    # Trials on the CPU that also builds: slices of building and timing, in the consumer's thread,
    # so that neither a build nor the search runs while a kernel is timed.

    def _slice(self) -> None:
        self._build_slice()
        self._timing = True
        batch: list[Slot] = []
        try:
            while self._flow.building and self._error is None:
                self._changed.wait()
            self._time_slice(batch)
        finally:  # also when interrupted: what was measured is recorded
            for slot in batch:
                self._flow.tried(slot, slot.result)
            self._timing = False
            self._start_builds()

    def _build_slice(self) -> None:
        """Wait until everything is built, or a slice is over and something is ready."""
        end = time.monotonic() + self.slice_seconds
        while self._flow.builds_left and not self._flow.doubtful and self._error is None:
            left, ready = end - time.monotonic(), self._flow.next_ready is not None
            if left <= 0 and ready:
                return
            self._changed.wait(max(left, 0.0) if ready else None)

    def _time_slice(self, batch: list[Slot]) -> None:
        """Try what is ready for the length of a slice; `batch` gets the slots that were tried."""
        oldest = self._flow.next_ready
        if oldest is None:
            return
        pace = self._flow.incumbents.get(oldest.key)
        before = self._time_again(pace)
        slower = max(1.0, before / pace.least) if pace and before else 1.0
        end = time.monotonic() + self.slice_seconds
        best: dict[Key, float] = {}
        while not batch or time.monotonic() < end:
            slot = self._flow.to_try()
            if slot is None:
                break
            known = self.best_seconds(slot.key)
            limits = [best[slot.key]] if slot.key in best else []
            limits += [known * slower] if known is not None else []
            result = self._try(slot, min(limits, default=None))
            if result.error is not None and not blamed(cause_of(result), 1):
                self._flow.tried(slot, result)
                break
            slot.result = result
            batch.append(slot)
            if result.costs and not result.raced:
                best[slot.key] = min(best.get(slot.key, float("inf")), median(result.costs))
        after = self._time_again(pace)
        if before and after and abs(after - before) > self.drift * min(before, after):
            self._repeat(batch)

    def _repeat(self, batch: list[Slot]) -> None:
        """The machine's speed changed on the way: time those again that were timed in full."""
        self.repeated_slices += 1
        for slot in batch:
            if slot.result.error is None and not slot.result.raced:
                again = self._try(slot, None, verify=False)
                if again.error is not None and cause_of(again) != "candidate":
                    return
                spent = slot.result.seconds + again.seconds
                better = slot.result if again.error is not None else again  # one figure is enough
                slot.result = replace(better, verified=slot.result.verified, seconds=spent)

    def _time_again(self, incumbent: Incumbent | None) -> float | None:
        if incumbent is None:
            return None
        run = RunJob(incumbent.job, incumbent.artifact, verify=False, race=False, control=True)
        costs = self.runner.submit(run).result().costs
        return min(costs) if costs else None

    def _try(self, slot: Slot, best_seconds: float | None, verify: bool = True) -> RunResult:
        run = slot.run_job(best_seconds, verify=verify, race=best_seconds is not None)
        return self.runner.submit(run).result()

    # Failures that may not be the candidate's: nothing starts until a control has worked.

    def _settle(self) -> None:
        """Let everything under way end, try a control, and let the flow decide by it."""
        flow = self._flow
        while flow.building or self._running or self._reserved or self._claims or self._urgent:
            self._changed.wait()
            self._raise_error()
        slot = self._flow.doubtful[0]
        self._control(slot.job, slot.failure)
        gone, self._gone = self._gone, False
        again = [
            (s.job, s.failure) for s in self._flow.doubtful
            if s.excused and cause_of(s.failure) == "machine"
        ]  # fmt: skip
        self._flow.settle(gone)
        self._start_builds()
        self._start_trials()
        if again and not gone:  # else it was told
            raise _unavailable(*again[0], "the machine is at fault")

    def _tried(self, slot: Slot, run: RunJob) -> RunResult:
        """Of a trial that is waited for."""
        trial = partial(self.runner.submit, run)
        return self._believed(slot.job, trial().result(), trial)

    def _believed(
        self, job: Job, outcome: Outcome, again: Callable[[], Future[Outcome]]
    ) -> Outcome:
        """A success, or a failure for which the candidate is to blame: it is tried until then."""
        failures = 0
        while outcome.error is not None and not blamed(cause_of(outcome), failures + 1):
            self._control(job, outcome)
            if cause_of(outcome) == "machine":
                raise _unavailable(job, outcome, "the machine is at fault")
            failures += 1
            outcome = again().result()
        if outcome.error is not None and failures:
            self._control(job, outcome)
        return outcome

    def _control(self, job: Job, failure: Built | RunResult) -> None:
        """Do what a job failed at with what is known to be good.  Raises Unavailable where that
        fails, too."""
        target, building = job.full_target, isinstance(failure, Built)
        try:
            if building:
                self.builder.probe(target)
            else:
                self.runner.probe(target)
        except (DeviceError, TargetError) as error:
            self._gone = True
            reason = f"{error.place}: {error.reason}"
            way_out = error.way_out or "Run `tilewright doctor`."
            if building:
                raise Unavailable(f"builds for {target}", reason, way_out) from None
            raise DeviceLost(
                f"device of {target}", f"lost in mid-search ({reason})", way_out
            ) from None
        incumbent = self._flow.incumbents.get(job.task.key)
        if not building and incumbent is not None:
            self._run_control(incumbent)

    def _run_control(self, incumbent: Incumbent) -> None:
        """The best so far of the same task needs as much memory, and the same inputs."""
        run = RunJob(incumbent.job, incumbent.artifact, race=False, control=True)
        result = self.runner.submit(run).result()
        if result.error == "wrong":  # it was right by luck
            del self._flow.incumbents[incumbent.job.task.key]
        elif result.error is not None:
            self._gone = True
            raise _unavailable(incumbent.job, result, "what is known to be good fails, too")

    # Records

    def _write(self, record: Record, dag: Any) -> None:
        try:
            self.database.append(record, dag)
        except RecordError as error:
            self._on_error(error)
        self._changed.notify_all()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _unavailable(job: Job, failure: Built | RunResult, what: str) -> Unavailable:
    where = "builds" if isinstance(failure, Built) else "trials"
    return Unavailable(
        f"{where} for {job.full_target}", f"{what} ({failure.message.strip()})",
        "Look for space, memory and other processes.",
    )  # fmt: skip


def _identified(job: Job, device: DeviceSpec) -> Job:
    """The job as one on that device: its record says so."""
    if job.task.fingerprint == device.fingerprint:
        return job
    return replace(job, task=msgspec.structs.replace(job.task, fingerprint=device.fingerprint))


def _warn(error: RecordError) -> None:
    warnings.warn(str(error), RuntimeWarning, stacklevel=2)
