"""What is built, run and measured, as data; and what a builder and a runner must be able to do.

In: candidates from a search.  Out: `Built`, then `RunResult`, of which the pipeline makes records.
Read next: `local.py` (this machine), `replay.py` (from a log), `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from tilewright.base.artifact import Artifact, Source
from tilewright.measure.record import ErrorKind, TaskId
from tilewright.measure.reference import Reference
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

T = TypeVar("T")

# What may have caused a failure, by what is known where it happened:
# candidate: itself, for certain.  machine: not the candidate, for certain.
# unclear:   a crash, a deadline, no memory: either.  killed: by a signal from outside: hardly it
Cause = Literal["candidate", "unclear", "killed", "machine"]


@dataclass(frozen=True)
class Job:
    """One candidate, to be built, run and recorded.

    payload:   what the build function takes: plain data, for example `driver.build.payload_of`'s
    reference: inputs and expected outputs of its task; None: it runs unverified and is never best
    target:    with the limits of the real device; `task.target` where it is None
    dag:       `ComputeDAG.to_json()`, kept once in the log
    predicted: seconds that the search expects of it; 0: it expects nothing
    """

    task: TaskId
    payload: Mapping[str, Any]
    reference: Reference | None
    origin: str = "default"
    decisions: Mapping[str, Any] = field(default_factory=dict)
    steps: Sequence[Any] = ()
    target: Target | None = None
    dag: Any = None
    seed: int = 0
    trial: int = 0
    predicted: float = 0.0

    @property
    def full_target(self) -> Target:
        return self.target or Target(self.task.target)


@dataclass(frozen=True)
class Built:
    """artifact, or else `error` and `message`.

    seconds: wall time of the build
    cause:   of the error
    process: number of the process that built it; ended: when, in seconds since the epoch; 0: not
             known
    """

    artifact: Artifact | None = None
    error: ErrorKind | None = None
    message: str = ""
    seconds: float = 0.0
    cause: Cause = "candidate"
    process: int = 0
    ended: float = 0.0


@dataclass(frozen=True)
class RunJob:
    """One trial.

    best_seconds: the time to beat, for the race
    verify:       compare with the reference
    race:         stop early when it is clearly slower than the best
    control:      it is known to be good; what it shows is whether the device still works
    defer:        where its threads must be tried in turns, too, leave that to another trial, so
                  that a builder can compile for it meanwhile: see `RunResult.unproven`
    proof:        it is that other trial
    """

    job: Job
    artifact: Artifact | None
    best_seconds: float | None = None
    verify: bool = True
    race: bool = True
    control: bool = False
    defer: bool = False
    proof: Proof | None = None


@dataclass(frozen=True)
class Proof:
    """result: of a trial that is `unproven`; artifact: of that source, None where it is refused"""

    result: RunResult
    artifact: Artifact | None


@dataclass(frozen=True)
class RunResult:
    """costs: seconds of one run, an entry per repeat; empty where `error` is set.

    unproven: kernels with threads in turns, which have to be tried before this one is `verified`
    order: why they cannot be tried, where that is so; `verified` then says that the results are
           right in the order in which the device ran them, and nothing is signed
    cause: of the error
    fatal: the worker process died, or the device was lost to it
    first: it was the first trial of its worker process, controls apart
    same_as, cold: see `record.Result`
    """

    costs: tuple[float, ...] = ()
    raced: bool = False
    verified: bool = False
    error: ErrorKind | None = None
    message: str = ""
    seconds: float = 0.0
    device: str = ""
    cause: Cause = "candidate"
    fatal: bool = False
    first: bool = False
    same_as: int | None = None
    unproven: Source | None = None
    order: str = ""
    cold: bool = False


def proving(run: RunJob, result: RunResult, built: Built) -> RunJob:
    """The trial that decides whether `result` of `run`, which is `unproven`, counts.

    built: of what it left to a builder; where that did not fail by itself, the whole trial again
    """
    if built.error is not None and built.cause != "candidate":
        return replace(run, best_seconds=None, race=False, defer=False)
    return replace(run, proof=Proof(result, built.artifact))


@runtime_checkable
class Compiles(Protocol):
    """A builder that compiles sources, too, and so can take that off a runner."""

    def compile(self, source: Source, target: Target) -> Future[Built]:
        """Begin to compile.  What the compiler refuses is a result, never an exception."""


@runtime_checkable
class Helper(Protocol):
    """A builder whose processes do other work, too."""

    def call(
        self, target: Target, function: Callable[..., T], *args: Any, timeout: float
    ) -> Future[T]:
        """Begin `function(*args)` in a process that builds for the target's kind.

        timeout: seconds, after which the future raises WorkerFailure
        """


@runtime_checkable
class Starts(Protocol):
    """A builder whose processes may start before there is something to build."""

    def start(self, target: Target, jobs: int | None) -> None:
        """Begin to start those that so many jobs want; None: as many as there are at most."""


@runtime_checkable
class Builder(Protocol):
    """Turns payloads into artefacts.  A candidate's failure is a result, never an exception."""

    @property
    def n_parallel(self) -> int:
        """How many builds make sense in flight."""

    def submit(self, job: Job) -> Future[Built]:
        """Begin to build.  The future raises what keeps every candidate from being built."""

    def probe(self, target: Target) -> None:
        """After a failure that may not be the candidate's: build what is known to be good.

        Raises DeviceError or TargetError where that fails, too.
        """

    def close(self) -> None:
        """Give up what is under way."""


@runtime_checkable
class Runner(Protocol):
    """Runs artefacts on devices.  A candidate's failure is a result, never an exception."""

    @property
    def n_parallel(self) -> int:
        """How many devices there are."""

    def describe(self, target: Target) -> DeviceSpec:
        """The device that runs `target`.  Raises TargetError or DeviceError where there is none.

        Where it `shares_host`, a kernel under the clock must not share the machine with builds.
        """

    def submit(self, run: RunJob) -> Future[RunResult]:
        """Begin to try one candidate."""

    def probe(self, target: Target) -> None:
        """After a failure that may not be the candidate's: run what is known to be good.

        Raises DeviceError or TargetError where that fails, too, or the device is gone.
        """

    def close(self) -> None:
        """Give up what is under way."""
