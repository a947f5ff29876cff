"""Quantisation tried out in floats: the integers, and what they lose, without integer types.

In: float tensors, a scale and a zero point, and which integers are meant: a name, or a graph value
that holds its code, so that one compiled network can try several.  Out: floats.
Read next: `graph/functions/quantized.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.base.dtype import FLOAT32, DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.quantized import limited_steps, placed
from tilewright.graph.leaves import const
from tilewright_tvm.topi.nn.qnn import SQNN_DTYPE_TO_CODE as CODES


def simulated_quantize(
    data: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    out_dtype: str | Expr = "int8",
) -> Expr:
    """`quantize`, its integers as floats of `data`'s type.

    out_dtype: a name of `topi.nn.qnn.SQNN_DTYPE_TO_CODE`, or a graph value that holds one of its
        codes at run time
    """
    steps = data / _as(data, output_scale, axis)
    zero = _as(data, output_zero_point, axis)

    def held(name: str) -> Expr:
        return limited_steps(steps, zero, DType(name))

    return _chosen(data, out_dtype, held, "qnn.simulated_quantize")


def simulated_dequantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    axis: int = -1,
    in_dtype: str | Expr = "int8",
) -> Expr:
    """`dequantize` of integers that are held as floats.

    in_dtype: a name of `topi.nn.qnn.SQNN_DTYPE_TO_CODE`, or a graph value that holds one of its
        codes at run time
    """
    real = (data - _as(data, input_zero_point, axis)) * _as(data, input_scale, axis)
    return _chosen(data, in_dtype, lambda _: real, "qnn.simulated_dequantize")


def _as(data: Expr, value: Expr, axis: int) -> Expr:
    if data.tensor_type.dtype != FLOAT32:
        raise ModelError(f"qnn.simulated(data={data.dtype})", "it takes float32", "Cast it.")
    return tensor.cast(placed(value, data, axis), FLOAT32)


def _chosen(data: Expr, dtype: str | Expr, held: Callable[[str], Expr], place: str) -> Expr:
    """What the type that is named makes of the data, or the one whose code comes at run time."""
    names = [name for name in CODES if name != "disable"]
    if isinstance(dtype, str):
        if dtype not in CODES:
            raise ModelError(
                place, f"{dtype!r} is none of its types", f"Use one of {', '.join(CODES)}."
            )
        return held(dtype) if dtype in names else data
    if not isinstance(dtype, Expr) or dtype.tensor_type.size != 1:
        raise ModelError(
            place, f"its type is {dtype!r}", "Give a name, or a graph value of one number, a code."
        )
    code, found = tensor.reshape(tensor.cast(dtype, "int32"), ()), data
    for name in names:
        found = tensor.where(tensor.equal(code, const(np.int32(CODES[name]))), held(name), found)
    return found


__all__ = ["simulated_dequantize", "simulated_quantize"]
