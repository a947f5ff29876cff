"""Boxes of detectors: which are valid, which overlap a better one, and where a network moved them.

In: graph values and TVM's keywords.  Out: results as long as what there was to choose from, with -1
behind what was chosen, as how many that are depends on the data.
Read next: `topi/suppression.py`, `vision.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import is_integer
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Constant, Expr, Tuple
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import (
    argmax,
    cumsum,
    gather,
    number,
    strided_slice,
    take,
    topk,
)
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright_tvm.topi.suppression import GONE, KEPT, OPEN

AT_ONCE = 4  # boxes that one call of the kernel keeps: compilers take long over more
MOST_ROUNDS = 4096  # boxes that are kept one after the other


_MOST_ROWS = 1 << 24  # of proposals: their places are a constant of the network


def get_valid_counts(
    data: Expr, score_threshold: Any, id_index: int = 0, score_index: int = 1
) -> Tuple:
    """How many boxes of data [B, N, E] are valid, [B], they, [B, N, E], and where they were,
    [B, N]; -1 behind the last.

    A box is valid whose score is above `score_threshold`, and whose class is not negative.
    id_index: where the class is, -1 for none; score_index: where the score is
    """
    if len(data.shape) == 3 and data.shape[0] and not data.shape[1]:
        nothing = tensor.zeros(data.shape[:2], "int32")
        return Tuple([tensor.zeros(data.shape[:1], "int32"), data, nothing])
    places = call(
        "vision.valid_boxes", data, score_threshold=_real(score_threshold, "score_threshold"),
        id_index=int(id_index), score_index=int(score_index),
    )  # fmt: skip
    return Tuple([_count(places, 1), _rows(data, places), places])


def non_max_suppression(
    data: Expr,
    valid_count: Expr,
    indices: Expr,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Expr:
    """Of the boxes of data [B, N, E] those that overlap no better one of their class.

    valid_count: [B], so many first boxes of each row count; only scores above 0 do
    indices:     [B, N], where the boxes came from, which `return_indices` reads
    max_output_size: the most to keep, -1 for all; iou_threshold: from it on boxes overlap, 0 and
        less: none do, and boxes stay in their order
    force_suppress: classes do not count; top_k: only so many of the best do
    Result: with return_indices where the kept ones came from, int32 [B, N], best first, and how
    many they are, [B, 1]; else data in order of their scores, the others -1, moved behind the kept
    ones with invalid_to_bottom.
    """
    place = f"vision.non_max_suppression(data={data.shape}, coord_start={coord_start})"
    if len(data.shape) != 3 or valid_count.shape != data.shape[:1]:
        raise ModelError(
            place, "data are no rows of boxes", "Give [batch, boxes, numbers] and [batch]."
        )
    batch, count, width = data.shape
    starts = (coord_start, score_index, max(id_index, 0))
    if not all(0 <= k < width for k in starts) or coord_start + 4 > width:
        raise ModelError(
            place, f"a box has {width} numbers", "Use coord_start, score_index and id_index in it."
        )
    if return_indices and indices.shape != (batch, count):
        raise ModelError(place, f"indices have shape {indices.shape}", f"Give {(batch, count)}.")
    if not count:
        none = [tensor.zeros((batch, n), "int32") for n in (0, 1)]
        return Tuple(none) if return_indices else data
    along = const(np.arange(count, dtype="int32")[None])
    counts = tensor.less(along, tensor.expand_dims(tensor.cast(valid_count, "int32"), 1))
    threshold = _real(iou_threshold, "iou_threshold")
    known = not isinstance(max_output_size, Expr) or isinstance(max_output_size, Constant)
    most = int(_real(max_output_size, "max_output_size")) if known else -1
    kept: Expr
    order: Expr
    if threshold <= 0:
        order = tensor.broadcast_to(along, (batch, count))
        kept = counts
    else:
        scores = _column(data, score_index)
        counts = tensor.logical_and(counts, tensor.greater(scores, 0.0))
        length = min(top_k, count) if top_k > 0 else count
        order = topk(tensor.where(counts, scores, -1.0), length, 1, "indices")
        held = gather(tensor.cast(counts, "int32"), 1, order)
        sorted_boxes = take(data, order, 1, 1)
        corners = strided_slice(sorted_boxes, [coord_start], [coord_start + 4], axes=[2])
        by_class = id_index >= 0 and not force_suppress
        labels = _column(sorted_boxes, id_index) if by_class else tensor.zeros(
            (batch, length), data.dtype
        )  # fmt: skip
        states = tensor.where(tensor.equal(held, 1), const(OPEN), const(GONE))
        kept = _kept(corners, labels, states, threshold, most, False, place)
    if most >= 0 or isinstance(max_output_size, Expr):
        limit = max_output_size if isinstance(max_output_size, Expr) else const(most)
        seen = cumsum(tensor.cast(kept, "int32"), 1)
        within = tensor.logical_or(
            tensor.less_equal(seen, tensor.cast(limit, "int32")), tensor.less(limit, 0)
        )
        kept = tensor.logical_and(kept, within)
    if not return_indices and not invalid_to_bottom:
        return _longer(_rows(data, tensor.where(kept, order, const(-1))), count)
    places = _places(kept)
    missing = tensor.less(places, 0)
    chosen = tensor.where(missing, const(-1), gather(order, 1, tensor.maximum(places, 0)))
    if not return_indices:
        return _longer(_rows(data, chosen), count)
    origin = gather(tensor.cast(indices, "int32"), 1, tensor.maximum(chosen, 0))
    found = tensor.where(missing, const(-1), origin)
    return Tuple([_longer(found, count), tensor.expand_dims(_count(places, 1), 1)])


def all_class_non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
) -> Tuple:
    """For each image and class the boxes that overlap no better one: boxes [B, N, 4], two corners
    each, scores [B, C, N].

    Result: their (image, class, box), int64 [B * C * N, 3], best first, -1 behind the last, and
    how many they are, int64 [1].
    max_output_boxes_per_class: -1 for all; iou_threshold: from it on boxes overlap
    score_threshold: what scores must be above
    """
    place = f"vision.all_class_non_max_suppression(boxes={boxes.shape}, scores={scores.shape})"
    if output_format != "onnx":
        raise ModelError(
            place,
            f"output_format {output_format!r} is not there",
            'Use "onnx", whose rows say all.',
        )
    fits = len(boxes.shape) == len(scores.shape) == 3 and boxes.shape[2] == 4
    if not fits or (boxes.shape[0], boxes.shape[1]) != (scores.shape[0], scores.shape[2]):
        raise ModelError(
            place, "boxes and scores do not belong together", "Give [B, N, 4] and [B, C, N]."
        )
    batch, classes, count = scores.shape
    rows = batch * classes
    flat = tensor.as_shape(scores, (rows, count))
    order = topk(flat, count, 1, "indices")
    above = tensor.greater(gather(flat, 1, order), _number(score_threshold, scores))
    each = tensor.broadcast_to(tensor.expand_dims(boxes, 1), (batch, classes, count, 4))
    corners = take(tensor.as_shape(each, (rows, count, 4)), order, 1, 1)
    states = tensor.where(above, const(OPEN), const(GONE))
    labels = tensor.zeros((rows, count), scores.dtype)
    most = max_output_boxes_per_class
    known = not isinstance(most, Expr) or isinstance(most, Constant)
    limit = int(_real(most, "max_output_boxes_per_class")) if known else -1
    threshold = _real(iou_threshold, "iou_threshold")
    kept = _kept(corners, labels, states, threshold, limit, False, place)
    if isinstance(most, Expr) and not known:
        seen = cumsum(tensor.cast(kept, "int32"), 1)
        within = tensor.less_equal(seen, tensor.cast(tensor.as_shape(most, ()), "int32"))
        kept = tensor.logical_and(kept, tensor.logical_or(within, tensor.less(most, 0)))
    places = _places(tensor.as_shape(kept, (1, rows * count)))
    at = tensor.as_shape(places, (rows * count,))
    row = tensor.floor_divide(at, count)
    box = take(tensor.as_shape(order, (-1,)), tensor.maximum(at, 0), 0)
    columns = [tensor.floor_divide(row, classes), tensor.floor_mod(row, classes), box]
    chosen = tensor.concatenate([tensor.expand_dims(c, 1) for c in columns], 1)
    none = tensor.expand_dims(tensor.less(at, 0), 1)
    found = tensor.cast(tensor.where(none, const(-1), chosen), "int64")
    return Tuple([found, tensor.cast(_count(places, 1), "int64")])


def multibox_transform_loc(
    cls_prob: Expr,
    loc_pred: Expr,
    anchor: Expr,
    clip: bool = True,
    threshold: float = 0.01,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    keep_background: bool = False,
) -> Tuple:
    """The boxes that a detector of one pass means, [B, N, 6] rows of class, score and two corners,
    -1 behind the last, and how many they are, int32 [B].

    cls_prob:  [B, C, N], class 0 is no thing; loc_pred: [B, N * 4], how boxes are moved from
    anchor:    [1, N, 4]; threshold: of the best class's probability; variances: of the moves
    """
    place = f"vision.multibox_transform_loc(cls_prob={cls_prob.shape}, anchor={anchor.shape})"
    if keep_background:
        raise ModelError(place, "class 0 is never a box", "Leave keep_background out.")
    if (
        len(cls_prob.shape) != 3 or cls_prob.shape[1] < 2 or len(variances) != 4
        or anchor.shape != (1, cls_prob.shape[2], 4)
        or loc_pred.shape != (cls_prob.shape[0], 4 * cls_prob.shape[2])
    ):  # fmt: skip
        raise ModelError(
            place, "shapes do not belong together",
            "Give [B, classes, N], [B, N * 4], [1, N, 4] and four variances.",
        )  # fmt: skip
    batch, _, count = cls_prob.shape
    things = strided_slice(cls_prob, [1], [cls_prob.shape[1]], axes=[1])
    best = argmax(things, 1)
    score = tensor.max(things, 1)
    moves = tensor.as_shape(loc_pred, (batch, count, 4))
    left, top, right, bottom = (_column(anchor, k) for k in range(4))
    ends: list[Expr] = []
    for k, (low, high) in enumerate(((left, right), (top, bottom))):
        size = high - low
        center = _column(moves, k) * float(variances[k]) * size + (low + high) * 0.5
        half = tensor.exp(_column(moves, k + 2) * float(variances[k + 2])) * size * 0.5
        ends += [center - half, center + half]
    corners = [ends[k] for k in (0, 2, 1, 3)]
    if clip:
        corners = [tensor.clip(c, 0.0, 1.0) for c in corners]
    parts = [tensor.cast(best, cls_prob.dtype), score, *corners]
    made = tensor.concatenate([tensor.expand_dims(p, 2) for p in parts], 2)
    places = _places(tensor.greater_equal(score, float(threshold)))
    return Tuple([_rows(made, places), _count(places, 1)])


def multibox_detection(
    cls_prob: Expr,
    loc_pred: Expr,
    anchor: Expr,
    clip: bool = True,
    threshold: float = 0.01,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Sequence[float] = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> Expr:
    """`multibox_transform_loc`, then `non_max_suppression` of its boxes: [B, N, 6]."""
    made = multibox_transform_loc(cls_prob, loc_pred, anchor, clip, threshold, variances)
    boxes, counts = made.fields[:2]
    return non_max_suppression(
        boxes, counts, boxes, -1, nms_threshold, force_suppress, nms_topk, return_indices=False
    )


def proposal(
    cls_prob: Expr,
    bbox_pred: Expr,
    im_info: Expr,
    scales: Sequence[float],
    ratios: Sequence[float],
    feature_stride: int,
    threshold: float,
    rpn_pre_nms_top_n: int,
    rpn_post_nms_top_n: int,
    rpn_min_size: int,
    iou_loss: bool,
) -> Expr:
    """The regions that a network of proposals means: rpn_post_nms_top_n rows for each image,
    [B * rows, 5], of its number and two corners; where fewer are kept they come again.

    cls_prob:  [B, 2 * A, H, W], for each of A boxes whether there is nothing, then something
    bbox_pred: [B, 4 * A, H, W], how boxes are moved; iou_loss: their corners, by so many pixels
    im_info:   [B, 3], height, width and scale of each image
    scales, ratios: of the A boxes, each ratio with all scales
    feature_stride: pixels between elements; threshold: above it boxes overlap
    rpn_pre_nms_top_n: so many of the best count, -1 for all; rpn_min_size: pixels of a side that
        less is refused
    """
    place = f"vision.proposal(cls_prob={cls_prob.shape}, bbox_pred={bbox_pred.shape})"
    count = len(scales) * len(ratios)
    fits = len(cls_prob.shape) == len(bbox_pred.shape) == 4 and count > 0
    if not fits or bbox_pred.shape != (
        cls_prob.shape[0], 2 * cls_prob.shape[1], *cls_prob.shape[2:]
    ) or cls_prob.shape[1] != 2 * count or im_info.shape != (cls_prob.shape[0], 3):  # fmt: skip
        raise ModelError(
            place, f"shapes do not belong to {count} boxes of an element",
            "Give [B, 2 * A, H, W], [B, 4 * A, H, W] and [B, 3].",
        )  # fmt: skip
    if min(*scales, *ratios) <= 0 or feature_stride < 1 or rpn_post_nms_top_n < 1:
        raise ModelError(place, "an extent is not positive", "Use positive numbers.")
    if rpn_post_nms_top_n > _MOST_ROWS:
        raise ModelError(place, f"{rpn_post_nms_top_n} rows are too many", f"At most {_MOST_ROWS}.")
    batch, _, height, width = cls_prob.shape
    kind, every = cls_prob.dtype, height * width * count

    def of_elements(value: Expr, parts: int) -> Expr:
        """[B, A * parts, H, W] as [parts, B, H, W, A]."""
        cut = tensor.as_shape(value, (batch, -1, parts, height, width))
        return tensor.transpose(cut, (2, 0, 3, 4, 1))

    def along(axis: int) -> Expr:
        """Where elements lie, in elements: [1, H, 1, 1] or [1, 1, W, 1]."""
        extent = (height, width)[axis]
        shape = (1, extent, 1, 1) if axis == 0 else (1, 1, extent, 1)
        return const(np.arange(extent).reshape(shape), kind)

    def of_image(k: int) -> Expr:
        column = strided_slice(im_info, [k], [k + 1], axes=[1])
        return tensor.cast(tensor.as_shape(column, (batch, 1, 1, 1)), kind)

    anchors = np.array([_anchor(r, s, feature_stride) for r in ratios for s in scales])
    moves = [take(of_elements(bbox_pred, 4), const(np.array(k, "int32")), 0) for k in range(4)]
    ends: dict[int, Expr] = {}
    for k, axis in ((0, 1), (1, 0)):
        low, high = (
            along(axis) * float(feature_stride) + const(anchors[:, c].reshape(1, 1, 1, -1), kind)
            for c in (k, k + 2)
        )
        if iou_loss:
            pair = low + moves[k], high + moves[k + 2]
        else:
            size = high - low + 1.0
            center = moves[k] * size + low + (size - 1.0) * 0.5
            half = (tensor.exp(moves[k + 2]) * size - 1.0) * 0.5
            pair = center - half, center + half
        last = of_image(axis) - 1.0
        for c, end in zip((k, k + 2), pair, strict=True):
            ends[c] = tensor.maximum(tensor.minimum(end, last), 0.0)
    least = of_image(2) * float(rpn_min_size)
    small = tensor.logical_or(
        tensor.less(ends[2] - ends[0] + 1.0, least), tensor.less(ends[3] - ends[1] + 1.0, least)
    )
    spread = tensor.where(small, least * 0.5, 0.0)
    corners = [ends[k] - spread if k < 2 else ends[k] + spread for k in range(4)]
    outside: Expr = small
    for axis in (0, 1):
        extent = tensor.floor(of_image(axis) / float(feature_stride))
        outside = tensor.logical_or(outside, tensor.greater_equal(along(axis), extent))
    halves = tensor.as_shape(cls_prob, (batch, 2, count, height, width))
    something = take(halves, const(np.array(1, "int32")), 1)
    score = tensor.where(outside, -1.0, tensor.transpose(something, (0, 2, 3, 1)))
    boxes = tensor.concatenate([tensor.as_shape(c, (batch, every, 1)) for c in corners], 2)

    length = min(rpn_pre_nms_top_n, every) if rpn_pre_nms_top_n > 0 else every
    order = topk(tensor.as_shape(score, (batch, every)), length, 1, "indices")
    best = take(boxes, order, 1, 1)
    whole = tensor.add(best, const(np.array([0, 0, 1, 1]).reshape(1, 1, 4), kind))
    states = tensor.filled(OPEN, (batch, length), "int32")
    labels = tensor.zeros((batch, length), kind)
    rows = rpn_post_nms_top_n
    places = _places(_kept(whole, labels, states, threshold, rows, True, place))
    found = tensor.expand_dims(_count(places, 1), 1)
    turn = tensor.floor_mod(const(np.arange(rows, dtype="int32")[None]), found)
    chosen = take(best, gather(places, 1, turn), 1, 1)
    number_of = tensor.broadcast_to(
        const(np.arange(batch).reshape(batch, 1, 1), kind), (batch, rows, 1)
    )
    return tensor.as_shape(tensor.concatenate([number_of, chosen], 2), (batch * rows, 5))


def _anchor(ratio: float, scale: float, base: int) -> list[float]:
    """A box of `ratio` about the first element, whose side is `base`, in pixels."""
    wide = math.floor(math.sqrt(math.floor(base * base / ratio)) + 0.5)
    sides = wide * scale, math.floor(wide * ratio + 0.5) * scale
    center = 0.5 * (base - 1.0)
    return [center + sign * 0.5 * (side - 1.0) for sign in (-1, 1) for side in sides]


# -- parts -----------------------------------------------------------------------------------------


def _kept(
    corners: Expr, labels: Expr, states: Expr, threshold: float, most: int, strict: bool, place: str
) -> Expr:
    """Which boxes are kept; `most`: of each row, negative for all."""
    count = states.shape[1]
    left = count if most < 0 else min(most, count)
    if left > MOST_ROUNDS:
        raise ModelError(
            place, f"{left} boxes would be decided one after the other",
            f"Choose among the best with top_k, or keep at most {MOST_ROUNDS} of each row.",
        )  # fmt: skip
    while left > 0:
        states = call(
            "vision.suppress", corners, labels, states, iou_threshold=threshold,
            rounds=min(left, AT_ONCE), strict=strict,
        )  # fmt: skip
        left -= AT_ONCE
    return tensor.equal(states, KEPT)


def _places(holds: Expr) -> Expr:
    """Where `holds` [B, N] is true, int32 [B, N], -1 behind the last."""
    rows = tensor.expand_dims(tensor.cast(holds, "int32"), 2)
    return call("vision.valid_boxes", rows, score_threshold=0.0, id_index=-1, score_index=0)


def _count(places: Expr, axis: int) -> Expr:
    return tensor.sum(tensor.cast(tensor.greater_equal(places, 0), "int32"), axis)


def _rows(data: Expr, places: Expr) -> Expr:
    """The rows of data [B, N, E] at `places` [B, M]; -1 where there is none."""
    none = tensor.expand_dims(tensor.less(places, 0), 2)
    return tensor.where(none, const(-1, data.dtype), take(data, tensor.maximum(places, 0), 1, 1))


def _column(data: Expr, k: int) -> Expr:
    """Number k of each row of data [B, N, E]: [B, N]."""
    return tensor.squeeze(strided_slice(data, [k], [k + 1], axes=[2]), [2])


def _longer(data: Expr, count: int) -> Expr:
    """`data` [B, M, ...] with -1 up to `count` rows."""
    more = count - data.shape[1]
    if not more:
        return data
    width = tuple((0, more) if k == 1 else (0, 0) for k in range(len(data.shape)))
    return call("nn.pad", data, pad_width=width, pad_value=-1.0)


def _real(value: Any, what: str) -> float:
    """A number that the kernels are made for."""
    held = number(value)
    if not is_integer(held) and not isinstance(held, (float, np.floating)):
        raise ModelError(
            "vision",
            f"{what} is {held!r}, no number",
            "Give one, such as 0.5, or relay.const(0.5).",
        )
    return float(held)


def _number(value: Any, like: Expr) -> Expr:
    if isinstance(value, Expr):
        return tensor.cast(tensor.as_shape(value, ()), like.dtype)
    if not is_integer(value) and not isinstance(value, float):
        raise ModelError("vision", f"{value!r} is no number", "Give one, such as 0.5.")
    return const(value, like.dtype)


__all__ = [
    "all_class_non_max_suppression", "get_valid_counts", "multibox_detection",
    "multibox_transform_loc", "non_max_suppression", "proposal",
]  # fmt: skip
