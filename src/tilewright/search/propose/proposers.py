"""Proposers: which candidates of a task to measure next.

In: a `Task` and what was measured.  Out: `Candidate`s, legal, sensible and never the same twice.
Here the simple ones; the one with a model is in `model_proposer.py`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tilewright.base.concurrency import cached_property
from tilewright.measure.record import Key
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task

Indices = npt.NDArray[np.int64]
ENUMERATE = 200_000  # spaces up to this size are listed in full
DRAW = 16_384  # candidates judged at once where they are drawn
SHARE = 512  # of each sketch in the random proposer's queue


class Candidate(NamedTuple):
    """A member of a sketch's space."""

    sketch: Sketch
    index: int  # type: ignore[assignment]  # a tuple has a method of that name


@dataclass(frozen=True)
class Outcome:
    """seconds: what was measured, infinity for a failure; costs: of each repeat, where known"""

    candidate: Candidate
    seconds: float
    costs: tuple[float, ...] = ()

    @property
    def ok(self) -> bool:
        return bool(np.isfinite(self.seconds))


@dataclass(frozen=True)
class Past:
    """Measured candidates of one computation on one device."""

    task: Task
    key: Key
    outcomes: list[Outcome]

    def by_sketch(self) -> dict[Sketch, list[Outcome]]:
        found: dict[Sketch, list[Outcome]] = {}
        for outcome in self.outcomes:
            found.setdefault(outcome.candidate.sketch, []).append(outcome)
        return found


class Proposer(Protocol):
    """Proposes candidates of one task."""

    @property
    def exhausted(self) -> bool:
        """Every sensible candidate has been proposed (as far as could be found)."""

    @property
    def visited(self) -> frozenset[int]:
        """Indices of the first sketch that were proposed or are known."""

    def suggest(self, n: int) -> list[Candidate]:
        """Up to `n` new candidates; fewer only where the space is exhausted."""

    def update(self, results: Sequence[Outcome]) -> None:
        """Tell what was measured, whoever proposed it."""

    def visit(self, candidates: Iterable[Candidate]) -> None:
        """Never propose these: they are known already."""

    def learn_from(self, told: Sequence[Past]) -> Counter[str]:
        """Begin with what was measured of other computations, where it has a model of its own.

        Returns how many trials were of no use, by reason.
        """


@runtime_checkable
class Expects(Protocol):
    """A proposer that says what it expects of its proposals, for the log."""

    def expected(self, candidates: Sequence[Candidate]) -> list[float]:
        """Seconds that each is predicted to take; 0 where nothing is."""


