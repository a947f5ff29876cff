"""Convolutions as users call them: `relay.nn.conv1d`, `relay.nn.conv2d_transpose`, ...

In: graph values and TVM's keywords in their usual spellings.  Out: calls with normal attributes.  A
weight made by ``relay.var("w")`` without a shape takes the one the operator implies.  Read next:
`op/conv.py`, the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.doors import named
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Var
from tilewright.graph.functions import tensor
from tilewright.graph.functions.layout import in_layout
from tilewright.graph.functions.sizes import per_axis, settle, sides
from tilewright.graph.op import call, window
from tilewright.graph.op.window import IMAGE, channels_first, is_blocked
from tilewright.topi.layout import extents, parse


def _convolution(rank: int, one: Any, none: Any, more: str) -> Callable[..., Expr]:
    """one, none: what strides and dilation, and padding are by default"""
    layout, usual = channels_first(rank), f"OI{IMAGE[rank]}"

    @named(f"conv{rank}d", more)
    def convolution(
        data: Expr, weight: Expr, strides: Any = one, padding: Any = none, dilation: Any = one,
        groups: int = 1, channels: int | None = None, kernel_size: Any = None,
        data_layout: str = layout, kernel_layout: str = usual, out_layout: str = "",
        out_dtype: str = "",
    ) -> Expr:  # fmt: skip
        return _conv(
            rank, data, weight, strides, padding, dilation, groups, channels, kernel_size,
            data_layout, kernel_layout, out_layout, out_dtype,
        )  # fmt: skip

    return convolution


def _transposed(rank: int, more: str) -> Callable[..., Expr]:
    layout, usual = channels_first(rank), f"IO{IMAGE[rank]}"
    ones, zeros = (1,) * rank, (0,) * rank

    @named(f"conv{rank}d_transpose", more)
    def convolution(
        data: Expr, weight: Expr, strides: Any = ones, padding: Any = zeros, dilation: Any = ones,
        groups: int = 1, channels: int | None = None, kernel_size: Any = None,
        data_layout: str = layout, kernel_layout: str = usual, out_layout: str = "",
        output_padding: Any = zeros, out_dtype: str = "",
    ) -> Expr:  # fmt: skip
        return _conv(
            rank, data, weight, strides, padding, dilation, groups, channels, kernel_size,
            data_layout, kernel_layout, out_layout, out_dtype, output_padding,
        )  # fmt: skip

    return convolution


def _conv(
    rank: int,
    data: Expr,
    weight: Expr,
    strides: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    channels: int | None,
    kernel_size: Any,
    data_layout: str,
    kernel_layout: str,
    out_layout: str,
    out_dtype: str,
    output_padding: Any = None,
) -> Expr:
    """output_padding: None for a convolution that is not transposed"""
    transposed = output_padding is not None
    place = f"nn.conv{rank}d" + ("_transpose" if transposed else "")
    blocked = is_blocked(data_layout)
    data, weight = of_one_type(data, weight, out_dtype)
    size = None if kernel_size is None else per_axis(kernel_size, rank, "kernel_size", place)
    if isinstance(weight, Var) and not weight.is_typed and "C" in data_layout:
        blocks = parse(kernel_layout, place).blocks
        inputs = extents(parse(data_layout, place), data.shape, place)["C"]
        if channels is None or size is None:
            raise ModelError(
                f"{place}(weight={weight.name_hint})", "its shape is not known",
                "Give channels= and kernel_size=, or weights with a shape.",
            )  # fmt: skip
        wanted = dict(zip(IMAGE[rank], size, strict=True))
        outer = {"I": inputs, "O": channels // groups} if transposed else {
            "O": channels, "I": inputs // groups,
        }  # fmt: skip
        whole = {k: n // blocks.get(k.lower(), 1) for k, n in (wanted | outer).items()}
        axes = filter(str.isalpha, kernel_layout)
        settle(weight, [(whole | blocks)[k] for k in axes], data)
    extra = (
        {
            "output_padding": per_axis(
                _one_of_two(output_padding, rank), rank, "output_padding", place
            )
        }
        if transposed
        else {}
    )
    made = call(
        place, data, weight, strides=per_axis(strides, rank, "strides", place),
        padding=sides(padding, rank, place), dilation=per_axis(dilation, rank, "dilation", place),
        groups=int(groups), data_layout=data_layout, kernel_layout=kernel_layout,
        out_dtype=str(out_dtype), **extra,
    )  # fmt: skip
    if blocked:  # the row has seen that data and weight fit
        channels_of = {"O": weight.shape[0] * weight.shape[5]}
        held = channels_of | dict(zip("IHW", weight.shape[1:4], strict=True))
    else:
        held = dict(zip(kernel_layout, weight.shape, strict=True))
    for what, asked, found in (
        ("channels", channels, held["O"] * (groups if transposed else 1)),
        ("kernel_size", size, tuple(held[k] for k in IMAGE[rank])),
    ):
        if asked is not None and asked != found:
            raise ModelError(
                f"{place}(weight={weight.shape}, {what}={asked})", f"the weight has {what} {found}",
                f"Leave {what} out, or check kernel_layout={kernel_layout}.",
            )  # fmt: skip
    return in_layout(made, window.out_layout(made.attrs) if blocked else data_layout, out_layout)


def _one_of_two(padding: Any, rank: int) -> Any:
    """Of one axis TVM takes two equal numbers, too."""
    if rank == 1 and isinstance(padding, (tuple, list)) and len(padding) == 2:
        return padding[:1] if padding[0] == padding[1] else padding
    return padding


def of_one_type(data: Expr, weight: Expr, out_dtype: str) -> tuple[Expr, Expr]:
    """Integers of two narrow types in the one that sums of them are asked for."""
    if isinstance(weight, Var) and not weight.is_typed:
        return data, weight
    kinds = {data.dtype, weight.dtype}
    if len(kinds) == 1 or not out_dtype or not all(k.is_int for k in kinds):
        return data, weight
    return tensor.cast(data, out_dtype), tensor.cast(weight, out_dtype)


conv1d = _convolution(
    1,
    1,
    0,
    "`conv2d` over the one axis W; data_layout: NCW or NWC; kernel_layout: an order of OIW.",
)
conv2d = _convolution(2, (1, 1), (0, 0), """Two-dimensional convolution.

    data_layout: NCHW or NHWC; kernel_layout: any order of OIHW, I being channels / groups.  Or
        blocks of channels, NCHW8c with OIHW8i16o, which give NCHW16c; depthwise OIHW1i8o.
    channels, kernel_size: give an untyped weight its shape, and are checked against a typed one.
    out_dtype: of the sums; by default the data's, int32 for narrower integers.
    """)  # fmt: skip
conv3d = _convolution(
    3, (1, 1, 1), (0, 0, 0),
    "`conv2d` over D, H, W; data_layout: NCDHW or NDHWC; kernel_layout: an order of OIDHW.",
)  # fmt: skip
conv1d_transpose = _transposed(1, "`conv2d_transpose` over the one axis W.")
conv2d_transpose = _transposed(
    2, """The gradient of a convolution: (H - 1)*stride - padding + kernel + output_padding rows.

    kernel_layout: any order of IOHW, I being the channels of the data, O those of the result /
    groups; otherwise as `conv2d`.
    """)  # fmt: skip
conv3d_transpose = _transposed(3, "`conv2d_transpose` over D, H, W.")

__all__ = [
    "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose",
]  # fmt: skip
