"""Tuners by name, for options and command lines: `xgb`, `xgb_rank`, `ga`, ...

In: a name.  Out: a proposer for a task, and the model that all tasks of a run may share.  Others
are plugins (`base/plugins.py`, kind "tuners"): functions of a name, a task and a seed.
Read next: `proposers.py`, `model_proposer.py`, `droplet.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base import plugins
from tilewright.base.errors import SpaceError
from tilewright.schedule.task import Task
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.cost_model import Options as ModelOptions
from tilewright.search.propose.droplet import DropletProposer
from tilewright.search.propose.losses import LOSSES, Loss
from tilewright.search.propose.model_proposer import ModelProposer, Plan
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


def learning_name(loss: Loss) -> str:
    """The name of what learns by a loss: `xgb`, `xgb_rank`, `xgb_rank_binary`."""
    return "xgb" if loss == "reg" else f"xgb_{loss.replace('-', '_')}"


_LEARNING: dict[str, Loss] = {learning_name(loss): loss for loss in LOSSES}
_ALSO = {"grid": "gridsearch"}


def tuners() -> tuple[str, ...]:
    """The names of all, those of plugins last."""
    return (*_LEARNING, *_PLAIN, *plugins.names("tuners"))


def tuner_name(name: str) -> str:
    """The name as it stands in `tuners()`.  Raises SpaceError for one that does not."""
    known = _ALSO.get(name, name.replace("-", "_"))
    if known not in _LEARNING and known not in _PLAIN and known not in tuners():
        raise SpaceError(f"tuner {name!r}", "no such tuner", f"Use one of {', '.join(tuners())}.")
    return known


def shares_model(tuner: str) -> bool:
    """Whether one model learns from all tasks of a run: that of our own features."""
    return tuner_name(tuner) in _LEARNING


def make_model(tuner: str, seed: int) -> CostModel:
    """The model that the proposers of a run share."""
    return CostModel(ModelOptions(seed=seed, loss=_LEARNING.get(tuner_name(tuner), "reg")))


def make_proposer(
    tuner: str, task: Task, seed: int, model: CostModel, plan: Plan | None = None
) -> Proposer:
    """The proposer of that name.  model: of `make_model`; plan: where it has our own features."""
    name = tuner_name(tuner)
    if name in _LEARNING:
        return ModelProposer(task, seed, model, plan)
    if name in _PLAIN:
        return _PLAIN[name](task, seed)
    found: Proposer = plugins.find("tuners", name)(name, task, seed)
    return found
