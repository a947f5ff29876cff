"""`build_kernels`: for each kernel the first choice that compiles and computes what it must.

In: fused groups with their choices of schedules, a target, the device.  Out: artefacts with their
reports.  What a log proposes is judged by the masks, built and tried in worker processes under a
deadline; nothing that a log says of it is believed.  A kernel that this installation has verified
before, signed in its cache, is not run again.  Read next: `schedules.py`, `measure/signatures.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from tilewright.base.artifact import Artifact, Source
from tilewright.base.concurrency import cached_property
from tilewright.base.errors import DeviceError, ModelError, TargetError, TilewrightError
from tilewright.cost.ceilings import Bound, ceilings_of, work_of
from tilewright.driver.build import build_artifact, payload_of
from tilewright.graph.layers import of_each
from tilewright.measure import signatures
from tilewright.measure.calls import BUILD_ERRORS
from tilewright.measure.jobs import Built, Job, RunJob, RunResult, proving
from tilewright.measure.local import LOG_SECONDS, LocalBuilder, LocalRunner
from tilewright.measure.record import TaskId
from tilewright.measure.reference import Reference
from tilewright.network import build_cache
from tilewright.network.extract import FusedGroup
from tilewright.network.schedules import Choice
from tilewright.runtime.network.report import KernelReport
from tilewright.runtime.timing import show_seconds
from tilewright.schedule.default import default_schedule
from tilewright.schedule.task import Task
from tilewright.search.jobs import References
from tilewright.targets.target import Target

OWN_SECONDS = 120.0  # likewise of what Tilewright chose itself
_TIMED_RUNS = 5
_SLOWER = 100  # times what a record claims: it is of another program,
_MOMENT = 0.1  # unless it took less than so many seconds, which a busy machine may cause
_NAME_LENGTH = 48
_REASON_LENGTH = 400

NOT_MADE = "proof of order not made: "
VERIFIED, BEFORE, UNVERIFIED = "verified here", "verified here before", "not verified"


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel and how it came about."""

    artifact: Artifact
    report: KernelReport


def build_kernels(
    groups: Sequence[FusedGroup],
    choices: Sequence[Iterator[Choice]],
    target: Target,
    builder: LocalBuilder,
    *,
    verify: bool,
    chained: str = "",
    references: References | None = None,
    runner: LocalRunner | None = None,
) -> tuple[list[BuiltKernel], list[str]]:
    """Build a kernel for each group; notes for the report behind them.

    choices: of each group, the preferred one first
    builder: whose processes build them, under deadlines of their own
    verify:  on the target's device, which is there
    chained: when they begin, see `chains.py`
    references, runner: of a search that goes on, which has some already, and the device open
    Raises ModelError where not even the last choice does, TargetError without a compiler.
    """
    attempts = [_Attempt(g, own) for g, own in zip(groups, choices, strict=True)]
    sharing = target, builder, len(groups), verify, chained, references, runner
    with _Workers(*sharing) as workers:
        left = attempts
        while left:
            for attempt in left:
                attempt.start(workers)
            for attempt in left:
                attempt.finish_build(workers)
            for attempt in left:
                attempt.start_trial(workers)
            for attempt in left:
                attempt.compile_proof(workers)
            for attempt in left:
                attempt.start_proof(workers)
            doubtful = [attempt for attempt in left if not attempt.finish_trial()]
            for attempt in doubtful:
                attempt.try_again(workers)
            left = [attempt for attempt in left if not attempt.check]
        notes = [f"no kernel was run: {workers.broken}"] if workers.broken else []
    return [attempt.shipped(target) for attempt in attempts], notes


