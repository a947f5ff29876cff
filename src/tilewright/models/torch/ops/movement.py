"""Operators that move elements or change the shape."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph.expr import Constant, Expr
from tilewright.graph.functions import indexing as relay_indexing
from tilewright.graph.functions import nn, tensor
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright.models.torch.node import Converter, Node, as_type, number


def _reshape(n: Node) -> Expr:
    data = n["self"]
    if data.dtype != n.dtype:
        raise n.refuse("it reads memory as another element type", "Convert with .to(dtype).")
    return reshaped(data, n.shape)


def reshaped(data: Expr, shape: tuple[int, ...]) -> Expr:
    """`data` under `shape`, every extent of which is meant."""
    if data.shape == shape:
        return data
    if not shape:
        return tensor.squeeze(data, list(range(len(data.shape))))
    return call("reshape", data, newshape=shape)


def with_axis(data: Expr) -> Expr:
    """`data`, as a vector where it has no axes: PyTorch works along axis 0 of numbers, too."""
    return data if data.shape else tensor.as_shape(data, (1,))


def swapped(data: Expr, a: int, b: int) -> Expr:
    """`data` with two of its axes exchanged."""
    order = list(range(len(data.shape)))
    if order:
        order[a], order[b] = order[b], order[a]
    return tensor.transpose(data, order)


def _transpose(n: Node) -> Expr:
    rank = len(n["self"].shape)
    if not rank:
        return n["self"]
    return swapped(n["self"], n.integer("dim0") % rank, n.integer("dim1") % rank)


def _expand(n: Node) -> Expr:
    data, shape = n["self"], n.shape
    if data.shape == shape:
        return data
    return tensor.broadcast_to(reshaped(data, (1,) * (len(shape) - len(data.shape)) + data.shape),
                               shape)  # fmt: skip


def _concatenate(n: Node) -> Expr:
    given = n.args["tensors"]
    if len(n.shape) > 1:
        given = [t for t in given if t.shape != (0,)]  # an old spelling of nothing
    parts = [as_type(t, n.dtype) for t in given]
    if len(parts) == 1:
        return parts[0]
    return tensor.concatenate(parts, n.axis("dim", len(n.shape), 0))


def _stack(n: Node) -> Expr:
    axis = n.axis("dim", len(n.shape), 0)
    parts = [tensor.expand_dims(as_type(t, n.dtype), axis) for t in n.args["tensors"]]
    return parts[0] if len(parts) == 1 else tensor.concatenate(parts, axis)


def part(data: Expr, axis: int, begin: int, end: int, step: int = 1) -> Expr:
    """Elements `begin` to before `end` of an axis."""
    if (begin, step) == (0, 1) and end >= data.shape[axis]:
        return data
    ranges = [range(extent) for extent in data.shape]
    ranges[axis] = ranges[axis][begin:end:step]
    return relay_indexing.slice_of(data, ranges)


def _bounds(n: Node, axis: int, extent: int) -> tuple[int, int, int]:
    """A slice's (begin, end, step), counted from the front and inside."""
    begin, end, step = n.get("start", 0), n.get("end", extent), n.integer("step", 1)
    n.require(isinstance(begin, int) and isinstance(end, int), "its limits are computed")
    begin, end = (min(max(v + extent if v < 0 else v, 0), extent) for v in (begin, end))
    return begin, max(end, begin), step


def _slice(n: Node) -> Expr:
    data, axis = n["self"], n.axis() if n.args.get("dim") is not None else 0
    return part(data, axis, *_bounds(n, axis, data.shape[axis]))


def _narrow(n: Node) -> Expr:
    data, axis, begin = n["self"], n.axis(), n.integer("start")
    begin += data.shape[axis] if begin < 0 else 0
    return part(data, axis, begin, begin + n.integer("length"))


def _select(n: Node) -> Expr:
    data, axis = n["self"], n.axis()
    at = n.integer("index")
    at += data.shape[axis] if at < 0 else 0
    return reshaped(part(data, axis, at, at + 1), n.shape)


