"""Winograd's convolutions in two halves, as TVM's `AlterOpLayout` writes them into networks:
`nn.contrib_conv2d_winograd_weight_transform` and `..._without_weight_transform`, also of volumes.

In: a kernel, or data and a transformed kernel.  Out: graph values made of products with small
constant matrices.  A network that has `nn.conv2d` instead is as right and faster: a build chooses
between direct kernels and Winograd's by what was measured.
Read next: `topi/nn/winograd.py`, which has the matrices and the reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import named
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import strided_slice
from tilewright.graph.functions.linear import LETTERS, einsum
from tilewright.graph.functions.sizes import per_axis, sides
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright.graph.op.window import IMAGE
from tilewright.topi.nn.winograd import MAX_POINTS, Matrix, matrices
from tilewright_tvm.relay.signal import sliding_window

_DEEP = range(3, 8)  # extents of a kernel's depth that are transformed


def weight_transform(rank: int) -> Callable[[Expr, int], Expr]:
    name = f"contrib_conv{rank}d_winograd_weight_transform"

    @named(name, _KERNEL_OF[rank])
    def transform(weight: Expr, tile_size: int) -> Expr:
        place = f"nn.{name}(weight={weight.shape}, tile_size={tile_size})"
        if len(weight.shape) != rank + 2:
            raise ModelError(place, f"the kernel has no {rank} axes of space", "Use layout OIHW.")
        axes = _transformed_axes(weight.shape[2:])
        made = weight
        for axis in axes:
            found = _matrices(tile_size, weight.shape[2 + axis], weight, place)
            made = _multiplied(made, found.kernel, 2 + axis)
        rest = [k for k in range(rank) if k not in axes]
        return tensor.transpose(made, (*(2 + k for k in (*axes, *rest)), 0, 1))

    return transform


def without_weight_transform(rank: int) -> Callable[..., Expr]:
    name = f"contrib_conv{rank}d_winograd_without_weight_transform"
    data_layout, weight_layout = f"NC{IMAGE[rank]}", f"OI{IMAGE[rank]}"

    @named(name, _CONVOLUTION[rank])
    def convolution(
        data: Expr, weight: Expr, tile_size: int, strides: Any = 1, padding: Any = 0,
        dilation: Any = 1, groups: int = 1, channels: int | None = None,
        kernel_size: Any = None, data_layout: str = data_layout,
        kernel_layout: str = weight_layout, out_layout: str = "", out_dtype: str = "",
    ) -> Expr:  # fmt: skip
        place = f"nn.{name}(data={data.shape}, weight={weight.shape}, tile_size={tile_size})"
        plain = {
            "strides": per_axis(strides, rank, "strides", place) == (1,) * rank,
            "dilation": per_axis(dilation, rank, "dilation", place) == (1,) * rank,
            "groups": groups == 1, "data_layout": data_layout == f"NC{IMAGE[rank]}",
            "out_layout": out_layout in ("", data_layout),
            "out_dtype": out_dtype in ("", str(data.dtype)),
            "channels": channels is None or channels == weight.shape[-2],
        }  # fmt: skip
        if wrong := [what for what, holds in plain.items() if not holds]:
            raise ModelError(
                place, f"{wrong[0]} is not what Winograd's convolutions have",
                f"Use relay.nn.conv{rank}d with the kernel as it was.",
            )  # fmt: skip
        size = None if kernel_size is None else per_axis(kernel_size, rank, "kernel_size", place)
        return _convolved(data, weight, tile_size, sides(padding, rank, place), size, place)

    return convolution


def _convolved(
    data: Expr, weight: Expr, m: int, padding: Sequence[int], size: Sequence[int] | None, place: str
) -> Expr:
    """size: of the kernel; default: that of a transform along all axes that are equally long"""
    rank = len(data.shape) - 2
    if len(weight.shape) != rank + 2 or weight.shape[-1] != data.shape[1]:
        raise ModelError(
            place, "the transformed kernel is not [..., channels, channels of the data]",
            "Transform a kernel OIHW with the operator of the other half.",
        )  # fmt: skip
    if size is None:
        even = len(set(weight.shape[:-2])) == 1
        cut = [n - m + 1 for n in weight.shape[: rank if even else rank - 1]]
        size = cut if even else [weight.shape[rank - 1], *cut]
    axes = _transformed_axes(size)
    rest = [k for k in range(rank) if k not in axes]
    wanted = (*(m + size[k] - 1 for k in axes), *(size[k] for k in rest))
    if weight.shape[:rank] != wanted:
        raise ModelError(
            place, f"a kernel of {tuple(size)} is {wanted} when it is transformed",
            "Name kernel_size=, and the tile_size of the other half.",
        )  # fmt: skip
    step = [m if k in axes else 1 for k in range(rank)]
    window = [m + size[k] - 1 if k in axes else size[k] for k in range(rank)]
    before, after = padding[:rank], padding[rank:]
    extents = [n + b + a - r + 1 for n, b, a, r in zip(data.shape[2:], before, after, size,
                                                       strict=True)]  # fmt: skip
    if min(extents) < 1:
        raise ModelError(place, "the kernel is larger than the padded data", "Pad it.")
    filled = [-n % s for n, s in zip(extents, step, strict=True)]
    around = [(b, a + f) for b, a, f in zip(before, after, filled, strict=True)]
    padded = call("nn.pad", data, pad_width=((0, 0), (0, 0), *around), pad_value=0.0)
    made = sliding_window(padded, 2, window, step)  # [N, I, tiles..., window...]
    for k in axes:
        found = _matrices(m, size[k], data, place)
        made = _multiplied(made, tuple(zip(*found.data, strict=True)), 2 + rank + k)
    tiles, inside = LETTERS[3 : 3 + rank], LETTERS[3 + rank : 3 + 2 * rank]
    kept, summed = (("".join(inside[k] for k in part)) for part in (axes, rest))
    # a: the batch, b: the data's channels, c: the result's
    made = einsum([made, weight], f"ab{tiles}{inside},{kept}{summed}cb->ac{tiles}{kept}")
    for place_, k in enumerate(axes):
        found = _matrices(m, size[k], data, place)
        made = _multiplied(made, tuple(zip(*found.inverse, strict=True)), 2 + rank + place_)
    order = [0, 1]
    for k in range(rank):
        order += [2 + k, 2 + rank + axes.index(k)] if k in axes else [2 + k]
    whole = [n + f for n, f in zip(extents, filled, strict=True)]
    made = call("reshape", tensor.transpose(made, order), newshape=(*made.shape[:2], *whole))
    if whole == extents:
        return made
    return strided_slice(made, [0] * (rank + 2), [*made.shape[:2], *extents])


def _transformed_axes(size: Sequence[int]) -> list[int]:
    """Which axes of a kernel are transformed: all, but of a volume not a depth of 1, 2 or many."""
    rank = len(size)
    return [k for k in range(rank) if k or rank == 2 or size[0] in _DEEP]


def _matrices(m: int, r: int, value: Expr, place: str) -> Any:
    if not value.dtype.is_float:
        raise ModelError(place, f"{value.dtype} is no floating-point type", "Use relay.nn.conv2d.")
    if m < 1 or m + r - 2 > MAX_POINTS:
        raise ModelError(
            place, f"tiles of {m} for a kernel of {r} need {m + r - 2} points",
            f"Use a tile_size of at least 1, with at most {MAX_POINTS} points.",
        )  # fmt: skip
    return matrices(m, r)


def _multiplied(value: Expr, rows: Matrix, axis: int) -> Expr:
    """The sum over `axis` with each of `rows`, which takes its place."""
    letters = LETTERS[: len(value.shape)]
    new = LETTERS[len(letters)]
    result = letters[:axis] + new + letters[axis + 1 :]
    matrix = const(np.array([[float(x) for x in row] for row in rows]), str(value.dtype))
    return einsum([matrix, value], f"{new}{letters[axis]},{letters}->{result}")


_KERNEL_OF = {
    2: "weight [O, I, R, R] as [alpha, alpha, O, I], alpha being tile_size + R - 1.",
    3: "weight [O, I, D, R, R] as [alpha, alpha, alpha, O, I], alpha being tile_size + R - 1; a "
    "depth of 1, 2 or more than 7 stays as it is: [alpha, alpha, D, O, I].",
}  # fmt: skip
_CONVOLUTION = {
    2: "`conv2d` of data NCHW with a kernel that the other half has transformed; strides and "
    "dilation are 1.  kernel_size: default: alpha - tile_size + 1.",
    3: "`conv3d` of data NCDHW with a kernel that the other half has transformed; strides and "
    "dilation are 1.  kernel_size: default: what a transform of all axes of one length gives, "
    "else a depth as it is.",
}  # fmt: skip

contrib_conv2d_winograd_weight_transform = weight_transform(2)
contrib_conv3d_winograd_weight_transform = weight_transform(3)
contrib_conv2d_winograd_without_weight_transform = without_weight_transform(2)
contrib_conv3d_winograd_without_weight_transform = without_weight_transform(3)

__all__ = [
    "contrib_conv2d_winograd_weight_transform", "contrib_conv2d_winograd_without_weight_transform",
    "contrib_conv3d_winograd_weight_transform", "contrib_conv3d_winograd_without_weight_transform",
]  # fmt: skip