@dataclass
class _Attempt:
    """A group on its way to a kernel; it takes one choice after the other.

    check: how far its artefact can be trusted, set when it is the one to ship
    """

    group: FusedGroup
    choices: Iterator[Choice]
    failures: list[str] = field(default_factory=list)
    choice: Choice | None = None
    check: str = ""
    seconds: float | None = None
    artifact: Artifact | None = None
    _build: Future[Built] | None = None
    _run: RunJob | None = None
    _trial: Future[RunResult] | None = None
    _proof: Future[Built] | None = None

    def start(self, workers: _Workers) -> None:
        """Begin to build the next choice that has a schedule."""
        self._build = None
        for choice in self.choices:
            self.choice = choice
            if isinstance(choice.schedule, str):
                self._refuse(choice.schedule)
                continue
            self._build = workers.build(self.group, choice)
            return
        raise ModelError(
            f"relay.build: kernel {kernel_name(self.group)}", "; ".join(self.failures),
            "Please report it with the network.",
        )  # fmt: skip

    def finish_build(self, workers: _Workers) -> None:
        """Take the artefact; ship it at once where it need not, or cannot, be tried."""
        assert self._build is not None and self.choice is not None
        built = self._build.result()
        self.artifact = built.artifact
        if built.artifact is None:
            self._refuse(built.message)
            return
        workers.remember(self.group, self.choice, built.artifact)
        if not workers.verify:
            self.check, self.seconds = UNVERIFIED, self.choice.seconds
        else:
            claim = signatures.claim(self.group.key, workers.target.precision)
            known = signatures.signed(built.artifact, claim, workers.target.fingerprint)
            if known is not None:
                self.check, self.seconds = BEFORE, known
            else:
                workers.references.prefetch(workers.task(self.group))

    def start_trial(self, workers: _Workers) -> None:
        self._trial = self._proof = None
        if self.check or self.artifact is None:
            return
        assert self.choice is not None
        if not workers.can_run(self.choice):
            if self.choice.kind.trusted:
                self.check = UNVERIFIED
            else:
                self._refuse(f"it cannot be verified ({workers.broken})")
            return
        try:
            self._run = workers.run_job(self.group, self.artifact)
        except DeviceError as error:  # no room for a reference
            workers.broken = str(error)
            self.start_trial(workers)
        else:
            self._trial = workers.trial(self.choice, replace(self._run, defer=True))

    def compile_proof(self, workers: _Workers) -> None:
        """Have compiled what the trial leaves to another one, all kernels at once."""
        if self._trial is not None:
            assert self.choice is not None
            source = self._trial.result().unproven
            self._proof = None if source is None else workers.compile(self.choice, source)

    def start_proof(self, workers: _Workers) -> None:
        if self._proof is not None:
            assert self.choice is not None and self._run is not None and self._trial is not None
            run = proving(self._run, self._trial.result(), self._proof.result())
            self._trial = workers.trial(self.choice, run)

    def finish_trial(self) -> bool:
        """Judge the kernel by its trial; False where another kernel may be to blame for it."""
        if self._trial is None:
            return True
        assert self.choice is not None
        result = self._trial.result()
        hung = result.error == "timeout" and not self.choice.kind.trusted
        if result.error is not None and not result.first and not hung:
            return False
        self._judge(result)
        return True

    def try_again(self, workers: _Workers) -> None:
        """In a process that has run no other kernel."""
        assert self.choice is not None and self._run is not None
        try:
            workers.renew(self.choice)
        except TilewrightError as error:
            workers.broken = str(error)
            self.start_trial(workers)
            return
        self._judge(workers.trial(self.choice, self._run).result())

    def _judge(self, result: RunResult) -> None:
        assert self.choice is not None
        if result.error is not None:
            kind = "wrong result: " if result.error == "wrong" else ""
            self._refuse(f"{kind}{result.message}")
            return
        took, claimed = median(result.costs), self.choice.seconds
        if claimed is not None and took > max(_SLOWER * claimed, _MOMENT):
            told = f"{show_seconds(took)} where the log says {show_seconds(claimed)}"
            self._refuse(f"it takes {told}")
        else:
            self.check, self.seconds = VERIFIED, took
            if result.order:
                self.check = f"{VERIFIED}; {NOT_MADE}{result.order}"

    def shipped(self, target: Target) -> BuiltKernel:
        assert self.artifact is not None and self.choice is not None
        group = self.group
        ceilings = replace(ceilings_of(target), launch=0.0)  # how kernels start is no peak
        bound = ceilings.bound(work_of(group.dag)) or Bound(0.0, "")
        report = KernelReport(
            name=self.artifact.source.entry_name, label=_show(group), count=len(group.calls),
            source=self.choice.source, flop=group.dag.flop_ct, seconds=self.seconds,
            verified=self.check != UNVERIFIED, check=self.check,
            note="; ".join(self.failures), group=group.instead_of or group.key,
            layers=of_each(group.calls), least=bound.seconds, limit=bound.side,
        )  # fmt: skip
        return BuiltKernel(self.artifact, report)

    def _refuse(self, reason: str) -> None:
        assert self.choice is not None
        self.artifact = None
        self.failures.append(f"{self.choice.source} refused: {reason:.{_REASON_LENGTH}}")