def _slice_scatter(n: Node) -> Expr:
    """`self` with `src` in the place of a slice."""
    data, source = n["self"], as_type(n["src"], n.dtype)
    axis = n.axis("dim", len(data.shape), 0)
    begin, end, step = _bounds(n, axis, data.shape[axis])
    return _with(data, source, axis, range(begin, end, step))


def _with(data: Expr, source: Expr, axis: int, places: range) -> Expr:
    """`data` with `source` at the places of an axis."""
    if source.shape == data.shape or not places:
        return source if places else data
    starts, steps = [0] * len(data.shape), [1] * len(data.shape)
    starts[axis], steps[axis] = places.start, places.step
    return call("strided_set", data, source, begin=tuple(starts), strides=tuple(steps))


def _select_scatter(n: Node) -> Expr:
    data, axis = n["self"], n.axis()
    at = n.integer("index") % data.shape[axis]
    source = tensor.expand_dims(as_type(n["src"], n.dtype), axis)
    return _with(data, source, axis, range(at, at + 1))


def _split(n: Node) -> list[Expr]:
    """Parts whose extents are those of the results."""
    data = n["self"]
    axis = n.axis("dim", len(data.shape), 0)
    found, at = [], 0
    for spec in n.results:
        assert spec is not None
        extent = int(spec.shape[axis])
        found.append(part(data, axis, at, at + extent))
        at += extent
    return found


def _unbind(n: Node) -> list[Expr]:
    data, axis = n["self"], n.axis("dim", len(n["self"].shape), 0)
    return [tensor.squeeze(part(data, axis, k, k + 1), (axis,)) for k in range(data.shape[axis])]


def _unsqueeze(n: Node) -> Expr:
    return reshaped(n["self"], n.shape)


def _sides(data: Expr, pairs: tuple[int, ...]) -> list[tuple[int, int]]:
    """What is added in front of each axis and behind it; `pairs` begin with the last axis."""
    given = list(zip(pairs[::2], pairs[1::2], strict=True))
    return [(0, 0)] * (len(data.shape) - len(given)) + given[::-1]


def _pad_constant(n: Node) -> Expr:
    data = n["self"]
    width = _sides(data, n.ints("pad"))
    for axis, (before, after) in enumerate(width):  # a negative count takes away
        extent = data.shape[axis]
        data = part(data, axis, max(-before, 0), extent - max(-after, 0))
    grown = [(max(a, 0), max(b, 0)) for a, b in width]
    if not any(map(any, grown)):
        return data
    return nn.pad(data, grown, float(n.get("value", 0)))


def _pad_like(mode: str) -> Converter:
    return lambda n: nn.pad(n["self"], _sides(n["self"], n.ints("padding")), 0.0, mode)


def _repeat(n: Node) -> Expr:
    data, times = n["self"], n.ints("repeats")
    data = reshaped(data, (1,) * (len(times) - len(data.shape)) + data.shape)
    return relay_indexing.tile(data, times)


def _repeat_interleave(n: Node) -> Expr:
    data = n["self"]
    flat = n.args.get("dim") is None
    data = reshaped(data, (data.tensor_type.size,)) if flat else data
    axis, count = 0 if flat else n.axis(), n.integer("repeats")
    wide = (*data.shape[: axis + 1], count, *data.shape[axis + 1 :])
    return reshaped(tensor.broadcast_to(tensor.expand_dims(data, axis + 1), wide), n.shape)


def _flip(n: Node) -> Expr:
    data = n["self"]
    for axis in n.ints("dims"):
        data = relay_indexing.reverse(data, axis % len(data.shape))
    return data


def _roll(n: Node) -> Expr:
    data, shifts, axes = n["self"], n.ints("shifts"), n.ints("dims")
    if not axes:
        flat = reshaped(data, (data.tensor_type.size,))
        return reshaped(_rolled(flat, shifts[0], 0), n.shape)
    for shift, axis in zip(shifts, axes, strict=True):
        data = _rolled(data, shift, axis % len(data.shape))
    return data


