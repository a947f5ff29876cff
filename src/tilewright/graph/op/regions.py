"""Rows of operators that are stages of `topi`, with all that their types and refusals are.

In: images, and boxes or filters.  Out: rows for `op/__init__.py`.  Their types are those of the
stages of `topi`, their values on arrays those of its references.
Read next: `topi/boxes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op.row import NumpyRule, Op, Pattern, Site, TypeRule
from tilewright.topi import boxes
from tilewright.topi.references import boxes as box_references
from tilewright.topi.sampling import FAR

Stages = Callable[[Sequence[Any], Attrs], Any]


def _type_of(stages: Stages) -> TypeRule:
    """What `stages` make of placeholders, and their refusals."""

    def rule(site: Site) -> Type:
        types = [site.tensor(k) for k in range(len(site.types))]
        site.require(all(0 not in t.shape for t in types), "it is empty", "Leave it out.")
        given = [
            te.placeholder(t.shape, str(t.dtype), name=n)
            for n, t in zip(site.op.inputs, types, strict=True)
        ]
        try:
            made = stages(given, site.attrs)
        except ExpressionError as e:
            raise site.refuse(e.reason, e.way_out) from None
        return TensorType(tuple(made.shape), made.dtype)

    return rule


def row_of_stages(
    name: str, inputs: tuple[str, ...], pattern: Pattern, stages: Stages, numpy: NumpyRule,
    doc: str, attrs: dict[str, Any],
) -> Op:  # fmt: skip
    """Give the row of what `stages` make of tensors; numpy: what it makes of arrays."""
    return Op(
        name, inputs, pattern, _type_of(stages), numpy, lambda t, a, result: stages(t, a), doc,
        attrs,
    )  # fmt: skip


def whole_numbers(numbers: Array, most: int) -> Array:
    """Numbers of images, limited to those there are."""
    finite = np.nan_to_num(numbers, nan=FAR, posinf=FAR, neginf=-FAR)
    return np.asarray(np.clip(finite, 0, most - 1))


def _roi_pool(arrays: Sequence[Any], a: Attrs) -> Array:
    data, rois = arrays
    rois = np.clip(np.nan_to_num(rois, nan=FAR), -FAR, FAR)
    rois[:, 0] = whole_numbers(rois[:, 0], len(data))
    return box_references.roi_pool_nchw_python(data, rois, a.pooled_size, a.spatial_scale)


ROWS = (
    row_of_stages(
        "vision.roi_pool", ("data", "rois"), Pattern.OPAQUE,
        lambda t, a: boxes.roi_pool_nchw(t[0], t[1], a.pooled_size, a.spatial_scale),
        _roi_pool, "The greatest element of each bin of regions of images.",
        {"pooled_size": (1, 1), "spatial_scale": 1.0},
    ),
)  # fmt: skip
