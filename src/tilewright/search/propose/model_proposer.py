"""The proposer with a model: judge a population, score it, measure the best and their neighbours.

In: a task, a `CostModel` (it may be shared by tasks), what was measured.  Out: candidates: most of
them the best predicted, some neighbours of the best measured, some exploration.
Read next: `loop.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.cost.features import FEATURES, Matrix, Vector, features_and_seconds
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.space.trace import Trail
from tilewright.schedule.task import Task
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.first_look import (
    KEPT,
    Awaited,
    Request,
    adjacent,
    fastest_and_others,
    look,
    looks_of,
    of_moderate_length,
    score_sensible,
)
from tilewright.search.propose.proposers import (
    Candidate,
    Indices,
    Outcome,
    Pooled,
    breed,
    mutation_chance,
)  # fmt: skip

FIRST, DRAWN = 8192, 4096  # guesses per sketch for the first batch, and for each later refill
LEADERS = 256  # fastest measured that are kept apart
PARENTS = 16  # whose one-knob neighbours are all looked at
CHILDREN = 2048  # of pairs of parents
MUTATION = 0.1  # chance of each knob of a child to be drawn anew
EXPLOIT, NEIGHBOURS = 0.6, 0.2  # shares of a batch; the rest explores
# Structures of a sketch in a refill: those with the best predicted, and some others, while there
# are any such as nobody has looked at.  Each costs the model some 20 ms, however few of the
# candidates have it.
BEST_STRUCTURES, OTHER_STRUCTURES = 8, 4
FIRST_STRUCTURES = 4  # those that children of what a first look showed may belong to, and new ones
# A sketch whose best is predicted to take more than so many times what the best of all does gets
# new candidates in every fourth look alone: to judge them is most of a search's own work.
BEHIND, SELDOM = 2.0, 4
ALIKE = 0.08  # a difference in log seconds that counts less than being unlike the rest of the batch


@dataclass(frozen=True)
class Plan:
    """Shares and sizes of the search, see the constants above.

    parents:  their one-knob neighbours are all looked at
    measured: share of those that breed which were measured, the others are predicted
    mutated:  knobs of a child that are drawn anew, on average; None: `MUTATION` of them
    generations: of children, in each look for new candidates
    wide: a batch is chosen from this many times more candidates
    refill: batches between looks for new candidates
    """

    first: int = FIRST
    drawn: int = DRAWN
    kept: int = KEPT
    parents: int = PARENTS
    children: int = CHILDREN
    measured: float = 0.5
    mutated: float | None = None
    generations: int = 1
    exploit: float = EXPLOIT
    neighbours: float = NEIGHBOURS
    wide: int = 16
    refill: int = 2


class Population:
    """Candidates of one sketch with their features: sorted by index, each once.

    What a model says of them is kept until the model is another one: its trees take longer than all
    else that is done with a population.
    """

    def __init__(self) -> None:
        self.indices: Indices = np.empty(0, np.int64)
        self.features: Matrix = np.empty((0, len(FEATURES)), np.float32)
        self.machine: Vector = np.empty(0)
        self._told: Vector = np.empty((2, 0))  # base and learned; NaN where nobody asked yet
        self._state: tuple[object, object] = (None, None)

    def __len__(self) -> int:
        return len(self.indices)

    def add(self, indices: Indices, features: Matrix, machine: Vector) -> None:
        every = np.concatenate([self.indices, indices])
        self.indices, first = np.unique(every, return_index=True)
        self.features = np.concatenate([self.features, features])[first]
        self.machine = np.concatenate([self.machine, machine])[first]
        unknown = np.full((2, len(indices)), np.nan)
        self._told = np.concatenate([self._told, unknown], axis=1)[:, first]

    def keep(self, mask: np.ndarray) -> None:
        self.indices, self.features = self.indices[mask], self.features[mask]
        self.machine, self._told = self.machine[mask], self._told[:, mask]

    def scores(self, model: CostModel) -> Vector:
        """`model.predict` of all, [n]."""
        base, learned = self._told
        for part, before, now in zip((base, learned), self._state, model.state, strict=True):
            if before is not now:
                part[:] = np.nan
        self._state = model.state
        new = np.isnan(base)
        if new.any():
            base[new] = model.base(self.features[new], self.machine[new])
        new = np.isnan(learned)
        if new.any():
            learned[new] = model.learned(self.features[new])
        return np.asarray(base + learned)


def rows_key(task: Task) -> str:
    """How a shared model tells the rows of tasks apart."""
    return f"{task.key} {task.target}"


def evaluate(sketch: Sketch, indices: Indices) -> tuple[Matrix, Vector]:
    """Features and machine seconds of any candidates, row by row; refused ones get an hour."""
    rows = np.zeros((len(indices), len(FEATURES)), np.float32)
    seconds = np.full(len(indices), 3600.0)
    for group in sketch.groups(indices):
        rows[group.rows], seconds[group.rows] = features_and_seconds(group)
    return rows, seconds


class ModelProposer(Pooled):
    """Ranks by machine model and cost model; several sketches compete in one ranking.

    model: shared between tasks, or None for one of its own; `update` adds to it, `fit` is up to the
           caller (`loop.py` does it at fixed counts of results)
    """

    def __init__(
        self, task: Task, seed: int = 0, model: CostModel | None = None, plan: Plan | None = None
    ) -> None:
        super().__init__(task, seed)
        self.seed = seed
        self.model = model if model is not None else CostModel()
        self.plan = plan or Plan()
        self.target = task.target
        self.population = [Population() for _ in self.pools]
        self._drawn_for = [-1] * len(self.pools)
        self._looked_around: list[set[int]] = [set() for _ in self.pools]
        self._measured = 0
        self._leaders: dict[tuple[int, int], float] = {}  # (sketch, index) -> seconds, best first
        self._twins: set[bytes] = set()  # features of what was proposed
        self._proposed: dict[Candidate, tuple[Matrix, float]] = {}  # features, machine seconds
        self._structures: list[dict[Trail, float]] = [{} for _ in self.pools]
        self._looks: Awaited | None = None
        self._begun = False
        self._behind = [False] * len(self.pools)

    # -- first looks -------------------------------------------------------------------------------
    @property
    def request(self) -> Request:
        """What another process may look at."""
        origins = (s.origin if s.repeatable else "" for s in (pool.sketch for pool in self.pools))
        return Request(tuple(origins), self.seed, self.plan.first, self.plan.kept)

    @property
    def has_looked(self) -> bool:
        return self._looks is not None or self._begun

    def begin_with(self, looks: Awaited) -> None:
        """The first suggestions wait for these."""
        self._looks = looks

    # -- results -----------------------------------------------------------------------------------
    def update(self, results: Sequence[Outcome]) -> None:
        super().update(results)
        places = {id(pool.sketch): at for at, pool in enumerate(self.pools)}
        for sketch in dict.fromkeys(r.candidate.sketch for r in results):
            mine = [r for r in results if r.candidate.sketch is sketch]
            rows, machine = self._describe(sketch, [r.candidate.index for r in mine])
            self.model.add(rows_key(self.task), rows, machine, np.array([r.seconds for r in mine]))
            at = places.get(id(sketch))
            if at is not None:  # else a candidate that somebody else brought
                self._measured += len(mine)
                self._lead({(at, int(r.candidate.index)): float(r.seconds) for r in mine})

    def _lead(self, told: dict[tuple[int, int], float]) -> None:
        """Keep the fastest; the last word on a candidate counts."""
        every = {**self._leaders, **told}
        good = sorted((s, key) for key, s in every.items() if np.isfinite(s))
        self._leaders = {key: s for s, key in good[:LEADERS]}

    def _describe(self, sketch: Sketch, indices: Sequence[int]) -> tuple[Matrix, Vector]:
        """`evaluate`, but what was proposed here is known."""
        known = [self._proposed.pop(Candidate(sketch, int(i)), None) for i in indices]
        rows = np.empty((len(indices), len(FEATURES)), np.float32)
        machine = np.empty(len(indices))
        unknown = [k for k, found in enumerate(known) if found is None]
        if unknown:
            asked = np.array([indices[k] for k in unknown], np.int64)
            rows[unknown], machine[unknown] = evaluate(sketch, asked)
        for k, found in enumerate(known):
            if found is not None:
                rows[k], machine[k] = found
        return rows, machine

    def predict(self, candidates: Sequence[Candidate]) -> Vector:
        """Predicted seconds of any candidates of the task."""
        result = np.empty(len(candidates))
        for sketch in dict.fromkeys(c.sketch for c in candidates):
            mine = [k for k, c in enumerate(candidates) if c.sketch is sketch]
            indices = np.array([candidates[k].index for k in mine], np.int64)
            rows, machine = evaluate(sketch, indices)
            result[mine] = np.exp(self.model.predict(rows, machine))
        return result

    def expected(self, candidates: Sequence[Candidate]) -> list[float]:
        """Seconds that candidates are predicted to take which were just proposed; 0 for others."""
        known = [self._proposed.get(c) for c in candidates]
        rows = [found for found in known if found is not None]
        if not rows:
            return [0.0] * len(known)
        features, machine = (np.array(each) for each in zip(*rows, strict=True))
        told = iter(np.exp(self.model.predict(features, machine)).tolist())
        return [0.0 if found is None else next(told) for found in known]

    # -- proposals ---------------------------------------------------------------------------------
    def suggest(self, n: int) -> list[Candidate]:
        if n < 1:
            return []
        if not self._begun:
            self._begun = True
            for at in range(len(self.pools)):
                self._begin(at)
            if self.model.trained:
                self._see_behind([p.scores(self.model) for p in self.population])
        for at in range(len(self.pools)):
            self._refill(at, n)
        scores = [p.scores(self.model) for p in self.population]
        if self.model.trained:
            self._see_behind(scores)
        near = round(n * self.plan.neighbours) if self._best(1) else 0
        chosen = self._exploit(scores, n - near - self._explorers(n))
        chosen += self._neighbours(scores, near)
        chosen += self._explore(scores, n - len(chosen))
        if len(chosen) < n:  # little is left: anything will do
            chosen += self._exploit(scores, n - len(chosen), twins=True)
        return chosen

    def _see_behind(self, scores: Sequence[Vector]) -> None:
        best = [float(score.min()) if len(score) else np.inf for score in scores]
        self._behind = [b > min(best) + np.log(BEHIND) for b in best]

    def _explorers(self, n: int) -> int:
        if not self.model.trained and not self._measured:
            return n // 2  # the machine model alone is not to be trusted
        share = 1 - self.plan.exploit - self.plan.neighbours
        return max(round(n * share), int(n > 1 and share > 1e-9))

    def _refill(self, at: int, n: int) -> None:
        """Guesses, children of the best and their neighbours, whenever there are results of some
        batches of `n`: a call on many costs little more than a call on few.  Listed spaces are
        scored once."""
        pool, population = self.pools[at], self.population[at]
        gone = ~pool.fresh(population.indices)
        if gone.any():
            population.keep(~gone)
        first, state = self._drawn_for[at] < 0, self._measured
        enough = self.plan.refill * n if len(population) >= self.plan.wide * n else 1
        if self._behind[at]:
            enough = SELDOM * self.plan.refill * n
        if len(population) and not first and state - self._drawn_for[at] < enough:
            return
        self._drawn_for[at] = state
        if pool.listed is not None:
            if not first and len(population) < self.plan.kept // 4:
                self._admit(at, pool.draw(self.plan.first))
            return
        if first and len(population):  # what it looked at is new
            if not self._behind[at]:
                self._admit(at, self._bred(at), self._near_best(at))
            return
        guesses = pool.guess(self.plan.drawn)
        admitted = self._admit(at, np.concatenate([guesses, self._bred(at)]))
        for _ in range(self.plan.generations - 1):
            admitted += self._admit(at, self._bred(at))
        pool.note(admitted)

    def _begin(self, at: int) -> None:
        """With what a first look shows, whoever takes it."""
        pool = self.pools[at]
        found = looks_of(self._looks).at(at, self.request)
        if found is None:
            found = look(pool.sketch, (self.seed, at), self.plan.first, self.plan.kept)
        pool.listed = found.listed  # of a large space the model looks at some
        indices, features, machine, structures = found.scored
        fresh = pool.fresh(indices)
        self.population[at].add(indices[fresh], features[fresh], machine[fresh])
        self._structures[at].update(structures)

    def _near_best(self, at: int) -> set[Trail]:
        """Structures with the fastest members so far, and new ones next to the best predicted."""
        sketch, population = self.pools[at].sketch, self.population[at]
        best = population.indices[np.argsort(population.scores(self.model), kind="stable")]
        near = sketch.structures(adjacent(sketch.space, best[:FIRST_STRUCTURES]))
        new = [trail for trail in near if trail not in self._structures[at]]
        known = sorted(self._structures[at], key=self._structures[at].__getitem__)
        return {*known[:FIRST_STRUCTURES], *new[:FIRST_STRUCTURES]}

    def _admit(self, at: int, indices: Indices, of: Collection[Trail] | None = None) -> int:
        """Add the sensible ones of some structures to the population, which keeps the best
        predicted; how many.  of: of these structures; None: of some, see above"""
        population, pool, room = self.population[at], self.pools[at], self.plan.kept
        indices = np.unique(indices)
        indices = indices[pool.fresh(indices) & ~np.isin(indices, population.indices)]
        if pool.listed is not None:  # whose last members are proposed, too
            scored = score_sensible(pool.sketch, indices)
        else:
            if of is None:
                among, known = partial(self._chosen_structures, at), self._structures[at]
                scored = score_sensible(pool.sketch, indices, among, known, OTHER_STRUCTURES)
            else:
                scored = score_sensible(pool.sketch, indices, None, of, 0)
        for trail, seconds in scored.structures.items():
            before = self._structures[at].get(trail, seconds)
            self._structures[at][trail] = min(before, seconds)
        scored = of_moderate_length(scored, needed=not len(population))
        if not self.model.trained:
            scored = fastest_and_others(scored, room, pool.rng)
        population.add(*scored[:3])
        if len(population) > 2 * room:
            score = population.scores(self.model)
            mask = np.zeros(len(population), bool)
            mask[np.argsort(score, kind="stable")[:room]] = True
            population.keep(mask)
        return len(scored.indices)

    def _chosen_structures(self, at: int, trails: Sequence[Trail]) -> set[Trail]:
        """Those with the fastest members so far, and some others."""
        known = self._structures[at]
        ranked = sorted(trails, key=lambda trail: known.get(trail, np.inf))
        new = [trail for trail in ranked if trail not in known]
        best, others = ranked[:BEST_STRUCTURES], ranked[BEST_STRUCTURES:]
        drawn = self.pools[at].rng.permutation(len(others))[: max(OTHER_STRUCTURES - len(new), 0)]
        return {*best, *new, *(others[k] for k in drawn)}

    def _bred(self, at: int) -> Indices:
        """Children of pairs of the best, measured or predicted, and all one-knob neighbours of the
        best around which nobody has looked yet."""
        pool, population = self.pools[at], self.population[at]
        if not len(population):
            return np.empty(0, np.int64)
        score = population.scores(self.model)
        ranked = population.indices[np.argsort(score, kind="stable")]
        measured = round(2 * self.plan.parents * self.plan.measured)
        best = [index for place, index in self._best(measured) if place == at]
        predicted = ranked[: 2 * self.plan.parents - measured].tolist()
        parents = np.array([*best, *predicted] or ranked[: self.plan.parents], np.int64)
        fitness = 1 / np.arange(1.0, len(parents) + 1)
        chance = mutation_chance(pool, self.plan.mutated, MUTATION)
        found = breed(pool, parents, fitness, self.plan.children, chance, self.rng)
        looked = self._looked_around[at]
        ahead = [i for i in (*best, *ranked.tolist()) if i not in looked][: self.plan.parents]
        looked.update(ahead)
        return np.concatenate([found, neighbours(pool.sketch.space, np.array(ahead, np.int64))])

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
            space = self.pools[at].sketch.space
            close[at] |= set(neighbours(space, np.array([index], np.int64)).tolist())
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
        candidate = self.take(self.pools[at], int(population.indices[row]))
        self._proposed[candidate] = population.features[row].copy(), float(population.machine[row])
        return candidate

    def _best(self, n: int) -> list[tuple[int, int]]:
        """(sketch, index) of the fastest measured."""
        return list(self._leaders)[:n]


def neighbours(space: ConfigSpace, indices: Indices) -> Indices:
    """All that differ from one of `indices` in a single knob, and these themselves."""
    own = space.positions(indices)
    columns = [indices]
    for knob, size in enumerate(space.dims):
        if size < 2:
            continue
        moved = np.repeat(own, size, axis=1)
        moved[knob] = np.tile(np.arange(size, dtype=np.int64), own.shape[1])
        columns.append(space.indices(moved))
    return np.unique(np.concatenate(columns))
