"""AutoTVM's model-based tuner: plan a number of trials by the model, learn from them, plan again.

In: a task, what was measured.  Out: candidates.  Which features, loss and optimizer are the user's
choice; the first plan, without history, is random.  It differs from AutoTVM's in what may be
proposed: only what the masks allow.  Read next: `plan_model.py`, `annealing.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import SpaceError
from tilewright.cost.features import Matrix, Vector
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task
from tilewright.search.propose.losses import Loss
from tilewright.search.propose.proposers import (
    Candidate,
    Indices,
    Outcome,
    Past,
    Pool,
    Pooled,
    RandomProposer,
)
from tilewright_tvm.autotvm.annealing import ModelOptimizer, SimulatedAnnealingOptimizer
from tilewright_tvm.autotvm.feature_types import Mask, rows_of, stacked
from tilewright_tvm.autotvm.plan_model import PlanModel, Told

PLAN_SIZE = 64
RANDOM_SHARE = 0.05  # of a plan, at its end


@dataclass(frozen=True)
class Planning:
    """features: one of `FEATURE_TYPES`; loss: one of `LOSSES`
    threads: that train; builds need the others
    size: results between plans, and candidates of a plan
    diversity: a plan is chosen, for unlike knobs, from so many times more candidates; None: the
    best of all
    optimizer: finds the greatest scores; None: simulated annealing
    """

    features: str = "itervar"
    loss: Loss = "reg"
    size: int = PLAN_SIZE
    diversity: float | None = None
    optimizer: ModelOptimizer | None = None
    threads: int = 1
    log_interval: int | None = None


class PlanProposer(Pooled):
    """See the head of the module.  A user's own optimizer sees the indices of one space, so the
    task must have one sketch: SpaceError where it has several.
    """

    def __init__(self, task: Task, seed: int = 0, planning: Planning | None = None) -> None:
        super().__init__(task, seed)
        self.planning = planning or Planning()
        given = self.planning
        if given.optimizer is not None and len(task.sketches) != 1:
            raise SpaceError(
                f"optimizer={given.optimizer!r}",
                f"it searches one space, and {task.name} has {len(task.sketches)} sketches",
                "Leave it out for simulated annealing in each of them.",
            )  # fmt: skip
        self.model = PlanModel(given.loss, seed, given.threads, given.log_interval)
        self._optimizers: list[ModelOptimizer] = [
            given.optimizer or SimulatedAnnealingOptimizer(p.sketch.space, seed=seed)
            for p in self.pools
        ]
        self._others = RandomProposer(task, seed)
        self._plan: list[Candidate] = []
        self._told: dict[Candidate, float] = {}
        self._rows: dict[Candidate, Matrix] = {}
        self._planned_at = 0

    # -- proposals ---------------------------------------------------------------------------------
    def suggest(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < n:
            candidate = self._next()
            if candidate is None:
                break
            pool = self._of[id(candidate.sketch)]
            if candidate.index not in pool.visited:
                found.append(self.take(pool, candidate.index))
                self._others.visit(found[-1:])
        return found

    def _next(self) -> Candidate | None:
        if self._plan:
            return self._plan.pop(0)
        return next(iter(self._others.suggest(1)), None)

    # -- results -----------------------------------------------------------------------------------
    def update(self, results: Sequence[Outcome]) -> None:
        super().update(results)
        self._others.visit(r.candidate for r in results)
        self._told |= {
            r.candidate: r.seconds for r in results if id(r.candidate.sketch) in self._of
        }
        if len(self._told) - self._planned_at >= self.planning.size:
            self.learn()

    def learn(self) -> None:
        """Fit the model to all results so far, and plan anew; nothing where it cannot learn yet."""
        self._planned_at = len(self._told)
        if self.model.fit(self._all_told(), self.planning.size):
            self._make_plan()

    def start_from(self, history: Sequence[Told]) -> bool:
        """Learn from other tasks, and plan with that; whether there was enough to learn."""
        if not self.model.fit_base(history):
            return False
        self._make_plan()
        return True

    def learn_from(self, told: Sequence[Past]) -> Counter[str]:
        lessons, skipped = told_rows(self.task, self.planning.features, told)
        self.start_from(lessons)
        return skipped

    def describe(self, sketch: Sketch, indices: Indices) -> tuple[Matrix, Mask]:
        """Rows of features, and which are worth measuring."""
        rows, sensible = rows_of(self.planning.features, sketch, indices)
        number = next((k for k, s in enumerate(self.task.sketches) if s is sketch), -1)
        return numbered(number, rows), sensible

    def _all_told(self) -> Told:
        new = [c for c in self._told if c not in self._rows]
        for sketch in dict.fromkeys(c.sketch for c in new):
            mine = [c for c in new if c.sketch is sketch]
            rows, _ = self.describe(sketch, np.array([c.index for c in mine], np.int64))
            self._rows |= {c: rows[k : k + 1] for k, c in enumerate(mine)}
        rows = stacked([self._rows[c] for c in self._told])
        return Told(rows, np.array(list(self._told.values())))

    # -- the plan ----------------------------------------------------------------------------------
    def _make_plan(self) -> None:
        size = self.planning.size
        wanted = round(size * (self.planning.diversity or 1))
        scored: list[tuple[float, int, int]] = []
        for at, (pool, optimizer) in enumerate(zip(self.pools, self._optimizers, strict=True)):
            scorer = _Scorer(self, pool)
            found = optimizer.find_maximums(scorer, wanted, pool.visited.indices())
            indices = self._checked(pool, found)
            scores = scorer.predict(indices)
            scored += [(-s, at, int(i)) for s, i in zip(scores, indices, strict=True)]
        ranked = [(at, i) for s, at, i in sorted(scored) if np.isfinite(s)][:wanted]
        if self.planning.diversity is not None:
            ranked = self._covering(ranked, size)
        ranked = ranked[: size - int(size * RANDOM_SHARE)]  # what is left of the plan is random
        self._plan = [Candidate(self.pools[at].sketch, i) for at, i in ranked]

    def _checked(self, pool: Pool, found: Any) -> Indices:
        """What an optimizer, perhaps of the user's, gave: members of the space, each once."""
        try:
            indices = np.unique(np.array([int(i) for i in found], np.int64))
        except (TypeError, ValueError, OverflowError):
            indices = np.array([-1])
        if len(indices) and (indices[0] < 0 or indices[-1] >= pool.size):
            raise SpaceError(
                f"{type(self.planning.optimizer).__name__}.find_maximums",
                f"it gave {found!r:.100}", f"Give a list of indices below {pool.size}.",
            )  # fmt: skip
        return indices

    def _covering(self, ranked: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
        """Greedily those that bring the most values of knobs that nobody chosen has."""
        values = [
            {(at, knob, int(p)) for knob, p in enumerate(self._positions(at, i))}
            for at, i in ranked
        ]
        left, seen = list(range(len(ranked))), set[tuple[int, int, int]]()
        chosen: list[tuple[int, int]] = []
        while left and len(chosen) < count:
            best = max(left, key=lambda k: len(values[k] - seen))
            left.remove(best)
            seen |= values[best]
            chosen.append(ranked[best])
        return chosen

    def _positions(self, at: int, index: int) -> Indices:
        found: Indices = self.pools[at].sketch.space.positions(np.array([index], np.int64))[:, 0]
        return found


def told_rows(task: Task, features: str, told: Sequence[Past]) -> tuple[list[Told], Counter[str]]:
    """AutoTVM's features of what was told of other tasks, for models of `task`; how many trials
    are of no use, by reason."""
    own = {sketch.origin: sketch for sketch in task.sketches}
    lessons, skipped = [], Counter[str]()
    for past in told:
        rows, seconds = [], []
        for sketch, mine in past.by_sketch().items():
            alike = own.get(sketch.origin)
            if features == "knob" and (
                alike is None or list(alike.space.space_map) != list(sketch.space.space_map)
            ):
                skipped["knobs of another template"] += len(mine)
                continue
            number = -1 if alike is None else task.sketches.index(alike)
            indices = np.array([o.candidate.index for o in mine], np.int64)
            rows.append(numbered(number, rows_of(features, sketch, indices)[0]))
            seconds += [o.seconds for o in mine]
        if rows:
            lessons.append(Told(stacked(rows), np.array(seconds)))
    return lessons, skipped


def numbered(number: int, rows: Matrix) -> Matrix:
    """Rows of features after a column with the number of the sketch in its task."""
    return np.concatenate([np.full((len(rows), 1), number, np.float32), rows], axis=1)


class _Scorer:
    """The model over the indices of one sketch; what masks refuse scores -inf."""

    def __init__(self, proposer: PlanProposer, pool: Pool) -> None:
        self.proposer, self.pool = proposer, pool
        self._known: dict[int, float] = {}

    def predict(self, indices: Indices) -> Vector:
        indices = np.asarray(indices, np.int64)
        new = np.unique([i for i in indices.tolist() if i not in self._known]).astype(np.int64)
        if len(new):
            rows, sensible = self.proposer.describe(self.pool.sketch, new)
            scores = np.where(sensible, self.proposer.model.predict(rows), -np.inf)
            self._known |= dict(zip(new.tolist(), scores.tolist(), strict=True))
        return np.array([self._known[i] for i in indices.tolist()])
