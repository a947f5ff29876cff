"""Pooling over the image axes (W, HW or DHW) of any layout that keeps them whole.

In: data and a window, or an output size.  Out: `pool_max`; `pool_sum` and `pool_avg` or
`pool_root`; `pool_indices`; `adaptive_pool_max`; `adaptive_pool_sum` and `adaptive_pool_avg`.  Sums
of float16 and bfloat16 are float32.  Read next: `window.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr, cast
from tilewright.te.tensor import Tensor
from tilewright.topi.layout import letters_of
from tilewright.topi.nn.window import IMAGE, Window, image_letters, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    per_axis,
    require,
    require_float,
    stage,
    wide,
    workload,
)

POOL_TYPES = ("max", "avg")
EXAMPLES = {1: "NCW or NWC", 2: "NCHW, NHWC or NCHW8c", 3: "NCDHW or NDHWC"}


def pool1d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCW",
    count_include_pad: bool = True,
    *,
    beyond: bool = True,
) -> Tensor:
    """`pool2d` over the one axis W."""
    return _pool(
        1, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
        count_include_pad, beyond,
    )  # fmt: skip


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
    *,
    beyond: bool = True,
) -> Tensor:
    """Maximum ("max") or mean ("avg") of each window.  Of a window that lies wholly in the padding
    the maximum is the type's least value, and the mean 0.

    ceil_mode: a last, partly covered window counts too.  beyond: also where it starts behind the
    input, in the padding, as TVM has it; False leaves that one out, as ONNX and PyTorch do.
    count_include_pad: the mean divides by the taps inside the padded input, otherwise by those
    inside the input.
    """
    return _pool(
        2, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
        count_include_pad, beyond,
    )  # fmt: skip


def pool3d(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCDHW",
    count_include_pad: bool = True,
    *,
    beyond: bool = True,
) -> Tensor:
    """`pool2d` over the three axes D, H, W."""
    return _pool(
        3, data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout,
        count_include_pad, beyond,
    )  # fmt: skip


def _pool(
    rank: int,
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool,
    layout: str,
    count_include_pad: bool,
    beyond: bool,
) -> Tensor:
    name = f"pool{rank}d"
    place = call_text(
        name, data=data, kernel=kernel, stride=stride, padding=padding, pool_type=pool_type
    )
    _check_type(data, pool_type, place)
    axes = _image_axes(data, layout, place, rank)
    window = Window.of(kernel, stride, padding, dilation, place, rank)
    pooled = _pooled(data, axes, window, ceil_mode, place, beyond)
    args = (
        data, window.kernel, window.stride, window.dilation, window.padding, pool_type,
        _rounding(pooled, ceil_mode), layout, bool(count_include_pad),
    )  # fmt: skip
    key, shape, taps = workload(name, *args), pooled.shape, pooled.taps("rv")
    if pool_type == "max":
        body = _over(te.max, pooled.covered(data.dtype.identity_of_max), pooled.source(taps), taps)
        return stage(shape, body, "pool_max", "pool_max", workload=key)
    body = _over(te.sum, pooled.covered(0.0), pooled.source(taps), taps, value=wide)
    total = stage(shape, body, "pool_sum", "pool_sum", workload=key)
    count = _counts(pooled, count_include_pad, total.dtype)
    return stage(shape, lambda i: (total[i] / count(i)).astype(data.dtype), "pool_avg", "elemwise")


def _rounding(pooled: Pooled, ceil_mode: bool) -> bool | str:
    """What a workload says of `ceil_mode`: windows in the padding alone are further ones."""
    if not ceil_mode:
        return False
    inside = _ceil_size(pooled.window, [pooled.data.shape[axis] for axis in pooled.axes], False)
    return True if tuple(pooled.out_size) == inside else "beyond"


def _counts(pooled: Pooled, count_include_pad: bool, dtype: Any) -> Callable[[Indices], Expr]:
    """By how many taps the mean of a window divides."""
    window, shape = pooled.window, pooled.shape

    def count(i: Indices) -> Expr:
        # taps within [first, end) of the padded coordinates count
        found: Any = 1
        for n, axis in enumerate(pooled.axes):
            begin, behind = window.before[n], window.after[n]
            first = 0 if count_include_pad else begin
            end = begin + pooled.data.shape[axis] + (behind if count_include_pad else 0)
            found = found * _taps_inside(i[axis], shape[axis], window, n, first, end)
        return _as_float(found, dtype)

    return count


def window_counts(
    data: Tensor, window: Window, ceil_mode: bool, count_include_pad: bool, place: str, beyond: bool
) -> tuple[list[int], Callable[[Indices], Expr]]:
    """The shape of the pooled data [N, C, image..], and by how many taps each mean divides."""
    pooled = _pooled(data, range(2, data.ndim), window, ceil_mode, place, beyond)
    return pooled.shape, _counts(pooled, count_include_pad, data.dtype.compute)


def lp_pool(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    p: float = 2.0,
    ceil_mode: bool = False,
    layout: str = "NCHW",
) -> Tensor:
    """The p-norm of each window, of any rank: (sum of |x|^p)^(1/p)."""
    place = call_text("lp_pool", data=data, kernel=kernel, stride=stride, padding=padding, p=p)
    axes = _image_axes(data, layout, place)
    require_float(data, "the norm", place)
    require(p > 0, place, f"p={p!r} is not positive", "Use p=2.")
    window = Window.of(kernel, stride, padding, dilation, place, len(axes))
    pooled = _pooled(data, axes, window, ceil_mode, place)
    taps = pooled.taps("rv")

    def power(v: Expr) -> Expr:
        v = wide(v)
        return v * v if p == 2 else te.abs(v) if p == 1 else te.power(te.abs(v), p)

    def root(v: Expr) -> Expr:
        return te.sqrt(v) if p == 2 else v if p == 1 else te.power(v, 1 / p)

    args = (window.kernel, window.stride, window.dilation, window.padding, p, layout)
    total = stage(
        pooled.shape, _over(te.sum, pooled.covered(0.0), pooled.source(taps), taps, value=power),
        "pool_sum", "pool_sum", workload=workload("lp_pool", data, *args),
    )  # fmt: skip
    return stage(pooled.shape, lambda i: root(total[i]).astype(data.dtype), "pool_root", "elemwise")


def max_pool_indices(
    data: Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    ceil_mode: bool = False,
    column_major: bool = False,
    *,
    beyond: bool = False,
) -> Tensor:
    """Find where in the flattened `data` [N, C, ...] the first greatest of each window lies.

    column_major: the first axis of the image is counted fastest, as ONNX's storage_order=1 asks.
    ceil_mode, beyond: as for `pool2d`; of a window in the padding alone the first element.
    Result int64; the first element of the image where a NaN is in a window.
    """
    place = call_text("max_pool_indices", data=data, kernel=kernel, stride=stride, padding=padding)
    check_tensors(place, data=data)
    rank = data.ndim - 2
    require(rank >= 1, place, f"data of shape {list(data.shape)} has no image", "Use [N, C, ...].")
    window = Window.of(kernel, stride, padding, dilation, place, rank)
    pooled = _pooled(data, range(2, data.ndim), window, ceil_mode, place, beyond)
    padded, shape = pooled.covered(data.dtype.identity_of_max), pooled.shape
    every, taps = pooled.taps("rv"), pooled.taps("ri")
    top = stage(shape, _over(te.max, padded, pooled.source(every), every), "pool_max", "pool_max")
    sizes = data.shape[2:]
    elements = math.prod(sizes)
    steps = _steps(sizes, column_major)

    def first(i: Indices) -> Expr:
        at = pooled.source(taps)(i)
        inside = [x - before for x, before in zip(at[2:], window.before, strict=True)]
        position: Any = 0
        for x, step in zip(inside, steps, strict=True):
            position = position + x * step
        tests = [padded[at].equal(top[i])]
        for n, x in enumerate(inside):
            tests += [x >= 0, x < sizes[n]] if padded is not data else []
        return te.min(te.if_then_else(te.all(*tests), position, elements), axis=taps)

    least = stage(shape, first, "pool_first", "pool_first")

    def flat(i: Indices) -> Expr:
        image = i[0] * data.shape[1] + i[1]
        own = te.if_then_else(least[i] < elements, least[i], 0)
        return image.astype("int64") * elements + own.astype("int64")

    return stage(shape, flat, "pool_indices", "elemwise")


def _steps(sizes: Sequence[int], column_major: bool) -> list[int]:
    """How far neighbours along each axis of an image are apart."""
    if column_major:
        return [math.prod(sizes[:k]) for k in range(len(sizes))]
    return [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]


@dataclass(frozen=True)
class Pooled:
    """Windows over the `axes` of `data`; out_size: how many along each."""

    data: Tensor
    axes: Sequence[int]
    window: Window
    out_size: Sequence[int]

    @property
    def shape(self) -> list[int]:
        return _with_extents(self.data, self.axes, self.out_size)

    def taps(self, name: str) -> list[Any]:
        return [te.reduce_axis((0, k), f"{name}{n}") for n, k in enumerate(self.window.kernel)]

    def source(self, taps: Sequence[Any]) -> Callable[[Indices], Indices]:
        """Return where in the padded data a tap of the window at an index reads."""
        return lambda i: _moved(
            i, self.axes, self.window.taps([i[axis] for axis in self.axes], taps)
        )

    def covered(self, value: Any) -> Tensor:
        """The data with `value` wherever a window reads around it."""
        sizes = [self.data.shape[axis] for axis in self.axes]
        reached = _covering(self.window, sizes, self.out_size)
        if not any(reached.padding):
            return self.data
        return pad(self.data, *reached.pads(self.axes, self.data.ndim), value, name="pad_temp")


def _pooled(
    data: Tensor, axes: Sequence[int], window: Window, ceil_mode: bool, place: str,
    beyond: bool = False,
) -> Pooled:  # fmt: skip
    sizes = [data.shape[axis] for axis in axes]
    out_size = window.output_size(sizes, place)
    return Pooled(data, axes, window, _ceil_size(window, sizes, beyond) if ceil_mode else out_size)


def _with_extents(data: Tensor, axes: Sequence[int], extents: Sequence[int]) -> list[int]:
    shape = list(data.shape)
    for axis, extent in zip(axes, extents, strict=True):
        shape[axis] = extent
    return shape


def _moved(i: Indices, axes: Sequence[int], where: Sequence[Any]) -> Indices:
    at = list(i)
    for axis, index in zip(axes, where, strict=True):
        at[axis] = index
    return tuple(at)


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Maximum or mean over the whole image; its extents become 1."""
    return adaptive_pool(data, 1, pool_type, layout)


