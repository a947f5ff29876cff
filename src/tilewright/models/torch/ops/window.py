"""Convolution, pooling, resizing: whatever looks at windows of an image."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.graph.expr import Array, Expr
from tilewright.graph.functions import image, nn, tensor
from tilewright.graph.functions.indexing import argmax, scatter_elements, take
from tilewright.graph.leaves import const
from tilewright.models.torch.node import Converter, Node, as_type, number
from tilewright.models.torch.ops.elementwise import scaled
from tilewright.models.torch.ops.movement import part, reshaped

_AXES = {1: "W", 2: "HW", 3: "DHW"}


def _convolution(n: Node) -> Expr:
    data, weight, bias = n["input"], n["weight"], n.optional("bias")
    rank = len(weight.shape) - 2
    single = len(data.shape) == rank + 1  # without a batch
    data = tensor.expand_dims(data, 0) if single else data
    options: dict[str, Any] = {
        "strides": n.ints("stride", rank), "padding": n.ints("padding", rank) * 2,
        "dilation": n.ints("dilation", rank), "groups": n.integer("groups", 1),
    }  # fmt: skip
    name = f"conv{rank}d"
    if n.get("transposed", False):
        name += "_transpose"
        options["output_padding"] = n.ints("output_padding", rank)
        options["kernel_layout"] = "IO" + _AXES[rank]
    made = getattr(nn, name)(data, weight, **options)
    if bias is not None:
        made = nn.bias_add(made, bias, axis=1)
    return reshaped(made, n.shape)


def _pooling(n: Node, rank: int) -> dict[str, Any]:
    size = n.ints("kernel_size", rank)
    return {
        "pool_size": size, "strides": n.ints("stride", rank) or size,
        "padding": n.ints("padding", rank) * 2, "dilation": n.ints("dilation", rank) or (1,) * rank,
        "ceil_mode": bool(n.get("ceil_mode", False)),
    }  # fmt: skip


def _batched(n: Node, rank: int, made: Callable[[Expr], Expr]) -> Expr:
    data = n["self"]
    if len(data.shape) == rank + 1:
        return reshaped(made(tensor.expand_dims(data, 0)), n.shape)
    return made(data)


def _max_pool(rank: int) -> Converter:
    """The maxima; of the operators that give them too, where in its image each lies."""

    def convert(n: Node) -> Any:
        window = _pooling(n, rank)
        made = _batched(n, rank, lambda x: getattr(nn, f"max_pool{rank}d")(x, **window))
        if len(n.results) == 1:
            return made
        where = _batched(n, rank, lambda x: nn.max_pool_indices(x, **window))
        image = math.prod(n["self"].shape[-rank:])
        return [made, tensor.floor_mod(where, number(image, "int64"))]

    return convert


def _max_unpool(n: Node) -> Expr:
    """Maxima at the places of an image that their indices name, zeros around them."""
    data, lead = n["self"], n.shape[:-2]
    rows = (math.prod(lead), math.prod(data.shape[-2:]))
    whole = (rows[0], math.prod(n.shape[-2:]))
    n.room(math.prod(whole) * data.dtype.bytes)
    empty = tensor.broadcast_to(number(0, n.dtype), whole)
    placed = scatter_elements(empty, reshaped(n["indices"], rows), reshaped(data, rows), 1)
    return reshaped(placed, n.shape)


def _avg_pool(rank: int) -> Converter:
    def convert(n: Node) -> Expr:
        options = _pooling(n, rank)
        whole = bool(n.get("count_include_pad", True)) and any(options["padding"])
        divisor = n.args.get("divisor_override")
        if divisor is not None and options["ceil_mode"]:
            return _sums_over_the_edge(n, rank, options, divisor)
        made = _batched(
            n, rank,
            lambda x: getattr(nn, f"avg_pool{rank}d")(
                x, **options, count_include_pad=whole or divisor is not None
            ),
        )  # fmt: skip
        return made if divisor is None else scaled(made, math.prod(options["pool_size"]) / divisor)

    return convert


def _sums_over_the_edge(n: Node, rank: int, options: dict[str, Any], divisor: int) -> Expr:
    """What windows hold, zeros around the data, by a divisor that is the same for all."""
    inside = n["self"].shape[-rank:]
    size, step = options["pool_size"], options["strides"]
    begins = options["padding"][:rank]
    ends = [
        (count - 1) * s + k - b - extent
        for count, s, k, b, extent in zip(n.shape[-rank:], step, size, begins, inside, strict=True)
    ]
    width = [(0, 0), (0, 0), *((b, max(e, 0)) for b, e in zip(begins, ends, strict=True))]
    plain = {**options, "padding": (0,) * len(options["padding"]), "ceil_mode": False}
    pool = getattr(nn, f"avg_pool{rank}d")
    made = _batched(n, rank, lambda x: pool(nn.pad(x, width), **plain))
    return scaled(made, math.prod(size) / divisor)


def _adaptive_avg(rank: int) -> Converter:
    def convert(n: Node) -> Expr:
        """One window where one is asked for, equal windows where they divide."""
        size, axes = n.shape[-rank:], tuple(range(-rank, 0))
        if set(size) == {1}:
            axes = tuple(range(len(n["self"].shape) - rank, len(n["self"].shape)))
            return tensor.mean(n["self"], axes, True)
        return _batched(
            n, rank, lambda x: getattr(nn, f"adaptive_avg_pool{rank}d")(x, output_size=size)
        )

    return convert


def _adaptive_max(rank: int) -> Converter:
    """The maxima, and where in its image each lies."""

    def convert(n: Node) -> list[Expr]:
        made = _batched(
            n, rank,
            lambda x: getattr(nn, f"adaptive_max_pool{rank}d")(x, output_size=n.shape[-rank:]),
        )  # fmt: skip
        return [made, _places_of_adaptive_maxima(n, rank)]

    return convert


def _places_of_adaptive_maxima(n: Node, rank: int) -> Expr:
    """In the image, counted row by row: every window as a row, and where its maximum is first."""
    found, lead = n["self"], n.shape[:-rank]
    image, size = found.shape[-rank:], n.shape[-rank:]
    each = [_adaptive_windows(old, new) for old, new in zip(image, size, strict=True)]
    at = np.zeros((1, 1), np.int64)  # in the image, [windows, places in one]
    for k, (old, places) in enumerate(zip(image, each, strict=True)):
        new, width = places.shape
        n.room(8 * places.size)
        found = take(found, const(places.reshape(-1), "int64"), len(lead) + 2 * k)
        found = reshaped(found, (*found.shape[: len(lead) + 2 * k], new, width, *image[k + 1 :]))
        at = (at * old)[:, None, :, None] + places[None, :, None, :]
        at = at.reshape(at.shape[0] * new, -1)
    n.room(2 * 8 * at.size)
    first = len(lead)
    order = (*range(first), *range(first, found_rank := first + 2 * rank, 2),
             *range(first + 1, found_rank, 2))  # fmt: skip
    rows = reshaped(tensor.transpose(found, order), (*lead, *at.shape))
    where = as_type(argmax(rows, len(lead) + 1, False), "int64")
    begin = const(np.arange(at.shape[0], dtype=np.int64) * at.shape[1], "int64")
    picked = take(const(at.reshape(-1), "int64"), tensor.add(where, begin), 0)
    return reshaped(picked, n.shape)


def _adaptive_windows(old: int, new: int) -> Array:
    """The places in each of `new` windows of an axis, [new, the widest]; the last one of a window
    fills the row."""
    begins, ends = np.arange(new) * old // new, -(-(np.arange(new) + 1) * old // new)
    widest = int((ends - begins).max(initial=1))
    places: Array = np.minimum(begins[:, None] + np.arange(widest), ends[:, None] - 1)
    return places


def _resize(rank: int, method: str) -> Converter:
    """Sizes are the result's; scales, where given, place the samples."""

    def convert(n: Node) -> Expr:
        data, size = n["self" if n.args.get("self") is not None else "input"], n.shape[-rank:]
        corners = bool(n.get("align_corners", False))
        mode = (
            "asymmetric" if method == "nearest" else ("align_corners" if corners else "half_pixel")
        )
        scales = _scales(n, rank)
        ratios = [o / i for o, i in zip(size, data.shape[-rank:], strict=True)]
        as_sizes = all(s is None or abs(s - r) < 1e-9 for s, r in zip(scales, ratios, strict=True))
        if not corners and not as_sizes:
            for k, (s, r) in enumerate(zip(scales, ratios, strict=True)):
                axis = len(data.shape) - rank + k
                step = 1 / (r if s is None else s)
                data = _sampled(n, data, axis, *_taps(method, data.shape[axis], size[k], step))
            return data
        return image.resize_numbers(
            data, range(len(data.shape) - rank, len(data.shape)), size, mode=method,
            coordinates=mode, rounding="floor",
        )  # fmt: skip

    return convert


