"""What trees are trained to do: give the value, or the order of candidates.

In: relative speeds of measured candidates.  Out: labels that xgboost takes.
Read next: `cost_model.py`, `tilewright_tvm/autotvm/plan_model.py`.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from tilewright.cost.features import Vector

Loss = Literal["reg", "rank", "rank-binary"]
LOSSES: tuple[Loss, ...] = get_args(Loss)
DEGREES = 31  # of relevance: xgboost ranks by whole numbers
FAST = 0.5  # of the best speed: what counts as fast for "rank-binary"


def relevance(loss: Loss, speed: Vector) -> Vector:
    """Labels of one task's candidates.

    speed: relative to the fastest, 0 for failures
    reg: the speed itself; rank: the degree of its place, 0 to DEGREES - 1, finer among the fast;
    rank-binary: 1 for what is more than half as fast as the best
    """
    if loss == "reg":
        return speed
    if loss == "rank-binary":
        return (speed > FAST).astype(np.float64)
    levels, place = np.unique(speed, return_inverse=True)
    behind = np.log2(len(levels) - place) / max(np.log2(len(levels)), 1.0)  # the best: 0
    return np.asarray(np.floor((1 - behind) * (DEGREES - 1)), np.float64)
