"""Simulated annealing: the greatest scores of a model in a space, by AutoTVM's name and protocol.

In: a space, a model whose `predict` gives scores of indices, the greater the better.  Out: the best
indices it met.  Read next: `plan_proposer.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from tilewright.cost.features import Vector
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.search.propose.proposers import Indices

# AutoTVM takes 500 steps with 128 walkers.  A call on arrays costs little more for 1024 rows, so
# nearly as many candidates are met in far fewer steps.
WALKERS, STEPS, EARLY_STOP = 1024, 48, 12


class Scorer(Protocol):
    def predict(self, indices: Indices) -> Vector:
        """A score for each; -inf for what must not be proposed."""


class ModelOptimizer(Protocol):
    """What `XGBTuner(optimizer=)` takes."""

    def find_maximums(self, model: Scorer, num: int, exclusive: Collection[int]) -> Any:
        """Up to `num` indices of the greatest scores, none of `exclusive`."""


class SimulatedAnnealingOptimizer:
    """Walkers that step to a neighbour (one knob differs) if it scores better, or by chance.

    n_iter: steps at most; temp: from the first to the last step, in units of the spread of scores
    persistent: walkers go on where they were; parallel_size: walkers
    early_stop: steps without a change among the best, after which it ends
    """

    def __init__(
        self, space: ConfigSpace, n_iter: int = STEPS, temp: tuple[float, float] = (1.0, 0.0),
        persistent: bool = True, parallel_size: int = WALKERS, early_stop: int = EARLY_STOP,
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.space, self.n_iter, self.temp, self.persistent = space, n_iter, temp, persistent
        self.parallel_size, self.early_stop = parallel_size, early_stop
        self.rng = np.random.default_rng([seed, 7])
        self._points: Indices | None = None

    def find_maximums(self, model: Scorer, num: int, exclusive: Collection[int]) -> list[int]:
        points = self._points if self.persistent else None
        if points is None:
            points = self.space.sample(self.parallel_size, self.rng)
        if not len(points) or num < 1:
            return []
        scores = model.predict(points)
        best = _Best(num, exclusive)
        best.meet(points, scores)
        first, last = self.temp
        changed = 0
        for step in range(self.n_iter):
            if step - changed > self.early_stop:
                break
            warmth = first + (last - first) * step / (self.n_iter + 1)
            moved = self.space.walk(points, self.rng)
            found = model.predict(moved)
            if best.meet(moved, found):
                changed = step
            with np.errstate(invalid="ignore", over="ignore"):
                chance = np.exp(np.minimum((found - scores) / (warmth * _spread(scores)), 0.0))
            chance[~np.isfinite(scores)] = 1.0  # away from where it must not be
            goes = self.rng.random(len(points)) < np.nan_to_num(chance)
            points, scores = np.where(goes, moved, points), np.where(goes, found, scores)
        self._points = points
        return best.indices()


class _Best:
    """The `count` best scored of all that were met, each once."""

    def __init__(self, count: int, exclusive: Collection[int]) -> None:
        self.count, self._exclusive = count, np.array(sorted(exclusive), np.int64)
        self._indices = np.empty(0, np.int64)
        self._scores = np.empty(0)

    def meet(self, indices: Indices, scores: Vector) -> bool:
        """Whether one of these is among the best now."""
        new = np.isfinite(scores) & ~np.isin(indices, self._exclusive)
        new &= ~np.isin(indices, self._indices)
        fresh, first = np.unique(indices[new], return_index=True)
        every = np.concatenate([self._indices, fresh])
        score = np.concatenate([self._scores, scores[new][first]])
        order = np.argsort(-score, kind="stable")[: self.count]
        changed = bool((order >= len(self._indices)).any())
        self._indices, self._scores = every[order], score[order]
        return changed

    def indices(self) -> list[int]:
        return [int(i) for i in self._indices]


def _spread(scores: Vector) -> float:
    good = scores[np.isfinite(scores)]
    return float(good.std()) + 1e-9 if len(good) else 1.0
