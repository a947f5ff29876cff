"""Pooling as users call it: `relay.nn.max_pool1d`, `relay.nn.adaptive_avg_pool3d`, ...

In: graph values and TVM's keywords in their usual spellings.  Out: calls with normal attributes.
Read next: `op/pooling.py`, the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.base.doors import named
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions.layout import in_layout
from tilewright.graph.functions.sizes import per_axis, sides
from tilewright.graph.functions.tensor import add, as_shape, divide, multiply, power
from tilewright.graph.op import call
from tilewright.graph.op.window import IMAGE, RANKS, channels_first, image_rank

WORDS = {"avg": "Mean", "max": "Greatest element"}
_UP = 1 + 2.0**-50  # by which a whole mean that was rounded down is whole again
CEIL = "\n\nceil_mode: a last, partly covered window counts too."


def lp_pool(
    data: Expr,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    p: float = 2,
    layout: str = "NCHW",
    ceil_mode: bool = False,
) -> Expr:
    """The p-norm of each window: (sum of |x|^p)^(1/p); layout: NCW, NCHW, NCDHW, channels last."""
    rank = _rank(image_rank(layout) + 2)
    return _pool(
        "lp_pool", rank, data, pool_size, strides, dilation, padding, ceil_mode,
        layout=layout, p=p,
    )  # fmt: skip


def max_pool_indices(
    data: Expr,
    pool_size: Any,
    strides: Any = 1,
    dilation: Any = 1,
    padding: Any = 0,
    ceil_mode: bool = False,
    storage_order: int = 0,
) -> Expr:
    """Where in the flattened `data` [N, C, ...] the first greatest element of each window lies.

    storage_order: 1 counts the first axis of the image fastest, as ONNX has it.  Result int64.
    """
    return _pool(
        "max_pool", _rank(len(data.shape)), data, pool_size, strides, dilation, padding, ceil_mode,
        "_indices", storage_order=int(storage_order),
    )  # fmt: skip


def _rank(axes: int) -> int:
    """Of the image, in data of so many axes; what no image has becomes the nearest that one has."""
    return min(max(axes - 2, 1), len(IMAGE))


def _pool(
    name: str, rank: int, data: Expr, size: Any, strides: Any, dilation: Any, padding: Any,
    ceil: bool, ending: str = "", out_layout: str = "", **more: Any,
) -> Expr:  # fmt: skip
    """more: attributes besides those of the window"""
    place = f"nn.{name}{rank}d{ending}"
    made = call(
        place, data, pool_size=per_axis(size, rank, "pool_size", place),
        strides=per_axis(strides, rank, "strides", place),
        dilation=per_axis(dilation, rank, "dilation", place), padding=sides(padding, rank, place),
        ceil_mode=bool(ceil), **more,
    )  # fmt: skip
    return in_layout(made, more.get("layout", ""), out_layout)


def _mean_of(data: Expr, mean: Callable[[Expr], Expr]) -> Expr:
    """`mean(data)`; that of integers in float64, towards zero: exact up to 2^53 in a window."""
    kind = data.dtype
    if kind.is_float:
        return mean(data)
    found = mean(call("cast", data, dtype="float64"))
    return call("cast", multiply(found, _UP), dtype=str(kind))


def _max(rank: int) -> Callable[..., Expr]:
    ones, zeros, usual = (1,) * rank, (0,) * rank, channels_first(rank)

    @named(f"max_pool{rank}d", f"{WORDS['max']} of each window.{CEIL}")
    def pool(
        data: Expr, pool_size: Any = ones, strides: Any = ones, dilation: Any = ones,
        padding: Any = zeros, layout: str = usual, out_layout: str = "", ceil_mode: bool = False,
    ) -> Expr:  # fmt: skip
        return _pool(
            "max_pool", rank, data, pool_size, strides, dilation, padding, ceil_mode,
            layout=layout, out_layout=out_layout,
        )  # fmt: skip

    return pool


def _avg(rank: int) -> Callable[..., Expr]:
    ones, zeros, usual = (1,) * rank, (0,) * rank, channels_first(rank)
    meaning = (
        f"{WORDS['avg']} of each window.{CEIL}  count_include_pad: padding counts as elements, "
        "what a last window reaches behind it does not.  Means of integers are cut off."
    )

    @named(f"avg_pool{rank}d", meaning)
    def pool(
        data: Expr, pool_size: Any = ones, strides: Any = ones, dilation: Any = ones,
        padding: Any = zeros, layout: str = usual, out_layout: str = "", ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> Expr:  # fmt: skip
        def mean(x: Expr) -> Expr:
            return _pool(
                "avg_pool", rank, x, pool_size, strides, dilation, padding, ceil_mode,
                layout=layout, out_layout=out_layout, count_include_pad=bool(count_include_pad),
            )  # fmt: skip

        return _mean_of(data, mean)

    return pool


def _global(kind: str, rank: int) -> Callable[..., Expr]:
    name, usual = f"global_{kind}_pool{rank}d", channels_first(rank)

    @named(name, f"{WORDS[kind]} of each image; its extents become 1.")
    def pool(data: Expr, layout: str = usual, out_layout: str = "") -> Expr:
        def made(x: Expr) -> Expr:
            return in_layout(call(f"nn.{name}", x, layout=layout), layout, out_layout)

        return _mean_of(data, made) if kind == "avg" else made(data)

    return pool


def _adaptive(kind: str, rank: int) -> Callable[..., Expr]:
    name, usual = f"adaptive_{kind}_pool{rank}d", channels_first(rank)
    meaning = (
        f"{WORDS[kind]} of each of as many windows as `output_size` asks for: an int, one per "
        "axis, or None for the size of the image."
    )

    @named(name, meaning)
    def pool(
        data: Expr, output_size: Any = None, layout: str = usual, out_layout: str = ""
    ) -> Expr:
        whole = output_size is None or (isinstance(output_size, (tuple, list)) and not output_size)
        letters = "".join(filter(str.isalpha, layout))
        if whole and len(letters) == len(data.shape):
            pairs = zip(letters, data.shape, strict=True)
            output_size = tuple(n for letter, n in pairs if letter in IMAGE[rank])
        size = per_axis(output_size, rank, "output_size", f"nn.{name}")

        def made(x: Expr) -> Expr:
            found = call(f"nn.{name}", x, output_size=size, layout=layout)
            return in_layout(found, layout, out_layout)

        return _mean_of(data, made) if kind == "avg" else made(data)

    return pool


max_pool1d, max_pool2d, max_pool3d = map(_max, RANKS)
avg_pool1d, avg_pool2d, avg_pool3d = map(_avg, RANKS)
global_avg_pool1d, global_avg_pool2d, global_avg_pool3d = (_global("avg", r) for r in RANKS)
global_max_pool1d, global_max_pool2d, global_max_pool3d = (_global("max", r) for r in RANKS)
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (_adaptive("avg", r) for r in RANKS)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_adaptive("max", r) for r in RANKS)


def lrn(
    data: Expr,
    size: int = 5,
    axis: int = 1,
    bias: float = 2,
    alpha: float = 1e-05,
    beta: float = 0.75,
) -> Expr:
    """data / (bias + alpha/size * sum of squares of `size` neighbours along `axis`)^beta."""
    place, rank = "nn.lrn", len(data.shape)
    if not (-rank <= axis < rank and size >= 1):
        raise ModelError(
            f"{place}(data={data.shape}, axis={axis}, size={size})",
            "there is no such axis, or no window of that size",
            f"Use {-rank} to {rank - 1}, and a size of at least 1.",
        )
    if data.dtype.is_float and data.dtype.bits < 32:  # the power would round what is rounded
        wide = lrn(call("cast", data, dtype="float32"), size, axis, bias, alpha, beta)
        return call("cast", wide, dtype=str(data.dtype))
    axis %= rank
    before, channels, after = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    flat = as_shape(data, (math.prod(before), 1, channels, math.prod(after)))
    around = ((size - 1) // 2, 0, size // 2, 0)
    mean = avg_pool2d(multiply(flat, flat), (size, 1), padding=around, count_include_pad=True)
    scale = power(add(multiply(mean, alpha), bias), beta)
    return divide(data, as_shape(scale, data.shape))


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool2d", "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d",
    "global_avg_pool1d", "global_avg_pool2d", "global_avg_pool3d", "global_max_pool1d",
    "global_max_pool2d", "global_max_pool3d", "lp_pool", "lrn", "max_pool1d", "max_pool2d",
    "max_pool3d", "max_pool_indices",
]  # fmt: skip
