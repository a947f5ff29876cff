"""Inputs to try a network with.

In: a module.  Out: random arrays by the names of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graph.expr import Array, IRModule


def sample_inputs(
    mod: IRModule, params: Mapping[str, Any] | None = None, seed: int = 0
) -> dict[str, Array]:
    """Random values for the inputs that `params` leaves open: standard normal, integers 0 and 1."""
    rng = np.random.default_rng(seed)
    made = {}
    for p in mod["main"].params:
        if p.name_hint not in (params or {}):
            draw = rng.standard_normal if p.dtype.is_float else lambda s: rng.integers(0, 2, s)
            made[p.name_hint] = np.asarray(draw(p.shape)).astype(p.dtype)
    return made
