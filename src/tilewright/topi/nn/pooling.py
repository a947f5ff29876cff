"""Pooling over height and width in any layout that keeps them whole.

In: data and a window, or an output size.  Out: `pool_max`; `pool_sum` and `pool_avg`;
`adaptive_pool_max`; `adaptive_pool_sum` and `adaptive_pool_avg`.  Sums of float16 and bfloat16 are
float32.  Read next: `window.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr, cast
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import Window, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    pair,
    require,
    require_float,
    stage,
    wide,
    workload,
)

POOL_TYPES = ("max", "avg")


def pool2d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> Tensor:
    """Maximum ("max") or mean ("avg") of each window.

    ceil_mode: a last, partly covered window counts too, if it starts inside the input or its
    leading padding.  count_include_pad: the mean divides by the taps inside the padded input,
    otherwise by those inside the input.
    """
    place = call_text(
        "pool2d", data=data, kernel=kernel, stride=stride, padding=padding, pool_type=pool_type
    )
    h_axis, w_axis = _image_axes(data, layout, pool_type, place)
    window = Window.of(kernel, stride, padding, dilation, place)
    top, left, bottom, right = window.padding
    require(
        max(top, bottom) < window.reach[0] and max(left, right) < window.reach[1], place,
        f"with padding {window.padding} a window of {window.reach} can lie wholly outside",
        "Pad by less than the window.",
    )  # fmt: skip
    sizes = (data.shape[h_axis], data.shape[w_axis])
    out_size = window.output_size(*sizes, place)
    if ceil_mode:
        out_size = _ceil_size(window, sizes)
    covered = _covering(window, sizes, out_size)
    pads = covered.pads(h_axis, w_axis, data.ndim)
    taps = [te.reduce_axis((0, k), f"rv{n}") for n, k in enumerate(window.kernel)]
    shape = list(data.shape)
    shape[h_axis], shape[w_axis] = out_size

    def source(i: Indices) -> Indices:
        at = list(i)
        at[h_axis], at[w_axis] = window.taps(i[h_axis], i[w_axis], *taps)
        return tuple(at)

    args = (
        data, window.kernel, window.stride, window.dilation, window.padding, pool_type,
        bool(ceil_mode), layout, bool(count_include_pad),
    )  # fmt: skip
    key = workload("pool2d", *args)
    value = data.dtype.identity_of_max if pool_type == "max" else 0.0
    padded = pad(data, *pads, value, name="pad_temp") if any(covered.padding) else data
    if pool_type == "max":
        body = _over(te.max, padded, source, taps)
        return stage(shape, body, "pool_max", "pool_max", workload=key)
    body = _over(te.sum, padded, source, taps, value=wide)
    total = stage(shape, body, "pool_sum", "pool_sum", workload=key)

    def mean(i: Indices) -> Expr:
        # taps within [first, end) of the padded coordinates count
        count: Any = 1
        for n, (axis, begin, size, behind) in enumerate(
            ((h_axis, top, sizes[0], bottom), (w_axis, left, sizes[1], right))
        ):
            first = 0 if count_include_pad else begin
            end = begin + size + (behind if count_include_pad else 0)
            count = count * _taps_inside(i[axis], shape[axis], window, n, first, end)
        return (total[i] / _as_float(count, total.dtype)).astype(data.dtype)

    return stage(shape, mean, "pool_avg", "elemwise")


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Maximum or mean over the whole image; height and width become 1."""
    return adaptive_pool(data, (1, 1), pool_type, layout)