def _smooth_resize(method: str) -> Converter:
    """With antialias=True: where it shrinks, a sample is the mean of all that it stands for."""

    def convert(n: Node) -> Expr:
        data, corners = n["input" if "input" in n.args else "self"], bool(n.get("align_corners"))
        for axis, scale in zip((2, 3), _scales(n, 2), strict=True):
            old, new = data.shape[axis], n.shape[axis]
            step = (old / new) if scale is None else 1 / scale
            if corners:
                step = (old - 1) / (new - 1) if new > 1 else 0.0
            data = _sampled(n, data, axis, *_wide_taps(method, old, new, step))
        return data

    return convert


def _sampled(n: Node, data: Expr, axis: int, at: Array, weights: Array) -> Expr:
    """Sums of elements of an axis: at and weights are [new extent, taps]."""
    n.room(at.size * (8 + data.dtype.bytes))
    along = [-1 if k == axis else 1 for k in range(len(data.shape))]
    found: Expr | None = None
    nothing = const(0, str(data.dtype))
    for k in range(at.shape[1]):
        tap: Expr = take(data, const(at[:, k], "int64"), axis)
        if at.shape[1] > 1:
            tap = tensor.multiply(tap, const(weights[:, k].reshape(along), str(data.dtype)))
            if not weights[:, k].all():  # no infinity meets a weight of 0
                tap = tensor.where(const((weights[:, k] != 0).reshape(along)), tap, nothing)
        found = tap if found is None else tensor.add(found, tap)
    assert found is not None
    return found


