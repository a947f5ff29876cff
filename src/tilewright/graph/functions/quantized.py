"""To integers and back: real = scale * (integer - zero point).

In: graph values; a scale and a zero point that are single numbers, vectors along one axis, or
blocks along it.  Out: chains of elementwise operators.  Rounding is to nearest, halves to even, and
what lies beyond the integers' range takes its end, as ONNX has it.
Read next: `models/onnx/ops/quantize.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.dtype import FLOAT32, DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Constant, Expr, check_dtype
from tilewright.graph.functions import indexing, tensor

NARROW = ("int8", "uint8", "int16", "uint16")


def quantize(
    data: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    out_dtype: str = "int8",
) -> Expr:
    """round(data / output_scale) + output_zero_point, limited to what `out_dtype` holds.

    output_scale, output_zero_point: one number, a vector along `axis`, or of the data's rank
    Raises ModelError unless `out_dtype` is an integer type of 8 or 16 bits.
    """
    kind = check_dtype(out_dtype, "qnn.quantize")
    if kind not in NARROW:
        raise ModelError(
            f"qnn.quantize(out_dtype={out_dtype!r})", "it is no integer type of 8 or 16 bits",
            f"Use one of {', '.join(NARROW)}.",
        )  # fmt: skip
    wide = _computed_in(data.tensor_type.dtype)
    scale = tensor.cast(placed(output_scale, data, axis), wide)
    return narrowed(tensor.cast(data, wide) / scale, placed(output_zero_point, data, axis), kind)


def narrowed(steps: Expr, zero_point: Expr, kind: DType) -> Expr:
    """Floats that count steps of a scale, as integers of a narrow type."""
    return tensor.cast(limited_steps(steps, tensor.cast(zero_point, steps.dtype), kind), kind)


def limited_steps(steps: Expr, zero_point: Expr, kind: DType) -> Expr:
    """Floats that count steps, rounded, moved, and limited to what an integer type holds."""
    greatest = np.asarray(kind.greatest, steps.tensor_type.dtype.storage)
    if int(greatest) > kind.greatest:  # the float behind it would not fit
        greatest = np.nextafter(greatest, greatest.dtype.type(0))
    return tensor.clip(tensor.round(steps) + zero_point, float(kind.least), float(greatest))


def dequantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    axis: int = -1,
    out_dtype: str = "float32",
) -> Expr:
    """input_scale * (data - input_zero_point), in `out_dtype`."""
    kind = check_dtype(out_dtype, "qnn.dequantize")
    wide = _computed_in(kind)
    steps = centred(data, placed(input_zero_point, data, axis))
    scale = tensor.cast(placed(input_scale, data, axis), wide)
    return tensor.cast(tensor.cast(steps, wide) * scale, kind)


def centred(data: Expr, zero_point: Expr) -> Expr:
    """data - zero_point where no difference wraps around: in int32, int64 for wide integers."""
    known = isinstance(zero_point, Constant) and not zero_point.data.any()
    wide = "int32" if data.tensor_type.dtype.bits < 32 or known else "int64"
    return tensor.cast(data, wide) - tensor.cast(zero_point, wide)


def _computed_in(kind: DType) -> DType:
    return kind.compute if kind.is_float else FLOAT32


def placed(value: Expr, data: Expr, axis: int) -> Expr:
    """A scale or zero point in a shape that stretches to that of `data`."""
    shape, rank = value.shape, len(data.shape)
    if value.tensor_type.size == 1:
        return tensor.reshape(value, ()) if shape else value
    if not -rank <= axis < rank:
        raise _misfit(value, data, axis)
    at = axis % rank
    extent = data.shape[at]
    if shape == (extent,):
        return tensor.expand_dims(value, 1, rank - 1 - at) if rank - 1 - at else value
    if shape == data.shape:
        return value
    blocked = len(shape) == rank and all(
        a == b or k == at for k, (a, b) in enumerate(zip(shape, data.shape, strict=True))
    )
    if not blocked or not 0 < shape[at] <= extent:
        raise _misfit(value, data, axis)
    size = -(-extent // shape[at])
    if -(-extent // size) != shape[at]:
        raise _misfit(value, data, axis)
    whole = indexing.repeat(value, size, at)
    kept = [range(extent if k == at else n) for k, n in enumerate(whole.shape)]
    return whole if size * shape[at] == extent else indexing.slice_of(whole, kept)


def _misfit(value: Expr, data: Expr, axis: int) -> ModelError:
    return ModelError(
        f"qnn(data={data.shape}, axis={axis})", f"a scale or zero point of {value.shape} is none",
        "Use one number, a vector along the axis, or equal blocks along it.",
    )  # fmt: skip


__all__ = ["NARROW", "centred", "dequantize", "limited_steps", "narrowed", "placed", "quantize"]