def adaptive_pool(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Pooling to an image of `output_size`.

    Output o of O over an extent I covers [floor(o*I/O), ceil((o+1)*I/O)); windows may overlap.
    """
    place = call_text("adaptive_pool", data=data, output_size=output_size, pool_type=pool_type)
    axes = _image_axes(data, layout, pool_type, place)
    wanted = pair(output_size, "output_size", place)
    shape = list(data.shape)
    for axis, size in zip(axes, wanted, strict=True):
        shape[axis] = size
    longest = [_longest(size, data.shape[axis]) for axis, size in zip(axes, wanted, strict=True)]
    taps = [te.reduce_axis((0, n), f"rv{k}") for k, n in enumerate(longest)]
    key = workload("adaptive_pool", data, wanted, pool_type, layout)

    def source(i: Indices) -> Indices:
        at = list(i)
        for axis, size, rv in zip(axes, wanted, taps, strict=True):
            at[axis] = _start(i[axis], size, data.shape[axis]) + rv
        return tuple(at)

    def inside(i: Indices) -> Expr | None:
        """The guard for windows shorter than the longest."""
        tests = [
            rv < _length(i[axis], size, data.shape[axis])
            for axis, size, rv in zip(axes, wanted, taps, strict=True)
            if not _uniform(size, data.shape[axis])
        ]
        return te.all(*tests) if tests else None

    if pool_type == "max":
        body = _over(te.max, data, source, taps, inside)
        return stage(shape, body, "adaptive_pool_max", "adaptive_pool_max", workload=key)
    body = _over(te.sum, data, source, taps, inside, wide)
    total = stage(shape, body, "adaptive_pool_sum", "adaptive_pool_sum", workload=key)

    def mean(i: Indices) -> Expr:
        count: Any = 1
        for axis, size, n in zip(axes, wanted, longest, strict=True):
            extent = data.shape[axis]
            count = count * (n if _uniform(size, extent) else _length(i[axis], size, extent))
        return (total[i] / _as_float(count, total.dtype)).astype(data.dtype)

    return stage(shape, mean, "adaptive_pool_avg", "elemwise")


def _image_axes(data: Tensor, layout: str, pool_type: str, place: str) -> tuple[int, int]:
    check_tensors(place, data=data)
    known = pool_type in POOL_TYPES
    require(known, place, f"pool type {pool_type!r} is unknown", 'Use "max" or "avg".')
    axes = [a for a in layout if a.isalpha()]
    whole = len(set(axes)) == len(axes) and {"H", "W"} <= set(axes) and not {"h", "w"} & set(axes)
    require(
        whole, place, f"layout {layout!r} does not keep H and W whole", "Use NCHW, NHWC or NCHW8c."
    )
    require(
        data.ndim == len(axes), place,
        f"data has {data.ndim} dimensions, layout {layout} {len(axes)}",
        "Name one axis per dimension.",
    )  # fmt: skip
    if pool_type == "avg":
        require_float(data, "the mean", place)
    return axes.index("H"), axes.index("W")


def _over(
    reducer: Callable[..., Expr],
    data: Tensor,
    source: Callable[[Indices], Indices],
    taps: list[Any],
    inside: Callable[[Indices], Expr | None] = lambda i: None,
    value: Callable[[Expr], Expr] = lambda v: v,
) -> Callable[[Indices], Expr]:
    return lambda i: reducer(value(data[source(i)]), axis=taps, where=inside(i))


def _ceil_size(window: Window, sizes: tuple[int, int]) -> tuple[int, int]:
    """Positions that include a last, partly covered one, unless it starts behind the input."""
    top, left, bottom, right = window.padding
    counts = []
    for n, (size, before, after) in enumerate(
        zip(sizes, (top, left), (bottom, right), strict=True)
    ):
        stride = window.stride[n]
        count = -(-(size + before + after - window.reach[n]) // stride) + 1
        counts.append(count - int((count - 1) * stride >= size + before))
    return counts[0], counts[1]


def _covering(window: Window, sizes: tuple[int, int], out_size: tuple[int, int]) -> Window:
    """`window` with the padding behind that its last positions reach."""
    top, left, bottom, right = window.padding
    high, wide = (
        max(after, (out_size[n] - 1) * window.stride[n] + window.reach[n] - sizes[n] - before)
        for n, (before, after) in enumerate(((top, bottom), (left, right)))
    )
    return replace(window, padding=(top, left, high, wide))


def _taps_inside(index: Expr, count: int, window: Window, n: int, first: int, end: int) -> Any:
    """How many taps of the window at `index` lie in [first, end); an int where all agree."""
    kernel, stride, dilation = window.kernel[n], window.stride[n], window.dilation[n]
    numbers = {
        sum(first <= o * stride + t * dilation < end for t in range(kernel)) for o in range(count)
    }
    if len(numbers) == 1:
        return max(numbers.pop(), 1)
    origin = index * stride
    inside: Any = kernel
    if (count - 1) * stride + window.reach[n] > end:
        inside = te.minimum((end - origin + (dilation - 1)) // dilation, kernel)
    if first > 0:
        inside = inside - te.maximum((first - origin + (dilation - 1)) // dilation, 0)
    return te.maximum(inside, 1) if 0 in numbers else inside


def _as_float(count: Any, dtype: str) -> Expr:
    return cast(dtype, count) if isinstance(count, Expr) else te.const(count, dtype)


def _start(o: Any, size: int, extent: int) -> Any:
    return o * (extent // size) if extent % size == 0 else o * extent // size


def _end(o: Any, size: int, extent: int) -> Any:
    return ((o + 1) * extent + (size - 1)) // size


def _length(o: Any, size: int, extent: int) -> Any:
    return _end(o, size, extent) - _start(o, size, extent)


def _longest(size: int, extent: int) -> int:
    """The greatest length: of a window that begins just before an element, where one does."""
    common = math.gcd(extent, size)
    elements, windows = extent // common, size // common
    return elements if windows == 1 else -(-(elements - 1) // windows) + 1


def _uniform(size: int, extent: int) -> bool:
    """Whether all windows have one length: the first has the least."""
    return bool(_longest(size, extent) == _length(0, size, extent))
