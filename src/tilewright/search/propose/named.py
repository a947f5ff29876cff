"""Tuners by name, for options and command lines: `xgb`, `xgb_rank_curve`, `ga`, ...

In: a name.  Out: a proposer for a task, and the model that all tasks of a run may share.
Read next: `proposers.py`, `model_proposer.py`, `plan_proposer.py`, `droplet.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.base.errors import SpaceError
from tilewright.schedule.task import Task
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.cost_model import Options as ModelOptions
from tilewright.search.propose.droplet import DropletProposer
from tilewright.search.propose.feature_types import FEATURE_TYPES
from tilewright.search.propose.losses import LOSSES, Loss
from tilewright.search.propose.model_proposer import ModelProposer, Plan
from tilewright.search.propose.plan_proposer import Planning, PlanProposer
from tilewright.search.propose.proposers import (
    GeneticProposer,
    GridProposer,
    Proposer,
    RandomProposer,
)

_PLAIN: dict[str, Callable[[Task, int], Proposer]] = {
    "ga": GeneticProposer, "random": RandomProposer, "gridsearch": GridProposer,
    "droplet": DropletProposer,
}  # fmt: skip


@dataclass(frozen=True)
class Learning:
    """What a tuner with a model learns by.  features: one of `FEATURE_TYPES`; None: our own"""

    features: str | None = None
    loss: Loss = "reg"

    @property
    def name(self) -> str:
        parts = ["xgb", "" if self.loss == "reg" else self.loss.replace("-", "_"), self.features]
        return "_".join(part for part in parts if part)


_LEARNING = {
    learning.name: learning
    for learning in (Learning(f, loss) for loss in LOSSES for f in (None, *FEATURE_TYPES))
}
TUNERS: tuple[str, ...] = (*_LEARNING, *_PLAIN)
_ALSO = {"grid": "gridsearch"}


def tuner_name(name: str) -> str:
    """The name as it stands in `TUNERS`.  Raises SpaceError for one that does not."""
    known = _ALSO.get(name, name.replace("-", "_"))
    if known not in TUNERS:
        raise SpaceError(f"tuner {name!r}", "no such tuner", f"Use one of {', '.join(TUNERS)}.")
    return known


def shares_model(tuner: str) -> bool:
    """Whether one model learns from all tasks of a run: that of our own features."""
    known = _LEARNING.get(tuner_name(tuner))
    return known is not None and known.features is None


def make_model(tuner: str, seed: int) -> CostModel:
    """The model that the proposers of a run share."""
    known = _LEARNING.get(tuner_name(tuner), Learning())
    return CostModel(ModelOptions(seed=seed, loss=known.loss))


def make_proposer(
    tuner: str, task: Task, seed: int, model: CostModel, plan: Plan | None = None
) -> Proposer:
    """The proposer of that name.  model: of `make_model`; plan: where it has our own features."""
    name = tuner_name(tuner)
    if name in _PLAIN:
        return _PLAIN[name](task, seed)
    learning = _LEARNING[name]
    if learning.features is None:
        return ModelProposer(task, seed, model, plan)
    return PlanProposer(task, seed, Planning(learning.features, learning.loss))
