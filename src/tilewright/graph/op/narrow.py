"""Rows of products whose weights are packed in bytes.

In: rows of floats, bytes, scales.  Out: a row for `op/__init__.py`.  Read next: `../narrow.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, TensorType, Type, check_dtype
from tilewright.graph.floats import product
from tilewright.graph.narrow import halves, unpacked
from tilewright.graph.op.row import Op, Pattern, Site
from tilewright.topi.nn.narrow import KINDS, LINE


def _weight(site: Site, first: int) -> TensorType:
    """The type of packed weights, the argument `first`; their scales are the next."""
    weight, kind = site.tensor(first, 3, "[units, lines, 16]"), site.attrs.kind
    scale = site.tensor(first + 1, 2, "[units, groups]")
    site.require(kind in KINDS, f"there is no kind {kind!r}", f"Use {', '.join(KINDS)}.")
    (units, lines, line), (rows, groups) = weight.shape, scale.shape
    site.require(
        weight.dtype == "int8" and line == LINE and rows == units
        and groups > 0 and lines % groups == 0,
        "these are no weights in lines, with scales of groups of them",
        f"They are int8 [units, lines, {LINE}], scales [units, groups].",
    )  # fmt: skip
    site.float_dtype(scale)
    return weight


def _unpack_type(site: Site) -> Type:
    weight, dtype = _weight(site, 0), check_dtype(site.attrs.dtype, site.place)
    site.require(dtype.is_float, f"{dtype} is no float", "Use float32, float16 or bfloat16.")
    return TensorType((*weight.shape[:2], KINDS[site.attrs.kind].halves, LINE), dtype)


def _unpack_numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    weight, scale = arrays
    made = unpacked(weight, scale, a.kind)
    return made.reshape(*weight.shape[:2], KINDS[a.kind].halves, LINE)


def _type(site: Site) -> Type:
    data, weight = site.tensor(0, 2, "[batch, features]"), _weight(site, 1)
    units, lines, _ = weight.shape
    features = lines * KINDS[site.attrs.kind].line
    site.require(
        features == data.shape[1], f"data has {data.shape[1]} features, the weight takes {features}"
    )
    site.float_dtype(data)
    dtype = check_dtype(site.attrs.out_dtype or data.dtype, site.place)
    site.require(
        dtype.is_float and dtype.bits >= data.dtype.bits, f"{dtype} does not hold the sums",
        f"Leave out_dtype out, or use {data.dtype}.",
    )  # fmt: skip
    return TensorType((data.shape[0], units), dtype)


def _numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    data, weight, scale = arrays
    units, lines, _ = weight.shape
    count = KINDS[a.kind].halves
    # in the order of `halves`, so that weights need not be put together
    rows = np.moveaxis(data.reshape(len(data), lines, count, LINE), 2, 1).reshape(data.shape)

    def weights(part: slice) -> Array:
        found = halves(weight[part], scale[part], a.kind)
        made = found[0] if count == 1 else np.concatenate(found, axis=1)
        return made.astype(data.dtype, copy=False)

    return product(np.ascontiguousarray(rows), units, weights)


ROWS = (
    Op(
        "nn.dense_narrow", ("data", "weight", "scale"), Pattern.ANCHOR, _type, _numpy,
        lambda t, a, result: topi.nn.dense_narrow(
            t[0], t[1], t[2], a.kind, a.out_dtype or None
        ),
        "data [batch, features] times weights that are packed in bytes, with scales of groups.",
        {"kind": "int8", "out_dtype": ""},
    ),
    Op(
        "nn.unpack_narrow", ("weight", "scale"), Pattern.INJECTIVE, _unpack_type, _unpack_numpy,
        lambda t, a, result: topi.nn.unpack_narrow(t[0], t[1], a.kind, a.dtype),
        "The floats [units, lines, halves, 16] that packed weights stand for.",
        {"kind": "int8", "dtype": "float32"},
    ),
)  # fmt: skip
