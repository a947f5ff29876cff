"""Batch normalisation with fixed statistics, and per-channel scale and shift.

In: data and vectors over its channel axis.  Out: `T_bn_scale` and `T_bn_shift` over the channels,
`ScaleShift` over the data, of its type; for float16 and bfloat16 the first two are float32.
Read next: `elementwise.py` in this folder.
"""

from __future__ import annotations

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import identity
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    check_vector,
    normal_axis,
    require,
    require_float,
    stage,
    wide,
)


def batch_norm(
    data: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> list[Tensor]:
    """[(data - moving_mean) / sqrt(moving_var + epsilon) * gamma + beta, moving_mean, moving_var].

    All vectors run over `axis`.  center=False leaves beta out, scale=False gamma.  The statistics
    are those given: nothing is trained.
    """
    place = call_text("batch_norm", data=data, axis=axis)
    check_tensors(place, data=data)
    k = normal_axis(axis, data.ndim, place)
    channels = data.shape[k]
    require_float(data, "batch_norm", place)
    require(epsilon >= 0, place, f"epsilon={epsilon} is negative", "Use epsilon=1e-5.")
    wanted = {"moving_mean": moving_mean, "moving_var": moving_var}
    wanted |= {"gamma": gamma} if scale else {}  # type: ignore[dict-item]
    wanted |= {"beta": beta} if center else {}  # type: ignore[dict-item]
    for what, vector in wanted.items():
        check_vector(vector, what, channels, place)

    def factor(i: Indices) -> Expr:
        denominator = te.sqrt(wide(moving_var[i]) + epsilon)
        one = te.const(1, data.dtype.compute)
        return (wide(gamma[i]) if scale and gamma is not None else one) / denominator

    ratio = stage((channels,), factor, "T_bn_scale", "elemwise")

    def offset(i: Indices) -> Expr:
        moved = wide(moving_mean[i]) * ratio[i]
        return wide(beta[i]) - moved if center and beta is not None else -moved

    shift = stage((channels,), offset, "T_bn_shift", "elemwise")
    # copies: an argument of a kernel is no result of it
    same = [identity(moving_mean), identity(moving_var)]
    return [scaled_and_shifted(data, ratio, shift, k, data.dtype), *same]


def scaled_and_shifted(
    data: Tensor, scale: Tensor, shift: Tensor, axis: int, dtype: DType
) -> Tensor:
    """Give data * scale + shift, both over `axis`, of element type `dtype`."""

    def body(i: Indices) -> Expr:
        return (wide(data[i]) * wide(scale[i[axis]]) + wide(shift[i[axis]])).astype(dtype)

    return stage(data.shape, body, "ScaleShift", "broadcast")
