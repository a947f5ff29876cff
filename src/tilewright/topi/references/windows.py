"""What references of windows over images share: values for each axis, and padding.

In: numbers, or sequences of them.  Out: one for each axis.  Read next: `crops.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def per_axis(value: Any, rank: int) -> tuple[int, ...]:
    """One number for each of `rank` axes; an int serves all."""
    return tuple(np.broadcast_to(value, rank).tolist())


def around(padding: Any, reach: tuple[int, ...]) -> list[tuple[int, int]]:
    """(in front, behind) of each axis, from any spelling of padding."""
    if padding == "VALID":
        return [(0, 0)] * len(reach)
    if padding == "SAME":
        return [(r // 2, (r - 1) // 2) for r in reach]
    rank = len(reach)
    numbers = padding if np.size(padding) == 2 * rank else per_axis(padding, rank) * 2
    return list(zip(numbers[:rank], numbers[rank:], strict=True))
