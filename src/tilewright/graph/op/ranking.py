"""Rows of operators that order elements, or combine each with those before it.

In: a tensor and one axis.  Out: rows for `op/__init__.py`.  Of equal elements the first counts, and
NaN is greater than everything.  Read next: `movement.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, TensorType, Type, check_dtype
from tilewright.graph.op.row import Op, Pattern, Site, first_array
from tilewright.topi.ranking import topk


def _places(site: Site) -> Any:
    """The type of indices that the attribute asks for."""
    dtype = check_dtype(site.attrs.dtype, site.place)
    site.require(dtype.is_index, f"dtype={str(dtype)!r} holds no places", 'Use "int32".')
    return dtype


def _arg_type(site: Site) -> Type:
    data, a = site.tensor(0), site.attrs
    axis = site.axis(a.axis, len(data.shape))
    site.number_dtype(data)
    site.require(data.shape[axis] > 0, "there is nothing to choose from", "Leave it out.")
    kept = (1,) if a.keepdims else ()
    return TensorType((*data.shape[:axis], *kept, *data.shape[axis + 1 :]), _places(site))


def _arg(name: str, function: Callable[..., Any], story: str, onnx: str) -> Op:
    def numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
        x, axis, keep = first_array(arrays), attrs.axis, attrs.keepdims
        if not attrs.select_last_index:
            return np.asarray(function(x, axis, keepdims=keep), attrs.dtype)
        mirrored = function(np.flip(x, axis), axis, keepdims=keep)
        return np.asarray(x.shape[axis] - 1 - mirrored, attrs.dtype)

    def compute(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
        found = getattr(topi, name)(tensors[0], attrs.axis, attrs.keepdims, attrs.select_last_index)
        return topi.cast(found, attrs.dtype)

    return Op(
        name, ("data",), Pattern.OPAQUE, _arg_type, numpy, compute,
        f"Where the {story} element along `axis` is, the first of several.",
        {"axis": -1, "keepdims": False, "select_last_index": False, "dtype": "int32"}, (onnx,),
    )  # fmt: skip


def _topk_type(site: Site) -> Type:
    data, a = site.tensor(0), site.attrs
    axis = site.axis(a.axis, len(data.shape))
    count = data.shape[axis]
    site.require(0 <= a.k <= count, f"k={a.k} of {count} elements", f"Use 0 to {count}.")
    return TensorType((*data.shape[:axis], a.k, *data.shape[axis + 1 :]), _places(site))


def _topk_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    x = np.moveaxis(first_array(arrays), attrs.axis, -1)
    if attrs.is_ascend:
        order = np.argsort(x, axis=-1, kind="stable")
    else:  # mirrored twice, so that the first of equal ones stays the first
        mirrored = np.argsort(x[..., ::-1], axis=-1, kind="stable")
        order = x.shape[-1] - 1 - mirrored[..., ::-1]
    return np.moveaxis(order[..., : attrs.k], -1, attrs.axis).astype(attrs.dtype)


def _topk_te(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
    found = topk(tensors[0], attrs.k, attrs.axis, attrs.is_ascend)
    return topi.cast(found, attrs.dtype)


def _scan_type(site: Site) -> Type:
    data = site.tensor(0)
    site.axis(site.attrs.axis, len(data.shape))
    site.number_dtype(data)
    return data


def _scan(name: str, function: Callable[..., Any], start: int, story: str, onnx: str) -> Op:
    def numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
        x = np.moveaxis(first_array(arrays), attrs.axis, 0)
        x = x[::-1] if attrs.reverse else x
        found = function(x, axis=0, dtype=x.dtype)
        if attrs.exclusive:
            found = np.concatenate([np.full_like(found[:1], start), found[:-1]])
        return np.moveaxis(found[::-1] if attrs.reverse else found, 0, attrs.axis)

    def compute(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
        return getattr(topi, name)(tensors[0], attrs.axis, None, attrs.exclusive, attrs.reverse)

    return Op(
        name, ("data",), Pattern.OPAQUE, _scan_type, numpy, compute,
        f"{story} of the elements up to each one along `axis`.",
        {"axis": 0, "exclusive": False, "reverse": False}, (onnx,) if onnx else (),
    )  # fmt: skip


ROWS = (
    _arg("argmax", np.argmax, "greatest", "ArgMax"),
    _arg("argmin", np.argmin, "smallest", "ArgMin"),
    Op(
        "topk", ("data",), Pattern.OPAQUE, _topk_type, _topk_numpy, _topk_te,
        "Where the `k` greatest (is_ascend: smallest) elements along `axis` are, in their order.",
        {"k": 1, "axis": -1, "is_ascend": False, "dtype": "int32"}, ("TopK",),
        follows=lambda types, a: {"ret_type": "indices"},
    ),
    _scan("cumsum", np.cumsum, 0, "Sums", "CumSum"),
    _scan("cumprod", np.cumprod, 1, "Products", ""),
)  # fmt: skip
