"""What users call: operators of networks, `relay.nn.conv2d`, `relay.nn.dense`, ...

In: graph values and TVM's keywords in their usual spellings.  Out: calls with normal attributes.  A
weight made by ``relay.var("w")`` without a shape takes the one the operator implies.  Read next:
`op/nn.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import is_integer, open_doors
from tilewright.base.errors import ModelError
from tilewright.relay.attention import attention
from tilewright.relay.graph.expr import Call, Expr, TensorType, Var
from tilewright.relay.linear import nn_matmul as matmul
from tilewright.relay.loss import nll_loss
from tilewright.relay.normalize import (
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    rms_norm,
    standardize,
)
from tilewright.relay.op import call


def pair(value: Any, what: str, place: str) -> tuple[int, int]:
    """`value` as (height, width); an int serves both."""
    items = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    if len(items) != 2 or not all(is_integer(v) for v in items):
        raise ModelError(
            place, f"{what}={value!r} is neither an int nor a pair of ints",
            f"Write {what}=1 or {what}=(1, 1).",
        )  # fmt: skip
    return int(items[0]), int(items[1])


def sides(padding: Any, place: str) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) from an int, (height, width) or all four."""
    items = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    if len(items) not in (1, 2, 4) or not all(is_integer(v) for v in items):
        raise ModelError(
            place, f"padding={padding!r} is not understood",
            "Use an int, (height, width) or (top, left, bottom, right).",
        )  # fmt: skip
    top, left, bottom, right = [int(v) for v in items] * (4 // len(items))
    return top, left, bottom, right


def _settle(weight: Any, shape: Sequence[int], data: Expr) -> None:
    if isinstance(weight, Var) and not weight.is_typed:
        weight.settle(TensorType(tuple(shape), data.dtype))


def conv2d(
    data: Expr,
    weight: Expr,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
) -> Call:
    """Two-dimensional convolution.

    data_layout: NCHW or NHWC; kernel_layout: any order of OIHW, I being channels / groups.
    channels, kernel_size: give an untyped weight its shape, and are checked against a typed one.
    """
    place = "nn.conv2d"
    size = None if kernel_size is None else pair(kernel_size, "kernel_size", place)
    if isinstance(weight, Var) and not weight.is_typed and "C" in data_layout:
        if channels is None or size is None:
            raise ModelError(
                f"{place}(weight={weight.name_hint})", "its shape is not known",
                "Give channels= and kernel_size=, or relay.var(shape=).",
            )  # fmt: skip
        in_channels = data.shape[data_layout.index("C")]
        wanted = {"O": channels, "I": in_channels // groups, "H": size[0], "W": size[1]}
        _settle(weight, [wanted[k] for k in kernel_layout], data)
    made = call(
        place, data, weight, strides=pair(strides, "strides", place), padding=sides(padding, place),
        dilation=pair(dilation, "dilation", place), groups=int(groups), data_layout=data_layout,
        kernel_layout=kernel_layout,
    )  # fmt: skip
    held = dict(zip(kernel_layout, weight.shape, strict=True))
    for what, asked, found in (
        ("channels", channels, held["O"]),
        ("kernel_size", size, (held["H"], held["W"])),
    ):
        if asked is not None and asked != found:
            raise ModelError(
                f"{place}(weight={weight.shape}, {what}={asked})", f"the weight has {what} {found}",
                f"Leave {what} out, or check kernel_layout={kernel_layout}.",
            )  # fmt: skip
    return made


def dense(data: Expr, weight: Expr, units: int | None = None) -> Call:
    """data [batch, features] times the transpose of weight [units, features]."""
    if units is not None and len(data.shape) == 2:
        _settle(weight, (units, data.shape[1]), data)
    made = call("nn.dense", data, weight)
    if units is not None and units != made.shape[1]:
        raise ModelError(
            f"nn.dense(weight={weight.shape}, units={units})",
            f"the weight has {made.shape[1]} units",
            "Leave units out, or transpose the weight.",
        )
    return made


def batch_matmul(
    tensor_a: Expr,
    tensor_b: Expr,
    out_dtype: str = "",
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Call:
    """tensor_a [batch, M, K] times the transpose of tensor_b [batch, N, K], for each of the batch.

    A batch of 1 serves every element of the other.  The flags say how each operand is stored.
    out_dtype: of the result; default: that of floating-point operands, int32 for narrow integers
    """
    return call(
        "nn.batch_matmul", tensor_a, tensor_b, out_dtype=out_dtype, transpose_a=bool(transpose_a),
        transpose_b=bool(transpose_b),
    )  # fmt: skip


def bias_add(data: Expr, bias: Expr, axis: int = 1) -> Call:
    """data plus the vector `bias` along `axis`."""
    _settle_vectors(data, (bias,), axis)
    return call("nn.bias_add", data, bias, axis=axis)


def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Normalisation with stored statistics; three values, of which users want `[0]`.

    center: add beta; scale: multiply by gamma.
    """
    _settle_vectors(data, (gamma, beta, moving_mean, moving_var), axis)
    return call(
        "nn.batch_norm", data, gamma, beta, moving_mean, moving_var, axis=axis,
        epsilon=float(epsilon), center=bool(center), scale=bool(scale),
    )  # fmt: skip


def _settle_vectors(data: Expr, vectors: Sequence[Expr], axis: int) -> None:
    if -len(data.shape) <= axis < len(data.shape):
        for v in vectors:
            _settle(v, (data.shape[axis],), data)


def relu(data: Expr) -> Call:
    """max(data, 0)."""
    return call("nn.relu", data)


def leaky_relu(data: Expr, alpha: float = 0.01) -> Call:
    """data where positive, alpha * data elsewhere."""
    return call("nn.leaky_relu", data, alpha=float(alpha))


def dropout(data: Expr, rate: float = 0.5) -> Call:
    """data itself: nothing is dropped at inference."""
    return call("nn.dropout", data, rate=float(rate))


def softmax(data: Expr, axis: int = -1) -> Call:
    """exp(data) over its sum along `axis`."""
    return call("nn.softmax", data, axis=axis)


def log_softmax(data: Expr, axis: int = -1) -> Call:
    """Logarithm of softmax along `axis`."""
    return call("nn.log_softmax", data, axis=axis)


def batch_flatten(data: Expr) -> Call:
    """[N, ...] as [N, product of the rest]."""
    return call("nn.batch_flatten", data)


def pad(
    data: Expr, pad_width: Sequence[Any], pad_value: float = 0.0, pad_mode: str = "constant"
) -> Call:
    """`data` with `pad_value` around it; pad_width: one (before, after) per axis."""
    if pad_mode != "constant":
        raise ModelError(
            f"nn.pad(pad_mode={pad_mode!r})", "only constant padding exists", 'Use "constant".'
        )
    width = tuple(pair(w, "pad_width", "nn.pad") for w in pad_width)
    return call("nn.pad", data, pad_width=width, pad_value=float(pad_value))


def max_pool2d(
    data: Expr,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    dilation: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    ceil_mode: bool = False,
) -> Call:
    """Greatest element of each window; ceil_mode: a last, partly covered window counts too."""
    window = _window(
        "nn.max_pool2d", data, pool_size, strides, dilation, padding, layout, ceil_mode
    )
    return call("nn.max_pool2d", data, layout=layout, **window)


def avg_pool2d(
    data: Expr,
    pool_size: Any = (1, 1),
    strides: Any = (1, 1),
    dilation: Any = (1, 1),
    padding: Any = (0, 0),
    layout: str = "NCHW",
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> Call:
    """Mean of each window; count_include_pad: padding counts as elements."""
    place = "nn.avg_pool2d"
    window = _window(place, data, pool_size, strides, dilation, padding, layout, ceil_mode)
    if count_include_pad and window["padding"] != sides(padding, place):
        raise ModelError(
            f"{place}(ceil_mode=True, count_include_pad=True)",
            "the last window reaches behind the padding, where elements do not count",
            "Use one of the two, or sizes the window divides.",
        )
    return call(place, data, layout=layout, count_include_pad=bool(count_include_pad), **window)


def _window(
    place: str,
    data: Expr,
    size: Any,
    strides: Any,
    dilation: Any,
    padding: Any,
    layout: str,
    ceil: bool,
) -> dict[str, Any]:
    """The attributes of a pooling window; ceil mode becomes padding behind the image."""
    kernel, step = pair(size, "pool_size", place), pair(strides, "strides", place)
    spread, around = pair(dilation, "dilation", place), list(sides(padding, place))
    if ceil and len(data.shape) == 4 and {"H", "W"} <= set(layout) and min(step) >= 1:
        for k, letter in enumerate("HW"):
            extent = data.shape[layout.index(letter)] + around[k]
            reach = (kernel[k] - 1) * spread[k] + 1
            last = -(-(extent + around[k + 2] - reach) // step[k])
            if last * step[k] >= extent:  # it would start behind the image
                last -= 1
            around[k + 2] = max(around[k + 2], last * step[k] + reach - extent)
    return {"pool_size": kernel, "strides": step, "dilation": spread, "padding": tuple(around)}


def global_avg_pool2d(data: Expr, layout: str = "NCHW") -> Call:
    """Mean of each image; height and width become 1."""
    return call("nn.global_avg_pool2d", data, layout=layout)


def global_max_pool2d(data: Expr, layout: str = "NCHW") -> Call:
    """Greatest element of each image; height and width become 1."""
    return call("nn.global_max_pool2d", data, layout=layout)


def adaptive_avg_pool2d(data: Expr, output_size: Any = (1, 1), layout: str = "NCHW") -> Call:
    """Mean over as many windows as `output_size` (an int or a pair) asks for."""
    return call(
        "nn.adaptive_avg_pool2d",
        data,
        output_size=pair(output_size, "output_size", "nn.adaptive_avg_pool2d"),
        layout=layout,
    )


__all__ = [
    "adaptive_avg_pool2d", "attention", "avg_pool2d", "batch_flatten", "batch_matmul", "batch_norm",
    "bias_add", "conv2d", "dense", "dropout", "global_avg_pool2d", "global_max_pool2d",
    "group_norm", "instance_norm", "l2_normalize", "layer_norm", "leaky_relu", "log_softmax",
    "matmul", "max_pool2d", "nll_loss", "pad", "relu", "rms_norm", "softmax", "standardize",
]  # fmt: skip
open_doors(globals(), __all__, ModelError)
