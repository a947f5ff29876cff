"""`autotvm.feature`: what AutoTVM's cost models see of a schedule, as flat vectors.

In: a schedule whose loops are all placed.  Out: float32 vectors; their layout is that of
`cost/loop_features.py`.  Read next: `search/propose/feature_types.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.doors import open_doors
from tilewright.base.errors import SpaceError, absent
from tilewright.cost.loop_features import SAMPLES, curve_features, itervar_features
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Group, Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.targets.target import Target

__all__ = ["get_buffer_curve_sample_flatten", "get_itervar_feature_flatten"]

_LOOPS = "Its vector has a part per loop: get_itervar_feature_flatten."
_ELSEWHERE = {"get_itervar_feature": _LOOPS, "get_flatten_name": _LOOPS, "ana_lower": _LOOPS}


def get_itervar_feature_flatten(
    sch: Schedule, args: Sequence[Any] = (), take_log: bool = True
) -> npt.NDArray[np.float32]:
    """A part for each loop, see `cost/loop_features.py`; args: what the kernel takes, not needed.

    Raises SpaceError for take_log=False: numbers are logarithms.
    """
    if not take_log:
        raise SpaceError(
            "get_itervar_feature_flatten(take_log=False)", "numbers are logarithms",
            "Leave take_log out.",
        )  # fmt: skip
    return _row(sch, itervar_features)


def get_buffer_curve_sample_flatten(
    sch: Schedule, args: Sequence[Any] = (), sample_n: int = SAMPLES
) -> npt.NDArray[np.float32]:
    """Curves of the innermost accesses, see `cost/loop_features.py`; args: not needed.

    Raises SpaceError for another number of samples than there are.
    """
    if sample_n != SAMPLES:
        raise SpaceError(
            f"get_buffer_curve_sample_flatten(sample_n={sample_n})",
            f"curves have {SAMPLES} samples", "Leave sample_n out.",
        )  # fmt: skip
    return _row(sch, curve_features)


def _row(sch: Schedule, features: Callable[[Group], Any]) -> npt.NDArray[np.float32]:
    target = Target.current() or Target("llvm")
    sketch = Sketch("given", sch.dag, ConfigSpace(), lambda _: sch, target)
    (group,) = sketch.groups(np.zeros(1, np.int64))
    return np.asarray(features(group)[0], np.float32)


open_doors(globals(), __all__, SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.feature", name, _ELSEWHERE)
