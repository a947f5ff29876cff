"""`autotvm.tuner`: XGBTuner, RandomTuner, GridSearchTuner, GATuner, DropletTuner over one loop."""

from importlib import import_module
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright_tvm.autotvm.tuners import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    Tuner,
)
from tilewright_tvm.autotvm.xgb_tuner import XGBTuner
from tilewright_tvm.elsewhere import ALSO

__path__: list[str] = []  # TVM has a package here: `elsewhere.py` finds its modules

__all__ = [
    "DropletTuner", "GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner",
]  # fmt: skip

_ELSEWHERE: dict[str, str] = {}

open_doors(globals(), __all__, SpaceError)


def __getattr__(name: str) -> Any:
    if f"{__name__}.{name}" in ALSO:
        return import_module(f"{__name__}.{name}")
    raise absent("autotvm.tuner", name, _ELSEWHERE)
