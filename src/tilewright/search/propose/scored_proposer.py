"""The proposer that asks somebody else's model: draw, score, breed the best, propose the best.

In: a task, a function from closed schedules to scores.  Out: candidates, best first, with a few
drawn at random among them.  Read next: `model_proposer.py`, whose model scores arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.cost.features import Vector
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.search.propose.proposers import Candidate, Outcome, Pooled, breed

Score = Callable[[Sequence[Schedule]], Vector]

DRAWN = 96  # of all sketches together, for each batch: each is closed, which takes milliseconds
CHILDREN, GENERATIONS, PARENTS = 64, 2, 16
MUTATION = 0.1  # chance of each knob of a child to be drawn anew
GREEDY = 0.95  # of a batch are the best scored, the rest any that were scored


class ScoredProposer(Pooled):
    """score: of schedules, the greater the better; minus infinity: not to be measured"""

    def __init__(self, task: Task, seed: int, score: Score) -> None:
        super().__init__(task, seed)
        self.score = score
        self._best: list[Outcome] = []

    def update(self, results: Sequence[Outcome]) -> None:
        super().update(results)
        mine = [r for r in results if r.ok and id(r.candidate.sketch) in self._of]
        self._best = sorted([*self._best, *mine], key=lambda r: r.seconds)[:PARENTS]

    def suggest(self, n: int) -> list[Candidate]:
        if n < 1:
            return []
        share = -(-max(DRAWN, 2 * n) // max(len(self.pools), 1))
        drawn = [Candidate(p.sketch, int(i)) for p in self.pools for i in p.draw()[:share]]
        scores = self._scored(drawn, {})
        for _ in range(GENERATIONS):
            scores = self._scored(self._children(scores), scores)
        good = [c for c, score in scores.items() if score > -np.inf]
        ranked = sorted(good, key=lambda c: -scores[c])
        chosen = ranked[: max(round(n * GREEDY), 1)]
        rest = ranked[len(chosen) :]
        chosen += [rest[i] for i in self.rng.permutation(len(rest))[: n - len(chosen)]]
        return [self.take(self._of[id(sketch)], index) for sketch, index in chosen]

    def _scored(
        self, candidates: Sequence[Candidate], known: dict[Candidate, float]
    ) -> dict[Candidate, float]:
        """`known` with the scores of those that can be closed."""
        new: dict[Candidate, Schedule] = {}
        for candidate in candidates:
            if candidate in known or candidate in new:
                continue
            try:
                new[candidate] = candidate.sketch.close(candidate.index)
            except TilewrightError:  # what no mask could see
                self.visit([candidate])
        found = self.score(list(new.values())).tolist() if new else []
        return known | dict(zip(new, found, strict=True))

    def _children(self, scores: dict[Candidate, float]) -> list[Candidate]:
        """Of the best measured and the best scored, in each sketch."""
        ranked = sorted(scores, key=lambda c: -scores[c])[: 2 * PARENTS]
        parents = list(dict.fromkeys([*(r.candidate for r in self._best), *ranked]))
        found: list[Candidate] = []
        for pool in self.pools:
            mine = np.array([c.index for c in parents if c.sketch is pool.sketch], np.int64)
            if len(mine) < 2:
                continue
            fitness = 1 / np.arange(1.0, len(mine) + 1)
            count = -(-CHILDREN * len(mine) // len(parents))
            bred = pool.sensible(breed(pool, mine, fitness, count, MUTATION, self.rng))
            found += [Candidate(pool.sketch, int(i)) for i in bred]
        return found
