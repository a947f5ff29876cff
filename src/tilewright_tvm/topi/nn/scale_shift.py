"""Scale and shift of channels: `topi.nn.scale_shift_nchw` and its kin.

In: data and vectors over its channel axis.  Out: one stage.  Read next: `topi/nn/norm.py`.
"""

from __future__ import annotations

from tilewright.base.dtype import join
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.norm import scaled_and_shifted
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    check_vector,
    require,
    stage,
    wide,
)


def scale_shift_nchw(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """data [N, C, H, W] * scale [C] + shift [C]."""
    return _checked_scale_shift("scale_shift_nchw", data, scale, shift, "NCHW")


def scale_shift_nhwc(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """data [N, H, W, C] * scale [C] + shift [C]."""
    return _checked_scale_shift("scale_shift_nhwc", data, scale, shift, "NHWC")


def scale_shift_nchwc(data: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """data [N, C, H, W, c] * scale [C, c] + shift [C, c]: channels in blocks."""
    place = call_text("scale_shift_nchwc", data=data, scale=scale, shift=shift)
    check_tensor(data, "data", "NCHWc", place)
    for what, tensor in (("scale", scale), ("shift", shift)):
        check_tensor(tensor, what, "Cc", place)
        require(
            tensor.shape == (data.shape[1], data.shape[4]), place,
            f"{what} is {list(tensor.shape)}", f"Give {[data.shape[1], data.shape[4]]}.",
        )  # fmt: skip
    dtype = join(join(data.dtype, scale.dtype, place), shift.dtype, place)

    def body(i: Indices) -> Expr:
        at = i[1], i[4]
        return (wide(data[i]) * wide(scale[at]) + wide(shift[at])).astype(dtype)

    return stage(data.shape, body, "ScaleShift", "broadcast")


def _checked_scale_shift(
    name: str, data: Tensor, scale: Tensor, shift: Tensor, layout: str
) -> Tensor:
    place = call_text(name, data=data, scale=scale, shift=shift)
    check_tensor(data, "data", layout, place)
    axis = layout.index("C")
    check_vector(scale, "scale", data.shape[axis], place)
    check_vector(shift, "shift", data.shape[axis], place)
    dtype = join(join(data.dtype, scale.dtype, place), shift.dtype, place)
    return scaled_and_shifted(data, scale, shift, axis, dtype)
