"""Between the search and the measuring room: candidates as jobs, records as outcomes, references.

In: `Candidate`s of a task, `Record`s.  Out: `Job`s a pipeline takes, `Outcome`s a proposer learns
from, and each task's expected outputs, worked out once.  Read next: `loop.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol

from tilewright.base.case import Case
from tilewright.base.concurrency import lock
from tilewright.base.errors import SpaceError, TilewrightError, Unavailable
from tilewright.driver.build import payload
from tilewright.measure.calls import BUILD_ERRORS
from tilewright.measure.database import Database
from tilewright.measure.jobs import Helper, Job
from tilewright.measure.pool import WorkerFailure
from tilewright.measure.record import Record, Result, TaskId, make_record
from tilewright.measure.reference import Reference, ReferenceStore, digest, write
from tilewright.schedule.task import Task
from tilewright.schedule.workload import plain
from tilewright.search.imported import REPLAY, Replays
from tilewright.search.propose.proposers import Candidate, Outcome
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target
from tilewright.te.cases import cases
from tilewright.te.dag import ComputeDAG

MOST_THREADS = 4
_SECONDS = 120.0  # of one reference in a process, at most; usually it is one


class Measurer(Protocol):
    """What measures: `measure.pipeline.Pipeline`, or something simpler.  Records come in order.

    A class that inherits from this one need define `submit` and `next` only.

    repeats: whether `final` times candidates again
    """

    repeats: bool = False

    @property
    def devices(self) -> int:
        """How many measure, each one candidate at a time."""
        return 1

    @property
    def database(self) -> Database | None:
        """Where its records go."""
        return None

    @property
    def helper(self) -> Helper | None:
        """Processes for other work while it measures; None: there are none."""
        return None

    def start(self, target: Target, jobs: int | None = None) -> None:
        """Begin to start what so many jobs will need, where that takes time; None: nobody knows how
        many there will be."""

    def submit(self, job: Job) -> None:
        """Add a job.  Raises TargetError or DeviceError when its device cannot be used."""

    def next(self) -> Record:
        """The record of the oldest job that is left; waits for it.  Raises Unavailable."""
        raise NotImplementedError

    def forget(self) -> None:
        """Drop the jobs whose records were not taken; a search ended before they came."""

    def final(self, jobs: Iterable[Job]) -> list[Record]:
        """Time these again, in turn; their records are marked `final`."""
        return []

    def describe(self, target: Target) -> DeviceSpec:
        """The device that measures for `target`: nothing is known of it."""
        return DeviceSpec(target.kind)


class References:
    """What the candidates of each task are verified with, computed once, in a thread or by a
    process.

    seed: of the random inputs; quiet: kernels are timed on this processor meanwhile, else there are
    a few threads
    helper: whose processes compute them; None: threads do, which wait for each other and for BLAS
    """

    def __init__(self, seed: int = 0, quiet: bool = True, helper: Helper | None = None) -> None:
        self.seed, self._helper = seed, helper
        most = max(len(os.sched_getaffinity(0)) // 4, 1)  # the other cores build
        threads = 1 if quiet else min(most, MOST_THREADS)
        self._store = ReferenceStore()
        self._worker = ThreadPoolExecutor(threads, thread_name_prefix="reference")
        self._futures: dict[str, Future[Reference]] = {}
        self._beginning = lock()  # a search and a build beside it ask

    def prefetch(self, task: Task) -> None:
        """Begin to work on it; needless, but then `get` need not wait."""
        key = _case_key(task)
        with self._beginning:
            if key not in self._futures:
                self._futures[key] = self._begin(task, key)

    def _begin(self, task: Task, key: str) -> Future[Reference]:
        if self._helper is None:
            return self._worker.submit(self._compute, task)
        told = self._store.directory, key, task.dag.to_json(), task.target.precision, self.seed
        call = written, *told, dict(task.inputs)
        return self._helper.call(task.target, *call, timeout=_SECONDS)

    def get(self, task: Task) -> Reference:
        """Waits for it.  Raises ExpressionError for a computation that reads out of bounds, and
        Unavailable while there is no space for it: then it may be asked for again.
        """
        self.prefetch(task)
        key = _case_key(task)
        try:
            return self._store.note(key, self._futures[key].result())
        except Unavailable:
            del self._futures[key]
            raise
        except (WorkerFailure, TilewrightError):
            if self._helper is None:
                raise
        self._futures[key] = self._worker.submit(self._compute, task)
        return self._futures[key].result()

    def close(self, wait: bool = True) -> None:
        """wait: until what is being computed is there; else nobody will ask for it"""
        self._worker.shutdown(wait=wait, cancel_futures=True)
        self._store.close()

    def _compute(self, task: Task) -> Reference:
        try:
            (timed, *also), constants = _worked_out(
                task.dag, task.target.precision, self.seed, task.inputs
            )
            return self._store.put(
                _case_key(task), timed.inputs, timed.expected, timed.tolerance, also, constants,
                digest(task.inputs),
            )  # fmt: skip
        except MemoryError as error:
            raise Unavailable(
                f"reference of {task.name}", f"there is no memory for it ({error})",
                "Close other programs, or give the process more memory.",
            ) from None  # fmt: skip


def written(
    directory: str, key: str, dag: Any, precision: str, seed: int, inputs: Mapping[str, Any]
) -> Reference:
    """What other processes call: a reference in the directory of a store.  dag: as JSON"""
    told, constants = _worked_out(ComputeDAG.from_json(dag), precision, seed, inputs)
    return write(
        directory,
        key,
        [Case.of(c.inputs, c.expected, c.tolerance) for c in told],
        constants,
        digest(inputs),
    )


def _worked_out(
    dag: ComputeDAG, precision: str, seed: int, given: Mapping[str, Any]
) -> tuple[tuple[Case, Case], list[int]]:
    """The cases of a computation, and which of its inputs are constants.

    given: values of inputs, by name
    """
    inputs = [t for t in dag.args if t not in dag.outputs]
    fixed = {t: given[t.name] for t in inputs if t.name in given}
    constants = [k for k, t in enumerate(inputs) if t.op.constant]
    return cases(dag, seed, fixed, precision), constants


def _case_key(task: Task) -> str:
    """What the arrays of a task depend on, beside the seed."""
    return f"{task.key} {task.target.precision}{digest(task.inputs)}"


def task_id(task: Task, device: DeviceSpec | None = None) -> TaskId:
    """How records name the task.  device: that they are of; default: the target's, if it has one"""
    fingerprint = task.target.fingerprint if device is None else device.fingerprint
    return TaskId(task.name, plain(list(task.args)), task.key, str(task.target), fingerprint)


