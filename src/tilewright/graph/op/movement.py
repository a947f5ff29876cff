"""Rows of operators that move elements or change the shape.

In: tensors.  Out: rows for `op/__init__.py`.  Rows with `view` only rename the axes of memory that
stays where it is.  Read next: `nn.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.base.dtype import DType
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op.row import Op, Pattern, Site, broadcast, first_array
from tilewright.topi.transform import set_from


def _reshape_type(site: Site) -> Type:
    data, shape = site.tensor(0), tuple(site.attrs.newshape)
    site.require(
        all(n >= 0 for n in shape) and math.prod(shape) == data.size,
        f"{data.size} elements do not fill the shape {shape}",
        "The product of the extents must stay the same; one extent may be -1.",
    )
    return TensorType(shape, data.dtype)


def _flatten_type(site: Site) -> Type:
    data = site.tensor(0)
    site.require(len(data.shape) >= 1, "a scalar has no batch axis", "Add one with expand_dims.")
    return TensorType((data.shape[0], math.prod(data.shape[1:])), data.dtype)


def _expand_type(site: Site) -> Type:
    data, a = site.tensor(0), site.attrs
    at = site.axis(a.axis, len(data.shape) + 1)
    site.require(0 <= a.num_newaxis <= 32, "that many axes cannot be new", "Use num_newaxis=1.")
    return TensorType((*data.shape[:at], *(1,) * a.num_newaxis, *data.shape[at:]), data.dtype)


def _squeeze_type(site: Site) -> Type:
    data = site.tensor(0)
    rank, named = len(data.shape), site.attrs.axis
    gone = squeezed_axes(
        data.shape, None if named is None else tuple(site.axis(k, rank) for k in named)
    )
    for k in gone:
        site.require(
            data.shape[k] == 1,
            f"axis {k} has extent {data.shape[k]}, not 1",
            "Name axes of extent 1.",
        )
    return TensorType(tuple(n for k, n in enumerate(data.shape) if k not in gone), data.dtype)


def squeezed_axes(shape: Sequence[int], axis: tuple[int, ...] | None) -> tuple[int, ...]:
    """The axes `squeeze` removes, counted from the front."""
    if axis is None:
        return tuple(k for k, n in enumerate(shape) if n == 1)
    return tuple(k % len(shape) for k in axis)


def _view(name: str, type_rule: Any, doc: str, attrs: dict[str, Any], onnx: str) -> Op:
    def numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
        return first_array(arrays).reshape(_shape_after(row, first_array(arrays), attrs))

    def compute(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
        assert isinstance(result, TensorType)
        return topi.reshape(tensors[0], result.shape)

    row = Op(
        name,
        ("data",),
        Pattern.INJECTIVE,
        type_rule,
        numpy,
        compute,
        doc,
        attrs,
        (onnx,),
        view=True,
    )
    return row


def _shape_after(row: Op, x: Array, attrs: Attrs) -> tuple[int, ...]:
    result = row.type_rule(Site(row, [TensorType(x.shape, DType(x.dtype))], attrs))
    assert isinstance(result, TensorType)
    return result.shape


def _transpose_type(site: Site) -> Type:
    data, axes = site.tensor(0), tuple(site.attrs.axes)
    site.require(
        sorted(axes) == list(range(len(data.shape))),
        f"axes {axes} is not a permutation of {list(range(len(data.shape)))}",
        "Name each axis once.",
    )  # fmt: skip
    return TensorType(tuple(data.shape[k] for k in axes), data.dtype)


def _concatenate_type(site: Site) -> Type:
    parts = site.tensors(0)
    first = parts[0].shape
    axis = site.axis(site.attrs.axis, len(first))
    for k, part in enumerate(parts):
        fits = len(part.shape) == len(first) and all(
            a == b for j, (a, b) in enumerate(zip(part.shape, first, strict=True)) if j != axis
        )
        site.require(
            fits, f"part {k} of shape {part.shape} does not fit the first, {first}",
            f"All extents but the one at axis {axis} must agree.",
        )  # fmt: skip
    total = sum(p.shape[axis] for p in parts)
    return TensorType((*first[:axis], total, *first[axis + 1 :]), site.same_dtype(*parts))


def _broadcast_to_type(site: Site) -> Type:
    data, shape = site.tensor(0), tuple(site.attrs.shape)
    site.require(
        broadcast(site, data.shape, shape) == shape,
        "a shape can only be stretched where it has extent 1", "Reshape it first.",
    )  # fmt: skip
    return TensorType(shape, data.dtype)


def _pad_type(site: Site) -> Type:
    data, width = site.tensor(0), tuple(site.attrs.pad_width)
    site.require(
        len(width) == len(data.shape) and all(len(w) == 2 and min(w) >= 0 for w in width),
        f"pad_width {width} is not one pair of counts per axis",
        "Give ((before, after), ...) with counts of at least 0.",
    )
    return TensorType(
        tuple(n + a + b for n, (a, b) in zip(data.shape, width, strict=True)), data.dtype
    )


def _pad_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    return np.pad(first_array(arrays), attrs.pad_width, constant_values=attrs.pad_value)


def _pad_te(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
    before = [a for a, _ in attrs.pad_width]
    after = [b for _, b in attrs.pad_width]
    return topi.nn.pad(tensors[0], before, after, attrs.pad_value)


def _slice_type(site: Site) -> Type:
    data, a = site.tensor(0), site.attrs
    given = (a.begin, a.extents, a.strides)
    site.require(
        all(len(v) == len(data.shape) for v in given) and 0 not in a.strides,
        "begin, extents and strides are not one number for each axis",
        "Use strided_slice.",
    )
    for k, (n, b, e, s) in enumerate(zip(data.shape, *given, strict=True)):
        ends = b, b + s * (e - 1)
        site.require(
            e == 0 or (e > 0 and min(ends) >= 0 and max(ends) < n),
            f"axis {k} of extent {n} has no elements {b} to {ends[1]}",
            "Choose begin and end with elements between them.",
        )
    return TensorType(tuple(a.extents), data.dtype)


def _places(begin: int, extent: int, stride: int) -> slice:
    if not extent:  # where it begins means nothing, and might be a place from behind
        return slice(0, 0, stride)
    end = begin + stride * extent
    return slice(begin, end if end >= 0 else None, stride)


def _slice_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    places = map(_places, attrs.begin, attrs.extents, attrs.strides)
    return first_array(arrays)[tuple(places)]


def _slice_te(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
    places = list(map(_places, attrs.begin, attrs.extents, attrs.strides))
    return topi.strided_slice(
        tensors[0], [p.start for p in places], [p.stop for p in places], attrs.strides
    )


def _set_type(site: Site) -> Type:
    data, v, a = site.tensor(0), site.tensor(1), site.attrs
    site.same_dtype()
    site.require(
        len(data.shape) == len(v.shape) == len(a.begin) == len(a.strides) and 0 not in a.strides,
        "begin, strides and the values are not one for each axis", "Use strided_set.",
    )  # fmt: skip
    for k, (n, m, b, s) in enumerate(zip(data.shape, v.shape, a.begin, a.strides, strict=True)):
        ends = b, b + s * (m - 1)
        site.require(
            m == 0 or (min(ends) >= 0 and max(ends) < n),
            f"axis {k} of extent {n} has no elements {b} to {ends[1]}",
            "Choose begin and end as for a slice that has the shape of the values.",
        )
    return data


def _set_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    made = first_array(arrays).copy()
    made[tuple(map(_places, attrs.begin, arrays[1].shape, attrs.strides))] = arrays[1]
    return made


MIRRORS = ("edge", "reflect", "symmetric", "wrap")


def _mirror_pad_type(site: Site) -> Type:
    mode = site.attrs.mode
    site.require(mode in MIRRORS, f"the mode {mode!r}", f"Use one of {', '.join(MIRRORS)}.")
    site.require(0 not in site.tensor(0).shape, "there are no elements to repeat", "Use nn.pad.")
    return _pad_type(site)


def _slice_ends(types: Sequence[TensorType], a: Attrs) -> Mapping[str, Any]:
    """Where it ends, as TVM says it: the place behind the last element, a stride further."""
    parts = zip(a.begin, a.extents, a.strides, strict=True)
    return {"end": tuple(first + count * stride for first, count, stride in parts)}


ROWS = (
    _view("reshape", _reshape_type, "data under another shape.", {"newshape": ()}, "Reshape"),
    _view(
        "nn.batch_flatten", _flatten_type, "[N, ...] as [N, product of the rest].", {}, "Flatten",
    ),
    _view(
        "expand_dims", _expand_type, "data with new axes of extent 1.",
        {"axis": 0, "num_newaxis": 1}, "Unsqueeze",
    ),
    _view("squeeze", _squeeze_type, "data without axes of extent 1.", {"axis": None}, "Squeeze"),
    Op(
        "transpose", ("a",), Pattern.INJECTIVE, _transpose_type,
        lambda arrays, attrs: np.transpose(arrays[0], attrs.axes),
        lambda t, attrs, result: topi.transpose(t[0], attrs.axes),
        "The axes of `a` in another order.", {"axes": ()}, ("Transpose",),
    ),
    Op(
        "concatenate", ("data",), Pattern.INJECTIVE, _concatenate_type,
        lambda arrays, attrs: np.concatenate(arrays[0], attrs.axis),
        lambda t, attrs, result: topi.concatenate(list(t[0]), attrs.axis),
        "Tensors one behind the other along `axis`.", {"axis": 0}, ("Concat",),
    ),
    Op(
        "broadcast_to", ("data",), Pattern.BROADCAST, _broadcast_to_type,
        lambda arrays, attrs: np.broadcast_to(arrays[0], attrs.shape),
        lambda t, attrs, result: topi.broadcast_to(t[0], attrs.shape),
        "data stretched to `shape`.", {"shape": ()}, ("Expand",),
    ),
    Op(
        "nn.pad", ("data",), Pattern.INJECTIVE, _pad_type, _pad_numpy, _pad_te,
        "data with constants around it.", {"pad_width": (), "pad_value": 0.0}, ("Pad",),
    ),
    Op(
        "nn.mirror_pad", ("data",), Pattern.INJECTIVE, _mirror_pad_type,
        lambda arrays, attrs: np.pad(first_array(arrays), attrs.pad_width, attrs.mode),
        lambda t, attrs, result: topi.mirror_pad(t[0], attrs.pad_width, attrs.mode),
        "data with its own elements around it.", {"pad_width": (), "mode": "symmetric"}, ("Pad",),
    ),
    Op(
        "strided_slice", ("data",), Pattern.INJECTIVE, _slice_type, _slice_numpy, _slice_te,
        "Every stride-th element of data from `begin` on, `extents` of them.",
        {"begin": (), "extents": (), "strides": ()}, ("Slice",), follows=_slice_ends,
    ),
    Op(
        "strided_set", ("data", "v"), Pattern.INJECTIVE, _set_type, _set_numpy,
        lambda t, attrs, result: set_from(t[0], t[1], attrs.begin, attrs.strides),
        "data with `v` in place of every stride-th element from `begin` on.",
        {"begin": (), "strides": ()},
    ),
)  # fmt: skip
