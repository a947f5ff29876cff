"""Graphs for the rows of boxes and regions, of which ONNX has no operators; `cases.py` takes them
in."""

from __future__ import annotations

from collections.abc import Callable

from graph.case import Case, tensor
from tilewright.graph.expr import Expr
from tilewright.graph.op import call
from tilewright_tvm import relay
from tilewright_tvm.relay import image, nn, vision


def _crops(layout: str, **options: object) -> Callable[[], Expr]:
    shape = (2, 3, 5, 6) if layout == "NCHW" else (2, 5, 6, 3)
    return lambda: image.crop_and_resize(
        tensor("x", *shape), tensor("b", 4, 4), tensor("at2", 4, dtype="int32"), (3, 4), layout,
        **options,
    )  # fmt: skip


def _suppress(**options: object) -> Callable[[], Expr]:
    def build() -> Expr:
        states = relay.cast(relay.greater(tensor("s", 2, 9), 1.0), "int32") * -1
        labels = relay.cast(tensor("at2", 2, 9, dtype="int32"), "float32")
        return call("vision.suppress", tensor("x", 2, 9, 4), labels, states, **options)

    return build


REGIONS = tuple(
    Case(op, build, label, in_onnx=False)
    for op, build, label in (
        ("image.crop_and_resize", _crops("NCHW"), ""),
        ("image.crop_and_resize", _crops("NHWC", extrapolation_value=0.5), "nhwc"),
        ("image.crop_and_resize", _crops("NCHW", method="nearest_neighbor"), "nearest"),
        (
            "image.dilation2d",
            lambda: image.dilation2d(tensor("x", 2, 3, 7, 6), tensor("w", 3, 3, 2), (2, 1), 1),
            "",
        ),
        (
            "image.dilation2d",
            lambda: image.dilation2d(
                tensor("x", 2, 7, 6, 3), tensor("w", 2, 2, 3), 1, 0, 2, "NHWC", "HWI"
            ),
            "nhwc",
        ),
        (
            "nn.correlation",
            lambda: nn.correlation(
                tensor("x", 1, 3, 6, 7), tensor("y", 1, 3, 6, 7), 1, 2, 1, 1, 2, True
            ),
            "",
        ),
        (
            "nn.correlation",
            lambda: nn.correlation(
                tensor("x", 1, 3, 8, 7), tensor("y", 1, 3, 8, 7), 3, 2, 2, 2, 2, False
            ),
            "distance",
        ),
        (
            "vision.multibox_prior",
            lambda: vision.multibox_prior(tensor("x", 1, 2, 3, 4), (0.3, 0.7), (1.3, 2.4)), "",
        ),
        (
            "vision.roi_pool",
            lambda: vision.roi_pool(tensor("x", 4, 3, 7, 6), tensor("at4", 5, 5), (2, 3), 1.3), "",
        ),
        ("vision.suppress", _suppress(rounds=9, iou_threshold=0.1), ""),
        ("vision.suppress", _suppress(rounds=2, iou_threshold=0.1, strict=True), "two"),
        (
            "vision.valid_boxes",
            lambda: call("vision.valid_boxes", tensor("x", 2, 300, 3), score_threshold=0.3), "",
        ),
        ("vision.yolo_reorg", lambda: vision.yolo_reorg(tensor("x", 1, 8, 4, 6), 2), ""),
    )
)  # fmt: skip
