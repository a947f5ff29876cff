"""Convolution and pooling, and their ways back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.indexing import scatter_elements, strided_slice
from tilewright.graph.functions.tensor import add, as_shape
from tilewright.graph.leaves import const
from tilewright.graph.op.window import RANKS
from tilewright.models.onnx.node import Converter, Node, shape_input

AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


def _rank(n: Node, kernel: Sequence[int], data: Expr) -> int:
    """Axes of the image."""
    rank = len(data.shape) - 2
    n.require(
        rank in RANKS, f"its data has shape {data.shape}",
        "Images of one, two or three axes are supported: [N, C, ...].",
    )  # fmt: skip
    n.require(
        len(kernel) == rank, f"its kernel {list(kernel)} is not one of {rank} axes",
        "One number for each axis of the image is needed.",
    )  # fmt: skip
    return rank


def window_of(n: Node, kernel: Sequence[int], data: Expr) -> dict[str, Any]:
    """strides, padding and dilation of a window."""
    rank = _rank(n, kernel, data)
    strides, dilation = (n.ints(k) or [1] * rank for k in ("strides", "dilations"))
    pads, auto = n.ints("pads") or [0] * 2 * rank, _auto(n)
    n.require(
        len(strides) == len(dilation) == rank and len(pads) == 2 * rank,
        f"strides {strides}, dilations {dilation} and pads {pads} are not those of {rank} axes",
        f"{rank}, {rank} and {2 * rank} numbers are needed.",
    )
    if auto != "NOTSET":
        pads = [0] * 2 * rank
    if auto.startswith("SAME"):
        n.require(min(strides) >= 1, f"strides {strides} start at 1", "Use 1 or more.")
        for k in range(rank):
            extent, reach = data.shape[2 + k], (kernel[k] - 1) * dilation[k] + 1
            total = max((-(-extent // strides[k]) - 1) * strides[k] + reach - extent, 0)
            pads[k], pads[rank + k] = _halves(total, auto)
    return {"strides": tuple(strides), "padding": tuple(pads), "dilation": tuple(dilation)}


def _auto(n: Node) -> str:
    auto = str(n.attr("auto_pad", "NOTSET"))
    n.require(auto in AUTO, f"auto_pad={auto} is not known", f"Use one of {', '.join(AUTO)}.")
    return auto


def _halves(total: int, auto: str) -> tuple[int, int]:
    """Padding in front and behind: the larger half is behind for SAME_UPPER."""
    small, large = total // 2, total - total // 2
    return (large, small) if auto == "SAME_LOWER" else (small, large)


def weight_window(n: Node, weight: Expr) -> list[int]:
    """Extents of the window, which are the weight's."""
    kernel = n.ints("kernel_shape") or list(weight.shape[2:])
    n.require(
        tuple(kernel) == weight.shape[2:],
        f"kernel_shape {kernel} is not that of the weight, {weight.shape[2:]}", "Leave it out.",
    )  # fmt: skip
    return kernel


def convolution(n: Node, data: Expr, weight: Expr) -> Expr:
    """`data` with `weight` as the node's attributes say, without a bias."""
    kernel = weight_window(n, weight)
    function = getattr(nn, f"conv{_rank(n, kernel, data)}d")
    made: Expr = function(data, weight, groups=n.attr("group", 1), **window_of(n, kernel, data))
    return made


def biased(n: Node, made: Expr, index: int = 2) -> Expr:
    """`made` with the bias that is input `index`, if it is there."""
    return nn.bias_add(made, n[index]) if n.has(index) else made


