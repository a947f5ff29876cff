"""`autotvm.tuner`: XGBTuner, RandomTuner, GridSearchTuner, GATuner, DropletTuner over one loop."""

from typing import Any

from tilewright.autotvm.tuners import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    Tuner,
)
from tilewright.autotvm.xgb_tuner import XGBTuner
from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent

__all__ = [
    "DropletTuner", "GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner",
]  # fmt: skip

_ELSEWHERE: dict[str, str] = {}

open_doors(globals(), __all__, SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.tuner", name, _ELSEWHERE)
