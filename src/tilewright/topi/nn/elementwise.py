"""Activations and other elementwise operators of networks.

In: a tensor.  Out: one stage.  Read next: `topi/elementwise.py`.
"""

from __future__ import annotations

from tilewright import te
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import elementwise, identity
from tilewright.topi.stage import (
    call_text,
    check_tensors,
    check_vector,
    normal_axis,
    require,
    stage,
)


def relu(x: Tensor, name: str = "compute", axes: str = "i") -> Tensor:
    """max(x, 0).  The stage is called as in TVM, where relu of a network is `T_relu(ax0, ...)`."""
    place = call_text("relu", x=x, axes=axes)
    check_tensors(place, x=x)
    require(axes.isidentifier(), place, "axes begins no name", 'Use axes="i".')
    return elementwise(x, lambda v: te.maximum(v, te.const(0, v.dtype)), name, axes)


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x where positive, alpha * x elsewhere."""
    return elementwise(x, lambda v: te.select(v > 0, v, v * alpha), "T_leaky_relu")


def dropout(data: Tensor, rate: float = 0.5) -> Tensor:
    """`data` itself: a network that is not trained drops nothing."""
    require(
        0 <= rate < 1,
        call_text("dropout", data=data, rate=rate),
        "rate is not in [0, 1)",
        "Use rate=0.5.",
    )
    return identity(data)


def bias_add(data: Tensor, bias: Tensor, axis: int = 1) -> Tensor:
    """data + bias, where bias [C] runs along `axis` of the data."""
    place = call_text("bias_add", data=data, bias=bias, axis=axis)
    check_tensors(place, data=data)
    k = normal_axis(axis, data.ndim, place)
    check_vector(bias, "bias", data.shape[k], place)
    return stage(data.shape, lambda i: data[i] + bias[i[k]], "T_add", "broadcast")
