"""The discrete Fourier transform as sums of products: `topi.dft`.

In: real and imaginary parts.  Out: those of the transform along the last axis, a stage each.
Read next: `graph/functions/fourier.py`, where the tables are constants of a network.
"""

from __future__ import annotations

import math

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import Indices, call_text, check_tensors, require, require_float, stage

_LONG = 1 << 15  # from here on products of places need int64


def dft(re_data: Tensor, im_data: Tensor, inverse: bool = False) -> list[Tensor]:
    """[real, imaginary] of the transform of re_data + i * im_data, of any one shape."""
    place = call_text("dft", re_data=re_data, im_data=im_data)
    check_tensors(place, re_data=re_data, im_data=im_data)
    require_float(re_data, "the transform", place)
    require(
        re_data.ndim >= 1 and list(re_data.shape) == list(im_data.shape)
        and re_data.dtype is im_data.dtype, place,
        "the parts differ in shape or type", "Give two alike, with at least one axis.",
    )  # fmt: skip
    n = re_data.shape[-1]
    compute = re_data.dtype.compute
    index = "int64" if n > _LONG else "int32"
    sign = 1.0 if inverse else -1.0

    def part(name: str, imaginary: bool) -> Tensor:
        k = te.reduce_axis((0, n), "n")

        def body(i: Indices) -> Expr:
            # whole turns are left out exactly
            turns = te.cast(index, i[-1]) * te.cast(index, k.as_expr()) % n
            angle = te.cast(compute, turns) * (2 * math.pi / n)
            cosine, sine = te.cos(angle), te.sin(angle) * sign
            re, im = (t[(*i[:-1], k)].astype(compute) for t in (re_data, im_data))
            return te.sum(re * sine + im * cosine if imaginary else re * cosine - im * sine, axis=k)

        total = stage(re_data.shape, body, f"{name}_sum", "dft")
        share = 1.0 / n if inverse else 1.0
        return stage(
            total.shape, lambda i: (total[i] * share).astype(re_data.dtype), name, "elemwise"
        )

    return [part("dft_real", False), part("dft_imaginary", True)]
