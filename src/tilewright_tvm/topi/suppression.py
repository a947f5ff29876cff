"""Choosing among boxes in order: which are valid, and which overlap a better one.

In: rows of boxes.  Out: int32 places or states.  One box is decided after the other, so a kernel
has two stages for each box that is kept; those of a network are split among calls of one kernel.
Read next: `sorting.py`, `tilewright_tvm/relay/detection.py`.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.scan import cumsum
from tilewright.topi.sorting import count_leading
from tilewright.topi.stage import Indices, call_text, check_tensors, require, stage, wide

KEPT, OPEN, GONE = 1, 0, -1  # states of boxes


def valid_boxes(data: Tensor, score_threshold: float, id_index: int, score_index: int) -> Tensor:
    """The places in data [B, N, E] of the boxes whose score is above `score_threshold`, and whose
    class is not negative: int32 [B, N], -1 behind the last.

    id_index: where the class is, -1 for none; score_index: where the score is
    """
    place = call_text("valid_boxes", data=data, id_index=id_index, score_index=score_index)
    check_tensors(place, data=data)
    require(data.ndim == 3, place, "data are no rows of boxes", "Give [batch, boxes, numbers].")
    batch, count, width = data.shape
    require(
        -1 <= id_index < width and 0 <= score_index < width, place,
        f"a box has {width} numbers", "Give their places, id_index=-1 for none.",
    )  # fmt: skip

    def is_valid(i: Indices) -> Expr:
        holds = wide(data[i[0], i[1], score_index]) > float(score_threshold)
        if id_index >= 0:
            holds = te.all(holds, wide(data[i[0], i[1], id_index]) >= 0)
        return holds.astype("int32")

    until = cumsum(stage((batch, count), is_valid, "valid_boxes", "injective"), 1)

    def before(i: Indices, at: Expr) -> Expr:
        seen = until[i[0], te.minimum(at, te.const(count - 1))]
        return te.all(at < count, seen <= i[1])

    found = count_leading([batch, count], count, before, "valid_places")
    return stage(
        (batch, count), lambda i: te.select(found[i] < count, found[i], te.const(-1)),
        "valid_places", "injective",
    )  # fmt: skip


def suppress(
    boxes: Tensor, labels: Tensor, states: Tensor, iou_threshold: float, rounds: int,
    strict: bool = False,
) -> Tensor:  # fmt: skip
    """`states` after the first `rounds` boxes that are open were kept, each of which lets those
    go that overlap it: int32 [B, N], KEPT, OPEN or GONE.

    boxes:  [B, N, 4], two corners each, best first; labels: [B, N], others never meet
    iou_threshold: the share of their common area at which boxes overlap; strict: above which
    """
    place = call_text("suppress", boxes=boxes, labels=labels, states=states, rounds=rounds)
    check_tensors(place, boxes=boxes, labels=labels, states=states)
    shape = list(states.shape)
    require(
        boxes.ndim == 3 and list(boxes.shape) == [*shape, 4] and list(labels.shape) == shape
        and str(states.dtype) == "int32" and boxes.dtype.is_float and rounds >= 1, place,
        "boxes, labels and states do not belong together",
        "Give float boxes [B, N, 4], labels [B, N], int32 states [B, N] and rounds of 1 or more.",
    )  # fmt: skip
    batch, count = shape

    def overlap(b: Expr, one: Expr, other: Expr) -> Expr:
        """Whether two boxes overlap."""
        sides = []
        for n in (one, other):
            at = [wide(boxes[b, n, te.const(k)]) for k in range(4)]
            sides.append([
                (te.minimum(at[k], at[k + 2]), te.maximum(at[k], at[k + 2])) for k in range(2)
            ])  # fmt: skip
        common, areas = te.const(1.0, "float32"), []
        for (low, high), (low2, high2) in zip(*sides, strict=True):
            common = common * te.maximum(te.minimum(high, high2) - te.maximum(low, low2), 0.0)
        for (low, high), (low2, high2) in sides:
            areas.append((high - low) * (high2 - low2))
        union = areas[0] + areas[1] - common
        share = te.select(union > 0.0, common / te.select(union > 0.0, union, 1.0), 0.0)
        limit = float(iou_threshold)
        return share > limit if strict else share >= limit

    j = te.reduce_axis((0, count), "j")

    def step(known: Tensor) -> Tensor:
        def first_open(i: Indices) -> Expr:
            is_open = known[i[0], j.var].equal(OPEN)
            return te.min(te.select(is_open, j.var, te.const(count)), axis=j)

        first = stage((batch,), first_open, "first_open", "comm_reduce")

        def body(i: Indices) -> Expr:
            b, n = i
            best = te.minimum(first[b], te.const(count - 1))
            meets = te.all(labels[b, best].equal(labels[b, n]), overlap(b, best, n))
            gone = te.select(te.all(first[b] < count, meets), te.const(GONE), te.const(OPEN))
            decided = te.select(n.equal(first[b]), te.const(KEPT), gone)
            return te.select(known[i].equal(OPEN), decided, known[i])

        return stage((batch, count), body, "states", "injective")

    for _ in range(rounds):
        states = step(states)
    return states
