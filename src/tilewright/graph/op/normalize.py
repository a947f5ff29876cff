"""Rows of normalisation with the statistics of the data itself.

In: data, and the axes that share their statistics.  Out: rows for `op/__init__.py`.  Scale and
shift are operators of their own, which join the kernel.  Read next: `graph/functions/normalize.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, Type
from tilewright.graph.op.row import Op, Pattern, Site, first_array


def _type(site: Site) -> Type:
    data, a = site.tensor(0), site.attrs
    site.float_dtype()
    axes = [site.axis(k, len(data.shape)) for k in a.axis]
    site.require(
        0 < len(set(axes)) == len(axes), f"axis {a.axis} names no axis, or one twice",
        "Name each axis once.",
    )  # fmt: skip
    site.require(a.epsilon >= 0, f"epsilon={a.epsilon} is negative", "Use epsilon=1e-5.")
    return data


def _numpy(arrays: Sequence[Any], a: Attrs) -> Array:
    x = first_array(arrays)
    wide = x.astype(np.result_type(x.dtype, np.float32)) if x.dtype.itemsize < 4 else x
    if a.center:
        wide = wide - wide.mean(a.axis, keepdims=True)
    variance = np.square(wide).mean(a.axis, keepdims=True)
    return np.asarray(wide / np.sqrt(variance + variance.dtype.type(a.epsilon)), x.dtype)


ROWS = (
    Op(
        "nn.standardize", ("data",), Pattern.REDUCTION, _type, _numpy,
        lambda t, a, result: topi.nn.standardize(t[0], a.axis, a.epsilon, a.center),
        "(data - mean) / sqrt(variance + epsilon) over `axis`; center=False: the mean stays.",
        {"axis": (-1,), "epsilon": 1e-5, "center": True}, ("LayerNormalization",),
        reads=3,
    ),
)  # fmt: skip
