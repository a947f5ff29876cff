"""The row of products whose weights are packed in bytes.

In: rows of floats, bytes, scales.  Out: a row for `op/__init__.py`.  Read next: `../narrow.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, TensorType, Type, check_dtype
from tilewright.graph.narrow import unpacked
from tilewright.graph.op.row import Op, Pattern, Site
from tilewright.topi.nn.narrow import KINDS, LINE

_AT_A_TIME = 1 << 22  # weights that are floats at once


def _type(site: Site) -> Type:
    data, weight = site.tensor(0, 2, "[batch, features]"), site.tensor(1, 3, "[units, lines, 16]")
    scale, kind = site.tensor(2, 2, "[units, groups]"), site.attrs.kind
    site.require(kind in KINDS, f"there is no kind {kind!r}", f"Use {', '.join(KINDS)}.")
    units, lines, line = weight.shape
    groups = scale.shape[1]
    fits = weight.dtype == "int8" and scale.shape[0] == units and line == LINE
    fits = fits and groups > 0 and lines % groups == 0
    site.require(
        fits and lines * KINDS[kind].line == data.shape[1],
        f"these are not the weights of {data.shape[1]} features",
        f"They are int8 [units, features / {KINDS[kind].line}, {LINE}], scales [units, groups].",
    )
    site.float_dtype(scale)
    site.float_dtype(data)
    dtype = check_dtype(site.attrs.out_dtype or data.dtype, site.place)
    site.require(
        dtype.is_float and dtype.bits >= data.dtype.bits, f"{dtype} does not hold the sums",
        f"Leave out_dtype out, or use {data.dtype}.",
    )  # fmt: skip
    return TensorType((data.shape[0], units), dtype)


def _numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    data, weight, scale = arrays
    made = np.empty((len(data), len(weight)), data.dtype)
    rows = max(1, _AT_A_TIME // max(data.shape[1], 1))
    for k in range(0, len(weight), rows):
        part = slice(k, k + rows)
        floats = unpacked(weight[part], scale[part], a.kind).astype(data.dtype)
        made[:, part] = data @ floats.T
    return made


ROWS = (
    Op(
        "nn.dense_narrow", ("data", "weight", "scale"), Pattern.ANCHOR, _type, _numpy,
        lambda t, a, result: topi.nn.dense_narrow(
            t[0], t[1], t[2], a.kind, a.out_dtype or None
        ),
        "data [batch, features] times weights that are packed in bytes, with scales of groups.",
        {"kind": "int8", "out_dtype": ""},
    ),
)  # fmt: skip