def adaptive_pool1d(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCW") -> Tensor:
    """`adaptive_pool` of the one axis W."""
    return adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool3d(
    data: Tensor, output_size: Any, pool_type: str, layout: str = "NCDHW"
) -> Tensor:
    """`adaptive_pool` of the axes D, H and W."""
    return adaptive_pool(data, output_size, pool_type, layout)


def adaptive_pool(data: Tensor, output_size: Any, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Pooling to an image of `output_size`.

    Output o of O over an extent I covers [floor(o*I/O), ceil((o+1)*I/O)); windows may overlap.
    """
    place = call_text("adaptive_pool", data=data, output_size=output_size, pool_type=pool_type)
    _check_type(data, pool_type, place)
    axes = _image_axes(data, layout, place)
    wanted = per_axis(output_size, len(axes), "output_size", place)
    shape = _with_extents(data, axes, wanted)
    longest = [_longest(size, data.shape[axis]) for axis, size in zip(axes, wanted, strict=True)]
    taps = [te.reduce_axis((0, n), f"rv{k}") for k, n in enumerate(longest)]
    key = workload("adaptive_pool", data, wanted, pool_type, layout)

    def source(i: Indices) -> Indices:
        first = [
            _start(i[axis], size, data.shape[axis]) for axis, size in zip(axes, wanted, strict=True)
        ]
        return _moved(i, axes, [x + rv for x, rv in zip(first, taps, strict=True)])

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


def _check_type(data: Tensor, pool_type: str, place: str) -> None:
    check_tensors(place, data=data)
    known = pool_type in POOL_TYPES
    require(known, place, f"pool type {pool_type!r} is unknown", 'Use "max" or "avg".')
    if pool_type == "avg":
        require_float(data, "the mean", place)


def _image_axes(data: Tensor, layout: str, place: str, rank: int | None = None) -> list[int]:
    """Where the axes D, H, W lie, as many as `rank` or as the layout has."""
    check_tensors(place, data=data)
    axes = letters_of(layout)
    image = [a for a in IMAGE if a in axes] if rank is None else list(image_letters(rank))
    named = ", ".join(image[:-1]) + " and W" if len(image) > 1 else "W"
    whole = (
        len(set(axes)) == len(axes)
        and {"W", *image} <= set(axes)
        and not {a.lower() for a in image} & set(axes)
        and (rank is None or not (set(IMAGE) - set(image)) & set(axes))
    )
    example = EXAMPLES[len(image)] if image else EXAMPLES[2]
    require(whole, place, f"layout {layout!r} does not keep {named} whole", f"Use {example}.")
    require(
        data.ndim == len(axes), place,
        f"data has {data.ndim} dimensions, layout {layout} {len(axes)}",
        "Name one axis per dimension.",
    )  # fmt: skip
    return [axes.index(a) for a in image]


def _over(
    reducer: Callable[..., Expr],
    data: Tensor,
    source: Callable[[Indices], Indices],
    taps: list[Any],
    inside: Callable[[Indices], Expr | None] = lambda i: None,
    value: Callable[[Expr], Expr] = lambda v: v,
) -> Callable[[Indices], Expr]:
    return lambda i: reducer(value(data[source(i)]), axis=taps, where=inside(i))


def _ceil_size(window: Window, sizes: Sequence[int], beyond: bool) -> tuple[int, ...]:
    """Positions that include a last, partly covered one; beyond: also if behind the input."""
    counts = []
    for n, size in enumerate(sizes):
        before, stride = window.before[n], window.stride[n]
        count = -(-(size + before + window.after[n] - window.reach[n]) // stride) + 1
        counts.append(count - int(not beyond and (count - 1) * stride >= size + before))
    return tuple(counts)


def _covering(window: Window, sizes: Sequence[int], out_size: Sequence[int]) -> Window:
    """`window` with the padding behind that its last positions reach."""
    behind = [
        max(
            window.after[n],
            (out_size[n] - 1) * window.stride[n] + window.reach[n] - size - window.before[n],
        )
        for n, size in enumerate(sizes)
    ]
    return replace(window, padding=(*window.before, *behind))


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
