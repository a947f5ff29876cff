"""`autotvm.tuner`: XGBTuner, RandomTuner, GridSearchTuner, GATuner; all run the one tuning loop."""

from typing import Any

from tilewright.autotvm.tuners import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner
from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent

__all__ = ["GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner"]

_ELSEWHERE = {"DropletTuner": "Use XGBTuner, or GATuner."}

open_doors(globals(), __all__, SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.tuner", name, _ELSEWHERE)
