"""Sliding windows: what convolution and pooling rows share, and their values on numpy arrays.

In: arrays in any layout of N, C and the axes of an image (W, HW or DHW).  Out: arrays.  Every tap
of a window is one view of the input.  Read next: `conv.py`, `pooling.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.graph.expr import Array, Attrs
from tilewright.graph.op.row import Site
from tilewright.graph.types import MAX_EXTENT
from tilewright.topi import layout as L

IMAGE = {1: "W", 2: "HW", 3: "DHW"}
RANKS = tuple(IMAGE)
FURTHEST = 256  # that padding may go beyond the extent: windows far out meet no element


def channels_first(rank: int) -> str:
    """NCW, NCHW or NCDHW."""
    return f"NC{IMAGE[rank]}"


def layouts(rank: int) -> tuple[str, str]:
    """Channels first, and channels last."""
    return channels_first(rank), f"N{IMAGE[rank]}C"


def check_layout(site: Site, layout: str, rank: int) -> str:
    """The letters of `layout`, one for each axis; blocks of channels have the letter c."""
    if is_blocked(layout):
        try:
            parsed = L.parse(layout, site.place)
        except ExpressionError as error:
            raise site.refuse(error.reason, error.way_out) from None
        if parsed.axes == f"{channels_first(rank)}c":
            return parsed.axes
    site.require(
        layout in layouts(rank),
        f"layout {layout!r} is not known",
        f"Use {' or '.join(layouts(rank))}, or blocks of channels: {channels_first(rank)}8c.",
    )
    return layout


def is_blocked(layout: str) -> bool:
    """Whether it has inner axes: NCHW8c."""
    return any(map(str.islower, layout))


def check_blocks(site: Site, layout: str, shape: Sequence[int]) -> dict[str, int]:
    """The whole extents of a tensor by letter; refuses blocks of another size than the layout's."""
    try:
        return L.extents(L.parse(layout, site.place), shape, site.place)
    except ExpressionError as error:
        raise site.refuse(error.reason, error.way_out) from None


def defaults(rank: int) -> dict[str, Any]:
    """The attributes of a window that is moved by one."""
    return {"strides": (1,) * rank, "padding": (0,) * 2 * rank, "dilation": (1,) * rank}


def to_order(x: Array, source: str, wanted: str) -> Array:
    """`x`, whose axes are the letters of `source`, with the axes in the order `wanted`; either may
    have blocks."""
    apart, split, order = moves(source, wanted, x.shape)
    return np.transpose(np.transpose(x, apart).reshape(split), order)


