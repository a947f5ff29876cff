"""`relay.layout_transform`: a value in another order of its axes, or in blocks.

In: graph values and layouts of TVM (NCHW, NHWC, NCHW8c).  Out: views and transpositions.
Read next: `graph/passes/data_layout.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ExpressionError, ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.passes.data_layout import axis_layout, convert
from tilewright.topi import layout as L


def layout_transform(data: Expr, src_layout: str, dst_layout: str) -> Expr:
    """`data`, whose axes are `src_layout`, with the axes `dst_layout`.

    A capital letter is an axis, a number and a small letter the blocks that it is cut into.
    Raises ModelError unless both are layouts of the same axes and blocks divide them.
    """
    place = f"layout_transform(data={data.shape}, {src_layout!r}, {dst_layout!r})"
    try:
        extents = L.extents(L.parse(src_layout, place), data.shape, place)
    except ExpressionError as error:
        raise ModelError(place, error.reason, error.way_out) from None
    plain, shape = "".join(extents), list(extents.values())
    if not data.tensor_type.size:
        raise ModelError(place, "it has no elements to move", "Make zeros of the new shape.")
    source, wanted = axis_layout(plain, src_layout, place), axis_layout(plain, dst_layout, place)
    if not wanted.fits(shape):
        raise ModelError(
            place, f"blocks of {dst_layout} do not divide {tuple(shape)}", "Pad it to that."
        )
    return convert(data, shape, source, wanted)


def in_layout(value: Expr, layout: str, out_layout: str) -> Expr:
    """What an operator gives whose result has `layout`, where `out_layout` asks for another."""
    return value if out_layout in ("", layout) else layout_transform(value, layout, out_layout)


__all__ = ["layout_transform"]