def _conv_transpose(n: Node) -> Expr:
    data, weight = n[0], n[1]
    kernel = weight_window(n, weight)
    rank = _rank(n, kernel, data)
    auto, wanted = _auto(n), n.ints("output_shape")
    n.attrs["auto_pad"] = "NOTSET"  # its padding is of the result, and computed here
    window = window_of(n, kernel, data)
    extra, strides = n.ints("output_padding") or [0] * rank, window["strides"]
    n.require(
        len(extra) == rank and (wanted is None or len(wanted) == rank),
        f"output_padding {extra} or output_shape {wanted} are not those of {rank} axes",
        f"{rank} numbers are needed.",
    )
    if auto == "VALID":
        window["padding"] = (0,) * 2 * rank
    if auto.startswith("SAME") and wanted is None:
        wanted = [extent * s for extent, s in zip(data.shape[2:], strides, strict=True)]
    if wanted is not None:
        pads = [0] * 2 * rank
        for k, size in enumerate(wanted):
            reach = (kernel[k] - 1) * window["dilation"][k] + 1
            total = strides[k] * (data.shape[2 + k] - 1) + extra[k] + reach - size
            pads[k], pads[rank + k] = _halves(max(total, 0), auto)
            extra[k] += max(-total, 0)
        window["padding"] = tuple(pads)
    function = getattr(nn, f"conv{rank}d_transpose")
    made: Expr = function(
        data, weight, groups=n.attr("group", 1), output_padding=tuple(extra), **window
    )
    return biased(n, made)


def _max_pool(n: Node) -> Expr | list[Expr]:
    kernel, window = _pool(n)
    order = n.flag("storage_order")
    values: Expr = getattr(nn, f"max_pool{len(kernel)}d")(n[0], kernel, **window)
    if len(n.outputs) == 1:
        return values
    return [values, nn.max_pool_indices(n[0], kernel, storage_order=int(order), **window)]


def channels_last_pool(n: Node, data: Expr, kind: str, **options: bool) -> Expr:
    """A pool of data [N, image.., C]."""
    kernel, rank = n.ints("kernel_shape") or [], len(data.shape)
    first = tensor.transpose(data, (0, rank - 1, *range(1, rank - 1)))
    made: Expr = getattr(nn, f"{kind}_pool{_rank(n, kernel, first)}d")(
        first, tuple(kernel), ceil_mode=n.flag("ceil_mode"), **options,
        **window_of(n, kernel, first),
    )  # fmt: skip
    return tensor.transpose(made, (0, *range(2, rank), 1))


def _average_pool(n: Node) -> Expr:
    kernel, window = _pool(n)
    include = n.flag("count_include_pad")
    made: Expr = getattr(nn, f"avg_pool{len(kernel)}d")(
        n[0], kernel, count_include_pad=include, **window
    )
    return made


def _lp_pool(n: Node) -> Expr:
    kernel, window = _pool(n)
    return nn.lp_pool(n[0], kernel, p=n.attr("p", 2), layout=_layout(n[0]), **window)


def _pool(n: Node) -> tuple[tuple[int, ...], dict[str, Any]]:
    kernel = n.ints("kernel_shape") or []
    return tuple(kernel), {"ceil_mode": n.flag("ceil_mode"), **window_of(n, kernel, n[0])}


def _layout(data: Expr) -> str:
    return "NC" + "DHW"[-(len(data.shape) - 2) :]


def _global(kind: str) -> Converter:
    """Of the whole image: what has no pool of its rank, as an image of one axis."""

    def convert(n: Node) -> Expr:
        data, rank = n[0], len(n[0].shape) - 2
        n.require(rank >= 1, f"its data has shape {data.shape}", "[N, C, ...] is needed.")
        if kind != "lp" and rank in RANKS:
            made: Expr = getattr(nn, f"global_{kind}_pool{rank}d")(data)
            return made
        flat = as_shape(data, (*data.shape[:2], math.prod(data.shape[2:])))
        if kind == "lp":
            pooled = nn.lp_pool(flat, flat.shape[2], p=n.attr("p", 2), layout="NCW")
        else:
            pooled = getattr(nn, f"global_{kind}_pool1d")(flat)
        return as_shape(pooled, (*data.shape[:2], *[1] * rank))

    return convert


def _lrn(n: Node) -> Expr:
    size = n.attr("size")
    n.require(isinstance(size, int) and size >= 1, f"its size is {size}", "Use 1 or more.")
    return nn.lrn(
        n[0], size, bias=n.attr("bias", 1.0), alpha=n.attr("alpha", 1e-4), beta=n.attr("beta", 0.75)
    )


