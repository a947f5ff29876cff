"""The tuning loop, for one task or many: propose, measure, learn, decide who is next.

In: tasks, something that measures, a database, a budget.  Out: records in the database, events on
the way, a `Report`.  Results are consumed in the order of proposals, and a proposal depends on
exactly the results consumed before it, so a seed fixes the sequence whatever the workers' delays.
Read next: `portfolio.py`, which decides; `propose/`, who proposes.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import numpy as np

from tilewright.base.concurrency import short_turns
from tilewright.base.errors import (
    DeviceError,
    RecordError,
    SpaceError,
    TilewrightError,
    Unavailable,
)
from tilewright.base.garbage import looked_for_seldom
from tilewright.cost.ceilings import ceilings_of
from tilewright.driver.build import check_types
from tilewright.measure.database import Database
from tilewright.measure.jobs import Job
from tilewright.measure.record import Record, task_label
from tilewright.measure.reference import Reference
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
from tilewright.search.portfolio import Portfolio, TaskState
from tilewright.search.predictions import FEW, Predictions
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.first_look import LooksFirst, begin_look
from tilewright.search.propose.named import make_model, make_proposer, shares_model
from tilewright.search.propose.proposers import Candidate, Expects, Outcome, Proposer
from tilewright.search.report import Event, Options, Report, TaskReport
from tilewright.search.transfer import History, recall, teach
from tilewright.search.warm_start import Known, recalled

T = TypeVar("T")
Meanwhile = Callable[[Predictions | None, References | None], Future[float] | None]
_SAMPLE = 256  # candidates that are asked why none of a task is tried
FINAL_PASSES = 3  # over the leaders of a task, at most
MOST_LEFT = 0.2  # of a budget of seconds, for what follows a search
FIRST_PAUSE, LAST_PAUSE = 0.25, 5.0  # seconds between attempts; each pause is twice the last one


def tune(
    tasks: Sequence[Task],
    measurer: Measurer,
    database: Database | None = None,
    options: Options | None = None,
    *,
    on_event: Callable[[Event], None] | None = None,
    proposers: Sequence[Proposer] | None = None,
    model: CostModel | None = None,
    history: Database | None = None,
    verify: bool = True,
    meanwhile: Meanwhile | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Report:
    """Tune `tasks` within the budget; records go to the measurer's database.

    database:  what earlier runs measured: proposals are not repeated, the model learns from it
    proposers: one per task, instead of those that `options.tuner` names
    history:   what was measured of other tasks and shapes, or elsewhere: models start from it, and
               the fastest records of these very computations are tried first
    verify:    give measurers the expected results; what is not verified can never be best
    meanwhile: called once, before the first proposal, while others look at the spaces; with what is
               predicted of them, and references.  Of a budget of seconds it takes half at most.
               It may go on beside the search, which ends after it: it then returns a future of the
               seconds to leave of the budget, `MOST_LEFT` of it at most, for what follows
    Raises TargetError or DeviceError when nothing can be measured, or nothing more; what was is in
    the database.  Ctrl-C ends it with what is known so far, `Report.interrupted` set.
    """
    loop = _Loop(
        tasks, measurer, database, options or Options(), on_event, model, history, verify, clock,
        sleep,
    )  # fmt: skip
    return loop.run(proposers, meanwhile)


def _nothing_to_try(state: TaskState) -> str:
    """Why nothing of a task was ever tried: its masks leave out every candidate; "" else."""
    if state.submitted or state.report.known:
        return ""
    reasons: Counter[str] = Counter()
    for sketch in state.report.task.sketches:
        reasons.update(sketch.refusals(sketch.space.sample(_SAMPLE, np.random.default_rng(0))))
    told = ", ".join(reason for reason, _ in reasons.most_common(3)) or "the space is empty"
    return f"{task_label(state.report.task)}: no candidate is worth a trial ({told})"


@dataclass
class _Flight:
    """A proposal on its way; record: known without measuring."""

    state: TaskState
    candidate: Candidate
    record: Record | None


@dataclass
class _Found:
    """What is to be tried first.

    imports: of each computation, what other programs measured; past: what logs tell of others
    tried:   candidates that are tried first; unusable: those that are not, by reason
    """

    imports: Mapping[str, Sequence[Record]]
    past: History | None
    tried: int = 0
    unusable: Counter[str] = field(default_factory=Counter)

    def candidates(
        self, task: Task, measured: Collection[Candidate], replays: Replays, log: Database | None
    ) -> list[Candidate]:
        """Of exactly this computation.  replays: of the run's own database; log: of the past"""
        found, refused = first_candidates(task, self.imports.get(task.key, ()), measured, replays)
        self.unusable += refused
        if self.past is not None and log is not None:
            told = self.past.records.get(task.key, ())
            found += first_candidates(task, told, measured, Replays(task, log))[0]
        return found

    def messages(self) -> list[str]:
        """For the user: how many there are."""
        some = self.tried or self.unusable
        return [_imported_text(self.tried, self.unusable)] if some else []


