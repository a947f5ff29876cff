"""Searching: the cost model, proposers, rules, the tuning loop, what earlier searches taught.

In: `Task`s and something that measures.  Out: records, the best schedules.
Read next: `loop.py`, `portfolio.py`, then `propose/proposers.py` and `rules/rules.py`.
"""

from tilewright.cost.features import FEATURES, features
from tilewright.cost.machine_model import predict_seconds
from tilewright.search.loop import tune
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.propose.proposers import (
    Candidate,
    GeneticProposer,
    GridProposer,
    Outcome,
    Proposer,
    RandomProposer,
)
from tilewright.search.report import Event, Options, Report, TaskReport

__all__ = [
    "FEATURES", "Candidate", "CostModel", "Event", "GeneticProposer", "GridProposer",
    "ModelProposer", "Options", "Outcome", "Proposer", "RandomProposer", "Report", "TaskReport",
    "features", "predict_seconds", "tune",
]  # fmt: skip