def _rolled(data: Expr, shift: int, axis: int) -> Expr:
    extent = data.shape[axis]
    at = -shift % extent if extent else 0
    if not at:
        return data
    return tensor.concatenate([part(data, axis, at, extent), part(data, axis, 0, at)], axis)


def _strided(n: Node) -> Expr:
    """A view of dense memory by strides: a reshape and a permutation, where it is one.

    dense: whether the elements of `self` lie in order, as a reader found it
    """
    n.require(n.get("dense", True), "it reads the memory of a view", "Write it with slices.")
    data, shape, strides = n["self"], n.shape, n.ints("stride")
    offset, size = n.integer("storage_offset", 0), data.tensor_type.size
    order = sorted(range(len(shape)), key=lambda k: (-strides[k], shape[k] == 1))
    dense, expected, is_whole = [shape[k] for k in order], 1, not offset
    for k in reversed(order):
        is_whole &= shape[k] == 1 or strides[k] == expected
        expected *= shape[k]
    if is_whole and expected == size:
        back = [order.index(k) for k in range(len(shape))]
        found = reshaped(data, tuple(dense))
        return found if back == list(range(len(back))) else tensor.transpose(found, back)
    n.room(8 * math.prod(shape))
    at = np.full(shape, offset, "int64")
    for k, stride in enumerate(strides):
        at += (stride * np.arange(shape[k])).reshape([-1 if a == k else 1 for a in range(at.ndim)])
    n.require(not at.size or at.max() < size, "it reads behind the elements of its argument",
              "Write it with slices.")  # fmt: skip
    return relay_indexing.take(reshaped(data, (size,)), const(at), 0)


def _copied(n: Node) -> Expr:
    """`src` in the shape and element type of what it overwrites."""
    data = as_type(n["src"], n.dtype)
    return data if data.shape == n.shape else tensor.broadcast_to(data, n.shape)