class _Loop:
    def __init__(
        self, tasks: Sequence[Task], measurer: Measurer, database: Database | None,
        options: Options, on_event: Callable[[Event], None] | None, model: CostModel | None,
        past: Database | None, verify: bool, clock: Callable[[], float],
        sleep: Callable[[float], None],
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
        self.database: Database | None = database if database is not None else measurer.database
        self.on_event, self.clock, self.sleep = on_event, clock, sleep
        if not tasks[0].target.device_kind.shares_host:  # while the device is opened
            measurer.start(tasks[0].target, options.trials)
        self.device = device = measurer.describe(tasks[0].target)
        specs = [measurer.describe(t.target) for t in tasks]
        for task, spec in zip(tasks, specs, strict=True):
            check_types(task.dag, task.target.on(spec))  # once, not for every candidate
        self.identities = [task_id(t, spec) for t, spec in zip(tasks, specs, strict=True)]
        known = bool(device.fingerprint)  # of what is not known, the target tells
        here = device.shares_host if known else tasks[0].target.device_kind.shares_host
        batch, ahead = options.sizes(here, measurer.devices)
        can_final = measurer.repeats and options.leaders > 1
        self.portfolio = Portfolio(options, batch, ahead, can_final)
        self.owns_model = model is None
        self.model = make_model(options.tuner, options.seed) if model is None else model
        self.learns = shares_model(options.tuner)
        self.quiet = device.shares_host  # nothing may run beside a kernel that is timed
        self.helper = None if self.quiet else measurer.helper
        target = tasks[0].target.on(device)
        self.known = recalled(target, self.helper) if options.knowledge else Known()
        self.past = past
        self.references = References(quiet=self.quiet, helper=self.helper) if verify else None
        self.beside: Future[float] | None = None
        self.flights: deque[_Flight] = deque()
        self.next_fit = batch
        self.fit_at: int | None = None
        self.began = clock()

    # -- the run -----------------------------------------------------------------------------------
    def run(
        self, proposers: Sequence[Proposer] | None, meanwhile: Meanwhile | None = None
    ) -> Report:
        with looked_for_seldom(), nullcontext() if self.quiet else short_turns():
            return self._run(proposers, meanwhile)

    def _run(self, proposers: Sequence[Proposer] | None, meanwhile: Meanwhile | None) -> Report:
        report = Report()
        try:
            self._prepare(report, proposers)
            if meanwhile is not None:
                self.beside = meanwhile(self.known.predictions, self.references)
                half = (self.options.seconds or 0.0) / 2
                self.began = max(self.began, self.clock() - half)
            while True:
                self._leave_time()
                self._propose()
                if not self.flights:
                    break
                if self.portfolio.is_overdue(self._elapsed()):
                    break
                self._consume()
            if self.beside is not None:
                self.beside.result()
            if not self.flights:
                self._converge(report)
                self._final()
        except KeyboardInterrupt:
            report.interrupted = True
        finally:
            self._close(wait=not report.interrupted)
        report.seconds = self._elapsed()
        report.correlation = self.model.correlation()
        return report

    def _leave_time(self) -> None:
        """Of the budget for what follows the search, once somebody knows how long that takes."""
        if self.beside is not None and self.beside.done():
            most = MOST_LEFT * (self.options.seconds or 0.0)
            self.portfolio.left_over = min(self.beside.result(), most)
            self.beside = None

    # -- before the first proposal -----------------------------------------------------------------
    def _prepare(self, report: Report, proposers: Sequence[Proposer] | None) -> None:
        past = None if self.past is None else recall(self.past, self.tasks[0].target.kind)
        prior = self.known.predictions.prior if self.known.predictions else None
        if self.learns and prior is not None and not len(self.model):
            self.model.begin_with(prior)
        found = _Found({} if self.database is None else imports(self.database), past)
        for at, task in enumerate(self.tasks):
            state = self._begin(at, task, found, None if proposers is None else proposers[at])
            self.portfolio.states.append(state)
            report.tasks.append(state.report)
            self._tell("start", state)
        for message in (*self.known.messages, *found.messages()):
            self._tell("imported", self.portfolio.states[0], message=message)
        self._look_ahead(predict=proposers is None)
        if self.helper is not None and prior is not None:
            _ = prior.booster  # made while others look
        self._note_run()
        self._fit_first(past)

    def _begin(self, at: int, task: Task, found: _Found, given: Proposer | None) -> TaskState:
        """A task with what is known of it.  given: its proposer, which then begins without what
        devices of the class taught"""
        database = Database() if self.database is None else self.database
        replays = Replays(task, database)
        known = history(task, database, replays, self.identities[at])
        seed = self.options.seed + 7919 * len(known)  # a resumed run draws anew
        proposer = given
        if proposer is None:
            proposer = make_proposer(self.options.tuner, task, seed, self.model)
        proposer.update([outcome for outcome, _ in known])
        if found.past is not None:
            found.past.skipped += proposer.learn_from(found.past.told)
        measured = {outcome.candidate for outcome, _ in known}
        first = found.candidates(task, measured, replays, self.past)
        if given is None:
            first += self.known.candidates(task, measured)
        found.tried += len(first)
        first = list(dict.fromkeys(first))
        proposer.visit(first)
        state = TaskState(
            at, TaskReport(task, len(known)), proposer, self.identities[at], task.dag.to_json(),
            self.known.untuned if given is None else None, first,
        )  # fmt: skip
        self._resume(state, known)
        state.report.exhausted = not task.sketches and not first
        rate = task.target.limits.rate(task.dag.outputs[0].dtype)
        state.guess = task.flop / rate * 10
        return state

    def _resume(self, state: TaskState, known: Sequence[tuple[Outcome, Record]]) -> None:
        """The best of earlier runs; of a device that is not known only without this one's own."""
        own = any(record.task.fingerprint for _, record in known)
        for outcome, record in known:
            if record.task.fingerprint or not own:
                state.note_best(outcome.candidate, record, self.options)

    def _look_ahead(self, predict: bool) -> None:
        """Begin what takes long, in the order in which it will be asked for: references, and
        predictions of what runs untuned."""
        in_turn = [s.report.task for s in sorted(self.portfolio.states, key=lambda s: s.urgency)]
        if self.references is not None and not self.quiet:
            for task in in_turn:
                self.references.prefetch(task)
        if predict:
            new = {
                s.report.task.key: s.proposer for s in self.portfolio.states if not s.report.known
            }
            firsts = {key: p for key, p in new.items() if isinstance(p, LooksFirst)}
            tasks = (t for t in in_turn if t.key in new)
            looks = self.known.expect(tasks, {key: p.request for key, p in firsts.items()})
            for key, taken in looks.items():
                firsts[key].begin_with(taken)
            states = self.portfolio.states
            for state in states if len(firsts) <= FEW else sorted(states, key=lambda s: s.urgency):
                self._look_first(state)

    def _note_run(self) -> None:
        """Write down what the sequence of proposals depends on."""
        if self.database is None:
            return
        sizes = {"batch": self.portfolio.batch, "ahead": self.portfolio.ahead}
        told = ("tuner", "seed", "trials", "seconds", "knowledge")
        chosen = {n: getattr(self.options, n) for n in told}
        states = self.portfolio.states
        tasks, calls = [s.identity.dag for s in states], [s.report.task.weight for s in states]
        of = {s.report.task.key: s.report.task.family for s in states}
        instead_of = {key: family for key, family in of.items() if family != key}
        named = {s.report.task.key: s.report.task.layers for s in states}
        layers = {key: list(names) for key, names in named.items() if names}
        target = self.tasks[0].target.on(self.device)
        self.database.note_run(
            **chosen, **sizes, tasks=tasks, calls=calls, instead_of=instead_of, layers=layers,
            devices=self.measurer.devices, ceilings=ceilings_of(target).to_json(),
        )  # fmt: skip

    def _fit_first(self, past: History | None) -> None:
        if past is not None:
            if self.learns:
                teach(self.model, past)
            self._tell("imported", self.portfolio.states[0], message=past.text())
        elif len(self.model):
            self.model.fit()
        if len(self.model):
            self.next_fit = self._interval()

    # -- proposing ---------------------------------------------------------------------------------
    def _propose(self) -> None:
        """Fill the look-ahead, a batch at a time."""
        while self.portfolio.has_room(self._elapsed()):
            state = self.portfolio.choose()
            if state is None:
                return
            chosen = self.portfolio.propose(state)
            self._look_first(state)
            if not chosen and state.in_flight and not state.proposer.exhausted:
                return  # a result on its way may show it where to look
            if not chosen:
                state.report.exhausted = True
                self._tell("exhausted", state, message=_nothing_to_try(state))
            proposer, expected = state.proposer, [0.0] * len(chosen)
            if isinstance(proposer, Expects) and self.database is not None:
                expected = proposer.expected(chosen)
            for candidate, seconds in zip(chosen, expected, strict=True):
                self._submit(state, candidate, seconds)

    def _look_first(self, state: TaskState) -> None:
        """Have others look at the spaces of a task, whose next turn comes after all others'."""
        proposer, task = state.proposer, state.report.task
        if self.helper is not None and isinstance(proposer, LooksFirst) and not proposer.has_looked:
            looks = begin_look(self.helper, task, proposer.request)
            proposer.begin_with(looks)
            if self.known.predictions is not None:
                self.known.predictions.begin_with(task, looks)

    def _submit(self, state: TaskState, candidate: Candidate, expected: float) -> None:
        task, trial = state.report.task, state.report.known + state.submitted
        record = None
        try:
            reference = self._reference(state)
            job = make_job(
                task, candidate, reference, self.options.seed, trial, state.identity, state.dag,
                expected if math.isfinite(expected) else 0.0,
            )  # fmt: skip
        except DeviceError:
            raise  # no fault of the candidate's
        except TilewrightError as error:
            record = refused_record(state.identity, candidate, error, self.options.seed, trial)
            if self.database is not None:
                with suppress(RecordError):  # it is in memory; who closes the log tells the rest
                    self.database.append(record, state.dag)
        else:
            self.measurer.submit(job)
        self.flights.append(_Flight(state, candidate, record))
        self.portfolio.note_submitted(state, self._elapsed())

    # -- consuming ---------------------------------------------------------------------------------
    def _consume(self) -> None:
        flight = self.flights[0]
        record = flight.record
        if record is None:
            record = self._patiently(flight.state, self.measurer.next)
        self.flights.popleft()
        state = flight.state
        improved = self.portfolio.note_result(state, flight.candidate, record, self._elapsed())
        self._learn(state)
        self._tell("trial", state, record=record, improved=improved)
        stop = self.portfolio.is_stale(state)
        if stop and not state.report.stopped:
            self._tell("stopped", state)
        state.report.stopped = stop
        if not state.in_flight and self.portfolio.is_fruitless(state):
            state.report.fruitless = True
            self._tell("fruitless", state)

    def _reference(self, state: TaskState) -> Reference | None:
        if self.references is None:
            return None
        return self._patiently(state, partial(self.references.get, state.report.task))

    def _patiently(self, state: TaskState, call: Callable[[], T]) -> T:
        """`call()`; while something is missing for it, again and again for `lost_seconds`."""
        since: float | None = None
        pause = FIRST_PAUSE
        while True:
            try:
                result = call()
            except Unavailable as lost:
                if since is None:
                    since = self.clock()
                    wait = f"The search waits, {self.options.lost_seconds:g} s at most."
                    self._tell("paused", state, message=f"{lost} {wait}")
                left = self.options.lost_seconds - (self.clock() - since)
                if left <= 0:
                    raise self._lost(lost) from None
                self.sleep(min(pause, left))
                pause = min(2 * pause, LAST_PAUSE)
            else:
                if since is not None:
                    self._tell("resumed", state, message="All is back; the search goes on.")
                return result

    def _lost(self, error: Unavailable) -> DeviceError:
        path = None if self.database is None else self.database.path
        return DeviceError(
            error.place, f"{error.reason}, and still so after {self.options.lost_seconds:g} s",
            f"{error.way_out} " + (
                f"Everything measured is in {path}: the same search started again goes on."
                if path is not None else "Start again when it is back."
            ),
        )  # fmt: skip

    def _learn(self, state: TaskState) -> None:
        """Fits start and come into force at fixed counts of results."""
        if not self.learns:
            return
        consumed = self.portfolio.consumed
        if self.fit_at is None and consumed >= self.next_fit:
            self.model.start_fit(background=not self.quiet)
            # A fit takes half a second, in which a GPU tries a batch.
            self.fit_at = consumed + (0 if self.quiet else self.portfolio.batch)
        if self.fit_at is not None and consumed >= self.fit_at:
            self.fit_at = None
            self.next_fit = consumed + self._interval()
            if self.model.finish_fit():
                self._tell("fit", state, correlation=self.model.correlation())

    def _interval(self) -> int:
        """Results between fits: more of them as they weigh less."""
        return self.options.plan or max(self.portfolio.batch, len(self.model) // 8)

    # -- the end -----------------------------------------------------------------------------------
    def _converge(self, report: Report) -> None:
        found = self.portfolio.converged(self._elapsed())
        if found is not None:
            report.converged = True
            self._tell("converged", found[0], message=found[1])

    def _final(self) -> None:
        """The leaders of each task in turn, without a race: which is best should not be luck.

        What runs untuned takes part: a record that beats it by luck would make the network slower.
        The next pass is for those that are best now only because they were not timed again.
        """
        if not self.measurer.repeats or self.options.leaders < 2:
            return
        chosen_of = [(s, s.finalists) for s in self.portfolio.states if len(s.finalists) > 1]
        if chosen_of and self._time_left() > 0:
            self._tell("leaders", chosen_of[0][0], message=_leaders_text([c for _, c in chosen_of]))
        for state, chosen in chosen_of:
            for _ in range(FINAL_PASSES):
                if len(chosen) < 2 or self._time_left() <= 0:
                    break
                jobs = [self._leader_job(state, c) for c in chosen]
                for record in self._patiently(state, partial(self.measurer.final, jobs)):
                    self._tell("final", state, record=record)
                chosen = self._rivals(state)
            if self.database is not None:
                state.report.best = self.database.best(state.identity) or state.report.best

    def _rivals(self, state: TaskState) -> list[Candidate]:
        """The fastest of those timed again, after the candidates that only seem faster."""
        best = None if self.database is None else self.database.best(state.identity)
        if self.database is None or best is None or best.result.final:
            return []
        known = [
            (outcome, record)
            for outcome, record in history(state.report.task, self.database, None, state.identity)
            if record.result.ok and record.result.verified and record.result.same_as is None
        ]  # fmt: skip
        known.sort(key=lambda x: x[1].seconds)
        at = next((k for k, (_, record) in enumerate(known) if record.result.final), 0)
        chosen = [*known[:at][: self.options.leaders], *known[at : at + 1]]
        return [outcome.candidate for outcome, _ in chosen]

    def _leader_job(self, state: TaskState, candidate: Candidate) -> Job:
        return make_job(
            state.report.task, candidate, self._reference(state), self.options.seed,
            state.report.known + state.submitted, state.identity, state.dag,
        )  # fmt: skip

    def _close(self, wait: bool) -> None:
        if self.flights:
            self.measurer.forget()
        if self.references is not None:
            self.references.close(wait)
        if self.owns_model:
            self.model.close()

    # -- time and events ---------------------------------------------------------------------------
    def _elapsed(self) -> float:
        return self.clock() - self.began

    def _time_left(self) -> float:
        return self.portfolio.time_left(self._elapsed())

    def _tell(
        self, kind: str, state: TaskState, *, record: Record | None = None, improved: bool = False,
        correlation: float | None = None, message: str = "",
    ) -> None:  # fmt: skip
        if self.on_event is not None:
            elapsed, best = self._elapsed(), state.report.best_seconds
            event = Event(
                kind,
                state.at,
                self.portfolio.consumed,
                elapsed,
                record,
                best,
                improved,
                correlation,
                message,
            )
            self.on_event(event)


def _imported_text(first: int, unusable: Counter[str]) -> str:
    text = f"{first} imported schedules are tried first."
    if unusable:
        reasons = "; ".join(f"{n} x {reason}" for reason, n in unusable.most_common(3))
        text += f"  {unusable.total()} cannot be used here: {reasons}"
    return text


def _leaders_text(chosen: list[list[Candidate]]) -> str:
    of = "" if len(chosen) == 1 else f" of {len(chosen)} tasks"
    return f"Timing the leaders again, in turn: {sum(map(len, chosen))} candidates{of}."
