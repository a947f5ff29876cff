"""AutoTVM's tuners with a model by name: `xgb_itervar`, `xgb_rank_knob`, and so on.

In: what they learn by.  Out: names, and a proposer for a task by a name.
Read next: `plan_proposer.py`, `search/propose/named.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule.task import Task
from tilewright.search.propose.losses import LOSSES, Loss
from tilewright.search.propose.named import learning_name
from tilewright_tvm.autotvm.feature_types import FEATURE_TYPES
from tilewright_tvm.autotvm.plan_proposer import Planning, PlanProposer


@dataclass(frozen=True)
class Learning:
    """What a tuner with a model learns by.

    features: one of `FEATURE_TYPES`; None: the compiler's own
    """

    features: str | None = None
    loss: Loss = "reg"

    @property
    def name(self) -> str:
        own = learning_name(self.loss)
        return own if self.features is None else f"{own}_{self.features}"


PLANNED = {
    Learning(features, loss).name: Planning(features, loss)
    for loss in LOSSES
    for features in FEATURE_TYPES
}


def proposer(name: str, task: Task, seed: int) -> PlanProposer:
    """The proposer that one of `PLANNED` stands for."""
    return PlanProposer(task, seed, PLANNED[name])
