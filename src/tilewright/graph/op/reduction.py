"""Rows of operators that combine elements along axes.

In: a tensor and axes (None: all of them).  Out: rows for `op/__init__.py`.  Read next:
`movement.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.base.dtype import DType
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op.row import Op, Pattern, Site, first_array


def reduced_axes(axis: tuple[int, ...] | None, exclude: bool, rank: int) -> tuple[int, ...]:
    """The axes that disappear, counted from the front; exclude: `axis` names those that stay."""
    named = tuple(range(rank)) if axis is None else tuple(a % rank for a in axis)
    return (
        tuple(a for a in range(rank) if a not in named) if exclude and axis is not None else named
    )


def _type(site: Site) -> Type:
    data, a = site.tensor(0), site.attrs
    rank = len(data.shape)
    for axis in a.axis or ():
        site.axis(axis, rank)
    gone = reduced_axes(a.axis, a.exclude, rank)
    site.require(len(set(gone)) == len(gone), "an axis is named twice", "Name each axis once.")
    dtype = site.number_dtype()
    if site.op.name in ("sum", "prod") and not dtype.is_float:
        dtype = dtype.accumulator  # nothing narrower holds them
    kept = (
        (1 if k in gone else n) for k, n in enumerate(data.shape) if a.keepdims or k not in gone
    )
    return TensorType(tuple(kept), dtype)


def _mean_type(site: Site) -> Type:
    site.float_dtype()
    return _type(site)


def _numpy(function: Callable[..., Any]) -> Callable[[Sequence[Any], Attrs], Array]:
    def evaluate(arrays: Sequence[Any], attrs: Attrs) -> Array:
        x = first_array(arrays)
        gone = reduced_axes(attrs.axis, attrs.exclude, x.ndim)
        kind = DType(x.dtype)
        if function in (np.max, np.min):
            least = kind.identity_of_max if function is np.max else kind.identity_of_min
            return np.asarray(function(x, axis=gone, keepdims=attrs.keepdims, initial=least))
        kind = kind if kind.is_float else kind.accumulator
        found = function(x, axis=gone, keepdims=attrs.keepdims, dtype=kind.storage)
        return np.asarray(found, kind.storage)

    return evaluate


def _te(name: str) -> Callable[[Sequence[Any], Attrs, Type], Any]:
    def compute(tensors: Sequence[Any], attrs: Attrs, result: Type) -> Any:
        x = tensors[0]
        gone = reduced_axes(attrs.axis, attrs.exclude, x.ndim)
        if not gone:
            return topi.identity(x)
        return getattr(topi, name)(x, axis=gone, keepdims=attrs.keepdims)

    return compute


def _row(name: str, function: Callable[..., Any], doc: str, onnx: str) -> Op:
    return Op(
        name, ("data",), Pattern.REDUCTION, _mean_type if name == "mean" else _type,
        _numpy(function), _te(name), doc,
        {"axis": None, "keepdims": False, "exclude": False}, (onnx,),
    )  # fmt: skip


ROWS = (
    _row("sum", np.sum, "Sum over axes.", "ReduceSum"),
    _row("mean", np.mean, "Arithmetic mean over axes.", "ReduceMean"),
    _row("max", np.max, "Greatest element over axes.", "ReduceMax"),
    _row("min", np.min, "Smallest element over axes.", "ReduceMin"),
    _row("prod", np.prod, "Product over axes.", "ReduceProd"),
)