def _pixel_shuffle(n: Node) -> Expr:
    data, factor = n["self"], n.integer("upscale_factor")
    *lead, channels, height, width = data.shape
    rank, wide = len(lead), (*lead, channels // factor**2, factor, factor, height, width)
    order = [*range(rank + 1), rank + 3, rank + 1, rank + 4, rank + 2]
    return reshaped(tensor.transpose(reshaped(data, wide), order), n.shape)


def _pixel_unshuffle(n: Node) -> Expr:
    data, factor = n["self"], n.integer("downscale_factor")
    *lead, channels, height, width = data.shape
    rank = len(lead)
    wide = (*lead, channels, height // factor, factor, width // factor, factor)
    order = [*range(rank + 1), rank + 2, rank + 4, rank + 1, rank + 3]
    return reshaped(tensor.transpose(reshaped(data, wide), order), n.shape)


def _channel_shuffle(n: Node) -> Expr:
    data, groups = n["self"], n.integer("groups")
    batch, channels, *rest = data.shape
    split = tensor.as_shape(data, (batch, groups, channels // groups, *rest))
    return reshaped(swapped(split, 1, 2), n.shape)


def _matrices(n: Node) -> tuple[Expr, list[int]]:
    """`self` with the axes of its matrices last, and the order of axes that makes it."""
    rank = len(n["self"].shape)
    rows, columns = (n.integer(k, d) % rank for k, d in (("dim1", 0), ("dim2", 1)))
    order = [*(k for k in range(rank) if k not in (rows, columns)), rows, columns]
    return tensor.transpose(n["self"], order), order


def _places_of_diagonal(n: Node, wide: int, count: int) -> range:
    """Where elements (k, k + offset) of a matrix are, row by row."""
    offset, step = n.integer("offset", 0), wide + 1
    first = max(-offset, 0) * wide + max(offset, 0)
    return range(first, first + count * step, step)


def _diagonal(n: Node) -> Expr:
    """A diagonal of each matrix, which becomes the last axis."""
    *lead, high, wide = (matrices := _matrices(n)[0]).shape
    places = _places_of_diagonal(n, wide, n.shape[-1])
    flat = reshaped(matrices, (*lead, high * wide))
    return part(flat, len(lead), places.start, places.stop, places.step)


def _diagonal_scatter(n: Node) -> Expr:
    """`self` with `src` as a diagonal of each matrix."""
    source, (matrices, order) = as_type(n["src"], n.dtype), _matrices(n)
    *lead, high, wide = matrices.shape
    places = _places_of_diagonal(n, wide, source.shape[-1])
    flat = reshaped(matrices, (*lead, high * wide))
    made = reshaped(_with(flat, source, len(lead), places), matrices.shape)
    return tensor.transpose(made, [order.index(k) for k in range(len(order))])


def _triangle(upper: bool) -> Converter:
    def convert(n: Node) -> Expr:
        data = n["self"]
        mask = _band(data.shape[-2:], n.integer("diagonal", 0), upper)
        return tensor.where(mask, data, number(0, n.dtype))

    return convert


def _band(shape: tuple[int, ...], diagonal: int, upper: bool) -> Expr:
    """Which elements lie on and below a diagonal, or on and above it."""
    rows, columns = shape
    lower = np.tri(rows, columns, k=diagonal - (1 if upper else 0), dtype=bool)
    return Constant(~lower if upper else lower)


def _twins(names: str, converter: Converter) -> dict[str, Converter]:
    """Operators and their copying forms, which mean the same where nothing is written in place."""
    both = [f"{name}{kind}.default" for name in names.split() for kind in ("", "_copy")]
    return dict.fromkeys(both, converter)


CONVERTERS: dict[str, Converter] = {
    **_twins("view reshape _unsafe_view", _reshape),
    "view.dtype": _reshape,
    "flatten.using_ints": _reshape,
    "unflatten.int": _reshape,
    **_twins("permute", lambda n: tensor.transpose(n["self"], n.ints("dims"))),
    **_twins("t", lambda n: tensor.transpose(n["self"])),
    "transpose.int": _transpose,
    "transpose_copy.int": _transpose,
    **_twins("expand", _expand),
    "cat.default": _concatenate,
    "stack.default": _stack,
    "slice.Tensor": _slice,
    "slice_copy.Tensor": _slice,
    "select.int": _select,
    "select_copy.int": _select,
    "slice_scatter.default": _slice_scatter,
    "select_scatter.default": _select_scatter,
    **dict.fromkeys(("split_with_sizes.default", "split.Tensor", "split.sizes", "chunk.default",
                     "split_with_sizes_copy.default", "split_copy.Tensor"), _split),
    "unbind.int": _unbind,
    "unbind_copy.int": _unbind,
    **_twins("unsqueeze squeeze", _unsqueeze),
    **dict.fromkeys(("squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims"),
                    _unsqueeze),
    "constant_pad_nd.default": _pad_constant,
    **{f"reflection_pad{k}d.default": _pad_like("reflect") for k in (1, 2, 3)},
    **{f"replication_pad{k}d.default": _pad_like("edge") for k in (1, 2, 3)},
    "repeat.default": _repeat,
    "repeat_interleave.self_int": _repeat_interleave,
    "flip.default": _flip,
    "roll.default": _roll,
    "as_strided.default": _strided,
    "as_strided_copy.default": _strided,
    "copy.default": _copied,
    "pixel_shuffle.default": _pixel_shuffle,
    "pixel_unshuffle.default": _pixel_unshuffle,
    "channel_shuffle.default": _channel_shuffle,
    "native_channel_shuffle.default": _channel_shuffle,
    **_twins("diagonal", _diagonal),
    "diagonal_scatter.default": _diagonal_scatter,
    "narrow_copy.default": _narrow,
    "tril.default": _triangle(upper=False),
    "triu.default": _triangle(upper=True),
}  # fmt: skip
