"""Convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.relay import nn
from tilewright.relay.exchange.onnx.node import Converter, Node
from tilewright.relay.graph.expr import Expr


def _window(n: Node, kernel: Sequence[int], data: Expr) -> dict[str, Any]:
    """strides, padding and dilation of a two-dimensional window."""
    strides = n.ints("strides") or [1, 1]
    dilation = n.ints("dilations") or [1, 1]
    pads = n.ints("pads") or [0, 0, 0, 0]
    auto = n.attr("auto_pad", "NOTSET")
    n.require(
        len(data.shape) == 4 and len(kernel) == 2,
        f"its data has shape {data.shape}", "Only two-dimensional images are supported.",
    )  # fmt: skip
    n.require(
        len(strides) == 2 and len(dilation) == 2 and len(pads) == 4,
        f"strides {strides}, dilations {dilation} and pads {pads} are not those of an image",
        "Two, two and four numbers are needed.",
    )
    n.require(
        auto in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
        f"auto_pad={auto} is not known",
        "Use NOTSET, VALID, SAME_UPPER or SAME_LOWER.",
    )
    if auto != "NOTSET":
        pads = [0, 0, 0, 0]
    if auto.startswith("SAME"):
        n.require(min(strides) >= 1, f"strides {strides} start at 1", "Use 1 or more.")
        for k in range(2):
            extent, reach = data.shape[2 + k], (kernel[k] - 1) * dilation[k] + 1
            total = max((-(-extent // strides[k]) - 1) * strides[k] + reach - extent, 0)
            small, large = total // 2, total - total // 2
            pads[k], pads[k + 2] = (small, large) if auto == "SAME_UPPER" else (large, small)
    return {"strides": tuple(strides), "padding": tuple(pads), "dilation": tuple(dilation)}


def _conv(n: Node) -> Expr:
    data, weight = n[0], n[1]
    kernel = n.ints("kernel_shape") or list(weight.shape[2:])
    n.require(
        tuple(kernel) == weight.shape[2:],
        f"kernel_shape {kernel} is not that of the weight, {weight.shape[2:]}", "Leave it out.",
    )  # fmt: skip
    made: Expr = nn.conv2d(data, weight, groups=n.attr("group", 1), **_window(n, kernel, data))
    return nn.bias_add(made, n[2]) if n.has(2) else made


def _max_pool(n: Node) -> Expr:
    n.require(
        len(n.outputs) == 1, "its second result, the indices, is read", "Leave the indices out."
    )
    n.require(
        not n.flag("storage_order"), "storage_order=1 is not supported", "Use storage_order=0."
    )
    kernel = n.ints("kernel_shape") or []
    ceil = n.flag("ceil_mode")
    return nn.max_pool2d(n[0], tuple(kernel), ceil_mode=ceil, **_window(n, kernel, n[0]))


def _average_pool(n: Node) -> Expr:
    kernel = n.ints("kernel_shape") or []
    ceil, include = n.flag("ceil_mode"), n.flag("count_include_pad")
    return nn.avg_pool2d(
        n[0], tuple(kernel), ceil_mode=ceil, count_include_pad=include, **_window(n, kernel, n[0])
    )  # fmt: skip


CONVERTERS: dict[str, Converter] = {
    "AveragePool": _average_pool,
    "Conv": _conv,
    "GlobalAveragePool": lambda n: nn.global_avg_pool2d(n[0]),
    "GlobalMaxPool": lambda n: nn.global_max_pool2d(n[0]),
    "MaxPool": _max_pool,
}