def decisions_of(candidate: Candidate) -> dict[str, Any]:
    """Knob -> value, for example {"tile_f": [4, 1, 16, 2]}."""
    return {name: e.value for name, e in candidate.sketch.space.get(candidate.index).items()}


def make_job(
    task: Task, candidate: Candidate, reference: Reference | None, seed: int, trial: int,
    identity: TaskId | None = None, dag: Any = None, predicted: float = 0.0,
) -> Job:  # fmt: skip
    """Raises a TilewrightError where the template or a step refuses the candidate."""
    sketch, own = candidate.sketch, dag
    steps = sketch.steps(candidate.index)
    if own is None or sketch.dag is not task.dag:
        own = sketch.dag.to_json()
    told = payload(own, steps, task.name, chained=task.chained)
    return Job(
        task=identity or task_id(task), payload=told, reference=reference,
        origin=sketch.origin, decisions=decisions_of(candidate), steps=steps, target=task.target,
        dag=dag if dag is not None else own, seed=seed, trial=trial, predicted=predicted,
    )  # fmt: skip


def refused_record(
    identity: TaskId, candidate: Candidate, error: TilewrightError, seed: int, trial: int
) -> Record:
    """The record of a candidate that could not even be closed."""
    kind = BUILD_ERRORS.get(type(error), "instantiate")
    return make_record(
        identity, Result(error=kind, message=str(error)), origin=candidate.sketch.origin,
        decisions=decisions_of(candidate), seed=seed, trial=trial,
    )  # fmt: skip


def candidate_of(task: Task, origin: str, decisions: Mapping[str, Any]) -> Candidate | None:
    """The candidate a record tells of; None where the task has no such sketch or entity."""
    for sketch in task.sketches:
        if sketch.origin == origin:
            try:
                return Candidate(sketch, sketch.space.index_of(decisions))
            except SpaceError:
                return None
    return None


def history(
    task: Task,
    database: Database,
    replays: Replays | None = None,
    identity: TaskId | None = None,
) -> list[tuple[Outcome, Record]]:
    """What the database knows of the task on its target and device, in the order of proposals.

    The last measurement of a candidate counts.
    """
    replays = replays or Replays(task, database)
    found: dict[Candidate, tuple[Outcome, Record]] = {}
    records = database.query(identity or task_id(task))  # as they finished, whatever came first
    for record in sorted(records, key=lambda r: (r.task.fingerprint != "", r.trial)):
        candidate = None
        with suppress(TilewrightError):  # damaged, or of a computation with other names
            if record.origin.startswith(REPLAY):
                candidate = replays.candidate(record)
            else:
                candidate = candidate_of(task, record.origin, record.decisions)
        if candidate is not None:
            outcome = Outcome(candidate, record.seconds, record.result.costs)
            found[candidate] = outcome, record
    return list(found.values())
