"""What users call: operators that move, choose and order elements, `relay.take`, `relay.split`, ...

In: graph values, axes and extents as TVM spells them.  Out: calls, or tuples of them.  Several are
spelled with others: a split is slices, a tile a broadcast between two reshapes.
Read next: `tensor.py`, `op/indexing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Constant, Expr, Tuple, check_dtype, oversize
from tilewright.graph.functions.sizes import per_axis
from tilewright.graph.functions.tensor import (
    Axes,
    as_shape,
    broadcast_to,
    cast,
    concatenate,
    expand_dims,
    filled,
    full,
    transpose,
    where,
)
from tilewright.graph.leaves import const
from tilewright.graph.op import call


def axis_of(axis: int, rank: int, place: str) -> int:
    if not -rank <= axis < rank:
        raise ModelError(place, f"axis {axis} is out of range", f"Use {-rank} to {rank - 1}.")
    return axis % rank


# -- indices that are data -------------------------------------------------------------------------


def take(
    data: Expr, indices: Expr, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> Call:
    """The slices of `data` at `indices` along `axis`, which becomes the axes of `indices`.

    axis: None takes from `data` as a vector; batch_dims: so many first axes are common to both
    mode: "clip" (TVM's "fast" too) stops at the ends, "wrap" counts on round about: -1 is the last
    """
    if axis is None:
        data, axis = as_shape(data, (-1,)), 0
    batch = batch_dims + (len(indices.shape) if batch_dims < 0 else 0)
    return call(
        "take", data, indices, axis=int(axis), batch_dims=batch,
        mode="clip" if mode == "fast" else mode,
    )  # fmt: skip


def gather(data: Expr, axis: int, indices: Expr) -> Call:
    """out[.., i, ..] = data[.., indices[.., i, ..], ..] along `axis`; -1 is the last element."""
    return call("gather", data, indices, axis=int(axis))


def gather_nd(
    data: Expr, indices: Expr, batch_dims: int = 0, index_rank: int | None = None
) -> Call:
    """out[y.., x..] = data[indices[0, y..], indices[1, y..], .., x..]; -1 is the last element.

    batch_dims: so many first axes are common; index_rank: TVM's for symbolic shapes, not read
    """
    return call("gather_nd", data, indices, batch_dims=int(batch_dims))


def scatter_elements(
    data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update"
) -> Call:
    """`data` with updates[.., u, ..] at indices[.., u, ..] along `axis`.

    reduction: "update" (the last one wins), "add", "mul", "min", "max" with what is there.  -1 is
    the last place; what goes to a place that is not there is dropped.
    It costs the elements of `data` times the extent of `indices` along `axis`.
    """
    return call("scatter_elements", data, indices, updates, axis=int(axis), reduction=reduction)


def scatter(data: Expr, indices: Expr, updates: Expr, axis: int) -> Call:
    """`scatter_elements` that replaces."""
    return scatter_elements(data, indices, updates, axis)


def scatter_nd(data: Expr, indices: Expr, updates: Expr, mode: str = "update") -> Call:
    """`data` with updates[y.., x..] at data[indices[0, y..], indices[1, y..], .., x..].

    mode: as `reduction` of scatter_elements.  It costs the elements of `data` times the points Y...
    """
    return call("scatter_nd", data, indices, updates, reduction=mode)


def one_hot(
    indices: Expr, on_value: Any, off_value: Any, depth: int, axis: int = -1,
    dtype: str = "float32",
) -> Call:  # fmt: skip
    """`on_value` where the position along the new `axis` of extent `depth` is the index there.

    An index outside [0, depth) gives `off_value` everywhere.
    """
    kind = check_dtype(dtype, "relay.one_hot")
    rank = len(indices.shape) + 1
    at = axis_of(axis, rank, f"one_hot(indices={indices.shape}, axis={axis})")
    shape = [depth if k == at else 1 for k in range(rank)]
    places = const(arange_array(0, depth, 1, indices.dtype).reshape(shape))
    values = (v if isinstance(v, Expr) else const(v, kind) for v in (on_value, off_value))
    return where(call("equal", expand_dims(indices, at), places), *values)


def reverse_sequence(data: Expr, seq_lengths: Expr, seq_axis: int = 1, batch_axis: int = 0) -> Call:
    """`data` with the first seq_lengths[b] elements along `seq_axis` in reverse order; a length
    beyond the axis means all of it."""
    rank = len(data.shape)
    place = f"reverse_sequence(data={data.shape}, seq_lengths={seq_lengths.shape})"
    s, b = axis_of(seq_axis, rank, place), axis_of(batch_axis, rank, place)
    if s == b or seq_lengths.shape != (data.shape[b],):
        raise ModelError(
            place, "there is not one length for each element of the batch",
            "Give a vector of lengths, and different axes.",
        )  # fmt: skip
    shape = [n if k in (s, b) else 1 for k, n in enumerate(data.shape)]
    count = arange_array(0, data.shape[s], 1, seq_lengths.dtype)
    at = const(count.reshape([-1 if k == s else 1 for k in range(rank)]))
    longest = const(np.minimum(data.shape[s], seq_lengths.dtype.greatest), seq_lengths.dtype)
    lengths = call("minimum", seq_lengths, longest)
    length = as_shape(lengths, [-1 if k == b else 1 for k in range(rank)])
    turned = call("subtract", length, call("add", at, const(1, seq_lengths.dtype)))
    chosen = where(call("less", at, length), turned, at)
    return gather(data, s, broadcast_to(as_shape(chosen, shape), data.shape))


# -- order -----------------------------------------------------------------------------------------


def _arg(name: str, data: Expr, axis: Axes, keepdims: bool, exclude: bool, last: bool) -> Expr:
    rank = len(data.shape)
    place = f"{name}(data={data.shape}, axis={axis})"
    named = range(rank) if axis is None else ((axis,) if isinstance(axis, int) else axis)
    axes = sorted({axis_of(a, rank, place) for a in named})
    if exclude and axis is not None:
        axes = [k for k in range(rank) if k not in axes]
    if not axes:
        raise ModelError(place, "no axis is left to look along", "Name at least one axis.")
    kept = [k for k in range(rank) if k not in axes]
    if len(axes) > 1:  # positions count over all of them, as in a vector
        data = as_shape(transpose(data, (*kept, *axes)), [*(data.shape[k] for k in kept), -1])
        found: Expr = call(name, data, axis=-1, select_last_index=last)
        shape = _spread(data.shape, kept, rank)
        return as_shape(found, shape) if keepdims else found
    return call(name, data, axis=axes[0], keepdims=keepdims, select_last_index=last)


def _spread(extents: Sequence[int], kept: Sequence[int], rank: int) -> list[int]:
    """The extents of the kept axes at their places among `rank`."""
    held = dict(zip(kept, extents, strict=False))
    return [held.get(k, 1) for k in range(rank)]


def argmax(
    data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False,
    select_last_index: bool = False,
) -> Expr:  # fmt: skip
    """Where the greatest element along `axis` is, int32; of several axes (None: all), as a vector.

    Of equal elements the first, or with select_last_index the last; exclude: `axis` names those
    that stay.
    """
    return _arg("argmax", data, axis, keepdims, exclude, select_last_index)


def argmin(
    data: Expr, axis: Axes = None, keepdims: bool = False, exclude: bool = False,
    select_last_index: bool = False,
) -> Expr:  # fmt: skip
    """Where the smallest element along `axis` is; otherwise as `argmax`."""
    return _arg("argmin", data, axis, keepdims, exclude, select_last_index)


def topk(
    data: Expr, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False,
    dtype: str = "int32",
) -> Expr:  # fmt: skip
    """The `k` greatest (is_ascend: smallest) elements along `axis`, in their order.

    ret_type: "both" (a tuple of values and indices), "values" or "indices"; dtype: of the indices;
    k: less than 1 means all.  Of equal elements the first comes first.
    n elements cost about n * max(256, 2 k) comparisons, a whole sort n * n.
    """
    place = f"topk(data={data.shape}, k={k}, axis={axis}, ret_type={ret_type!r})"
    if ret_type not in ("both", "values", "indices"):
        raise ModelError(place, "no such ret_type", 'Use "both", "values" or "indices".')
    at = axis_of(axis, len(data.shape), place)
    asked = check_dtype(dtype, place)
    kind = "int32" if asked.is_float else str(asked)  # a float is counted, and converted then
    values, found = first_in_order(data, k if k >= 1 else data.shape[at], at, is_ascend, kind)
    indices = cast(found, str(asked)) if asked.is_float else found
    if ret_type == "indices":
        return indices
    return values if ret_type == "values" else Tuple([values, indices])


def first_in_order(
    data: Expr, count: int, axis: int, is_ascend: bool, dtype: str
) -> tuple[Expr, Expr]:
    """The greatest (is_ascend: smallest) `count` elements along `axis`, which may be none of them,
    and their places."""
    found = call("topk", data, k=count, axis=axis, is_ascend=bool(is_ascend), dtype=dtype)
    return gather(data, axis, found), found


def argsort(data: Expr, axis: int = -1, is_ascend: int = 1, dtype: str = "int32") -> Expr:
    """Where the elements along `axis` are, in their order; it costs n * n comparisons."""
    return topk(data, 0, axis, "indices", bool(is_ascend), dtype)


def sort(data: Expr, axis: int = -1, is_ascend: int = 1) -> Expr:
    """The elements in order along `axis`; it costs n * n comparisons."""
    return topk(data, 0, axis, "values", bool(is_ascend))


def _scan(
    name: str, data: Expr, axis: int | None, dtype: str | None, exclusive: bool | None,
    reverse: bool,
) -> Call:  # fmt: skip
    if axis is None:
        data, axis = as_shape(data, (-1,)), 0
    data = data if dtype is None else cast(data, dtype)
    return call(name, data, axis=int(axis), exclusive=bool(exclusive), reverse=bool(reverse))


def cumsum(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None,
    reverse: bool = False,
) -> Call:  # fmt: skip
    """Sums of the elements up to each one along `axis` (None: of `data` as a vector).

    dtype: of the sums; exclusive: without the element itself; reverse: from the end
    """
    return _scan("cumsum", data, axis, dtype, exclusive, reverse)


def cumprod(
    data: Expr, axis: int | None = None, dtype: str | None = None, exclusive: bool | None = None,
    reverse: bool = False,
) -> Call:  # fmt: skip
    """Products of the elements up to each one; otherwise as `cumsum`."""
    return _scan("cumprod", data, axis, dtype, exclusive, reverse)


# -- slices ----------------------------------------------------------------------------------------


Cut = Sequence[int | None] | Constant | None


def strided_slice(
    data: Expr,
    begin: Cut,
    end: Cut,
    strides: Cut = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> Call:
    """`data[begin:end:strides]` on the first axes or on `axes`; negative numbers as in Python.

    begin, end: numbers that are None, or missing at the end, are those of the whole axis
    slice_mode: "end", or "size": `end` holds extents, -1 for the rest
    """
    rank = len(data.shape)
    begin, end, given = numbers(begin) or [], numbers(end) or [], numbers(strides)
    longest = max(len(begin), len(end), len(given or ()))
    count = longest if axes is None else len(axes)
    if axes is None:
        begin = [*begin, *[None] * (count - len(begin))]
        end = [*end, *[None] * (count - len(end))]
    place = f"strided_slice(data={data.shape}, begin={tuple(begin)}, end={tuple(end)})"
    named = [axis_of(int(k), rank, place) for k in (range(len(begin)) if axes is None else axes)]
    steps = [1 if s is None else int(s) for s in given or ()]
    steps += [1] * (len(begin) - len(steps))
    if not len(named) == len(begin) == len(end) == len(steps) or len(set(named)) != len(named):
        raise ModelError(
            place, "begin, end, strides and axes do not belong together",
            "Give one number for each axis that is cut.",
        )  # fmt: skip
    if slice_mode not in ("end", "size") or 0 in steps:
        raise ModelError(
            place, f"slice_mode={slice_mode!r}, strides={steps}",
            'Use slice_mode="end" or "size", and strides that are not 0.',
        )  # fmt: skip
    ranges = [range(n) for n in data.shape]
    for k, b, e, s in zip(named, begin, end, steps, strict=True):
        extent = data.shape[k]
        if slice_mode == "size":
            first = int(b or 0) + (extent if b is not None and b < 0 else 0)
            cut = slice(first, extent if e is None or e < 0 else first + int(e))
        else:
            cut = slice(b, e, s)
        ranges[k] = range(extent)[cut]
    return slice_of(data, ranges)


def slice_of(data: Expr, ranges: Sequence[range]) -> Call:
    """The elements of `data` at one range for each axis."""
    return call(
        "strided_slice", data, begin=tuple(r.start for r in ranges),
        extents=tuple(map(len, ranges)), strides=tuple(r.step for r in ranges),
    )  # fmt: skip


def strided_set(
    data: Expr,
    v: Expr,
    begin: Cut,
    end: Cut,
    strides: Cut = None,
) -> Call:
    """`data` with `v` in place of `strided_slice(data, begin, end, strides)`."""
    cut = strided_slice(data, begin, end, strides).attrs
    if cut.extents != v.shape:
        raise ModelError(
            f"strided_set(data={data.shape}, v={v.shape})", f"the slice has shape {cut.extents}",
            "Give values of that shape.",
        )  # fmt: skip
    return call("strided_set", data, v, begin=cut.begin, strides=cut.strides)


def split(data: Expr, indices_or_sections: int | Sequence[int], axis: int = 0) -> Tuple:
    """Pieces of `data` along `axis`: a number of equal ones, or the indices where to cut.

    Each is a slice, which what reads it may take into its kernel.
    """
    place = f"split(data={data.shape}, indices_or_sections={indices_or_sections}, axis={axis})"
    k = axis_of(axis, len(data.shape), place)
    extent = data.shape[k]
    if isinstance(indices_or_sections, Sequence):
        cuts = [0, *map(int, indices_or_sections), extent]
    else:
        if indices_or_sections < 1 or extent % indices_or_sections:
            raise ModelError(
                place, f"{extent} does not divide into {indices_or_sections} sections",
                "Give the indices where to cut.",
            )  # fmt: skip
        each = extent // indices_or_sections
        cuts = [k * each for k in range(indices_or_sections + 1)]
    if any(b > e for b, e in pairwise(cuts)):
        raise ModelError(place, f"the cuts do not rise from 0 to {extent}", "Give them in order.")
    whole = [range(n) for n in data.shape]
    pieces = [slice_of(data, [*whole[:k], range(b, e), *whole[k + 1 :]]) for b, e in pairwise(cuts)]
    return Tuple(pieces)


# -- copies ----------------------------------------------------------------------------------------


def reverse(data: Expr, axis: int) -> Call:
    """`data` with the elements along `axis` in reverse order."""
    k = axis_of(axis, len(data.shape), f"reverse(data={data.shape}, axis={axis})")
    return slice_of(data, [range(n)[:: -1 if j == k else 1] for j, n in enumerate(data.shape)])


def roll(data: Expr, shift: int | Sequence[int], axis: int | Sequence[int]) -> Expr:
    """`data` with its elements moved `shift` places along `axis`, the last ones to the front."""
    shifts = [shift] if isinstance(shift, int) else list(shift)
    axes = [axis] if isinstance(axis, int) else list(axis)
    place = f"roll(data={data.shape}, shift={shifts}, axis={axes})"
    if len(shifts) != len(axes):
        raise ModelError(place, "not one shift for each axis", "Give as many of each.")
    for s, a in zip(shifts, axes, strict=True):
        k = axis_of(a, len(data.shape), place)
        order = np.roll(np.arange(data.shape[k], dtype="int32"), s % max(data.shape[k], 1))
        data = take(data, const(order), k)
    return data


def tile(data: Expr, reps: int | Sequence[int]) -> Expr:
    """`data` repeated as a whole, reps[k] times along axis k; missing ones are 1, as in numpy."""
    given = (reps,) if isinstance(reps, int) else tuple(reps)
    rank = max(len(given), len(data.shape))
    times = (1,) * (rank - len(given)) + given
    shape = (1,) * (rank - len(data.shape)) + data.shape
    place = f"tile(data={data.shape}, reps={given})"
    if min(times, default=1) < 0:
        raise ModelError(place, f"{min(times)} copies", "Use counts of at least 0.")
    result = tuple(n * t for n, t in zip(shape, times, strict=True))
    if all(t == 1 for t in times):
        return call("reshape", data, newshape=result)
    pairs = [p for n, t in zip(shape, times, strict=True) for p in ((t, n) if t != 1 else (n,))]
    ones = [p for n, t in zip(shape, times, strict=True) for p in ((1, n) if t != 1 else (n,))]
    wide = broadcast_to(call("reshape", data, newshape=tuple(ones)), pairs)
    return call("reshape", wide, newshape=result)


def repeat(data: Expr, repeats: int, axis: int) -> Expr:
    """`data` with every element along `axis` repeated."""
    k = axis_of(axis, len(data.shape), f"repeat(data={data.shape}, axis={axis})")
    shape = [*data.shape[: k + 1], repeats, *data.shape[k + 1 :]]
    result = [*data.shape[:k], data.shape[k] * repeats, *data.shape[k + 1 :]]
    wide = broadcast_to(expand_dims(data, k + 1), shape)
    return call("reshape", wide, newshape=tuple(result))


def stack(data: Expr | Sequence[Expr], axis: int) -> Call:
    """Equal shapes joined along a new axis."""
    parts = list(data)
    if not parts:
        raise ModelError("relay.stack", "nothing to join", "Give at least one tensor.")
    at = axis_of(axis, len(parts[0].shape) + 1, f"stack(axis={axis})")
    return concatenate([expand_dims(p, at) for p in parts], at)


def trilu(data: Expr, k: int | Expr = 0, upper: bool = True) -> Call:
    """The upper or lower triangle of the last two axes, zeros elsewhere; k: diagonals above."""
    if len(data.shape) < 2:
        raise ModelError(f"trilu(data={data.shape})", "it is no matrix", "Give two axes at least.")
    rows, columns = data.shape[-2:]
    above = k if isinstance(k, Expr) else const(min(max(int(k), -rows), columns), "int64")
    above = call("clip", above, a_min=float(-rows), a_max=float(columns)).astype("int32")
    row, column = arange_array(0, rows, 1, "int32"), arange_array(0, columns, 1, "int32")
    order = "greater_equal" if upper else "less_equal"
    kept = call(order, const(column[None]), call("add", const(row[:, None]), above))
    return where(kept, data, const(0, data.dtype))


def meshgrid(data: Sequence[Expr], indexing: str = "ij") -> Tuple:
    """Vectors (or scalars) each stretched over the extents of all; indexing: "ij", or "xy" with the
    first two axes exchanged."""
    if indexing not in ("ij", "xy"):
        raise ModelError(f"meshgrid(indexing={indexing!r})", "no such order", 'Use "ij" or "xy".')
    parts = [as_shape(p, (-1,)) for p in data]
    shape = [p.shape[0] for p in parts]
    made: list[Expr] = []
    for k, p in enumerate(parts):
        along = [n if j == k else 1 for j, n in enumerate(shape)]
        made.append(broadcast_to(as_shape(p, along), shape))
    if indexing == "xy" and len(shape) > 1:
        order = (1, 0, *range(2, len(shape)))
        made = [transpose(p, order) for p in made]
    return Tuple(made)


def depth_to_space(data: Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Expr:
    """Channels as blocks of `block_size` by `block_size` pixels.

    mode: "DCR" counts the channels of a block first, "CRD" the channels of the result
    """
    n, c, h, w = _image(data, layout, "depth_to_space")
    b = block_size
    if b < 1 or c % (b * b):
        raise ModelError(
            f"nn.depth_to_space(data={data.shape}, block_size={b})",
            f"{c} channels do not make blocks", "Use one whose square divides the channels.",
        )  # fmt: skip
    rest = c // (b * b)
    deep, flat = _orders(layout, mode, "depth_to_space")
    shape = {"N": n, "C": rest, "H": h * b, "W": w * b}
    extents = {"N": n, "C": rest, "H": h, "W": w, "y": b, "x": b}
    return _rearranged(data, deep, flat, extents, [shape[k] for k in layout])


def space_to_depth(data: Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Expr:
    """Blocks of `block_size` by `block_size` pixels as channels; mode: as in `depth_to_space`."""
    n, c, h, w = _image(data, layout, "space_to_depth")
    b = block_size
    if b < 1 or h % b or w % b:
        raise ModelError(
            f"nn.space_to_depth(data={data.shape}, block_size={b})",
            f"{h} by {w} pixels do not make blocks", "Use one that divides both.",
        )  # fmt: skip
    deep, flat = _orders(layout, mode, "space_to_depth")
    shape = {"N": n, "C": b * b * c, "H": h // b, "W": w // b}
    extents = {"N": n, "C": c, "H": h // b, "W": w // b, "y": b, "x": b}
    return _rearranged(data, flat, deep, extents, [shape[k] for k in layout])


def _orders(layout: str, mode: str, name: str) -> tuple[str, str]:
    """Axes where blocks are channels, and where they are pixels; y and x are inside a block."""
    if mode not in ("DCR", "CRD"):
        raise ModelError(f"nn.{name}(mode={mode!r})", "no such order", 'Use "DCR" or "CRD".')
    deep = layout.replace("C", "yxC" if mode == "DCR" else "Cyx")
    return deep, layout.replace("H", "Hy").replace("W", "Wx")


def _rearranged(
    data: Expr, source: str, wanted: str, extents: Mapping[str, int], shape: Sequence[int]
) -> Expr:
    opened = as_shape(data, [extents[k] for k in source])
    return as_shape(transpose(opened, [source.index(k) for k in wanted]), shape)


def _image(data: Expr, layout: str, name: str) -> tuple[int, int, int, int]:
    if layout not in ("NCHW", "NHWC") or len(data.shape) != 4:
        raise ModelError(
            f"nn.{name}(data={data.shape}, layout={layout!r})", "it is no batch of images",
            "Use NCHW or NHWC.",
        )  # fmt: skip
    n, c, h, w = (data.shape[layout.index(k)] for k in "NCHW")
    return n, c, h, w


def mirror_pad(data: Expr, pad_width: Sequence[Any], mode: str = "SYMMETRIC") -> Call:
    """`data` with its own elements around it; pad_width: one (before, after) per axis.

    mode: "symmetric" mirrors with the last element, "reflect" without it, "edge" repeats it, "wrap"
    begins again
    """
    width = tuple(per_axis(w, 2, "pad_width", "nn.mirror_pad") for w in pad_width)
    return call("nn.mirror_pad", data, pad_width=width, mode=mode.lower())


# -- constants -------------------------------------------------------------------------------------


def arange_array(start: float, stop: float, step: float, dtype: str) -> np.ndarray:
    """start, start + step, ... below (above, if it falls) `stop`, each rounded once."""
    place = f"arange({start}, {stop}, {step})"
    if step == 0 or not all(map(math.isfinite, (start, stop, step))):
        raise ModelError(place, "it has no end", "Use finite numbers, and a step that is not 0.")
    count = max(math.ceil((stop - start) / step), 0)
    kind = check_dtype(dtype, place)
    if reason := oversize((count,), kind):
        raise ModelError(place, f"it is too large: {reason}", "Use a larger step.")
    whole = all(float(v).is_integer() and abs(v) < 1 << 63 for v in (start, step))
    start, step = (int(start), int(step)) if whole else (float(start), float(step))
    return np.asarray(start + np.arange(count) * step).astype(kind.storage)


def arange(
    start: float | Constant,
    stop: float | Constant | None = None,
    step: float | Constant | None = None,
    dtype: str = "float32",
) -> Constant:
    """The constant start, start + step, ... below `stop`; with one number from 0 up to it."""
    first, last = (0.0, number(start)) if stop is None else (number(start), number(stop))
    return const(arange_array(first, last, 1 if step is None else number(step), dtype))


def number(value: Any) -> Any:
    """A number, also where it is given as a constant of the graph."""
    return value.data.item() if isinstance(value, Constant) and value.data.size == 1 else value


def numbers(value: Any) -> Any:
    """A list, also where it is given as a constant vector of the graph."""
    return value.data.tolist() if isinstance(value, Constant) and value.data.ndim == 1 else value


def full_like(data: Expr, fill_value: float | Expr) -> Expr:
    """One value with the shape and type of `data`."""
    return full(fill_value, data.shape, data.dtype)


def zeros_like(data: Expr) -> Expr:
    """Zeros with the shape and type of `data`."""
    return filled(0, data.shape, data.dtype)


def ones_like(data: Expr) -> Expr:
    """Ones with the shape and type of `data`."""
    return filled(1, data.shape, data.dtype)


__all__ = [
    "arange", "argmax", "argmin", "argsort", "cumprod", "cumsum", "full_like", "gather",
    "gather_nd", "meshgrid", "one_hot", "ones_like", "repeat", "reverse", "reverse_sequence",
    "roll", "scatter", "scatter_elements", "scatter_nd", "sort", "split", "stack",
    "strided_set", "strided_slice", "take", "tile", "topk", "trilu", "zeros_like",
]  # fmt: skip