class _Workers:
    """Who builds and tries kernels; processes start when they are first needed.

    verify: results are compared, on the device that is there
    broken: why the device cannot be used after all; ""
    """

    def __init__(
        self, target: Target, builder: LocalBuilder, kernels: int, verify: bool, chained: str,
        references: References | None = None, runner: LocalRunner | None = None,
    ) -> None:  # fmt: skip
        self.target, self.verify, self.broken = target, verify, ""
        self._chained = chained if target.waits else ""
        self._references = references
        self._tasks: dict[str, Task] = {}
        self._known: set[str] = set()
        cores = len(os.sched_getaffinity(0))
        # Processes pay for themselves with so many kernels; those from a log always get them.
        self._here = min(cores, kernels // target.device_kind.kernels_per_process) <= 1
        self._stack = ExitStack()
        self._builders = {True: builder.sharing(OWN_SECONDS), False: builder.sharing(LOG_SECONDS)}
        self._runners = {
            own: self._runner(runner, seconds)
            for own, seconds in ((True, OWN_SECONDS), (False, LOG_SECONDS))
        }

    def _runner(self, shared: LocalRunner | None, seconds: float) -> LocalRunner:
        if shared is not None:
            return shared.sharing(timeout=seconds, number=1, repeat=_TIMED_RUNS, race=False)
        return self._stack.enter_context(LocalRunner(seconds, 1, _TIMED_RUNS, race=False))

    @cached_property
    def references(self) -> References:
        """What kernels are compared with: a folder, made for the first that is run."""
        if self._references is not None:
            return self._references
        made = References(quiet=False, helper=None if self._here else self._builders[True])
        self._stack.callback(made.close)
        return made

    def task(self, group: FusedGroup) -> Task:
        if group.key not in self._tasks:
            self._tasks[group.key] = Task(group.name, group.args, group.dag, self.target)
        return self._tasks[group.key]

    def build(self, group: FusedGroup, choice: Choice) -> Future[Built]:
        """Only what Tilewright chose itself is ever compiled in this process."""
        assert not isinstance(choice.schedule, str)
        own = choice.kind.trusted
        name = kernel_name(group)
        future: Future[Built] = Future()
        known = build_cache.load(group.dag, choice.schedule, self.target, name, self._chained)
        if known is not None:
            self._known.add(group.key)
            future.set_result(Built(known))
            return future
        self._known.discard(group.key)
        schedule = choice.schedule or default_schedule(group.dag, self.target)
        if not (own and self._here):
            payload = payload_of(schedule, name, chained=self._chained)
            return self._builders[own].submit(self._job(group, payload))
        try:
            made = build_artifact(schedule, self.target, name, chained=self._chained)
            future.set_result(Built(made))
        except TargetError:
            raise  # the compiler is missing: no schedule will help
        except TilewrightError as error:
            kind = BUILD_ERRORS.get(type(error), "compile")
            future.set_result(Built(None, kind, str(error)))
        return future

    def remember(self, group: FusedGroup, choice: Choice, artifact: Artifact) -> None:
        """The next build finds what the schedule led to."""
        assert not isinstance(choice.schedule, str)
        if group.key not in self._known:
            name = kernel_name(group)
            build_cache.store(
                artifact, group.dag, choice.schedule, self.target, name, self._chained
            )

    def can_run(self, choice: Choice) -> bool:
        """Whether a process that may be lost can use the device."""
        if not self.broken:
            try:
                self._runners[choice.kind.trusted].describe(self.target)
            except TilewrightError as error:
                self.broken = str(error)
        return not self.broken

    def renew(self, choice: Choice) -> None:
        """The next trial gets a new process.  Raises a TilewrightError when the device is gone."""
        self._runners[choice.kind.trusted].probe(self.target)

    def run_job(self, group: FusedGroup, artifact: Artifact) -> RunJob:
        """A comparison with the reference.

        Raises DeviceError where the temporary folder has no room for the reference.
        """
        job = self._job(group, {}, self.references.get(self.task(group)))
        return RunJob(job, artifact, None, verify=True, race=False)

    def trial(self, choice: Choice, run: RunJob) -> Future[RunResult]:
        """Do it, as measuring does, and sign what is right."""
        return self._runners[choice.kind.trusted].submit(run)

    def compile(self, choice: Choice, source: Source) -> Future[Built]:
        return self._builders[choice.kind.trusted].compile(source, self.target)

    def _job(
        self, group: FusedGroup, payload: dict[str, Any], reference: Reference | None = None
    ) -> Job:
        identity = TaskId(group.name, [], group.key, str(self.target), self.target.fingerprint)
        return Job(identity, payload, reference, target=self.target)

    def __enter__(self) -> _Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def kernel_name(group: FusedGroup) -> str:
    """Name a kernel by its computation, so that two kernels of a process never share a name."""
    clean = "".join(c if c.isalnum() else "_" for c in group.name)[:_NAME_LENGTH]
    return f"{clean}_{group.key[:10]}"


def _show(group: FusedGroup) -> str:
    """`conv2d_nchw+add+relu 1x512x7x7 512x512x3x3 1x1`: the workload without types."""
    shown = [
        "x".join(map(str, a[1] if a[0] == "TENSOR" else a))
        for a in group.args
        if isinstance(a, (list, tuple)) and a
    ]
    return " ".join([group.name, *shown])
