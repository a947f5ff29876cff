"""Where every job stands and what may happen to it next: a state machine that starts nothing.

In: jobs, and what became of their builds and trials.  Out: which slot to build or try now, and
finished records, in the order in which they are known.  It has no thread, no clock and no device,
so every order of events can be tested.  Read next: `pipeline.py`, which drives it in two ways.

A slot is waiting -> building -> ready -> trying -> finished.  Where a build or a trial fails and
the machine may be the cause, the slot is doubtful: nothing else starts until a control has worked,
which is something known to be good in the same place.  Then the slot goes back to where it failed,
and is blamed when it fails there again, and a control works again.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from tilewright.base.artifact import Artifact
from tilewright.measure.jobs import Built, Cause, Job, RunJob, RunResult
from tilewright.measure.record import Key, Record, Result, make_record, own_versions
from tilewright.measure.reference import Reference

Program = tuple[Key, Reference | None, str]  # task, what it is compared with, digest of its source

# How many failures of a kind it takes until the candidate is blamed.  One killed from outside may
# have taken all memory; who fails without having taken part is never to blame.
_FAILURES: dict[Cause, float] = {"candidate": 1, "unclear": 2, "killed": 4, "machine": inf}


def blamed(cause: Cause, failures: int) -> bool:
    """Whether a candidate is to blame that failed so often, though a control worked each time.

    cause: of the last failure
    """
    return failures >= _FAILURES[cause]


@dataclass(order=True)
class Slot:
    """A job on its way; ordered by proposal.

    program:  known when it is built
    failures: that may have been its own, before the one that `built` or `result` tells
    excused:  failures in a row with which it had nothing to do
    again:    it is tried once more
    """

    number: int
    job: Job = field(compare=False)
    exclusive: bool = field(compare=False)
    built: Built = field(default_factory=Built, compare=False)
    program: Program | None = field(default=None, compare=False)
    result: RunResult = field(default_factory=RunResult, compare=False)
    failures: int = field(default=0, compare=False)
    excused: int = field(default=0, compare=False)
    again: bool = field(default=False, compare=False)
    record: Record | None = field(default=None, compare=False)

    @property
    def key(self) -> Key:
        return self.job.task.key

    @property
    def failure(self) -> Built | RunResult:
        """What tells of its failure: the build, or else the trial."""
        return self.built if self.built.error is not None else self.result

    def run_job(
        self, best_seconds: float | None, *, verify: bool = True, race: bool = True,
        defer: bool = False,
    ) -> RunJob:  # fmt: skip
        return RunJob(self.job, self.built.artifact, best_seconds, verify, race, defer=defer)


@dataclass(frozen=True)
class Incumbent:
    """The best candidate of a task so far, kept to be timed again.  least: of its costs."""

    job: Job
    artifact: Artifact
    seconds: float
    least: float


class Flow:
    """recorded: told each record and the DAG of its job, as soon as it is known.

    order:     slots whose records have not been taken, oldest first
    doubtful:  slots that failed and may be innocent; while there are any, nothing starts
    incumbents: per task
    """

    def __init__(self, recorded: Callable[[Record, Any], None]) -> None:
        self._recorded = recorded
        self.order: deque[Slot] = deque()
        self.doubtful: list[Slot] = []
        self.incumbents: dict[Key, Incumbent] = {}
        self.building = 0
        self._alone = False  # a second build of a slot is under way, which shares with no other
        self._waiting: deque[Slot] = deque()
        self._ready: list[Slot] = []
        self._number = 0
        self._forgotten = 0  # slots below this number are no longer waited for
        self._results: dict[Program, RunResult] = {}
        self._twins: dict[Program, list[Slot]] = {}  # of a program under trial: who waits for it

    @property
    def builds_left(self) -> bool:
        """Whether something is being built, or has yet to be."""
        return bool(self._waiting or self.building)

    @property
    def next_ready(self) -> Slot | None:
        """The oldest slot that is built and untried."""
        return self._ready[0] if self._ready else None

    def add(self, job: Job, exclusive: bool) -> Slot:
        slot = Slot(self._number, job, exclusive)
        self._number += 1
        self.order.append(slot)
        self._waiting.append(slot)
        return slot

    def to_build(self) -> Slot | None:
        """The slot to build next, from now on under construction.  A second build is alone."""
        if not self._waiting or self.doubtful or self._alone:
            return None
        second = self._waiting[0].failures > 0
        if second and self.building:
            return None
        self._alone = second
        self.building += 1
        return self._waiting.popleft()

    def built(self, slot: Slot, built: Built) -> None:
        self.building -= 1
        self._alone = False
        if slot.number < self._forgotten:
            return
        slot.built = built
        if built.error is not None:
            self._failed(slot)
            return
        slot.failures = slot.excused = 0  # of the build
        slot.program = _program(slot)
        heapq.heappush(self._ready, slot)

    def to_try(self) -> Slot | None:
        """The slot to try next.  Those whose program was tried, or is being tried, need no trial of
        their own and get that result."""
        while self._ready and not self.doubtful:
            slot = heapq.heappop(self._ready)
            if not self._shares(slot):
                return slot
        return None

    def tried(self, slot: Slot, result: RunResult) -> None:
        slot.result = result
        if result.error is None:
            self.finish(slot)
        else:
            self._failed(slot)

    def settle(self, trouble: bool) -> None:
        """A control has worked: doubtful slots are blamed, or get another chance.

        trouble: controls had failed before, so that failures of that time count for nothing; but
        who loses the device again and again is to blame for it
        """
        doubtful, self.doubtful = self.doubtful, []
        for slot in reversed(doubtful):  # those that are built again keep their order
            cause = cause_of(slot.failure)
            slot.excused = slot.excused + 1 if cause == "machine" else 0
            if cause != "machine" and (slot.result.fatal or not trouble):
                slot.failures += 1
            if blamed(cause, slot.failures):
                self.finish(slot)
            elif slot.built.error is not None:
                slot.built = Built()
                self._waiting.appendleft(slot)
            else:
                slot.again = True
                heapq.heappush(self._ready, slot)

    def _failed(self, slot: Slot) -> None:
        if blamed(cause_of(slot.failure), 1):
            self.finish(slot)
        elif slot.number >= self._forgotten:
            self.doubtful.append(slot)

    def finish(self, slot: Slot, final: bool = False) -> None:
        """Make the record; whoever waits for the result of the same program gets it, too."""
        slot.record = _record(slot, final)
        self._crown(slot)
        slot.built = Built()  # thousands of artefacts would fill the memory
        self._recorded(slot.record, slot.job.dag)
        if slot.program is not None and slot.result.same_as is None:
            self._results[slot.program] = replace(slot.result, same_as=slot.job.trial, seconds=0.0)
            for twin in self._twins.pop(slot.program, ()):
                self._shares(twin)

    def forget(self) -> None:
        """Drop every slot that is left; trials under way are recorded when they end."""
        self._forgotten = self._number
        for left in (self.order, self._waiting, self._ready, self._twins, self.doubtful):
            left.clear()

    def _shares(self, slot: Slot) -> bool:
        """True when the slot needs no trial: it gets the result of an equal program, perhaps later.

        Failures are shared, too: a program that hangs would cost another deadline.
        """
        if slot.program is None or slot.again:
            return False
        if slot.program in self._results:
            slot.result = self._results[slot.program]
            self.finish(slot)
        elif slot.program in self._twins:
            self._twins[slot.program].append(slot)
        else:
            self._twins[slot.program] = []
            return False
        return True

    def _crown(self, slot: Slot) -> None:
        result, artifact = slot.result, slot.built.artifact
        if not result.costs or result.raced or not result.verified or artifact is None:
            return
        seconds, known = median(result.costs), self.incumbents.get(slot.key)
        if known is None or seconds < known.seconds:
            self.incumbents[slot.key] = Incumbent(slot.job, artifact, seconds, min(result.costs))


def _program(slot: Slot) -> Program | None:
    """None where nothing was really built."""
    artifact = slot.built.artifact
    if artifact is None:
        return None
    return slot.key, slot.job.reference, artifact.source.digest()


def _record(slot: Slot, final: bool) -> Record:
    job, built, tried = slot.job, slot.built, slot.result
    result = Result(
        costs=tried.costs, error=built.error or tried.error,
        message=built.message or tried.message, build_s=round(built.seconds, 6),
        run_s=round(tried.seconds, 6), raced=tried.raced, verified=tried.verified, final=final,
        same_as=tried.same_as, order=tried.order, cold=tried.cold,
        predicted=float(f"{job.predicted:.4g}"), builder=built.process, built=round(built.ended, 3),
    )  # fmt: skip
    compiler = built.artifact.meta.get("compiler") if built.artifact else None
    return make_record(
        job.task, result, origin=job.origin, decisions=job.decisions, steps=job.steps,
        device=tried.device, seed=job.seed, trial=job.trial,
        versions=own_versions() | ({"compiler": str(compiler)} if compiler else {}),
    )  # fmt: skip


def cause_of(failure: Built | RunResult) -> Cause:
    """What may have caused a failure; the loss of the device is unclear, whatever a runner says."""
    if isinstance(failure, RunResult) and failure.fatal and failure.cause == "candidate":
        return "unclear"
    return failure.cause


def joined(first: RunResult, second: RunResult) -> RunResult:
    """Two trials of one candidate as one; a failure of the second is a failure of both."""
    spent = first.seconds + second.seconds
    if second.error is not None:
        return replace(second, seconds=spent)
    verified = first.verified or second.verified
    return replace(second, costs=first.costs + second.costs, verified=verified, seconds=spent)


def median(costs: tuple[float, ...]) -> float:
    return Result(costs=costs).seconds
