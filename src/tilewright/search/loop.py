"""The tuning loop, for one task or many: propose, measure, learn, decide who is next.

In: tasks, something that measures, a database, a budget.  Out: records in the database, events on
the way, a `Report`.  Results are consumed in the order of proposals, and a proposal depends on
exactly the results consumed before it, so a seed fixes the sequence whatever the workers' delays.
Read next: `tuners.py` (AutoTVM's spelling).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from tilewright.base.errors import DeviceError, DeviceLost, SpaceError, TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.jobs import Job
from tilewright.measure.record import Record
from tilewright.schedule.task import Task
from tilewright.search.imported import Replays, first_candidates, imports
from tilewright.search.jobs import (
    Measurer,
    References,
    history,
    make_job,
    refused_record,
    task_id,
)
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.cost_model import Options as ModelOptions
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.propose.proposers import (
    Candidate,
    GeneticProposer,
    GridProposer,
    Outcome,
    Proposer,
    RandomProposer,
)
from tilewright.search.report import Event, Options, Report, TaskReport

T = TypeVar("T")
GAIN = 0.2  # improvement hoped for before a task has shown any
FINAL_PASSES = 3  # over the leaders of a task, at most
FINAL_SHARE = 0.15  # of a budget of seconds, at most, for timing the leaders again
MIN_BATCHES = 4  # of each task, before a run may end for lack of predicted gain
PROBE_SECONDS = 5.0  # between looks for a lost device


def make_proposer(tuner: str, task: Task, seed: int, model: CostModel) -> Proposer:
    """The proposer of that name; those with a model share `model`."""
    if tuner == "xgb":
        return ModelProposer(task, seed, model)
    plain: dict[str, Callable[[Task, int], Proposer]] = {
        "random": RandomProposer, "grid": GridProposer, "ga": GeneticProposer,
    }  # fmt: skip
    if tuner not in plain:
        raise SpaceError(f"tuner {tuner!r}", "no such tuner", "Use xgb, random, grid or ga.")
    return plain[tuner](task, seed)


def tune(
    tasks: Sequence[Task],
    measurer: Measurer,
    database: Database | None = None,
    options: Options | None = None,
    *,
    on_event: Callable[[Event], None] | None = None,
    proposers: Sequence[Proposer] | None = None,
    model: CostModel | None = None,
    verify: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> Report:
    """Tune `tasks` within the budget; records go to the measurer's database.

    database:  what earlier runs measured: proposals are not repeated, the model learns from it
    proposers: one per task, instead of those that `options.tuner` names
    verify:    give measurers the expected results; what is not verified can never be best
    Raises TargetError or DeviceError when nothing can be measured, or nothing more; what was is in
    the database.  Ctrl-C ends it with what is known so far, `Report.interrupted` set.
    """
    loop = _Loop(tasks, measurer, database, options or Options(), on_event, model, verify, clock)
    return loop.run(proposers)


@dataclass
class _State:
    """One task on its way.

    stale: results since its best; hope: relative gain of an improvement; trace: the best so far
    after each of the last results; guess: its seconds, before anything is measured
    untuned: what the network would run without tuning, per sketch
    first: what is left of candidates to try before others
    """

    at: int
    report: TaskReport
    proposer: Proposer
    identity: Any
    dag: Any
    untuned: list[Candidate]
    first: list[Candidate]
    leaders: list[tuple[float, Candidate]] = field(default_factory=list)
    in_flight: int = 0
    submitted: int = 0
    stale: int = 0
    hope: float = GAIN
    guess: float = 0.0
    trace: deque[float] = field(default_factory=deque)

    @property
    def done(self) -> bool:
        return self.report.exhausted or self.report.stopped or self.report.fruitless


@dataclass
class _Flight:
    """A proposal on its way; record: known without measuring."""

    state: _State
    candidate: Candidate
    record: Record | None


class _Loop:
    def __init__(
        self, tasks: Sequence[Task], measurer: Measurer, database: Database | None,
        options: Options, on_event: Callable[[Event], None] | None, model: CostModel | None,
        verify: bool, clock: Callable[[], float],
    ) -> None:  # fmt: skip
        if options.order not in ("gain", "turns"):
            raise SpaceError(f"tune(order={options.order!r})", "no such order", "Use gain, turns.")
        if options.trials is not None and options.trials < 1:
            raise SpaceError(
                f"tune(trials={options.trials})", "it must be at least 1", "None is no limit."
            )
        if not tasks:
            raise SpaceError("tune", "there is no task", "Extract tasks from a network first.")
        self.tasks, self.measurer, self.options = list(tasks), measurer, options
        self.database: Database | None = (
            database if database is not None else getattr(measurer, "database", None)
        )
        self.on_event, self.clock = on_event, clock
        self.batch, self.ahead = options.sizes(tasks[0].target.is_gpu)
        self.owns_model = model is None
        self.model = CostModel(ModelOptions(seed=options.seed)) if model is None else model
        self.references = References() if verify else None
        self.quiet = _exclusive(measurer, tasks[0])
        self.flights: deque[_Flight] = deque()
        self.states: list[_State] = []
        self.consumed = self.submitted = self.improved_at = 0
        self.next_fit = self.batch
        self.fit_at: int | None = None
        self.began = clock()

    # -- the run -----------------------------------------------------------------------------------
    def run(self, proposers: Sequence[Proposer] | None) -> Report:
        report = Report()
        try:
            self._prepare(report, proposers)
            while True:
                self._propose()
                if not self.flights:
                    break
                if self._time_left() < -0.05 * (self.options.seconds or 0):
                    break
                self._consume()
            if not self.flights:
                self._converge(report)
                self._final()
        except KeyboardInterrupt:
            report.interrupted = True
        finally:
            self._close()
        report.seconds = self.clock() - self.began
        report.correlation = self.model.correlation()
        return report

    def _prepare(self, report: Report, proposers: Sequence[Proposer] | None) -> None:
        foreign = {} if self.database is None else imports(self.database)
        unusable: Counter[str] = Counter()
        tried_first = 0
        for at, task in enumerate(self.tasks):
            database = Database() if self.database is None else self.database
            replays = Replays(task, database)
            known = history(task, database, replays)
            seed = self.options.seed + 7919 * len(known)  # a resumed run draws anew
            proposer = (
                proposers[at] if proposers is not None
                else make_proposer(self.options.tuner, task, seed, self.model)
            )  # fmt: skip
            proposer.update([outcome for outcome, _ in known])
            untuned = _untuned(task) if proposers is None else []
            measured = {outcome.candidate for outcome, _ in known}
            imported, refused = first_candidates(task, foreign.get(task.key, ()), measured, replays)
            unusable += refused
            tried_first += len(imported)
            first = list(dict.fromkeys([*([] if known else untuned), *imported]))
            proposer.visit(first)
            report_of, dag = TaskReport(task, len(known)), task.dag.to_json()
            state = _State(at, report_of, proposer, task_id(task), dag, untuned, first)
            for outcome, record in known:
                self._note_best(state, outcome.candidate, record)
            state.report.exhausted = not task.sketches and not first
            state.guess = task.flop / max(task.target.limits.peak_flops, 1.0) * 10
            self.states.append(state)
            report.tasks.append(state.report)
            self._tell("start", state)
        if tried_first or unusable:
            self._tell("imported", self.states[0], message=_imported_text(tried_first, unusable))
        if self.references is not None and not self.quiet:
            for state in sorted(self.states, key=self._urgency):
                self.references.prefetch(state.report.task)
        if self.database is not None:
            sizes = {"batch": self.batch, "ahead": self.ahead}
            chosen = {n: getattr(self.options, n) for n in ("tuner", "seed", "trials", "seconds")}
            self.database.note_run(**chosen, **sizes, tasks=[s.identity.dag for s in self.states])
        if len(self.model):
            self.model.fit()
            self.next_fit = self._interval()

    # -- proposing ---------------------------------------------------------------------------------
    def _propose(self) -> None:
        """Fill the look-ahead, a batch at a time.

        What the network would run untuned comes first: no best record may be worse than it.  Then
        what another program found.
        """
        while len(self.flights) + self.batch <= self.ahead and not self._spent():
            state = self._choose()
            if state is None:
                return
            wanted = self.batch
            if self.options.trials is not None:
                wanted = min(wanted, self.options.trials - self.submitted)
            chosen, state.first = state.first[:wanted], state.first[wanted:]
            chosen += state.proposer.suggest(wanted - len(chosen))
            if not chosen:
                state.report.exhausted = True
                self._tell("exhausted", state)
                continue
            for candidate in chosen:
                self._submit(state, candidate)

    def _submit(self, state: _State, candidate: Candidate) -> None:
        task, trial = state.report.task, state.report.known + state.submitted
        record = None
        try:
            reference = self.references.get(task) if self.references is not None else None
            job = make_job(
                task, candidate, reference, self.options.seed, trial, state.identity, state.dag
            )
        except TilewrightError as error:
            record = refused_record(task, candidate, error, self.options.seed, trial)
            if self.database is not None:
                self.database.append(record, state.dag)
        else:
            self.measurer.submit(job)
        self.flights.append(_Flight(state, candidate, record))
        self.submitted += 1
        state.submitted += 1
        state.in_flight += 1

    def _choose(self) -> _State | None:
        """Every task gets a first batch; then the one with the greatest predicted gain, or each
        in turn."""
        open_ = [s for s in self.states if not s.done and not self._fruitless(s)]
        fresh = [s for s in open_ if s.first or (s.submitted == 0 and s.report.known == 0)]
        if fresh:
            return min(fresh, key=lambda s: (s.submitted, *self._urgency(s)))
        open_ = self._worthwhile(open_)
        if self.options.order == "turns":
            return min(open_, key=lambda s: (s.submitted, s.at), default=None)
        return max(open_, key=self._gain, default=None)

    def _worthwhile(self, states: list[_State]) -> list[_State]:
        """All while one of them is predicted to gain, then those that had few batches."""
        if max((self._gain(s)[0] for s in states), default=0.0) >= self._least_gain():
            return states
        few = MIN_BATCHES * self.batch
        return [s for s in states if s.report.known + s.submitted < few]

    def _least_gain(self) -> float:
        """Seconds per run of the network that a trial should be predicted to save.

        Tasks that are given up do not count: how long their defaults take was not measured.
        """
        counted = [s for s in self.states if s.report.best is not None or not s.done]
        return self.options.negligible * sum(
            s.report.task.weight * (s.report.best_seconds or s.guess) for s in counted
        )

    def _fruitless(self, state: _State) -> bool:
        """It had all the trials a task gets without one success, done or on their way."""
        report, most = state.report, self.options.fruitless * self.batch
        only_failures = report.best is None and report.failed == report.trials
        return only_failures and 0 < most <= report.trials + state.in_flight

    def _urgency(self, state: _State) -> tuple[float, int]:
        return -state.report.task.weight * state.guess, state.at

    def _gain(self, state: _State) -> tuple[float, int]:
        """Seconds per run of the network that the next trial of the task may save.

        The greater of what the last trials saved, and of a hope: the chance of an improvement
        falls with the trials since the last one, what it brings is learned from those before.
        """
        task = state.report.task
        best = state.report.best_seconds
        best = state.guess if best is None else best
        hoped = best * state.hope / (state.stale + state.in_flight + self.batch)
        saved = (state.trace[0] - best) / len(state.trace) if state.trace else 0.0
        return task.weight * max(hoped, saved), -state.at

    # -- consuming ---------------------------------------------------------------------------------
    def _consume(self) -> None:
        flight = self.flights[0]
        record = flight.record
        if record is None:
            record = self._patiently(flight.state, self.measurer.next)
        self.flights.popleft()
        state = flight.state
        self.consumed += 1
        state.in_flight -= 1
        state.report.trials += 1
        if not record.result.ok:
            state.report.failed += 1
            first = record.result.message.strip().partition("\n")[0]
            state.report.failure = f"{record.result.error}: {first}"
        state.proposer.update([Outcome(flight.candidate, record.seconds)])
        improved = self._note_best(state, flight.candidate, record)
        self.improved_at = self.consumed if improved else self.improved_at
        state.stale = 0 if improved else state.stale + 1
        if state.report.best is not None:
            state.trace.append(state.report.best.seconds)
            if len(state.trace) > 2 * self.batch:
                state.trace.popleft()
        self._learn(state)
        self._tell("trial", state, record=record, improved=improved)
        limit = self.options.early_stopping
        stop = limit is not None and state.stale >= limit  # one on its way may still improve
        if stop and not state.report.stopped:
            self._tell("stopped", state)
        state.report.stopped = stop
        if not state.in_flight and self._fruitless(state):
            state.report.fruitless = True
            self._tell("fruitless", state)

    def _patiently(self, state: _State, call: Callable[[], T]) -> T:
        """`call()`; while the device is lost, again and again for `lost_seconds`."""
        since: float | None = None
        while True:
            try:
                result = call()
            except DeviceLost as lost:
                if since is None:
                    since = self.clock()
                    wait = f"The search waits for it, {self.options.lost_seconds:g} s at most."
                    self._tell("paused", state, message=f"{lost} {wait}")
                left = self.options.lost_seconds - (self.clock() - since)
                if left <= 0:
                    raise self._lost(lost) from None
                time.sleep(min(PROBE_SECONDS, left))
            else:
                if since is not None:
                    self._tell("resumed", state, message="The device is back; the search goes on.")
                return result

    def _lost(self, error: DeviceLost) -> DeviceError:
        path = None if self.database is None else self.database.path
        return DeviceError(
            error.place, f"{error.reason}, and not back after {self.options.lost_seconds:g} s",
            f"{error.way_out} " + (
                f"Everything measured is in {path}: the same search started again goes on."
                if path is not None else "Start again when it is back."
            ),
        )  # fmt: skip

    def _note_best(self, state: _State, candidate: Candidate, record: Record) -> bool:
        """Whether the record is the best of its task; only verified ones can be."""
        if not record.result.ok or not record.result.verified:
            return False
        if record.result.same_as is None:  # else that one leads
            every = [*state.leaders, (record.seconds, candidate)]
            state.leaders = sorted(every, key=lambda x: x[0])[: max(self.options.leaders, 1)]
        before = state.report.best_seconds
        if before is not None and record.seconds >= before:
            return False
        if before is not None:
            state.hope = 0.6 * state.hope + 0.4 * (before - record.seconds) / before
        state.report.best = record
        return True

    def _learn(self, state: _State) -> None:
        """Fits start and come into force at fixed counts of results."""
        if self.options.tuner != "xgb":
            return
        if self.fit_at is None and self.consumed >= self.next_fit:
            self.model.start_fit(background=not self.quiet)
            self.fit_at = self.consumed + (0 if self.quiet else self.batch // 2)
        if self.fit_at is not None and self.consumed >= self.fit_at:
            self.fit_at = None
            self.next_fit = self.consumed + self._interval()
            if self.model.finish_fit():
                self._tell("fit", state, correlation=self.model.correlation())

    def _interval(self) -> int:
        """Results between fits: more of them as they weigh less."""
        return max(self.batch, len(self.model) // 8)

    # -- the end -----------------------------------------------------------------------------------
    def _converge(self, report: Report) -> None:
        """Say so if there was something to propose and budget left, but no gain to expect."""
        left = [s for s in self.states if not s.done]
        if not left or self._spent():
            return
        report.converged = True
        best = max(left, key=self._gain)
        gain, least = self._gain(best)[0], self._least_gain()
        total = least / self.options.negligible
        of = "" if self.options.trials is None else f" of {self.options.trials}"
        text = (
            f"Converged after {self.consumed}{of} trials: no task is predicted to gain any more.  "
            f"One more trial would save {gain * 1e9:.2g} ns of {total * 1e3:.4g} ms, all tasks "
            f"together; under {least * 1e9:.2g} ns the search ends."
        )
        self._tell("converged", best, message=text)

    def _final(self) -> None:
        """The leaders of each task in turn, without a race: which is best should not be luck.

        What runs untuned takes part: a record that beats it by luck would make the network slower.
        The next pass is for those that are best now only because they were not timed again.
        """
        final = getattr(self.measurer, "final", None)
        if final is None or self.options.leaders < 2:
            return
        chosen_of = [(s, chosen) for s in self.states if len(chosen := self._finalists(s)) > 1]
        if chosen_of and self._time_left() > 0:
            self._tell("leaders", chosen_of[0][0], message=_leaders_text([c for _, c in chosen_of]))
        for state, chosen in chosen_of:
            for _ in range(FINAL_PASSES):
                if len(chosen) < 2 or self._time_left() <= 0:
                    break
                jobs = [self._leader_job(state, c) for c in chosen]
                for record in self._patiently(state, partial(final, jobs)):
                    self._tell("final", state, record=record)
                chosen = self._rivals(state)
            if self.database is not None:
                state.report.best = self.database.best(state.identity) or state.report.best

    def _finalists(self, state: _State) -> list[Candidate]:
        if state.submitted == 0 or not state.leaders:
            return []
        return list(dict.fromkeys([*(c for _, c in state.leaders), *state.untuned]))

    def _rivals(self, state: _State) -> list[Candidate]:
        """The fastest of those timed again, after the candidates that only seem faster."""
        best = None if self.database is None else self.database.best(state.identity)
        if self.database is None or best is None or best.result.final:
            return []
        known = [
            (outcome, record) for outcome, record in history(state.report.task, self.database)
            if record.result.ok and record.result.verified and record.result.same_as is None
        ]  # fmt: skip
        known.sort(key=lambda x: x[1].seconds)
        at = next((k for k, (_, record) in enumerate(known) if record.result.final), 0)
        chosen = [*known[:at][: self.options.leaders], *known[at : at + 1]]
        return [outcome.candidate for outcome, _ in chosen]

    def _leader_job(self, state: _State, candidate: Candidate) -> Job:
        task = state.report.task
        reference = self.references.get(task) if self.references is not None else None
        return make_job(
            task, candidate, reference, self.options.seed, state.report.known + state.submitted,
            state.identity, state.dag,
        )  # fmt: skip

    def _close(self) -> None:
        if self.references is not None:
            self.references.close()
        if self.owns_model:
            self.model.close()

    # -- budget and events -------------------------------------------------------------------------
    def _spent(self) -> bool:
        if self.options.trials is not None and self.submitted >= self.options.trials:
            return True
        patience = self.options.patience
        if patience is not None and self.consumed - self.improved_at >= patience:
            return True
        if self.options.seconds is None:
            return False
        each = (self.clock() - self.began) / max(self.consumed, 4)
        count = sum(len(self._finalists(s)) for s in self.states)
        final = min(2 * each * count, FINAL_SHARE * self.options.seconds)
        final = final if hasattr(self.measurer, "final") and self.options.leaders > 1 else 0.0
        return self._time_left() <= len(self.flights) * each + final

    def _time_left(self) -> float:
        if self.options.seconds is None:
            return float("inf")
        return self.options.seconds - (self.clock() - self.began)

    def _tell(
        self, kind: str, state: _State, *, record: Record | None = None, improved: bool = False,
        correlation: float | None = None, message: str = "",
    ) -> None:  # fmt: skip
        if self.on_event is not None:
            elapsed, best = self.clock() - self.began, state.report.best_seconds
            event = Event(
                kind, state.at, self.consumed, elapsed, record, best, improved, correlation, message
            )
            self.on_event(event)


def _untuned(task: Task) -> list[Candidate]:
    found = [(s, s.fallback()) for s in task.sketches]
    return [Candidate(s, index) for s, index in found if index is not None]


def _imported_text(first: int, unusable: Counter[str]) -> str:
    text = f"{first} imported schedules are tried first."
    if unusable:
        reasons = "; ".join(f"{n} x {reason}" for reason, n in unusable.most_common(3))
        text += f"  {unusable.total()} cannot be used here: {reasons}"
    return text


def _leaders_text(chosen: list[list[Candidate]]) -> str:
    of = "" if len(chosen) == 1 else f" of {len(chosen)} tasks"
    return f"Timing the leaders again, in turn: {sum(map(len, chosen))} candidates{of}."


def _exclusive(measurer: Measurer, task: Task) -> bool:
    """True when nothing may run beside a kernel that is timed: the device is this machine's CPU."""
    runner = getattr(measurer, "runner", None)
    if runner is None or not hasattr(runner, "exclusive"):
        return False
    return bool(runner.exclusive(task.target))
