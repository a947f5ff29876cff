"""The cost model of AutoTVM's tuners: boosted trees on throughput, trained anew for each plan.

In: rows of features, seconds.  Out: scores, the greater the faster; they mean nothing beside each
other's order.  Records of other tasks train a base model, whose say fades as the task's own come.
Read next: `plan_proposer.py`; `search/propose/cost_model.py` is the project's own.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.cost.features import Matrix, Vector
from tilewright.search.propose.losses import Loss, relevance
from tilewright_tvm.autotvm.feature_types import stacked, widened

logger = logging.getLogger("autotvm")

ROUNDS, BASE_ROUNDS = 400, 400  # of training, at most
PATIENCE = 20  # rounds without a better recall, after which training ends
FADES = 64  # own results that halve what the base model says
FADED = 0.05  # share of it below which it is left out


@dataclass(frozen=True)
class Told:
    """Measured candidates of one task.  seconds: infinity for a failure"""

    rows: Matrix
    seconds: Vector

    @property
    def speed(self) -> Vector:
        """Relative to the fastest: 1, ..., and 0 for failures."""
        good = np.isfinite(self.seconds)
        best = self.seconds[good].min() if good.any() else 1.0
        return np.where(good, best / np.where(good, self.seconds, 1.0), 0.0)


class PlanModel:
    """threads: that train and predict; log_interval: rounds between lines of the log, None: none"""

    def __init__(
        self, loss: Loss = "reg", seed: int = 0, threads: int = 1, log_interval: int | None = None
    ) -> None:
        self.loss, self.seed, self.threads, self.log_interval = loss, seed, threads, log_interval
        self._trees: Any = None
        self._base: Any = None
        self._width = self._base_width = self._own = 0

    @property
    def trained(self) -> bool:
        return self._trees is not None or self._base is not None

    def fit_base(self, history: Sequence[Told]) -> bool:
        """Learn from other tasks; whether there was enough to learn."""
        usable = [told for told in history if self._teaches(told)]
        if usable:
            self._base_width = max(told.rows.shape[1] for told in usable)
            self._base = self._train(usable, None, 2 * FADES, BASE_ROUNDS)
        return bool(usable)

    def begin_with(self, other: PlanModel) -> None:
        """Let the trees of another model, its own or else its base, be the base of this one."""
        own = other._trees is not None
        self._base = other._trees if own else other._base
        self._base_width = other._width if own else other._base_width

    def fit(self, told: Told, plan_size: int) -> bool:
        """Learn from the task's own results; whether there was enough to learn."""
        if not self._teaches(told):
            return False
        self._own, self._width = len(told.rows), told.rows.shape[1]
        self._trees = self._train([told], self._base_margin(told.rows), plan_size, ROUNDS)
        return True

    def predict(self, rows: Matrix) -> Vector:
        """Scores [n].  All alike before anything was learned."""
        if not len(rows) or not self.trained:
            return np.zeros(len(rows))
        margin = self._base_margin(rows)
        if self._trees is None:
            assert margin is not None
            return margin
        return self._scores(self._trees, rows, self._width, margin)

    def _teaches(self, told: Told) -> bool:
        """One success is enough for a regression; an order takes two of different speed."""
        speeds = np.unique(told.speed[told.speed > 0])
        return len(speeds) >= (1 if self.loss == "reg" else 2)

    def _base_margin(self, rows: Matrix) -> Vector | None:
        share = 2.0 ** (-self._own / FADES)
        if self._base is None or share < FADED:
            return None
        margin: Vector = share * self._scores(self._base, rows, self._base_width, None)
        return margin

    def _scores(self, trees: Any, rows: Matrix, width: int, margin: Vector | None) -> Vector:
        rows = np.ascontiguousarray(widened(rows, width)[:, :width])
        found = trees.inplace_predict(rows, predict_type="margin")
        return np.asarray(found, np.float64) + (0.0 if margin is None else margin)

    def _train(
        self, parts: Sequence[Told], margin: Vector | None, plan_size: int, rounds: int
    ) -> Any:
        """Trees; training ends when the best `plan_size` are found no better any more."""
        import xgboost

        labels = np.concatenate([relevance(self.loss, told.speed) for told in parts])
        speeds = np.concatenate([told.speed for told in parts])
        rows = stacked([told.rows for told in parts])
        data = xgboost.DMatrix(rows, label=labels, base_margin=margin, nthread=self.threads)
        parameters = {
            "max_depth": 3, "gamma": 1e-4, "min_child_weight": 1, "eta": 0.3, "lambda": 1.0,
            "base_score": 0.0, "seed": self.seed, "verbosity": 0, "nthread": self.threads,
            "objective": "reg:squarederror",
        }  # fmt: skip
        if self.loss != "reg":
            data.set_group([len(told.rows) for told in parts])
            parameters |= {"objective": "rank:pairwise", "lambdarank_pair_method": "mean"}
        trees = xgboost.Booster(parameters, [data])
        best, best_at = -1.0, 0
        for k in range(rounds):
            trees.update(data, k)
            if k % 2:
                continue
            found = recall(np.asarray(trees.predict(data, output_margin=True)), speeds, plan_size)
            if self.log_interval and k % self.log_interval == 0:
                logger.debug("XGB iter: %d\ttr-a-recall@%d: %.4f", k, plan_size, found)
            if found > best + 1e-9:
                best, best_at = found, k
            elif k >= best_at + PATIENCE:
                break
        return trees[: best_at + 1]


def recall(scores: npt.ArrayLike, speeds: Vector, count: int) -> float:
    """Of the n fastest, the share among the n best scored; the mean over n = 1, ..., count."""
    count = min(count, len(speeds))
    place = np.empty(len(speeds), np.int64)
    place[np.argsort(-speeds, kind="stable")] = np.arange(len(speeds))
    chosen = place[np.argsort(-np.asarray(scores), kind="stable")][:count]
    within = np.maximum(chosen, np.arange(count))  # the n from which on it counts
    hits = np.cumsum(np.bincount(within, minlength=count)[:count])
    return float((hits / np.arange(1, count + 1)).mean())
