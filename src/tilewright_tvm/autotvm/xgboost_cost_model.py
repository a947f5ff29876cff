"""`autotvm.tuner.xgboost_cost_model`: AutoTVM's cost model without a tuner.

In: a task, indices of configurations and how fast they were, records.  Out: scores of others.
Read next: `plan_model.py`, `xgb_tuner.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright.cost.features import Matrix
from tilewright.schedule.task import Task
from tilewright.search.propose.losses import LOSSES
from tilewright.search.propose.proposers import Candidate, Indices
from tilewright_tvm.autotvm.feature_types import FEATURE_TYPES, rows_of, stacked
from tilewright_tvm.autotvm.plan_model import PlanModel, Told
from tilewright_tvm.autotvm.plan_proposer import PLAN_SIZE, numbered, told_rows
from tilewright_tvm.autotvm.results import told

__all__ = ["XGBoostCostModel"]

Vector = npt.NDArray[np.float64]


class XGBoostCostModel:
    """Boosted trees on AutoTVM's features of a task's configurations, which go by their indices.

    feature_type, loss_type, num_threads, log_interval: see `XGBTuner`
    base_model: another one, which was trained before and whose say fades as results come
    """

    def __init__(
        self, task: Task, feature_type: str = "itervar", loss_type: str = "reg",
        num_threads: int | None = None, log_interval: int | None = 25,
    ) -> None:  # fmt: skip
        for option, value, known in (
            ("feature_type", feature_type, FEATURE_TYPES), ("loss_type", loss_type, LOSSES),
        ):  # fmt: skip
            if value not in known:
                raise SpaceError(
                    f"XGBoostCostModel({option}={value!r})", "no such choice",
                    f"Use one of {known}.",
                )  # fmt: skip
        self.task, self.feature_type, self.loss_type = task, feature_type, loss_type
        self.num_threads, self.log_interval = num_threads, log_interval
        self.base_model: XGBoostCostModel | None = None
        loss: Any = loss_type  # checked
        self._model = PlanModel(loss, 0, num_threads or 1, log_interval)

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> bool:
        """Learn, anew, from configurations `xs`; whether it was enough.

        ys: the operations per second of each, 0 of a failure
        plan_size: training ends when so many of the best are found no better any more
        """
        indices = self._indices("fit", xs)
        speeds = np.asarray(ys, np.float64)
        if speeds.shape != indices.shape:
            raise SpaceError(
                "XGBoostCostModel.fit", f"{len(indices)} configurations, and {speeds.size} results",
                "Give as many of both.",
            )  # fmt: skip
        return self._model.fit(Told(self._rows(indices), _seconds(speeds)), plan_size)

    def fit_log(
        self, records: Iterable[Any], plan_size: int = PLAN_SIZE, min_seed_records: int = 0
    ) -> bool:
        """Learn from records, see `Tuner.load_history`; whether there were enough.

        min_seed_records: with fewer of them nothing is learned
        """
        own, past = told(self.task, records)
        if past.rows + len(own) < max(min_seed_records, 1):
            return False
        lessons, _ = told_rows(self.task, self.feature_type, past.told)
        if own:
            rows = stacked([self._row(o.candidate) for o in own])
            lessons.append(Told(rows, np.array([o.seconds for o in own])))
        return self._model.fit_base(lessons)

    def load_basemodel(self, base_model: XGBoostCostModel) -> None:
        """Begin with what another model, of the same features and loss, has learned."""
        if (base_model.feature_type, base_model.loss_type) != (self.feature_type, self.loss_type):
            raise SpaceError(
                "XGBoostCostModel.load_basemodel",
                f"it is of {base_model.feature_type} and {base_model.loss_type}, this one of "
                f"{self.feature_type} and {self.loss_type}", "Take spawn_base_model().",
            )  # fmt: skip
        self.base_model = base_model
        self._model.begin_with(copy(base_model._model))

    def spawn_base_model(self) -> XGBoostCostModel:
        """A new model with the options of this one."""
        return XGBoostCostModel(
            self.task, self.feature_type, self.loss_type, self.num_threads, self.log_interval
        )

    def predict(self, xs: Sequence[int], output_margin: bool = False) -> Vector:
        """Scores of configurations, by index: the greater the faster; all alike before anything was
        learned.  output_margin: accepted, scores are no others."""
        return self._model.predict(self._rows(self._indices("predict", xs)))

    def _indices(self, what: str, xs: Sequence[int]) -> Indices:
        given = np.asarray(xs)
        indices = given.astype(np.int64) if given.dtype.kind in "iuf" else np.full(1, -1)
        size = self.task.config_space.range_length
        whole = given.ndim == 1 and np.array_equal(indices, given)
        if not whole or (len(indices) and not 0 <= indices.min() <= indices.max() < size):
            raise SpaceError(
                f"XGBoostCostModel.{what}(xs={xs!r:.60})", "these are no configurations",
                f"Give a list of indices below {size}.",
            )  # fmt: skip
        return indices

    def _rows(self, indices: Indices) -> Matrix:
        return numbered(0, rows_of(self.feature_type, self.task.sketches[0], indices)[0])

    def _row(self, candidate: Candidate) -> Matrix:
        index = np.array([candidate.index], np.int64)
        number = next(k for k, s in enumerate(self.task.sketches) if s is candidate.sketch)
        return numbered(number, rows_of(self.feature_type, candidate.sketch, index)[0])


def _seconds(speeds: Vector) -> Vector:
    """In which one operation is done; infinity for failures."""
    return np.where(speeds > 0, 1 / np.where(speeds > 0, speeds, 1.0), np.inf)


open_doors(globals(), __all__, SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.tuner.xgboost_cost_model", name, {})
