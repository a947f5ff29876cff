"""Which boxes are left where boxes overlap, computed by numpy: how many there are the data say.

In: arrays of boxes and scores.  Out: indices.  Read next: `detection.py`, where results have one
shape.
"""

from __future__ import annotations

import numpy as np

from tilewright.graph.expr import Array


def selected_boxes(
    boxes: Array, scores: Array, most: int, overlap: float, least: float, by_center: bool = False
) -> Array:
    """Rows (batch, class, box) of int64, by class, each from its greatest score down.

    boxes:   [batch, boxes, 4]: two opposite corners (y, x, y, x); by_center: (x, y, width, height)
    scores:  [batch, classes, boxes]; those of at most `least` do not count
    most:    of a class
    overlap: a box is left out whose intersection with one that is chosen is more of their union
    """
    rows: list[tuple[int, int, int]] = []
    for b, (of_batch, classes) in enumerate(zip(boxes, scores, strict=True)):
        low, high = _corners(of_batch.astype("float32"), by_center)
        area = np.prod(np.maximum(high - low, 0), axis=1)
        for c, score in enumerate(classes):
            left = np.argsort(-score, kind="stable")
            left = left[score[left] > least]
            for _ in range(most):
                if not len(left):
                    break
                best, left = left[0], left[1:]
                rows.append((b, c, int(best)))
                sides = np.minimum(high[best], high[left]) - np.maximum(low[best], low[left])
                common = np.prod(np.maximum(sides, 0), axis=1)
                union = area[best] + area[left] - common
                left = left[~(common > overlap * union)]
    return np.array(rows, "int64").reshape(-1, 3)


def _corners(boxes: Array, by_center: bool) -> tuple[Array, Array]:
    """The lesser and the greater corner of each box."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if by_center:
        first, second = first - second / 2, first + second / 2
    return np.minimum(first, second), np.maximum(first, second)
