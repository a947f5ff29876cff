"""`testing.assert_allclose`, as in the tutorials."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_allclose(actual: Any, desired: Any, rtol: float = 1e-7, atol: float = 1e-7) -> None:
    """Raise AssertionError unless |actual - desired| <= atol + rtol * |desired| everywhere.

    Arrays of any device may be given; shapes must be equal, NaN never passes.
    """
    left, right = (x.numpy() if hasattr(x, "numpy") else np.asarray(x) for x in (actual, desired))
    if left.shape != right.shape:
        raise AssertionError(f"shapes differ: {left.shape} and {right.shape}")
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, equal_nan=False)
