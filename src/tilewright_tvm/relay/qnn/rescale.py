"""From steps of one scale to steps of another: `requantize`.

In: integers, their scale and zero point, and those of the result.  Out: integers of the result's
type.  Computed in float32 or float64, or exactly by rules of fixed point: a multiplier of 31 bits,
a shift, and one rounding.
Read next: `arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Constant, Expr, check_dtype
from tilewright.graph.functions import tensor
from tilewright.graph.functions.quantized import centred, dequantize, narrowed, placed
from tilewright.graph.leaves import const

_ROUNDINGS: dict[str, Callable[[Expr], Expr]] = {
    "UPWARD": lambda x: tensor.floor(x + 0.5),
    "TONEAREST": lambda x: tensor.sign(x) * tensor.floor(tensor.abs(x) + 0.5),
}
_COMPUTED = ("float32", "float64", "int64")
_CONFIGURED: ContextVar[tuple[str, str]] = ContextVar("requantize", default=("UPWARD", "float32"))


class requantize_config:  # a context manager under TVM's name
    """What `requantize` takes for "None" inside: `with requantize_config(rounding="TONEAREST"):`.

    rounding: "UPWARD" or "TONEAREST"; compute_dtype: "float32", "float64" or "int64";
    what is not given stays as it was.  Raises ModelError for other words.
    """

    def __init__(self, rounding: str = "None", compute_dtype: str = "None") -> None:
        self._chosen = _checked(rounding, compute_dtype, "qnn.requantize_config")
        self._before: list[Token[tuple[str, str]]] = []

    def __enter__(self) -> requantize_config:
        self._before.append(_CONFIGURED.set(self._chosen))
        return self

    def __exit__(self, *_: object) -> None:
        _CONFIGURED.reset(self._before.pop())


def requantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    rounding: str = "None",
    compute_dtype: str = "None",
    out_dtype: str = "int8",
) -> Expr:
    """`data` in steps of another scale, limited to what `out_dtype` holds.

    axis: of scales and zero points that are vectors
    rounding: of halves: "UPWARD", or "TONEAREST", which is away from zero
    compute_dtype: "float32", "float64", or "int64", which is fixed point: the ratio of the scales,
        which are constants then, is rounded to 31 bits and the product is exact
    "None" is what `requantize_config` says, "UPWARD" and "float32" outside of it.
    Raises ModelError for other words and for results that are no integers of at most 32 bits.
    """
    place = f"qnn.requantize(data={data.shape}, out_dtype={out_dtype!r})"
    rounding, wide = _checked(rounding, compute_dtype, place)
    kind = check_dtype(out_dtype, place)
    if not kind.is_int or kind.bits > 32:
        raise ModelError(place, "it is no integer type of at most 32 bits", 'Use "int8".')
    if same(input_scale, output_scale) and same(input_zero_point, output_zero_point):
        return limited(data, kind)
    if wide == "int64":
        steps = _fixed_point(data, input_scale, input_zero_point, output_scale, axis, rounding)
        moved = steps + tensor.cast(placed(output_zero_point, data, axis), "int64")
        return limited(moved, kind)
    real = dequantize(data, input_scale, input_zero_point, axis, wide)
    steps = real / tensor.cast(placed(output_scale, data, axis), wide)
    return rounded(steps, placed(output_zero_point, data, axis), kind, rounding)


def rounded(steps: Expr, zero_point: Expr, kind: DType, rounding: str = "UPWARD") -> Expr:
    """Floats that count steps of a scale, as integers; halves go up, or as `rounding` says."""
    return narrowed(_ROUNDINGS[rounding](steps), zero_point, kind)


def limited(data: Expr, kind: DType) -> Expr:
    """Integers in another type; what lies beyond it takes its end."""
    held = data.tensor_type.dtype
    if kind.least <= held.least and held.greatest <= kind.greatest:
        return tensor.cast(data, kind)
    ends = max(kind.least, held.least), min(kind.greatest, held.greatest)
    least, greatest = (const(np.array(end, held.storage)) for end in ends)
    return tensor.cast(tensor.minimum(tensor.maximum(data, least), greatest), kind)


def same(a: Expr, b: Expr) -> bool:
    """Whether two scales or zero points are known to be one number, or equal vectors."""
    if a is b:
        return True
    if not (isinstance(a, Constant) and isinstance(b, Constant)):
        return False
    if a.data.size == 1 or b.data.size == 1:
        return bool(a.data.size and b.data.size and (a.data == b.data.reshape(-1)[0]).all()
                    and (b.data == a.data.reshape(-1)[0]).all())  # fmt: skip
    return a.data.shape == b.data.shape and bool((a.data == b.data).all())


def _checked(rounding: str, computed: str, place: str) -> tuple[str, str]:
    """Both words, "None" replaced by what is configured."""
    usual_rounding, usual_computed = _CONFIGURED.get()
    rounding = usual_rounding if rounding == "None" else rounding
    computed = usual_computed if computed == "None" else computed
    if rounding not in _ROUNDINGS:
        raise ModelError(place, f"rounding {rounding!r} is not known", "Use UPWARD or TONEAREST.")
    if computed not in _COMPUTED:
        raise ModelError(
            place, f"compute_dtype {computed!r} is not known", f"Use one of {', '.join(_COMPUTED)}."
        )
    return rounding, computed


def _fixed_point(
    data: Expr, scale: Expr, zero_point: Expr, output_scale: Expr, axis: int, rounding: str
) -> Expr:
    """(data - zero point) * scale / output scale in int64: a multiplier, a shift, one rounding."""
    place = f"qnn.requantize(data={data.shape}, compute_dtype='int64')"
    if not (isinstance(scale, Constant) and isinstance(output_scale, Constant)):
        raise ModelError(
            place, "its scales are not known when it is built",
            'Give constants, or use compute_dtype="float32".',
        )  # fmt: skip
    ratio = scale.data.astype("float64") / output_scale.data.astype("float64")
    if not (np.isfinite(ratio).all() and (ratio > 0).all() and (ratio < 2.0**30).all()):
        raise ModelError(place, "the ratio of its scales is not between 0 and 2**30", "Scale less.")
    part, exponent = np.frexp(ratio)
    shift = np.minimum(31 - exponent, 62)  # smaller ratios leave nothing of 32 bits
    factor = np.rint(np.ldexp(part, exponent + shift))
    steps = tensor.cast(centred(data, placed(zero_point, data, axis)), "int64")
    by = placed(const(shift.astype("int64")), data, axis)
    half = placed(const(np.int64(1) << (shift.astype("int64") - 1)), data, axis)
    product = steps * placed(const(factor.astype("int64")), data, axis) + half
    if rounding == "TONEAREST":  # what is below zero has its halves go down
        zero, one = const(np.int64(0)), const(np.int64(1))
        product = product - tensor.where(tensor.less(steps, zero), one, zero)
    return tensor.right_shift(product, by)


__all__ = ["limited", "requantize", "requantize_config", "rounded", "same"]
