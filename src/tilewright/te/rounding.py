"""What an element type does to a value: rounding, overflow, wrapping around, casts.

In: values as the reference keeps them, and their error bounds.  Out: the same, in a type.
Read next: `numeric.py`, which does it after every operation.

float16 and bfloat16 are *narrow*: a kernel computes them in float32 and may round to the narrow
type after any operation, but must when a stage is stored.  So every narrow operation adds half a
unit in the last place of the narrow type to the rounding of float32, and a narrow value beyond the
greatest number is kept as it is until something computes with it (then it is unknown: infinity if
it was rounded, itself if it was not) or it is stored (then it is infinity).  Integers below 32
bits, and unsigned ones, wrap around after every operation; int32 and int64 count as exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import DType
from tilewright.targets.precision import (
    ROUNDED_GREATEST,
    SPLIT_LEAST,
    SPLIT_LOST,
    Precision,
)

Array = npt.NDArray[Any]
LARGE_GRID = 2.0**200  # of zeros: finite, so that nothing times it is NaN
_BLOCK = 1 << 16
_FRACTION = (1 << 52) - 1  # bits of a float64


class Approx(NamedTuple):
    """A value as `kept_as` has it, and a bound on the distance of a kernel's value from it.

    error: None where a kernel's value is exact; for a bool 1.0 where it may come out either way;
    infinite where nothing is promised (overflow, a NaN, an index that rounding may change).
    grid: of floats, a power of two of which every value is a multiple; 0 where none is known.
    Sums and products of such values need no rounding as long as they stay small: `fits`
    """

    value: Array
    error: Array | None = None
    grid: float = 0.0

    def map(self, move: Callable[[Array], Array]) -> Approx:
        """Both arrays through `move`, which picks or rearranges elements."""
        error = None if self.error is None else move(self.error)
        return Approx(move(self.value), error, self.grid)


def kept_as(dtype: DType) -> type[np.generic]:
    """The numpy type in which the reference keeps values of `dtype`."""
    if dtype.is_float:
        return np.float64
    if dtype == "bool":
        return np.bool_
    return np.uint64 if dtype.greatest > np.iinfo(np.int64).max else np.int64


def grid_of(value: Array) -> float:
    """The greatest power of two of which all finite numbers are multiples; of zeros a large one."""
    numbers = np.asarray(value).reshape(-1)
    if numbers.dtype.kind != "f":
        return 1.0
    with np.errstate(invalid="ignore"):
        least = min((_last_bit(numbers[at]) for at in blocks(numbers.size)), default=np.inf)
    return float(least) if np.isfinite(least) else LARGE_GRID


def _last_bit(numbers: Array) -> float:
    """What the last bit of a number that is set stands for, the least of all that are finite;
    infinite where there is none but zeros."""
    held = numbers.astype(np.float64)
    bits = held.view(np.int64)
    shorter = (bits & (bits - 1)).view(np.float64)
    last = np.abs(np.where(bits & _FRACTION, held - shorter, held))
    last[last == 0] = np.inf
    return float(np.fmin.reduce(last))  # passes over NaN


def blocks(size: int) -> Iterator[slice]:
    """Parts of a long array, each small enough to stay in the cache with what is made of it."""
    return (slice(k, min(k + _BLOCK, size)) for k in range(0, size, _BLOCK))


def fits(magnitude: Array, grid: float, dtype: DType) -> Array | None:
    """Tell where multiples of `grid` up to `magnitude` are numbers of the type; None: nowhere."""
    if grid < _flushed(dtype):
        return None
    return np.asarray(magnitude <= min(dtype.greatest, grid * 2.0**dtype.digits))


def taken(operands: Iterable[Approx], precision: Precision) -> tuple[list[Approx], bool]:
    """Factors as they are multiplied in a precision, and whether that loses nothing of products.

    Nothing is promised of what may be rounded to infinity, nor where there is one in parts.
    """
    found, digits, whole = [], precision.digits, True
    for operand in operands:
        size = np.abs(operand.value)
        whole &= operand.grid > 0 and _is_within(size, operand.grid * 2.0**digits)
        lost = np.where(size > ROUNDED_GREATEST, np.inf, 0.0)
        if precision.parts > 1:
            lost += np.where((size > 0) & (size < SPLIT_LEAST), SPLIT_LOST, 0.0)
        else:
            lost[np.isinf(size)] = 0.0
        if lost.any():
            known = 0.0 if operand.error is None else operand.error
            operand = operand._replace(error=known + lost)
        found.append(operand)
    return found, whole


def exactly(error: Array | None, exact: Array | None) -> Array | None:
    """`error`, nothing where `exact`."""
    if error is None or exact is None:
        return error
    return None if exact.all() else np.where(exact, 0.0, error)


def is_narrow(dtype: DType) -> bool:
    """A float that is computed in a wider type and rounded when it is stored."""
    return dtype.is_float and dtype.compute is not dtype


def rounding(value: Array, dtype: DType, units: float = 1.0) -> Array:
    """`units` roundings of `value` to `dtype`, or its flush to zero when it is denormal."""
    size = np.abs(value)
    all_finite = _is_within(size, np.finfo(np.float64).max)
    size = units * dtype.eps * size + units * _flushed(dtype)
    return size if all_finite else np.where(np.isfinite(value), size, 0.0)


def narrowing(magnitude: Array, dtype: DType) -> Array:
    """One rounding to nearest of values as large as `magnitude` to a narrow type."""
    return 0.5 * rounding(magnitude, dtype)


def _flushed(dtype: DType) -> float:
    """What is lost near zero: denormals are flushed where arithmetic happens, but not in memory."""
    smallest_normal = dtype.compute.smallest / dtype.compute.eps
    return max(smallest_normal, dtype.smallest)


def no_nan(error: Array) -> Array:
    """`error` with NaN (infinity minus itself, zero times infinity) as infinity."""
    return error if _is_within(error, np.inf) else np.where(np.isnan(error), np.inf, error)


def _is_within(magnitude: Array, limit: float) -> bool:
    """Whether no element is beyond it, nor NaN."""
    return not magnitude.size or bool(magnitude.max() <= limit)


def overflowing(value: Array, error: Array, limit: float) -> Array:
    """`error`, infinite where a kernel may exceed `limit`; an infinity that is exact stays so."""
    magnitude = np.abs(value)
    if error.shape == magnitude.shape and _is_within(magnitude + error, limit):
        return error
    with_error = np.where(np.isfinite(magnitude), magnitude + error, 0.0)
    return np.where(with_error > limit, np.inf, error)


def infinite_from(dtype: DType) -> float:
    """The least number that rounds to infinity: half a unit beyond the greatest."""
    return dtype.greatest * (1 + dtype.eps / (4 - 2 * dtype.eps))


def if_rounded(operand: Approx, dtype: DType) -> Array | None:
    """The error of a narrow operand that a kernel may have rounded to infinity, or not."""
    if not is_narrow(dtype):
        return operand.error
    reach = np.abs(operand.value) + (0.0 if operand.error is None else operand.error)
    beyond = np.isfinite(operand.value) & (reach >= infinite_from(dtype))
    if not beyond.any():
        return operand.error
    return np.where(beyond, np.inf, 0.0 if operand.error is None else operand.error)


def stored(result: Approx, dtype: DType) -> Approx:
    """`result` as an element of a stage, which has its own type."""
    if not is_narrow(dtype):
        return result._replace(value=cast_value(result.value, dtype))
    limit = infinite_from(dtype)
    beyond = np.isfinite(result.value) & (np.abs(result.value) >= limit)
    value = np.where(beyond, np.copysign(np.inf, result.value), result.value)
    if result.error is None:
        return result._replace(value=value)
    surely = beyond & (np.abs(result.value) - result.error >= limit)
    error = np.where(beyond, np.inf, overflowing(result.value, result.error, limit))
    return Approx(value, np.where(surely, 0.0, error), result.grid)


def wrapped(value: Array, dtype: DType) -> Array:
    """`value` modulo the size of an integer type that wraps around; other types as they are."""
    if not dtype.is_int or dtype.is_index:
        return value
    return _modulo(value, dtype)


def _modulo(value: Array, dtype: DType) -> Array:
    whole: Array = value.astype(dtype.storage).astype(kept_as(dtype))
    return whole


def around(result: Approx, dtype: DType) -> Approx:
    """`result` of an operation on integers, unknown where its error may carry it around."""
    value = wrapped(result.value, dtype)
    if result.error is None:
        return Approx(value)
    error = no_nan(result.error)
    if value is result.value:
        return Approx(value, error)
    low, high = result.value - error, result.value + error
    inside = (low >= dtype.least) & (high <= dtype.greatest)
    return Approx(value, np.where(inside | (error == 0), error, np.inf))


def cast_value(value: Array, dtype: DType) -> Array:
    """`value` as the reference keeps `dtype`: a number (towards zero, wrapped) or bool."""
    if dtype == "bool":
        return np.asarray(value != 0)
    if not dtype.is_int:
        return np.asarray(value, dtype=np.float64)
    if value.dtype == dtype.storage:
        return value.astype(kept_as(dtype))
    if value.dtype.kind != "f":
        return _modulo(value.astype(kept_as(dtype)), dtype)
    whole: Array = np.clip(np.nan_to_num(value), dtype.least, dtype.greatest)
    return whole.astype(kept_as(dtype))


def keeps_all(source: DType, target: DType) -> bool:
    """Tell whether `target` holds every number of `source`, so that a cast changes none."""
    if source is target or source.kind == "bool":
        return True
    if target.is_float and source.is_float:
        return target.bits >= source.bits and target.digits >= source.digits
    if target.is_float:
        return target.digits >= source.bits
    return source.is_int and target.least <= source.least and target.greatest >= source.greatest
