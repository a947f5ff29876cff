"""`autotvm.tuner`: XGBTuner, RandomTuner, GridSearchTuner, GATuner; all run the one tuning loop."""

from typing import Any

from tilewright.autotvm.tuners import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from tilewright.base.errors import absent

__all__ = ["GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner"]

_ELSEWHERE = {"DropletTuner": "Use XGBTuner, or GATuner."}


def __getattr__(name: str) -> Any:
    raise absent("autotvm.tuner", name, _ELSEWHERE)
