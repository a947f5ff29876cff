"""The learned part of a prediction: trees on log(measured / machine model).

In: features, the machine model's seconds and measured seconds, as arrays.  Out: predicted log
seconds.  One model may serve all tasks of a run.  Read next: `proposers.py`.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import ModelError
from tilewright.cost.features import FEATURES, Matrix, Vector

MIN_ROWS = 16  # below this the machine model alone is better
FAILED = 2.0  # a failure counts this many times slower than the slowest success of its task
RECENT = 128  # rows the reported correlation looks back on


@dataclass(frozen=True)
class Options:
    """trees, depth, rate: of the boosted trees; subsample: share of rows and columns a tree sees"""

    trees: int = 150
    depth: int = 6
    rate: float = 0.1
    subsample: float = 0.8
    seed: int = 0


@dataclass
class _Rows:
    """Measured rows of one task."""

    features: list[Matrix] = field(default_factory=list)
    machine: list[Vector] = field(default_factory=list)
    measured: list[Vector] = field(default_factory=list)


class CostModel:
    """Predicts seconds; learns from what was measured.

    The correlation it reports is between predictions made before a row was measured and what was
    measured then, so no row is ever judged by a model that has seen it.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._tasks: dict[str, _Rows] = {}
        self._rows = 0
        self._booster: Any = None
        self._pending: Future[Any] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._judged: deque[tuple[str, float, float]] = deque(maxlen=RECENT)

    def __len__(self) -> int:
        """Rows measured so far."""
        return self._rows

    @property
    def trained(self) -> bool:
        return self._booster is not None

    def predict(self, features: Matrix, machine: Vector) -> Vector:
        """log of the predicted seconds, [n]; the machine model's alone before the first fit."""
        base = np.log(np.maximum(machine, 1e-12))
        if self._booster is None or not len(features):
            return base
        return base + np.asarray(self._booster.inplace_predict(features), np.float64)

    def add(self, task: str, features: Matrix, machine: Vector, measured: Vector) -> None:
        """Add measured rows; infinite seconds mean that the candidate failed."""
        if not len(features):
            return
        if self.trained:
            predicted = self.predict(features, machine).tolist()
            self._judged.extend(zip(repeat(task), predicted, measured.tolist(), strict=False))
        rows = self._tasks.setdefault(task, _Rows())
        rows.features.append(features)
        rows.machine.append(machine)
        rows.measured.append(measured)
        self._rows += len(features)

    def forget(self, task: str) -> None:
        """Drop the rows of a task, before they are told again."""
        rows = self._tasks.pop(task, _Rows())
        self._rows -= sum(map(len, rows.measured))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees; rows are not kept.  Raises ModelError where there are none yet."""
        if self._booster is None:
            raise ModelError(
                f"cost model {os.fspath(path)!r}", f"there is nothing to save: it has {self._rows} "
                f"rows, and learns from {MIN_ROWS} on", "Measure some candidates first.",
            )  # fmt: skip
        Path(path).write_bytes(self._booster.save_raw("json"))

    def load(self, path: str | os.PathLike[str]) -> None:
        """Use the trees that `save` wrote until the next fit.  Raises ModelError."""
        import xgboost

        booster = xgboost.Booster()
        try:
            data = Path(path).read_bytes()
            if not data:  # of which xgboost would end the process
                raise ValueError("empty")
            booster.load_model(bytearray(data))
            fits = booster.num_features() == len(FEATURES)
        except (OSError, ValueError, xgboost.core.XGBoostError) as error:
            why = error.strerror if isinstance(error, OSError) else "these are no trees"
            raise ModelError(
                f"cost model {os.fspath(path)!r}", f"it cannot be read ({why})",
                "Give a file that save wrote.",
            ) from None  # fmt: skip
        if not fits:
            raise ModelError(
                f"cost model {os.fspath(path)!r}", "it is of a version with other features",
                "Train it again from a log.",
            )  # fmt: skip
        self._booster = booster

    def fit(self) -> None:
        """Learn from all rows so far."""
        self.start_fit(background=False)
        self.finish_fit()

    def start_fit(self, *, background: bool = True) -> None:
        """Begin to learn from the rows known now; `finish_fit` puts the new model in force."""
        self.finish_fit()
        if self._rows < MIN_ROWS:
            return
        data = self._training_rows()
        if not background:
            self._pending = Future()
            self._pending.set_result(train(*data, self.options))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="cost-model")
        self._pending = self._pool.submit(train, *data, self.options)

    def finish_fit(self) -> bool:
        """Wait for the fit that was started, if any; returns whether there was one."""
        if self._pending is None:
            return False
        self._booster = self._pending.result()
        self._pending = None
        return True

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def correlation(self) -> float | None:
        """Rank correlation within tasks, over rows that were predicted before they were measured.

        None with fewer than 8 such rows of a task.
        """
        if not self._judged:
            return None
        groups, predicted, seen = map(np.array, zip(*self._judged, strict=True))
        total, weight = 0.0, 0
        for name in dict.fromkeys(groups.tolist()):
            mine = (groups == name) & np.isfinite(seen)
            count = int(mine.sum())
            if count >= 8:
                total += rank_correlation(predicted[mine], seen[mine]) * count
                weight += count
        return total / weight if weight else None

    def _training_rows(self) -> tuple[Matrix, Vector, Vector]:
        """Features, labels and weights of all rows; the fast ones of each task count most."""
        parts = [_labelled(rows) for rows in self._tasks.values()]
        features, labels, weights = (np.concatenate(p) for p in zip(*parts, strict=True))
        return features, labels, weights


def _labelled(rows: _Rows) -> tuple[Matrix, Vector, Vector]:
    features = np.concatenate(rows.features)
    machine = np.concatenate(rows.machine)
    measured = np.concatenate(rows.measured)
    # One array instead of one for each result.
    rows.features, rows.machine, rows.measured = [features], [machine], [measured]
    machine = np.maximum(machine, 1e-12)
    good = np.isfinite(measured)
    slowest = measured[good].max() if good.any() else float(machine.max())
    best = measured[good].min() if good.any() else slowest
    seconds = np.where(good, measured, np.maximum(slowest, machine) * FAILED)
    labels = np.clip(np.log(seconds / machine), -8, 8)
    return features, labels, np.clip((best / seconds) ** 0.5, 0.15, 1.0)


def train(features: Matrix, labels: Vector, weights: Vector, options: Options) -> Any:
    """A booster for `labels`; the same for the same arguments.  One thread: builds need cores."""
    import xgboost

    data = xgboost.DMatrix(features, label=labels, weight=weights, nthread=1)
    parameters = {
        "max_depth": options.depth, "eta": options.rate, "subsample": options.subsample,
        "colsample_bytree": options.subsample, "min_child_weight": 0.5, "lambda": 1.0,
        "tree_method": "hist", "max_bin": 64, "objective": "reg:squarederror",
        "base_score": float(np.average(labels, weights=weights)), "nthread": 1,
        "seed": options.seed, "verbosity": 0,
    }  # fmt: skip
    return xgboost.train(parameters, data, options.trees)


def rank_correlation(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Spearman's, with ties sharing their mean rank; 0 where one side is constant."""
    x, y = _ranks(np.asarray(a)), _ranks(np.asarray(b))
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0


def _ranks(values: npt.NDArray[Any]) -> Vector:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)