def _cubic(x: Array, a: float) -> Array:
    """Keys' kernel."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _taps(method: str, old: int, new: int, step: float) -> tuple[Array, Array]:
    """Which elements of an axis each sample is made of, and how much of each, [new, taps].

    step: from sample to sample, in elements
    """
    if method == "nearest":  # in PyTorch's precision, which decides at whole numbers
        at = np.floor(np.arange(new, dtype=np.float32) * np.float32(step)).astype(np.int64)
        return np.minimum(at, old - 1)[:, None], np.ones((new, 1))
    place = (np.arange(new) + 0.5) * step - 0.5
    offsets = np.arange(2) if method == "linear" else np.arange(-1, 3)
    if method == "linear":
        place = np.maximum(place, 0)
    at = np.floor(place).astype(np.int64)[:, None] + offsets
    away = place[:, None] - at
    weights = 1 - np.abs(away) if method == "linear" else _cubic(away, -0.75)
    return np.clip(at, 0, old - 1), weights


def _wide_taps(method: str, old: int, new: int, step: float) -> tuple[Array, Array]:
    """`_taps` of a kernel that is as wide as the step."""
    width = max(step, 1.0)
    reach = (1 if method == "linear" else 2) * width
    center = step * (np.arange(new) + 0.5)
    first = np.maximum((center - reach + 0.5).astype(np.int64), 0)
    last = np.minimum((center + reach + 0.5).astype(np.int64), old)
    at = first[:, None] + np.arange(int((last - first).max()))
    away = (at - center[:, None] + 0.5) / width
    weights = np.maximum(1 - np.abs(away), 0) if method == "linear" else _cubic(away, -0.5)
    weights = np.where(at < last[:, None], weights, 0.0)
    return np.minimum(at, old - 1), weights / weights.sum(1, keepdims=True)


def _scales(n: Node, rank: int) -> list[float | None]:
    """What the operator says about scales, in either of its forms."""
    given = n.args.get("scale_factors")
    if given is not None:
        return list(given)
    names = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}
    return [n.args.get(name) for name in names[rank]]


def _unfold(n: Node) -> Expr:
    """Windows side by side: [batch, channels * window, windows]."""
    data = n["self"]
    size, stride = n.ints("kernel_size", 2), n.ints("stride", 2)
    spread, (top, left) = n.ints("dilation", 2), n.ints("padding", 2)
    data = nn.pad(data, [(0, 0), (0, 0), (top, top), (left, left)]) if top or left else data
    batch, channels, height, width = data.shape
    counts = [
        (e - d * (k - 1) - 1) // s + 1
        for e, k, s, d in zip((height, width), size, stride, spread, strict=True)
    ]
    taps = []
    for i in range(size[0]):
        for j in range(size[1]):
            tap: Expr = data
            for axis, at, c in ((2, i * spread[0], counts[0]), (3, j * spread[1], counts[1])):
                step = stride[axis - 2]
                tap = part(tap, axis, at, at + (c - 1) * step + 1, step)
            taps.append(reshaped(tap, (batch, channels, 1, counts[0] * counts[1])))
    made = taps[0] if len(taps) == 1 else tensor.concatenate(taps, 2)
    return reshaped(made, n.shape)


_RESIZES = {
    **{f"upsample_nearest{k}d": _resize(k, "nearest") for k in (1, 2, 3)},
    **{f"upsample_{word}{k + 1}d": _resize(k + 1, "linear")
       for k, word in enumerate(("linear", "bilinear", "trilinear"))},
    "upsample_bicubic2d": _resize(2, "cubic"),
}  # fmt: skip
_SMOOTH = {
    f"_upsample_{word}2d_aa": _smooth_resize(method)
    for word, method in (("bilinear", "linear"), ("bicubic", "cubic"))
}
CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("convolution.default", "_convolution.default", "conv1d.default",
                     "conv2d.default", "conv3d.default"), _convolution),
    **{f"max_pool{k}d_with_indices.default": _max_pool(k) for k in (2, 3)},
    **{f"max_pool{k}d.default": _max_pool(k) for k in (1, 2, 3)},
    "max_unpool2d.default": _max_unpool,
    **{f"avg_pool{k}d.default": _avg_pool(k) for k in (1, 2, 3)},
    **{f"_adaptive_avg_pool{k}d.default": _adaptive_avg(k) for k in (2, 3)},
    **{f"adaptive_avg_pool{k}d.default": _adaptive_avg(k) for k in (1, 2, 3)},
    **{f"adaptive_max_pool{k}d.default": _adaptive_max(k) for k in (1, 2, 3)},
    **{f"{k}.{form}": made for k, made in _RESIZES.items() for form in ("vec", "default")},
    **{f"{k}.{form}": made for k, made in _SMOOTH.items() for form in ("vec", "default")},
    "im2col.default": _unfold,
}  # fmt: skip
