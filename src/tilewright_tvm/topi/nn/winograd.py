"""Winograd's convolutions by TVM's names, and the parts of which its scripts make their own.

In: data and a kernel, or the sizes of tiles.  Out: tensors.
Read next: `tilewright/topi/nn/winograd.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright import te
from tilewright.base.doors import named
from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.winograd import (
    DEFAULT_TILE,
    Matrix,
    check_tile,
    chosen,
    matrices,
    packed_kernel,
    winograd,
)
from tilewright.topi.stage import Indices, call_text, check_tensor, require, require_float, stage


def tile_size_for(height: int) -> int:
    """Return what TVM takes: 4 for images of a multiple of 8 rows, else 2."""
    return DEFAULT_TILE if height % 8 == 0 else 2


def winograd_transform_matrices(
    tile_size: int, kernel_size: int, out_dtype: str = "float32"
) -> tuple[Tensor, Tensor, Tensor]:
    """A [alpha, m], B [alpha, alpha] and G [alpha, r] of F(m, r) as computed tensors of constants.

    For computations of one's own: name the axes that index them in the attribute
    ``auto_scheduler_simplify_const_tensor_indices``.
    """
    place = call_text("winograd_transform_matrices", tile_size=tile_size, kernel_size=kernel_size)
    check_tile(tile_size, kernel_size, kernel_size, False, place)
    dtype, found = DType(out_dtype, place), matrices(tile_size, kernel_size)

    def constant(rows: Matrix, name: str) -> Tensor:
        def body(i: Indices) -> Expr:
            values = [[te.const(float(x), dtype) for x in row] for row in rows]
            return chosen(i[0], [chosen(i[1], row) for row in values])

        return stage(
            [len(rows), len(rows[0])], body, name, "const_matrix", axes=["eps", "nu"]
        )  # fmt: skip

    return constant(found.inverse, "A"), constant(found.data, "B"), constant(found.kernel, "G")


def conv2d_winograd_weight_transform(kernel: Tensor, tile_size: int) -> Tensor:
    """kernel [CO, CI, R, R]; result [alpha, alpha, CO, CI]."""
    place = call_text("conv2d_winograd_weight_transform", kernel=kernel, tile_size=tile_size)
    check_tensor(kernel, "kernel", "OIHW", place)
    check_tile(tile_size, kernel.shape[2], kernel.shape[3], False, place)
    require_float(kernel, "Winograd's convolution", place)
    return packed_kernel(kernel, "OIHW", tile_size, False)


def _plain(strides: int | Sequence[int], dilation: int | Sequence[int], **arguments: Any) -> None:
    """Refuse what has no form of Winograd's."""
    for what, value in {"strides": strides, "dilation": dilation}.items():
        ones = value == 1 if isinstance(value, int) else list(value) == [1, 1]
        require(
            ones, call_text("conv2d_winograd", **arguments), f"{what}={value!r} is not 1",
            "Use conv2d.",
        )  # fmt: skip


def _by_name(layout: str, meaning: str) -> Callable[..., Tensor]:
    @named(f"conv2d_winograd_{layout.lower()}", meaning)
    def convolution(
        data: Tensor, weight: Tensor, strides: int | Sequence[int] = 1, padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        out_dtype: str | None = None, pre_computed: bool = False, tile_size: int | None = None,
    ) -> Tensor:  # fmt: skip
        _plain(strides, dilation, data=data, weight=weight)
        check_tensor(data, "data", layout, call_text("conv2d_winograd", data=data))
        rows = data.shape[layout.index("H")]
        tile = tile_size_for(rows) if tile_size is None else tile_size
        return winograd(data, weight, padding, tile, layout, None, out_dtype, pre_computed)

    return convolution


def _transformed(layout: str, compute: Callable[..., Tensor], shape: str) -> Callable[..., Tensor]:
    name = f"conv2d_winograd_{layout.lower()}"

    @named(
        f"{name}_without_weight_transform",
        f"`{name}` with a weight {shape} that was transformed before.",
    )
    def convolution(
        data: Tensor, weight: Tensor, strides: int | Sequence[int] = 1, padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        out_dtype: str | None = None, tile_size: int | None = None,
    ) -> Tensor:  # fmt: skip
        return compute(data, weight, strides, padding, dilation, out_dtype, True, tile_size)

    return convolution


conv2d_winograd_nchw = _by_name(
    "NCHW",
    """data [N, CI, H, W], weight [CO, CI, R, R]; result [N, CO, OH, OW].

    pre_computed: the weight comes as [alpha, alpha, CI, CO]; tile_size: default: 4 where H is a
    multiple of 8, else 2
    """,
)
conv2d_winograd_nhwc = _by_name(
    "NHWC",
    """data [N, H, W, CI], weight [R, R, CI, CO]; result [N, OH, OW, CO].

    pre_computed: the weight comes as [alpha, alpha, CO, CI]; tile_size: as for NCHW
    """,
)
conv2d_winograd_nchw_without_weight_transform = _transformed(
    "NCHW", conv2d_winograd_nchw, "[alpha, alpha, CI, CO]"
)
conv2d_winograd_nhwc_without_weight_transform = _transformed(
    "NHWC", conv2d_winograd_nhwc, "[alpha, alpha, CO, CI]"
)