def moves(
    source: str, wanted: str, shape: Sequence[int]
) -> tuple[list[int], tuple[int, ...], list[int]]:
    """A transposition, a shape and a transposition that lead from one layout to another."""
    had, has = L.parse(source, "relay.op"), L.parse(wanted, "relay.op")
    sizes = dict(zip(had.axes, shape, strict=True))
    whole = {a: sizes[a] * sizes.get(a.lower(), 1) for a in had.outer}
    extents = {a: n // has.blocks.get(a.lower(), 1) for a, n in whole.items()} | has.blocks
    apart, cut = (
        [a for letter in had.outer for a in (letter, letter.lower()) if a in axes]
        for axes in (had.axes, has.axes)
    )
    return (
        [had.axes.index(a) for a in apart],
        tuple(extents[a] for a in cut),
        [cut.index(a) for a in has.axes],
    )


def in_order(shape: Sequence[int], source: str, wanted: str) -> tuple[int, ...]:
    """The shape that a tensor of `shape` has in the layout `wanted`."""
    _, split, order = moves(source, wanted, shape)
    return tuple(split[k] for k in order)


def image_rank(layout: str) -> int:
    """Axes of the image in a layout."""
    return sum(map(str.isupper, layout)) - 2


def reaches(kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Elements from the first to the last tap, along each axis."""
    return [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]


def positions(
    extent: int, before: int, after: int, reach: int, stride: int, ceil_mode: bool = False
) -> int:
    """Of a window that spans `reach` elements over a padded extent.

    ceil_mode: a last, partly covered one too, unless it starts behind the input
    """
    free = extent + before + after - reach
    if not ceil_mode:
        return free // stride + 1
    count = -(-free // stride) + 1
    return count - int((count - 1) * stride >= extent + before)


def check_window(site: Site, sizes: Sequence[int], kernel: Sequence[int]) -> None:
    """Refuse strides, dilation and padding that no window has."""
    a, rank = site.attrs, len(sizes)
    site.require(
        len(kernel) == len(a.strides) == len(a.dilation) == rank and len(a.padding) == 2 * rank,
        f"kernel {tuple(kernel)}, strides {a.strides}, dilation {a.dilation} or padding "
        f"{a.padding} are not those of {rank} axes",
        f"Give {rank} numbers each, and {2 * rank} of padding.",
    )
    site.require(
        min((*a.strides, *a.dilation, *kernel)) >= 1,
        "strides, dilation and kernel sizes start at 1",
        "Use 1 or more.",
    )
    site.require(
        max(*a.strides, *a.dilation) <= MAX_EXTENT,
        f"strides {a.strides} or dilation {a.dilation} are beyond {MAX_EXTENT}",
        "A stride of the whole extent gives one window.",
    )
    site.require(
        min(a.padding) >= 0, f"padding {a.padding} is negative", "Slice the input instead."
    )


def image_size(site: Site, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[int, ...]:
    """Extents of the result of a window; refuses a window that does not fit."""
    a, rank = site.attrs, len(sizes)
    check_window(site, sizes, kernel)
    found = []
    for k, (extent, reach) in enumerate(zip(sizes, reaches(kernel, a.dilation), strict=True)):
        before, after = a.padding[k], a.padding[rank + k]
        site.require(
            max(before, after) <= extent + FURTHEST,
            f"padding {a.padding} is much more than the extent {extent}",
            "Use nn.pad if it is meant.",
        )
        site.require(
            extent + before + after >= reach,
            f"a window of {reach} does not fit the padded extent {extent + before + after}",
            "Use more padding, a smaller kernel or less dilation.",
        )
        ceil = a.get("ceil_mode", False)
        found.append(positions(extent, before, after, reach, a.strides[k], ceil))
    return tuple(found)


def _taps(x: Array, kernel: Sequence[int], a: Attrs, fill: Any) -> Iterator[Array]:
    """For every tap of the window: the elements of `x` [N, C, image] it meets, [N, C, windows]."""
    rank = len(kernel)
    reach = reaches(kernel, a.dilation)
    before, after = a.padding[:rank], a.padding[rank:]
    counts = [
        positions(n, b, e, r, s, a.get("ceil_mode", False))
        for n, b, e, r, s in zip(x.shape[2:], before, after, reach, a.strides, strict=True)
    ]
    spans = [(c - 1) * s + r for c, s, r in zip(counts, a.strides, reach, strict=True)]
    behind = [max(s - n - b, 0) for s, n, b in zip(spans, x.shape[2:], before, strict=True)]
    sides = [(0, 0), (0, 0), *zip(before, behind, strict=True)]
    x = np.pad(x, sides, constant_values=fill) if any(map(any, sides)) else x
    for tap in itertools.product(*map(range, kernel)):
        first = [t * d for t, d in zip(tap, a.dilation, strict=True)]
        cut = [
            slice(f, f + (c - 1) * s + 1, s)
            for f, c, s in zip(first, counts, a.strides, strict=True)
        ]
        yield x[(slice(None), slice(None), *cut)]


def summands(a: Attrs, *arrays: Array) -> tuple[Array, ...]:
    """The operands of a sum of products in the type of the sum: narrow integers would wrap."""
    kind = DType(arrays[0].dtype)
    wanted = a.out_dtype or (kind if kind.is_float else kind.accumulator)
    if DType(wanted).bits <= kind.bits:
        return arrays
    return tuple(x.astype(DType(wanted).storage) for x in arrays)


def conv(arrays: Sequence[Any], a: Attrs) -> Array:
    """Convolution, grouped or not."""
    rank = len(a.strides)
    order = channels_first(rank)
    x = to_order(arrays[0], a.data_layout, order)
    w = to_order(arrays[1], a.kernel_layout, f"OI{IMAGE[rank]}")
    groups, n = a.groups, x.shape[0]
    out_channels, in_channels, *kernel = w.shape
    x, w = summands(a, x, w)
    met = np.stack(list(_taps(x, kernel, a, 0)), 2)  # [N, C, taps, windows]
    steps = in_channels * math.prod(kernel)
    columns = met.reshape(n, groups, steps, math.prod(met.shape[3:]))
    result = w.reshape(groups, out_channels // groups, steps) @ columns
    return to_order(result.reshape(n, out_channels, *met.shape[3:]), order, out_layout(a))


def out_layout(a: Attrs) -> str:
    """Of a convolution's result: that of its data, in blocks of the output channels."""
    if not is_blocked(a.data_layout):
        return str(a.data_layout)
    return f"NCHW{L.parse(a.kernel_layout, 'conv2d').blocks['o']}c"


def conv_transpose(arrays: Sequence[Any], a: Attrs) -> Array:
    """Every element of the data adds its multiple of the kernel to the result."""
    rank = len(a.strides)
    order = channels_first(rank)
    x = to_order(arrays[0], a.data_layout, order)
    w = to_order(arrays[1], a.kernel_layout, f"IO{IMAGE[rank]}")
    x, w = summands(a, x, w)
    n, groups, image = x.shape[0], a.groups, x.shape[2:]
    kernel, outputs = w.shape[2:], w.shape[1]
    whole = [
        (e - 1) * s + r + p
        for e, s, r, p in zip(
            image, a.strides, reaches(kernel, a.dilation), a.output_padding, strict=True
        )
    ]
    result = np.zeros((n, groups * outputs, *whole), x.dtype)
    inner = x.shape[1] // groups
    columns = x.reshape(n, groups, inner, math.prod(image))
    weights = w.reshape(groups, inner, outputs, math.prod(kernel))
    for k, tap in enumerate(itertools.product(*map(range, kernel))):
        part = np.swapaxes(weights[..., k], 1, 2) @ columns
        cut = [
            slice(t * d, t * d + (e - 1) * s + 1, s)
            for t, d, e, s in zip(tap, a.dilation, image, a.strides, strict=True)
        ]
        result[(slice(None), slice(None), *cut)] += part.reshape(n, groups * outputs, *image)
    kept = [
        slice(before, extent - after)
        for before, after, extent in zip(a.padding[:rank], a.padding[rank:], whole, strict=True)
    ]
    return to_order(result[(slice(None), slice(None), *kept)], order, a.data_layout)


def max_pool(arrays: Sequence[Any], a: Attrs) -> Array:
    order = channels_first(len(a.strides))
    x = to_order(arrays[0], a.layout, order)
    best: Any = None
    for met in _taps(x, a.pool_size, a, DType(x.dtype).identity_of_max):
        best = met if best is None else np.maximum(best, met)
    return to_order(best, order, a.layout)


def max_pool_indices(arrays: Sequence[Any], a: Attrs) -> Array:
    """Places in the flattened data of the first greatest element of each window."""
    x: Array = arrays[0]
    image = x.shape[2:]
    place = np.arange(math.prod(image)).reshape(image, order="F" if a.storage_order else "C")
    # of equal values the first tap wins in the order of places in memory
    values = np.stack(list(_taps(x, a.pool_size, a, DType(x.dtype).identity_of_max)))
    spread = np.broadcast_to(place, x.shape).astype("int64")
    places = np.stack(list(_taps(spread, a.pool_size, a, place.size)))
    nan = np.isnan(values).any(0) if values.dtype.kind == "f" else False
    met = (values == values.max(0)) & (places < place.size)
    first = np.where(nan, 0, np.where(met, places, place.size).min(0))
    images = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * len(image))
    return np.asarray(images * place.size + first, "int64")


def avg_pool(arrays: Sequence[Any], a: Attrs) -> Array:
    rank = len(a.strides)
    order = channels_first(rank)
    x = to_order(arrays[0], a.layout, order)
    weights = np.ones((1, 1, *x.shape[2:]), x.dtype)
    total = np.asarray(sum(_taps(x, a.pool_size, a, 0)))
    if a.count_include_pad:
        sides = list(zip(a.padding[:rank], a.padding[rank:], strict=True))
        weights = np.pad(weights, [(0, 0), (0, 0), *sides], constant_values=1)
        a = Attrs({**a, "padding": (0,) * 2 * rank})
    count = np.maximum(sum(_taps(weights, a.pool_size, a, 0)), 1)
    windows = [slice(n) for n in total.shape]
    return to_order(np.asarray(total / count[*windows], x.dtype), order, a.layout)


def lp_pool(arrays: Sequence[Any], a: Attrs) -> Array:
    order = channels_first(len(a.strides))
    x = to_order(arrays[0], a.layout, order)
    total = sum(np.abs(met) ** a.p for met in _taps(x, a.pool_size, a, 0))
    return to_order(np.asarray(total ** (1 / a.p), x.dtype), order, a.layout)


def folded(x: Array, axes: int | tuple[int, ...], fold: str) -> Array:
    """The "max" or "mean" over axes, which stay with an extent of 1; that of nothing, too."""
    least = {"initial": DType(x.dtype).identity_of_max} if fold == "max" else {}
    return np.asarray(getattr(np, fold)(x, axis=axes, keepdims=True, **least))


def adaptive_pool(arrays: Sequence[Any], a: Attrs, fold: str) -> Array:
    """Output o of O over an extent I is of [floor(o*I/O), ceil((o+1)*I/O))."""
    order = channels_first(len(a.output_size))
    x = to_order(arrays[0], a.layout, order)
    for axis, size in enumerate(a.output_size, 2):
        extent = x.shape[axis]
        parts = [
            folded(
                np.take(x, range(o * extent // size, -(-(o + 1) * extent // size)), axis),
                axis,
                fold,
            )
            for o in range(size)
        ]
        x = np.concatenate(parts, axis)
    return to_order(x, order, a.layout)
