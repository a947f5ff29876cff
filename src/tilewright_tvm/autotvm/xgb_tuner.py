"""`XGBTuner`: the tuner with a model, our own or one that learns as AutoTVM's does.

In: a task, what to learn from and how.  Out: a `Tuner`.
Read next: `search/propose/model_proposer.py` (the default), `plan_proposer.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

import numpy as np

from tilewright.base.errors import SpaceError
from tilewright.cost.features import Vector
from tilewright.schedule.task import Task
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.cost_model import Options as ModelOptions
from tilewright.search.propose.losses import LOSSES
from tilewright.search.propose.model_proposer import ModelProposer, Plan, evaluate
from tilewright.search.propose.proposers import Outcome, Proposer
from tilewright_tvm.autotvm.feature_types import FEATURE_TYPES
from tilewright_tvm.autotvm.plan_proposer import PLAN_SIZE, Planning, PlanProposer
from tilewright_tvm.autotvm.planned import Learning
from tilewright_tvm.autotvm.tuners import Tuner

_MOST_WIDER = 1000  # candidates to choose from, per candidate of a plan
_MOST_PLANNED = 1 << 16
ANNEALING = "sa"


class XGBTuner(Tuner):
    """Boosted trees that say which candidates are worth measuring.

    feature_type: None: the project's own features, beside a model of the machine, and candidates
    from a population: the default, see `benchmarks/results/tuners_*.json` for how they compare.
    "itervar", "knob" or "curve": AutoTVM's, in its layout; trials are then planned as AutoTVM plans
    them
    loss_type: "reg": learn how fast; "rank", "rank-binary": learn the order.  A rank needs two
    valid results of different speed; until then candidates are chosen without it
    plan_size: results between fits; for AutoTVM's features also the candidates of a plan, 64 where
    it is not given
    optimizer: "sa" for simulated annealing, or an object with `find_maximums(model, num,
    exclusive)`; plans as AutoTVM does, for "itervar" where no features are named
    diversity_filter_ratio: choose, for unlike knobs, from so many times more candidates
    num_threads: of training; None: one, because builds need the others
    log_interval: rounds of training between debug lines of the log, for AutoTVM's features

    xs, ys: indices of what was measured or told of, and the operations per second of each, 0 for a
    failure
    cost_model: what the model says, see `TunerModel`
    """

    def __init__(
        self, task: Task, plan_size: int | None = None, feature_type: str | None = None,
        loss_type: str = "reg", num_threads: int | None = None, optimizer: Any = None,
        diversity_filter_ratio: float | None = None, log_interval: int | None = 50, *,
        seed: int = 0,
    ) -> None:  # fmt: skip
        _check("feature_type", feature_type, (None, *FEATURE_TYPES))
        _check("loss_type", loss_type, LOSSES)
        _check_range("plan_size", plan_size, _MOST_PLANNED)
        _check_range("num_threads", num_threads, 1024)
        _check_range("diversity_filter_ratio", diversity_filter_ratio, _MOST_WIDER)
        _check_range("log_interval", log_interval, 1 << 30)
        if not (optimizer in (None, ANNEALING) or hasattr(optimizer, "find_maximums")):
            raise SpaceError(
                f"XGBTuner(optimizer={optimizer!r:.60})", "it has no find_maximums",
                'Use "sa", or an object with find_maximums(model, num, exclusive).',
            )  # fmt: skip
        if optimizer is not None and feature_type is None:
            feature_type = "itervar"
        self._learning = Learning(feature_type, loss_type)  # type: ignore[arg-type]  # checked
        self.name = self._learning.name
        self.plan_size, self.num_threads = plan_size, num_threads
        self.plan = plan_size or 0
        self.diversity_filter_ratio, self.log_interval = diversity_filter_ratio, log_interval
        self._optimizer = None if optimizer in (None, ANNEALING) else optimizer
        super().__init__(task, seed=seed)

    def reset(self) -> None:
        super().reset()
        self.xs: list[int] = []
        self.ys: list[float] = []
        self._before: Any = None  # the model as a history left it

    def note(self, outcome: Outcome) -> None:
        self.xs.append(int(outcome.candidate.index))
        self.ys.append(self.task.flop / outcome.seconds if outcome.ok else 0.0)

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 0) -> None:
        told = data_set if hasattr(data_set, "database") else list(data_set)
        super().load_history(told, min_seed_records)
        if self.records_told >= max(min_seed_records, 1):
            self._before = copy(self._ranking())

    @property
    def cost_model(self) -> TunerModel:
        before = None if self._before is None else TunerModel(self, self._before)
        return TunerModel(self, self._ranking(), before)

    def _ranking(self) -> Any:
        own = self.proposer
        return own.model if isinstance(own, PlanProposer) else self.model

    def make_model(self) -> CostModel:
        loss, threads = self._learning.loss, self.num_threads or 1
        return CostModel(ModelOptions(seed=self.seed, loss=loss, threads=threads))

    def make_proposer(self, task: Task) -> Proposer:
        ratio = self.diversity_filter_ratio
        if self._learning.features is None:
            plan = Plan(wide=16 * max(1, round(ratio or 1)))
            return ModelProposer(task, self.seed, self.model, plan)
        planning = Planning(
            self._learning.features, self._learning.loss, self.plan_size or PLAN_SIZE, ratio,
            self._optimizer if task is self.task else None,  # which looks at one task's indices
            self.num_threads or 1, self.log_interval,
        )  # fmt: skip
        return PlanProposer(task, self.seed, planning)


class TunerModel:
    """What the model of a tuner says of configurations.

    base_model: the same as a history left it, where `load_history` had enough records; else None
    """

    def __init__(self, tuner: XGBTuner, model: Any, base_model: TunerModel | None = None) -> None:
        self._tuner, self._model, self.base_model = tuner, model, base_model

    def predict(self, xs: Sequence[int]) -> Vector:
        """Scores of configurations, by index: the greater the faster."""
        sketch, proposer = self._tuner.task.sketches[0], self._tuner.proposer
        indices = np.asarray(xs, np.int64)
        if isinstance(proposer, PlanProposer):
            return np.asarray(self._model.predict(proposer.describe(sketch, indices)[0]))
        return -np.asarray(self._model.predict(*evaluate(sketch, indices)))


def _check(option: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise SpaceError(f"XGBTuner({option}={value!r})", "no such choice", f"Use one of {known}.")


def _check_range(option: str, value: float | None, most: int) -> None:
    if value is not None and not 1 <= value <= most:
        raise SpaceError(f"XGBTuner({option}={value})", f"not from 1 to {most:,}", "Leave it out.")
