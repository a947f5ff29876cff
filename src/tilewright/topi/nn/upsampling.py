"""Enlarging an image by whole factors.

In: data.  Out: one stage `T_upsampling` that repeats its nearest source element.
Read next: `pooling.py`, the way back.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import Indices, call_text, check_tensor, per_axis, require, stage


def upsampling(
    data: Tensor,
    scale_h: int,
    scale_w: int,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
) -> Tensor:
    """Every element becomes a block of scale_h x scale_w equal ones."""
    place = call_text("upsampling", data=data, scale_h=scale_h, scale_w=scale_w, layout=layout)
    require(layout in ("NCHW", "NHWC"), place, "unknown layout", "Use NCHW or NHWC.")
    check_tensor(data, "data", layout, place)
    require(method == "nearest_neighbor", place, f"method {method!r}", 'Use "nearest_neighbor".')
    scale: tuple[Any, ...] = per_axis((scale_h, scale_w), 2, "scale", place)
    factor = {"N": 1, "C": 1, "H": scale[0], "W": scale[1]}

    def body(i: Indices) -> Expr:
        return data[tuple(x // factor[a] for x, a in zip(i, layout, strict=True))]

    shape = [n * factor[a] for n, a in zip(data.shape, layout, strict=True)]
    return stage(shape, body, "T_upsampling", "injective")