def _col2im(n: Node) -> Expr:
    """Columns laid side by side again, overlaps added: the image of each tap with zeros around its
    elements, all of them added.  Nothing is multiplied, so infinities stay where they are."""
    data = n[0]
    image, kernel = shape_input(n, 1), shape_input(n, 2)
    rank = len(kernel)
    strides, dilation = (n.ints(k) or [1] * rank for k in ("strides", "dilations"))
    pads = n.ints("pads") or [0] * 2 * rank
    n.require(
        rank in RANKS and len(data.shape) == 3 and len(pads) == 2 * rank
        and len(image) == len(strides) == len(dilation) == rank and min(strides) >= 1,
        f"image {image}, block {kernel}, strides {strides}, dilations {dilation} and pads {pads} "
        f"do not belong to one rank", "Images of one, two or three axes are supported.",
    )  # fmt: skip
    taps = math.prod(kernel)
    n.require(
        taps >= 1 and data.shape[1] % taps == 0,
        f"{data.shape[1]} rows are not whole blocks of {taps}", "The model is damaged.",
    )  # fmt: skip
    free = [
        extent + pads[k] + pads[rank + k] - ((kernel[k] - 1) * dilation[k] + 1)
        for k, extent in enumerate(image)
    ]
    counts = [f // s + 1 for f, s in zip(free, strides, strict=True)]
    n.require(
        min(free) >= 0 and math.prod(counts) == data.shape[2],
        f"{data.shape[2]} columns are not the {counts} positions in the image",
        "The model is damaged.",
    )  # fmt: skip
    channels = data.shape[1] // taps
    columns = as_shape(data, (data.shape[0], channels, taps, *counts))
    n.room(math.prod(columns.shape) * taps * data.dtype.bytes)
    apart = [(c - 1) * s + 1 for c, s in zip(counts, strides, strict=True)]  # first to last
    made: Expr | None = None
    for k, tap in enumerate(np.ndindex(*kernel)):
        own = as_shape(
            strided_slice(columns, [k], [k + 1], axes=[2]), (data.shape[0], channels, *counts)
        )
        before = [t * d for t, d in zip(tap, dilation, strict=True)]
        sides = [
            (first, extent + pads[a] + pads[rank + a] - first - apart[a])
            for a, (first, extent) in enumerate(zip(before, image, strict=True))
        ]
        placed = nn.pad(nn.dilate(own, (1, 1, *strides)), [(0, 0), (0, 0), *sides])
        made = placed if made is None else add(made, placed)
    assert made is not None
    starts = list(pads[:rank])
    ends = [s + e for s, e in zip(starts, image, strict=True)]
    return strided_slice(made, starts, ends, axes=list(range(2, 2 + rank)))


def _max_unpool(n: Node) -> Expr:
    data, kernel = n[0], n.ints("kernel_shape") or []
    rank = _rank(n, kernel, data)
    strides, pads = n.ints("strides") or [1] * rank, n.ints("pads") or [0] * 2 * rank
    n.require(
        len(strides) == rank and len(pads) == 2 * rank and n[1].shape == data.shape,
        f"strides {strides}, pads {pads} or indices {n[1].shape} are not those of its data",
        f"{rank} strides, {2 * rank} pads and an index for each element are needed.",
    )
    image = [
        (extent - 1) * strides[k] - pads[k] - pads[rank + k] + kernel[k]
        for k, extent in enumerate(data.shape[2:])
    ]
    n.require(min(image) >= 1, f"its result would have extents {image}", "The model is damaged.")
    whole = (*data.shape[:2], *image)
    size = math.prod(whole)
    n.room(size * data.dtype.bytes)
    empty = const(np.zeros(size), str(data.dtype))
    placed = scatter_elements(empty, as_shape(n[1], (-1,)), as_shape(data, (-1,)), 0)
    made: Expr = as_shape(placed, whole)
    wanted = shape_input(n, 2) if n.has(2) else whole
    n.require(
        len(wanted) == len(whole) and all(a >= b for a, b in zip(wanted, whole, strict=True)),
        f"output_shape {wanted} does not hold {whole}", "The model is damaged.",
    )  # fmt: skip
    behind = [(0, a - b) for a, b in zip(wanted, whole, strict=True)]
    return nn.pad(made, behind) if wanted != whole else made


CONVERTERS: dict[str, Converter] = {
    "AveragePool": _average_pool,
    "Col2Im": _col2im,
    "Conv": lambda n: biased(n, convolution(n, n[0], n[1])),
    "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global("avg"),
    "GlobalLpPool": _global("lp"),
    "GlobalMaxPool": _global("max"),
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "MaxUnpool": _max_unpool,
}