class Visited:
    """Indices that were proposed: a set, and the same sorted, so that asking for many of them costs
    a search each, however many there are."""

    def __init__(self) -> None:
        self._every: set[int] = set()
        self._sorted: Indices = np.empty(0, np.int64)
        self._added: list[int] = []

    def __contains__(self, index: int) -> bool:
        return index in self._every

    def __len__(self) -> int:
        return len(self._every)

    def indices(self) -> frozenset[int]:
        return frozenset(self._every)

    def add(self, index: int) -> None:
        if index not in self._every:
            self._every.add(index)
            self._added.append(index)

    def among(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Mask of those that are in it."""
        if self._added:
            new = np.sort(np.array(self._added, np.int64))
            self._sorted = np.insert(self._sorted, np.searchsorted(self._sorted, new), new)
            self._added.clear()
        if not len(self._sorted):
            return np.zeros(len(indices), bool)
        places = np.searchsorted(self._sorted, indices)
        found = self._sorted[np.minimum(places, len(self._sorted) - 1)]
        return np.asarray(found == indices)


class Pool:
    """The space of one sketch: sensible members that were not proposed yet.

    Small spaces are listed once, when they are first drawn from; of others, members are drawn, and
    judged before anyone sees them.
    within: (first, last) index to look at, both included; default: all
    """

    def __init__(
        self, sketch: Sketch, rng: np.random.Generator, within: tuple[int, int] | None = None
    ) -> None:
        self.sketch, self.rng = sketch, rng
        self.first, last = within or (0, sketch.space.check_countable() - 1)
        self.size = last - self.first + 1
        self.visited = Visited()
        self._dry = 0  # draws in a row that gave nothing new

    @property
    def is_small(self) -> bool:
        """Whether the space is one that is listed."""
        return self.size <= ENUMERATE

    def all(self) -> Indices:
        """Every member, of a small space."""
        return np.arange(self.first, self.first + self.size, dtype=np.int64)

    @cached_property
    def listed(self) -> Indices | None:
        """The sensible members of a small space, in order; None of a large one."""
        return self.all()[self.sketch.legal(self.all())] if self.is_small else None

    @property
    def exhausted(self) -> bool:
        if self.listed is not None:
            return not np.any(self.fresh(self.listed))
        return self._dry >= 8

    def fresh(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Mask of those that were not proposed."""
        return ~self.visited.among(indices)

    def sensible(self, indices: Indices) -> Indices:
        """Those worth measuring, each once, without those proposed."""
        indices = np.unique(indices)
        indices = indices[self.fresh(indices)]
        return indices[self.sketch.legal(indices)] if len(indices) else indices

    def draw(self, judged: int = DRAW) -> Indices:
        """Up to `judged` new sensible members in random order, or those among so many draws."""
        if self.listed is not None:
            left = self.listed[self.fresh(self.listed)]
            return self.rng.permutation(left)[:judged]
        found = self.rng.permutation(self.sensible(self.guess(judged)))
        self.note(len(found))
        return found

    def guess(self, count: int) -> Indices:
        """Members that nobody judged, each once."""
        return self.first + self.rng.choice(self.size, min(count, self.size), replace=False)

    def note(self, found: int) -> None:
        """How many of the last guesses were new and sensible: a pool that gives none is dry."""
        self._dry = 0 if found else self._dry + 1


def pools_of(task: Task, seed: int, within: tuple[int, int] | None = None) -> list[Pool]:
    """One pool per sketch, each with its own stream of random numbers.

    within: indices of the first sketch, which is then the only one
    """
    sketches = task.sketches if within is None else task.sketches[:1]
    return [Pool(s, np.random.default_rng([seed, i]), within) for i, s in enumerate(sketches)]


class Pooled:
    """What the proposers below share: pools, and the record of what was proposed."""

    def __init__(self, task: Task, seed: int = 0, within: tuple[int, int] | None = None) -> None:
        self.task = task
        self.rng = np.random.default_rng([seed, 1_000_003])
        self.pools = pools_of(task, seed, within)
        self._of = {id(p.sketch): p for p in self.pools}

    @property
    def exhausted(self) -> bool:
        return all(p.exhausted for p in self.pools)

    @property
    def visited(self) -> frozenset[int]:
        """Indices of the first sketch that were proposed or are known."""
        return self.pools[0].visited.indices()

    def visit(self, candidates: Iterable[Candidate]) -> None:
        for sketch, index in candidates:
            if id(sketch) in self._of:
                self._of[id(sketch)].visited.add(int(index))

    def update(self, results: Sequence[Outcome]) -> None:
        self.visit(r.candidate for r in results)

    def learn_from(self, told: Sequence[Past]) -> Counter[str]:
        """What has no model, or one that tasks share, leaves it alone."""
        return Counter()

    def take(self, pool: Pool, index: int) -> Candidate:
        pool.visited.add(int(index))
        return Candidate(pool.sketch, int(index))


class RandomProposer(Pooled):
    """Uniform over the sensible candidates of all sketches, without repeats."""

    def __init__(self, task: Task, seed: int = 0, within: tuple[int, int] | None = None) -> None:
        super().__init__(task, seed, within)
        self._queue: list[tuple[Pool, int]] = []

    def suggest(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < n:
            if not self._queue:
                self._refill()
                if not self._queue:
                    break
            pool, index = self._queue.pop()
            if index not in pool.visited:
                found.append(self.take(pool, index))
        return found

    def _refill(self) -> None:
        """As many of each sketch, or all it has."""
        while not self._queue and not self.exhausted:
            for pool in self.pools:
                if pool.exhausted:
                    continue
                self._queue += [(pool, int(i)) for i in pool.draw()[:SHARE]]
        order = self.rng.permutation(len(self._queue))
        self._queue = [self._queue[i] for i in order]


class GridProposer(Pooled):
    """Ascending index, sketch after sketch, leaving out what is not sensible."""

    def __init__(self, task: Task, seed: int = 0, within: tuple[int, int] | None = None) -> None:
        super().__init__(task, seed, within)
        self._at = [0] * len(self.pools)
        self._queue: list[tuple[Pool, int]] = []

    @property
    def exhausted(self) -> bool:
        return not self._queue and all(
            at >= p.size for at, p in zip(self._at, self.pools, strict=True)
        )

    def suggest(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < n and not self.exhausted:
            if not self._queue:
                self._refill()
                continue
            pool, index = self._queue.pop(0)
            if index not in pool.visited:
                found.append(self.take(pool, index))
        return found

    def _refill(self) -> None:
        for i, pool in enumerate(self.pools):
            if self._at[i] < pool.size:
                end = min(self._at[i] + DRAW, pool.size)
                chunk = pool.sensible(pool.first + np.arange(self._at[i], end, dtype=np.int64))
                self._at[i] = end
                self._queue = [(pool, int(k)) for k in chunk]
                return


class GeneticProposer(Pooled):
    """A genetic algorithm over knob positions, as AutoTVM's: fitness is throughput.

    pop_size: measured between generations; elite_num: best ever that join the parents;
    mutation_prob: chance of each knob to be drawn anew
    """

    def __init__(
        self, task: Task, seed: int = 0, pop_size: int = 100, elite_num: int = 3,
        mutation_prob: float = 0.1,
    ) -> None:  # fmt: skip
        super().__init__(task, seed)
        self.pop_size, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob
        self._recent: deque[Outcome] = deque(maxlen=pop_size)
        self._elite: list[Outcome] = []
        self._waiting: list[Candidate] = []
        self._born: list[Candidate] = []
        self._first_size: int | None = None

    @property
    def generation(self) -> list[Candidate]:
        """The candidates that are proposed now, those that were so already included."""
        if self._first_size is None:
            self._waiting = self._generation()
        return list(self._born)

    @property
    def first_size(self) -> int:
        """How many the first generation had."""
        return self._first_size if self._first_size is not None else len(self.generation)

    def update(self, results: Sequence[Outcome]) -> None:
        super().update(results)
        self._recent += results
        good = [*self._elite, *(r for r in results if r.ok)]
        self._elite = sorted(good, key=lambda r: r.seconds)[: self.elite_num]

    def suggest(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < n and not self.exhausted:
            if not self._waiting:
                self._waiting = self._generation()
                if not self._waiting:
                    break
            candidate = self._waiting.pop(0)
            pool = self._of[id(candidate.sketch)]
            if candidate.index not in pool.visited:
                found.append(self.take(pool, candidate.index))
        return found

    def _generation(self) -> list[Candidate]:
        children: list[Candidate] = []
        parents = self._parents()
        for pool in self.pools:
            mine = [p for p in parents if p.candidate.sketch is pool.sketch]
            if len(mine) > 1:
                share = round(self.pop_size * len(mine) / len(parents))
                bred = self.rng.permutation(self._breed(pool, mine, 4 * share))[:share]
                children += [Candidate(pool.sketch, int(i)) for i in bred]
        # The first generation, and fresh blood where breeding gave too few: of all sketches alike.
        pools = [p for p in self.pools if not p.exhausted]
        for left, pool in zip(range(len(pools), 0, -1), pools, strict=True):
            share = max(-(-(self.pop_size - len(children)) // left), 0)
            if share:
                children += [Candidate(pool.sketch, int(i)) for i in pool.draw()[:share]]
        self._born = [children[i] for i in self.rng.permutation(len(children))]
        if self._first_size is None:
            self._first_size = len(self._born)
        return list(self._born)

    def _parents(self) -> list[Outcome]:
        return list(dict.fromkeys([*(r for r in self._recent if r.ok), *self._elite]))

    def _breed(self, pool: Pool, parents: list[Outcome], count: int) -> Indices:
        indices = np.array([p.candidate.index for p in parents], np.int64)
        fitness = 1 / np.array([p.seconds for p in parents])
        return pool.sensible(breed(pool, indices, fitness, count, self.mutation_prob, self.rng))


def mutation_chance(pool: Pool, mutated: float | None, usual: float) -> float:
    """Of each knob, where `mutated` of a child's knobs are to be drawn anew on average."""
    return usual if mutated is None else min(1.0, mutated / max(len(pool.sketch.space.dims), 1))


def breed(
    pool: Pool, parents: Indices, fitness: npt.NDArray[np.float64], count: int, mutation: float,
    rng: np.random.Generator,
) -> Indices:  # fmt: skip
    """`count` children of pairs drawn by fitness; nobody judged them.

    A child has one parent's knobs up to a random one and the other's from there on; each knob is
    then drawn anew with the chance `mutation`.
    """
    space = pool.sketch.space
    positions = space.positions(parents)
    pairs = rng.choice(len(parents), (2, count), p=fitness / fitness.sum())
    cut = rng.integers(0, len(positions) + 1, count)
    knob = np.arange(len(positions))[:, None]
    children = np.where(knob < cut, positions[:, pairs[0]], positions[:, pairs[1]])
    fresh = (rng.random(children.shape) * np.array(space.dims)[:, None]).astype(np.int64)
    children = np.where(rng.random(children.shape) < mutation, fresh, children)
    return space.indices(children)
