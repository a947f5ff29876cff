"""The tasks of a search on their way: who is next, what a trial may still gain, when to end.

In: candidates that were submitted, records that came back, the time.  Out: decisions.  Nothing here
measures, waits, or reads a clock, so a run can be played through in any order of events.
Read next: `loop.py`, which drives it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, isfinite
from numbers import Real
from typing import Any

from tilewright.base.concurrency import cached_property
from tilewright.base.errors import SpaceError
from tilewright.measure.record import Record
from tilewright.schedule.task import Task
from tilewright.search.gradient import kind_of
from tilewright.search.propose.proposers import Candidate, Outcome, Proposer
from tilewright.search.report import Options, TaskReport

GAIN = 0.2  # improvement hoped for before a task has shown any
FINAL_SHARE = 0.15  # of a budget of seconds, at most, for timing the leaders again
_STEP = 1e-3  # of a task's seconds: how far the slope of an objective is looked at
MIN_BATCHES = 4  # of each task, before a run may end for lack of predicted gain
LATEST = 64  # results that tell how long the next one will take


@dataclass
class TaskState:
    """One task on its way.

    stale: results since its best; hope: relative gain of an improvement; trace: the best so far
    after each of the last results; rounds: the same after each batch of results
    guess: its seconds, before anything is measured
    defaults: gives what the network would run without tuning; None: that takes no part
    first: what is left of candidates to try before others; `untuned` joins with the first proposal
    leaders: the fastest candidates with their seconds
    """

    at: int
    report: TaskReport
    proposer: Proposer
    identity: Any
    dag: Any
    defaults: Callable[[Task], list[Candidate]] | None
    first: list[Candidate]
    leaders: list[tuple[float, Candidate]] = field(default_factory=list)
    in_flight: int = 0
    submitted: int = 0
    stale: int = 0
    hope: float = GAIN
    guess: float = 0.0
    trace: deque[float] = field(default_factory=deque)
    rounds: list[float] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.report.exhausted or self.report.stopped or self.report.fruitless

    @property
    def seconds(self) -> float:
        """Of the best, or as guessed."""
        return self.guess if self.report.best_seconds is None else self.report.best_seconds

    @property
    def urgency(self) -> tuple[float, int]:
        """Sorts the tasks by what they are guessed to take, the longest first."""
        return -self.report.task.weight * self.guess, self.at

    @cached_property
    def untuned(self) -> list[Candidate]:
        """What `defaults` gives, found when the task's turn comes: in a search that is too short
        for all of many tasks, never."""
        found = [] if self.defaults is None else self.defaults(self.report.task)
        return list(dict.fromkeys(found))

    @property
    def finalists(self) -> list[Candidate]:
        """Whom to time again at the end: the leaders, and what would run untuned."""
        if self.submitted == 0 or not self.leaders:
            return []
        return list(dict.fromkeys([*(c for _, c in self.leaders), *self.untuned]))

    def propose(self, count: int, whole: bool = True) -> list[Candidate]:
        """What the network would run untuned comes first: no best record may be worse than it.
        Then what another program found; then, if a `whole` batch is wanted, suggestions."""
        if self.submitted == 0 and self.report.known == 0:
            self.proposer.visit(self.untuned)
            self.first = list(dict.fromkeys([*self.untuned, *self.first]))
        chosen, self.first = self.first[:count], self.first[count:]
        if chosen and not whole:
            return chosen
        return chosen + self.proposer.suggest(count - len(chosen))

    def note_best(self, candidate: Candidate, record: Record, options: Options) -> bool:
        """Whether the record is the best of its task; only verified ones can be, unless the options
        say otherwise."""
        if not record.result.ok or not (record.result.verified or options.unverified):
            return False
        if record.result.same_as is None:  # else that one leads
            every = [*self.leaders, (record.seconds, candidate)]
            self.leaders = sorted(every, key=lambda x: x[0])[: max(options.leaders, 1)]
        before = self.report.best_seconds
        if before is not None and record.seconds >= before:
            return False
        if before is not None:
            self.hope = 0.6 * self.hope + 0.4 * (before - record.seconds) / before
        self.report.best = record
        return True


class Portfolio:
    """All tasks of one run.

    batch, ahead: proposals at once, and on their way at most
    can_final:    whether leaders will be timed again at the end, for which time is kept back
    left_over:    seconds of the budget that are kept for what follows the search
    """

    def __init__(self, options: Options, batch: int, ahead: int, can_final: bool) -> None:
        self.options, self.batch, self.ahead, self.can_final = options, batch, ahead, can_final
        self.states: list[TaskState] = []
        self.consumed = self.submitted = self.improved_at = self.in_flight = 0
        self.left_over = 0.0
        self._times: deque[float] = deque(maxlen=LATEST)  # of the latest results

    # -- who is next -------------------------------------------------------------------------------
    def propose(self, state: TaskState) -> list[Candidate]:
        """The next batch of a task.  Of many, each begins with what is known to be good, so that
        soon the whole network is no slower than untuned; unless the user said how many at once."""
        asked = self.options.batch or self.options.batch_most
        whole = asked > 0 or len(self.states) == 1
        return state.propose(self.wanted, whole)

    @property
    def wanted(self) -> int:
        """How many candidates the next batch may have."""
        if self.options.trials is None:
            return self.batch
        return min(self.batch, self.options.trials - self.submitted)

    def has_room(self, elapsed: float) -> bool:
        """Whether another batch may be proposed.  elapsed: seconds since the run began."""
        return self.in_flight + self.batch <= self.ahead and not self.spent(elapsed)

    def choose(self) -> TaskState | None:
        """Every task has its first candidates tried; then the one with the greatest predicted gain,
        or each in turn."""
        open_ = [s for s in self.states if not s.done and not self.is_fruitless(s)]
        fresh = [s for s in open_ if s.first or (s.submitted == 0 and s.report.known == 0)]
        if fresh:
            return min(fresh, key=lambda s: (s.submitted, *s.urgency))
        open_ = self._worthwhile(open_)
        if self.options.order == "turns":
            return min(open_, key=lambda s: (s.submitted, s.at), default=None)
        return max(open_, key=self._rank, default=None)

    def gain(self, state: TaskState) -> float:
        """Seconds per run of the network that the next trial of the task may save; of another
        implementation of a task, what it may save beyond the faster one.

        The greater of what the last trials saved, and of a hope: the chance of an improvement
        falls with the trials since the last one, what it brings is learned from those before.
        """
        best = state.seconds
        step = best * state.hope
        # Improvements are many and small or few and large, as an exponential distribution has
        # them: of one beyond the lead of another implementation, so much is to be expected.
        lead = exp(-self._behind(state) / step) if step else 0.0
        if self.options.gradient is not None:
            saved = self.options.gradient.saved(state.rounds, state.seconds, self._reached(state))
            return self._slope(state) * saved * lead / self.batch
        hoped = step / (state.stale + state.in_flight + self.batch)
        saved = (state.trace[0] - best) / len(state.trace) if state.trace else 0.0
        return self._slope(state) * max(hoped, saved) * lead

    def _slope(self, state: TaskState) -> float:
        """What a second less of this task is worth."""
        if self.options.objective is None:
            return state.report.task.weight
        costs = [s.seconds for s in self.states]
        place, step = self.states.index(state), max(_STEP * state.seconds, 1e-15)
        less = [*costs[:place], costs[place] - step, *costs[place + 1 :]]
        return max(0.0, (self.objective(costs) - self.objective(less)) / step)

    def objective(self, costs: Sequence[float]) -> float:
        """What is to be made small, of the seconds of all tasks.  Raises SpaceError."""
        if self.options.objective is None:
            pairs = zip(costs, self.states, strict=True)
            return sum(c * s.report.task.weight for c, s in pairs)
        found = self.options.objective(list(costs))
        if not isinstance(found, Real) or not isfinite(found):
            raise SpaceError(
                "the objective", f"of {len(costs)} tasks it is {found!r}, which is no number",
                "It takes a list of seconds, one for each task, and returns a number.",
            )  # fmt: skip
        return float(found)

    def _reached(self, state: TaskState) -> float | None:
        """Seconds of this task at the speed of the fastest other one that is alike."""
        task = state.report.task
        own = kind_of(task.name, task.flop)
        others = [
            s.report.task.flop / s.seconds for s in self.states
            if s is not state and s.report.best is not None
            and kind_of(s.report.task.name, s.report.task.flop) == own
        ]  # fmt: skip
        return task.flop / max(others) if others and task.flop else None

    def _behind(self, state: TaskState) -> float:
        """Seconds that its best takes more than the best of another implementation of it."""
        own = state.report.best_seconds
        if own is None:
            return 0.0
        family = state.report.task.family
        same = (s.report for s in self.states if s.report.task.family == family)
        return own - min((r.best_seconds for r in same if r.best_seconds is not None), default=own)

    def _rank(self, state: TaskState) -> tuple[float, int]:
        return self.gain(state), -state.at

    def _worthwhile(self, states: list[TaskState]) -> list[TaskState]:
        """All while one of them is predicted to gain, then those that had few batches."""
        if max(map(self.gain, states), default=0.0) >= self._least_gain():
            return states
        few = MIN_BATCHES * self.batch
        return [s for s in states if s.report.known + s.submitted < few]

    def _least_gain(self) -> float:
        """Seconds per run of the network that a trial should be predicted to save.

        Tasks that are given up do not count: how long their defaults take was not measured.
        """
        if self.options.objective is not None:
            return self.options.negligible * abs(self.objective([s.seconds for s in self.states]))
        fastest: dict[str, float] = {}
        for s in self.states:
            if s.report.best is not None or not s.done:
                task = s.report.task
                known = fastest.get(task.family, inf)
                fastest[task.family] = min(known, task.weight * s.seconds)
        return self.options.negligible * sum(fastest.values())

    def is_fruitless(self, state: TaskState) -> bool:
        """It had all the trials a task gets without one success, done or on their way."""
        report, most = state.report, self.options.fruitless * self.batch
        only_failures = report.best is None and report.failed == report.trials
        return only_failures and 0 < most <= report.trials + state.in_flight

    # -- what happens ------------------------------------------------------------------------------
    def note_submitted(self, state: TaskState, elapsed: float) -> None:
        """A proposal is on its way.  elapsed: seconds since the run began"""
        if not self._times:  # what was before it, trials do not take
            self._times.append(elapsed)
        for counts in (self, state):
            counts.submitted += 1
            counts.in_flight += 1

    def note_result(
        self, state: TaskState, candidate: Candidate, record: Record, elapsed: float
    ) -> bool:
        """One result has come; whether it is the best of its task."""
        self._times.append(elapsed)
        self.consumed += 1
        self.in_flight -= 1
        state.in_flight -= 1
        state.report.trials += 1
        if not record.result.ok:
            state.report.failed += 1
            first = record.result.message.strip().partition("\n")[0]
            state.report.failure = f"{record.result.error}: {first}"
        state.proposer.update([Outcome(candidate, record.seconds, record.result.costs)])
        improved = state.note_best(candidate, record, self.options)
        self.improved_at = self.consumed if improved else self.improved_at
        state.stale = 0 if improved else state.stale + 1
        if state.report.best is not None:
            state.trace.append(state.report.best.seconds)
            if len(state.trace) > 2 * self.batch:
                state.trace.popleft()
            if state.report.trials % self.batch == 0:
                state.rounds.append(state.report.best.seconds)
        return improved

    def is_stale(self, state: TaskState) -> bool:
        """Whether early stopping ends the task; one on its way may still improve it."""
        limit = self.options.early_stopping
        return limit is not None and state.stale >= limit

    # -- the end -----------------------------------------------------------------------------------
    def time_left(self, elapsed: float) -> float:
        if self.options.seconds is None:
            return float("inf")
        return self.options.seconds - self.left_over - elapsed

    def is_overdue(self, elapsed: float) -> bool:
        """Whether what is on its way is not worth waiting for."""
        return self.time_left(elapsed) < -0.05 * (self.options.seconds or 0)

    def spent(self, elapsed: float) -> bool:
        """Whether the budget leaves nothing to propose with."""
        if self.options.trials is not None and self.submitted >= self.options.trials:
            return True
        patience = self.options.patience
        if patience is not None and self.consumed - self.improved_at >= patience:
            return True
        if self.options.seconds is None:
            return False
        each = self._seconds_each(elapsed)
        count = sum(len(s.finalists) for s in self.states) if self.can_final else 0
        final = min(2 * each * count, FINAL_SHARE * self.options.seconds)
        return self.time_left(elapsed) <= self.in_flight * each + final

    def _seconds_each(self, elapsed: float) -> float:
        """Between results, lately: the beginning of a search, when processes start and look at
        spaces, tells nothing of what is left."""
        if not self._times:
            return 0.0
        return (elapsed - self._times[0]) / max(len(self._times) - 1, 4)

    def converged(self, elapsed: float) -> tuple[TaskState, str] | None:
        """The task with the greatest gain left, and what to tell, where there was something to
        propose and budget left, but no gain to expect."""
        left = [s for s in self.states if not s.done]
        if not left or self.spent(elapsed):
            return None
        best = max(left, key=self._rank)
        gain, least = self.gain(best), self._least_gain()
        total = least / self.options.negligible
        of = "" if self.options.trials is None else f" of {self.options.trials}"
        return best, (
            f"Converged after {self.consumed}{of} trials: no task is predicted to gain any more.  "
            f"One more trial would save {gain * 1e9:.2g} ns of {total * 1e3:.4g} ms, all tasks "
            f"together; under {least * 1e9:.2g} ns the search ends."
        )
