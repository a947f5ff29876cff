"""Droplet search: from one configuration downhill, to whichever neighbour is surely faster.

In: a task, what was measured.  Out: candidates: the neighbours of the best so far, one step away in
several knobs at once; when none of them is faster, those further away.  It ends when there are none
left.  Read next: `proposers.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

from tilewright.schedule.task import Task
from tilewright.search.propose.proposers import Candidate, Indices, Outcome, Pool, Pooled

MOST_KNOBS = 8  # all of whose combinations are tried; of more knobs, pairs
P_VALUE = 0.05  # chance of a faster look by luck, up to which a neighbour counts as faster


class DropletProposer(Pooled):
    """start: position of each knob of the first sketch; default: what runs untuned, or the first
    entity of each knob
    p_value: see P_VALUE

    Several sketches are searched side by side.
    """

    def __init__(
        self, task: Task, seed: int = 0, start: Sequence[int] | None = None,
        p_value: float = P_VALUE,
    ) -> None:  # fmt: skip
        super().__init__(task, seed)
        self._drops = [_Drop(pool, p_value) for pool in self.pools]
        for k, drop in enumerate(self._drops):
            begin = None if start is None or k else drop.pool.sketch.space.knob2point(start)
            drop.begin(begin if begin is not None else drop.pool.sketch.fallback() or 0)
        self._turn = 0
        self._pending: set[Candidate] = set()

    @property
    def exhausted(self) -> bool:
        """No neighbour is left, and none on its way may become the best."""
        return not self._pending and all(drop.dry for drop in self._drops)

    # Of the first sketch: how far its neighbours are, the fastest, and what is left to try of them.

    @property
    def radius(self) -> int:
        return self._drops[0].radius

    @property
    def best(self) -> Outcome | None:
        return self._drops[0].best

    @property
    def waiting(self) -> list[int]:
        return self._drops[0].waiting()

    def suggest(self, n: int) -> list[Candidate]:
        found: list[Candidate] = []
        while len(found) < n and not all(drop.dry for drop in self._drops):
            drop = self._drops[self._turn % len(self._drops)]
            self._turn += 1
            index = drop.next()
            if index is not None:
                found.append(self.take(drop.pool, index))
        self._pending.update(found)
        return found

    def update(self, results: Sequence[Outcome]) -> None:
        super().update(results)
        for result in results:
            self._pending.discard(result.candidate)
            for drop in self._drops:
                if result.candidate.sketch is drop.pool.sketch:
                    drop.tell(result)


class _Drop:
    """The search in one sketch.  radius: how far the neighbours are that are tried now"""

    def __init__(self, pool: Pool, p_value: float) -> None:
        self.pool, self.p_value = pool, p_value
        space = pool.sketch.space
        self.dims = np.array(space.dims, np.int64)
        self.directions = _directions(len(self.dims))
        self.radius = 0
        self.best: Outcome | None = None
        self._at = 0
        self._queue: list[int] = []

    @property
    def dry(self) -> bool:
        """Nothing is left at any distance."""
        self._fill()
        return not self._queue

    def waiting(self) -> list[int]:
        """What is left to try at this distance."""
        return [i for i in self._queue if i not in self.pool.visited]

    def begin(self, index: int) -> None:
        self._at, self.radius = index, 0
        self._queue = [int(i) for i in self.pool.sensible(np.array([index], np.int64))]

    def next(self) -> int | None:
        self._fill()
        return self._queue.pop(0) if self._queue else None

    def tell(self, result: Outcome) -> None:
        if not result.ok or (self.best is not None and not self._is_faster(result, self.best)):
            return
        self.best, self._at, self.radius = result, int(result.candidate.index), 0
        self._queue = []

    def _is_faster(self, new: Outcome, old: Outcome) -> bool:
        if new.seconds >= old.seconds:
            return False
        few = min(len(new.costs), len(old.costs)) < 2
        return few or chance_of_difference(new.costs, old.costs) <= self.p_value

    def _fill(self) -> None:
        furthest = int(self.dims.max(initial=1))
        self._queue = self.waiting()
        while not self._queue and self.radius < furthest - 1:
            self.radius += 1
            self._queue = [int(i) for i in self._ring()]

    def _ring(self) -> Indices:
        """The sensible neighbours at the radius that nobody has proposed."""
        space = self.pool.sketch.space
        own = space.positions(np.array([self._at], np.int64))
        moved = own + self.radius * self.directions
        inside = ((moved >= 0) & (moved < self.dims[:, None])).all(axis=0)
        return self.pool.rng.permutation(self.pool.sensible(space.indices(moved[:, inside])))


def chance_of_difference(a: Sequence[float], b: Sequence[float]) -> float:
    """The p-value of Student's t-test: how often means of equal distributions differ as much."""
    x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
    free = len(x) + len(y) - 2
    spread = ((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()
    if spread == 0.0:
        return 0.0 if x.mean() != y.mean() else 1.0
    t = abs(x.mean() - y.mean()) / math.sqrt(spread / free * (1 / len(x) + 1 / len(y)))
    # With s = t / sqrt(free), what lies within is an integral of cos(u)^(free - 1).
    angles = np.linspace(0.0, math.pi / 2, 2001)
    density = np.cos(angles) ** (free - 1)
    within = np.trapezoid(np.where(angles <= math.atan(t / math.sqrt(free)), density, 0.0), angles)
    return float(1 - within / np.trapezoid(density, angles))


def _directions(knobs: int) -> Indices:
    """int64 [knobs, n]: steps of -1, 0, 1: all knobs of some set forwards, or all backwards."""
    most = knobs if knobs <= MOST_KNOBS else 2
    sets = [s for size in range(1, most + 1) for s in itertools.combinations(range(knobs), size)]
    forwards = np.zeros((knobs, len(sets)), np.int64)
    for k, chosen in enumerate(sets):
        forwards[list(chosen), k] = 1
    return np.concatenate([forwards, -forwards], axis=1)
