"""The proposer that asks somebody else's model: draw, score, breed the best, propose the best.

In: a task, a function from closed schedules to scores.  Out: candidates, best first, with a few
drawn at random among them.  Read next: `search/propose/model_proposer.py`, whose model scores
arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.cost.features import Vector
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.search.propose.proposers import Candidate, Outcome, Pooled, breed, mutation_chance

Score = Callable[[Sequence[Schedule]], Vector]

DRAWN = 96  # of all sketches together, for each batch: each is closed, which takes milliseconds
MUTATION = 0.1  # chance of each knob of a child to be drawn anew


@dataclass(frozen=True)
class Breeding:
    """drawn:    candidates of all sketches together that each batch begins with
    children: of the best measured and the best scored, in each generation
    mutated:  knobs of a child that are drawn anew, on average; None: `MUTATION` of them
    greedy:   share of a batch that are the best scored, the rest are any that were scored
    """

    drawn: int = DRAWN
    children: int = 64
    generations: int = 2
    parents: int = 16
    mutated: float | None = None
    greedy: float = 0.95


class ScoredProposer(Pooled):
    """score: of schedules, the greater the better; minus infinity: not to be measured"""

    def __init__(
        self, task: Task, seed: int, score: Score, breeding: Breeding | None = None
    ) -> None:
        super().__init__(task, seed)
        self.score, self.breeding = score, breeding or Breeding()
        self._best: list[Outcome] = []

    def update(self, results: Sequence[Outcome]) -> None:
        super().update(results)
        mine = [r for r in results if r.ok and id(r.candidate.sketch) in self._of]
        self._best = sorted([*self._best, *mine], key=lambda r: r.seconds)[: self.breeding.parents]

    def suggest(self, n: int) -> list[Candidate]:
        if n < 1:
            return []
        share = -(-max(self.breeding.drawn, 2 * n) // max(len(self.pools), 1))
        drawn = [Candidate(p.sketch, int(i)) for p in self.pools for i in p.draw()[:share]]
        scores = self._scored(drawn, {})
        for _ in range(self.breeding.generations):
            scores = self._scored(self._children(scores), scores)
        good = [c for c, score in scores.items() if score > -np.inf]
        ranked = sorted(good, key=lambda c: -scores[c])
        chosen = ranked[: max(round(n * self.breeding.greedy), 1)]
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
        ranked = sorted(scores, key=lambda c: -scores[c])[: 2 * self.breeding.parents]
        parents = list(dict.fromkeys([*(r.candidate for r in self._best), *ranked]))
        found: list[Candidate] = []
        for pool in self.pools:
            mine = np.array([c.index for c in parents if c.sketch is pool.sketch], np.int64)
            if len(mine) < 2:
                continue
            fitness = 1 / np.arange(1.0, len(mine) + 1)
            count = -(-self.breeding.children * len(mine) // len(parents))
            chance = mutation_chance(pool, self.breeding.mutated, MUTATION)
            bred = pool.sensible(breed(pool, mine, fitness, count, chance, self.rng))
            found += [Candidate(pool.sketch, int(i)) for i in bred]
        return found
