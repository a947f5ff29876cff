"""The proposer with a model: judge a population, score it, measure the best and their neighbours.

In: a task, a `CostModel` (it may be shared by tasks), what was measured.  Out: candidates: most of
them the best predicted, some neighbours of the best measured, some exploration.
Read next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.target import Target
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task
from tilewright.search.cost_model import CostModel
from tilewright.search.features import FEATURES, Matrix, Vector, features_and_seconds
from tilewright.search.machine_model import predict_seconds
from tilewright.search.proposers import Candidate, Indices, Outcome, Pool, Pooled, breed

FIRST, DRAWN = 32_768, 4096  # judged per sketch for the first batch, and whenever there are results
KEPT = 4096  # best of a sketch by the machine model, whose features are kept
PARENTS = 8  # whose one-knob neighbours are all looked at
CHILDREN = 1024  # of pairs of parents
MUTATION = 0.1  # chance of each knob of a child to be drawn anew
EXPLOIT, NEIGHBOURS = 0.6, 0.2  # shares of a batch; the rest explores
ALIKE = 0.08  # a difference in log seconds that counts less than being unlike the rest of the batch


@dataclass(frozen=True)
class Plan:
    """Shares and sizes of the search, see the constants above.

    wide: a batch is chosen from this many times more candidates
    """

    first: int = FIRST
    drawn: int = DRAWN
    kept: int = KEPT
    parents: int = PARENTS
    children: int = CHILDREN
    exploit: float = EXPLOIT
    neighbours: float = NEIGHBOURS
    wide: int = 16


class Population:
    """Candidates of one sketch with their features: sorted by index, each once."""

    def __init__(self) -> None:
        self.indices: Indices = np.empty(0, np.int64)
        self.features: Matrix = np.empty((0, len(FEATURES)), np.float32)
        self.machine: Vector = np.empty(0)

    def __len__(self) -> int:
        return len(self.indices)

    def add(self, indices: Indices, features: Matrix, machine: Vector) -> None:
        every = np.concatenate([self.indices, indices])
        self.indices, first = np.unique(every, return_index=True)
        self.features = np.concatenate([self.features, features])[first]
        self.machine = np.concatenate([self.machine, machine])[first]

    def keep(self, mask: np.ndarray) -> None:
        self.indices, self.features = self.indices[mask], self.features[mask]
        self.machine = self.machine[mask]


def evaluate(sketch: Sketch, indices: Indices, target: Target) -> tuple[Matrix, Vector]:
    """Features and machine seconds of any candidates, row by row; refused ones get an hour."""
    rows = np.zeros((len(indices), len(FEATURES)), np.float32)
    seconds = np.full(len(indices), 3600.0)
    for group in sketch.groups(indices):
        rows[group.rows], seconds[group.rows] = features_and_seconds(group, target)
    return rows, seconds


def machine_seconds(sketch: Sketch, indices: Indices, target: Target) -> Vector:
    """The machine model alone."""
    seconds = np.full(len(indices), 3600.0)
    for group in sketch.groups(indices):
        seconds[group.rows] = predict_seconds(group, target)
    return seconds


class ModelProposer(Pooled):
    """Ranks by machine model and cost model; several sketches compete in one ranking.

    model: shared between tasks, or None for one of its own; `update` adds to it, `fit` is up to the
           caller (`loop.py` does it at fixed counts of results)
    """

    def __init__(
        self, task: Task, seed: int = 0, model: CostModel | None = None, plan: Plan | None = None
    ) -> None:
        super().__init__(task, seed)
        self.model = model if model is not None else CostModel()
        self.plan = plan or Plan()
        self.target = task.target
        self.population = [Population() for _ in self.pools]
        self._drawn_for = [-1] * len(self.pools)
        self._looked_around: list[set[int]] = [set() for _ in self.pools]
        self._measured: dict[tuple[int, int], float] = {}
        self._twins: set[bytes] = set()  # features of what was proposed

    # -- results -----------------------------------------------------------------------------------
    def update(self, results: Sequence[Outcome]) -> None:
        super().update(results)
        places = {id(pool.sketch): at for at, pool in enumerate(self.pools)}
        for sketch in dict.fromkeys(r.candidate.sketch for r in results):
            mine = [r for r in results if r.candidate.sketch is sketch]
            indices = np.array([r.candidate.index for r in mine], np.int64)
            seconds = np.array([r.seconds for r in mine])
            rows, machine = evaluate(sketch, indices, self.target)
            self.model.add(self.task.key, rows, machine, seconds)
            at = places.get(id(sketch))
            if at is not None:  # else a candidate that somebody else brought
                self._measured |= {
                    (at, int(i)): float(s) for i, s in zip(indices, seconds, strict=True)
                }

    def predict(self, candidates: Sequence[Candidate]) -> Vector:
        """Predicted seconds of any candidates of the task."""
        result = np.empty(len(candidates))
        for sketch in dict.fromkeys(c.sketch for c in candidates):
            mine = [k for k, c in enumerate(candidates) if c.sketch is sketch]
            indices = np.array([candidates[k].index for k in mine], np.int64)
            rows, machine = evaluate(sketch, indices, self.target)
            result[mine] = np.exp(self.model.predict(rows, machine))
        return result

    # -- proposals ---------------------------------------------------------------------------------
    def suggest(self, n: int) -> list[Candidate]:
        if n < 1:
            return []
        for at in range(len(self.pools)):
            self._refill(at)
        self._evolve()
        scores = [self.model.predict(p.features, p.machine) for p in self.population]
        near = round(n * self.plan.neighbours) if self._best(1) else 0
        chosen = self._exploit(scores, n - near - self._explorers(n))
        chosen += self._neighbours(scores, near)
        chosen += self._explore(scores, n - len(chosen))
        if len(chosen) < n:  # little is left: anything will do
            chosen += self._exploit(scores, n - len(chosen), twins=True)
        return chosen

    def _explorers(self, n: int) -> int:
        if not self.model.trained and not self._measured:
            return n // 2  # the machine model alone is not to be trusted
        return max(round(n * (1 - self.plan.exploit - self.plan.neighbours)), int(n > 1))

    def _refill(self, at: int) -> None:
        """Fresh candidates each time there are new results; listed spaces are scored once."""
        pool, population = self.pools[at], self.population[at]
        gone = ~pool.fresh(population.indices)
        if gone.any():
            population.keep(~gone)
        state = len(self._measured)
        if self._drawn_for[at] == state and len(population):
            return
        enough = len(population) >= self.plan.kept // 4 or pool.exhausted
        if pool.listed is not None and self._drawn_for[at] >= 0 and enough:
            return
        judged = self.plan.drawn if self._drawn_for[at] >= 0 else self.plan.first
        self._drawn_for[at] = state
        self._admit(at, pool.draw(judged))

    def _admit(self, at: int, indices: Indices) -> None:
        """Add them to the population, which keeps the best predicted.

        While the machine model is all there is, only its favourites and some others are described.
        """
        population, pool = self.population[at], self.pools[at]
        indices = indices[~np.isin(indices, population.indices)]
        if not len(indices):
            return
        room = self.plan.kept
        if len(indices) > room and not self.model.trained:
            seconds = machine_seconds(pool.sketch, indices, self.target)
            order = np.argsort(seconds, kind="stable")
            spread = pool.rng.choice(order[room * 3 // 4 :], room // 4, replace=False)
            indices = indices[np.concatenate([order[: room * 3 // 4], spread])]
        population.add(indices, *evaluate(pool.sketch, indices, self.target))
        if len(population) > 2 * room:
            score = self.model.predict(population.features, population.machine)
            mask = np.zeros(len(population), bool)
            mask[np.argsort(score, kind="stable")[:room]] = True
            population.keep(mask)

    def _evolve(self) -> None:
        """Add children of pairs of the best, measured or predicted, and all one-knob neighbours of
        the best around which nobody has looked yet."""
        for at, (pool, population) in enumerate(zip(self.pools, self.population, strict=True)):
            if pool.listed is not None or not len(population):
                continue
            score = self.model.predict(population.features, population.machine)
            ranked = population.indices[np.argsort(score, kind="stable")]
            best = [index for place, index in self._best(self.plan.parents) if place == at]
            parents = np.array([*best, *ranked[: self.plan.parents].tolist()], np.int64)
            fitness = 1 / np.arange(1.0, len(parents) + 1)
            found = breed(pool, parents, fitness, self.plan.children, MUTATION, self.rng)
            looked = self._looked_around[at]
            ahead = [i for i in (*best, *ranked.tolist()) if i not in looked]
            if ahead:
                centres = ahead[: self.plan.parents]
                looked.update(centres)
                around = neighbours(pool, np.array(centres, np.int64))
                found = np.union1d(found, around)
            self._admit(at, found)

    def _exploit(self, scores: list[Vector], n: int, *, twins: bool = False) -> list[Candidate]:
        """The best predicted, unlike each other where predictions are close."""
        ranked = self._ranked(scores, self.plan.wide * n, twins=twins)
        return self._diverse(ranked, n)

    def _neighbours(self, scores: list[Vector], n: int) -> list[Candidate]:
        """The best predicted among one-knob neighbours of the best measured."""
        if n < 1:
            return []
        close: list[set[int]] = [set() for _ in self.pools]
        for at, index in self._best(max(2, n)):
            close[at] |= set(neighbours(self.pools[at], np.array([index], np.int64)).tolist())
        masked = []
        for at, score in enumerate(scores):
            wanted = np.fromiter(close[at], np.int64, len(close[at]))
            mine = np.isin(self.population[at].indices, wanted)
            masked.append(np.where(mine, score, np.inf))
        return self._diverse(self._ranked(masked, self.plan.wide * n, twins=True), n)

    def _explore(self, scores: list[Vector], n: int) -> list[Candidate]:
        """Any of the better half of the population, at random, from every sketch."""
        chosen: list[Candidate] = []
        while len(chosen) < n:
            before = len(chosen)
            for at, pool in enumerate(self.pools):
                left = np.flatnonzero(pool.fresh(self.population[at].indices))
                if len(chosen) >= n or not len(left):
                    continue
                good = left[np.argsort(scores[at][left], kind="stable")[: max(1, len(left) // 2)]]
                row = int(good[self.rng.integers(len(good))])
                chosen.append(self._take(at, row))
            if len(chosen) == before:
                break
        return chosen

    # -- parts -------------------------------------------------------------------------------------
    def _ranked(self, scores: list[Vector], n: int, *, twins: bool) -> list[tuple[float, int, int]]:
        """(score, sketch, row) of the best that are left, at most `n` per sketch."""
        found: list[tuple[float, int, int]] = []
        for at, score in enumerate(scores):
            left = self.pools[at].fresh(self.population[at].indices) & np.isfinite(score)
            rows = np.flatnonzero(left)
            rows = rows[np.argsort(score[rows], kind="stable")]
            taken = 0
            seen: set[bytes] = set()
            for row in rows.tolist():
                key = self.population[at].features[row].tobytes()
                if not twins and (key in self._twins or key in seen):
                    continue
                seen.add(key)
                found.append((float(score[row]), at, row))
                taken += 1
                if taken >= n:
                    break
        return sorted(found)

    def _diverse(self, ranked: list[tuple[float, int, int]], n: int) -> list[Candidate]:
        """Greedy: the best score, with a handicap for resembling what the batch has already."""
        if not ranked or n < 1:
            return []
        score = np.array([r[0] for r in ranked])
        likeness = np.zeros(len(ranked))
        positions = self._positions(ranked)
        left = np.ones(len(ranked), bool)
        chosen: list[Candidate] = []
        while len(chosen) < n and left.any():
            k = int(np.argmin(np.where(left, score + ALIKE * likeness, np.inf)))
            left[k] = False
            chosen.append(self._take(ranked[k][1], ranked[k][2]))
            same = np.array([r[1] == ranked[k][1] for r in ranked])
            share = (positions == positions[:, k : k + 1]).mean(axis=0) * same
            likeness = np.maximum(likeness, share)
        return chosen

    def _positions(self, ranked: list[tuple[float, int, int]]) -> np.ndarray:
        """Knob positions, one column per entry, padded to the most knobs of a sketch."""
        knobs = max(len(p.sketch.space.dims) for p in self.pools)
        table = np.full((max(knobs, 1), len(ranked)), -1, np.int64)
        for at, pool in enumerate(self.pools):
            mine = [k for k, r in enumerate(ranked) if r[1] == at]
            if mine:
                indices = self.population[at].indices[[ranked[k][2] for k in mine]]
                own = pool.sketch.space.positions(indices)
                table[: len(own), mine] = own
        return table

    def _take(self, at: int, row: int) -> Candidate:
        population = self.population[at]
        self._twins.add(population.features[row].tobytes())
        return self.take(self.pools[at], int(population.indices[row]))

    def _best(self, n: int) -> list[tuple[int, int]]:
        """(sketch, index) of the fastest measured."""
        good = [(s, key) for key, s in self._measured.items() if np.isfinite(s)]
        return [key for _, key in sorted(good)[:n]]


def neighbours(pool: Pool, indices: Indices) -> Indices:
    """All sensible, unproposed candidates that differ from one of `indices` in a single knob."""
    space = pool.sketch.space
    own = space.positions(indices)
    columns = []
    for knob, size in enumerate(space.dims):
        if size < 2:
            continue
        moved = np.repeat(own, size, axis=1)
        moved[knob] = np.tile(np.arange(size, dtype=np.int64), own.shape[1])
        columns.append(space.indices(moved))
    return pool.sensible(np.concatenate(columns)) if columns else np.empty(0, np.int64)
