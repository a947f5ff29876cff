"""`cases`: what a kernel of a DAG is verified with, twice: random inputs and small whole numbers.

In: a DAG.  Out: two `Case`s.  Random numbers reach every branch, but the bound of a long sum is
wider than one of its terms.  Whole numbers that stay small leave nothing to round, in whatever
order they are added: there the bound is zero, and one missing term shows.  Which outputs are exact
is not a matter of their operators; the bound of the reference says so (`rounding.Approx.grid`).
Errors around zero cancel, so a long sum whose accumulator has lost its digits shows in neither:
of its inputs, half of the random numbers lie far from zero and close together.
Read next: `evaluate.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from tilewright.base.case import Case
from tilewright.targets.precision import FLOAT32
from tilewright.te.chains import LONGEST, adds_up, terms_of
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import (
    Draw,
    approximations,
    normal,
    random_inputs,
)
from tilewright.te.rounding import Approx, Array, blocks
from tilewright.te.tensor import Tensor

# (largest number, halvings): tried in this order until most of the outputs tell.  Fractions are for
# what saturates (a relu6, a sigmoid), smaller numbers for what is added up in few digits.
_SCALES = ((8, 0), (8, 3), (8, 5), (2, 0), (1, 0))
_ENOUGH = 0.8
_SAMPLE = 1 << 16  # elements of an output that are looked at
_DEVIATIONS = 3.0  # sums lie so far above zero that few end in a relu

# Far from zero, and its distance from the numbers that an accumulator of a power of two holds is a
# good part of their spacing, which the spread does not cover.
_FAR, _SPREAD = 107.3, 0.02
_FAR_HALF = 1.073, 0.0002  # of a type whose greatest number is soon reached


def cases(
    dag: ComputeDAG, seed: int = 0, given: Mapping[Tensor, Array] = MappingProxyType({}),
    precision: str = FLOAT32,
) -> tuple[Case, Case]:  # fmt: skip
    """Random inputs, then whole numbers; the same for the same seed.

    given: values of inputs that are not drawn, such as indices which others must agree with; of
           these the second case keeps the integers, since any floats will do for it
    precision: see `evaluate.tolerance`
    Raises ExpressionError for a computation that reads out of bounds.
    """
    kept = {tensor: value for tensor, value in given.items() if not tensor.dtype.is_float}
    random = _random(dag, seed, given, precision)
    return random, whole_numbers(dag, seed, kept, precision)


def _random(dag: ComputeDAG, seed: int, given: Mapping[Tensor, Array], precision: str) -> Case:
    long = any(adds_up(op) and terms_of(op) > LONGEST for op in dag.compute_ops)
    for draw in (half_far, None) if long else (None,):
        inputs = random_inputs(dag, seed, draw, given)
        results = approximations(dag, inputs, precision)
        if draw is None or all(map(_promised, results)):
            break
    return _case(dag, inputs, results)


def _promised(result: Approx) -> bool:
    """Whether at least half of the elements are numbers with a bound: far from zero nothing has
    become too large."""
    if not result.value.size:
        return True
    known = np.isfinite(result.value)
    known = known if result.error is None else known & np.isfinite(result.error)
    return bool(known.mean() >= 0.5)


def half_far(tensor: Tensor, rng: np.random.Generator) -> Array | None:
    """The floats of `random_inputs`, but for half of the tensor along its first axis of several
    elements: that is far from zero."""
    dtype = tensor.dtype
    if not dtype.is_float or dtype.bits > 32:  # float64 has digits enough, and no blocks
        return None
    drawn = normal(tensor, rng)
    far, spread = (_FAR, _SPREAD) if dtype.greatest > 1e9 else _FAR_HALF
    axis = next((d for d, n in enumerate(tensor.shape) if n > 1), None)
    if axis is None:
        return drawn
    half = drawn[(slice(None),) * axis + (slice(0, -(-tensor.shape[axis] // 2)),)]
    half[...] = (far + spread * rng.random(half.shape)).astype(dtype.storage)
    return drawn


def whole_numbers(
    dag: ComputeDAG, seed: int = 0, given: Mapping[Tensor, Array] = MappingProxyType({}),
    precision: str = FLOAT32,
) -> Case:  # fmt: skip
    """The case in which as much as possible is exact and tells what it was computed from."""
    best: tuple[float, Case] | None = None
    for largest, halvings in _SCALES:
        inputs = random_inputs(dag, seed + 1, _drawing(dag, largest, 0.5**halvings), given)
        results = approximations(dag, inputs, precision)
        told = min(map(_telling, results))
        if best is None or told > best[0]:
            best = told, _case(dag, inputs, results)
        del inputs, results  # they may be large
        if best[0] >= _ENOUGH:
            break
    assert best is not None
    return best[1]


def _case(dag: ComputeDAG, inputs: list[Array], results: list[Approx]) -> Case:
    """What is exact is kept in the type of its output."""
    expected, slacks = [], []
    for tensor, result in zip(dag.outputs, results, strict=True):
        slack = np.zeros(()) if result.error is None else result.error
        value = result.value
        if not slack.any():
            with np.errstate(over="ignore"):  # beyond the type: infinite, as in the kernel
                value = value.astype(tensor.dtype.storage)
        expected.append(value)
        slacks.append(slack)
    return Case.of(inputs, expected, slacks)


def _drawing(dag: ComputeDAG, largest: int, unit: float) -> Draw:
    """Numbers from 1 to `largest` of either sign, in units: none is zero, and odd and even ones
    alternate in every dimension, so that neighbours differ.

    About as many are positive as keep the longest sum of products positive.
    """
    terms = max((math.prod(ax.size for ax in op.reduce_axis) for op in dag.compute_ops), default=1)
    lean = min(0.75, math.sqrt(_DEVIATIONS) / terms**0.25)

    def draw(tensor: Tensor, rng: np.random.Generator) -> Array | None:
        dtype = tensor.dtype
        if not (dtype.is_float or dtype.is_index):
            return None
        drawn = np.empty(tensor.shape, dtype.storage)
        flat, odd = drawn.reshape(-1), _parity(tensor.shape).reshape(-1)
        for at in blocks(flat.size):
            size = rng.integers(1, max(largest // 2, 1), flat[at].size, endpoint=True)
            if largest > 1:
                size = 2 * size - odd[at]
            sign = np.where(rng.random(size.size) < (1 - lean) / 2, -1, 1)
            flat[at] = (size * sign * (unit if dtype.is_float else 1)).astype(dtype.storage)
        return drawn

    return draw


def _parity(shape: tuple[int, ...]) -> Array:
    odd = np.zeros((), np.int8)
    for axis, size in enumerate(shape):
        own = np.arange(size, dtype=np.int64).astype(np.int8) & 1
        odd = odd ^ own.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.asarray(odd)


def _telling(result: Approx) -> float:
    """The share of elements that are exact, if they can be, and not all the same.

    Of sums of either sign that end in a relu half are zero, which no other numbers would change.
    """
    value = result.value.reshape(-1)
    step = -(-value.size // _SAMPLE)
    sample = value[::step]
    exact = np.ones(sample.shape, bool)
    if result.error is not None and result.grid > 0:  # 0: inexact by nature, such as exp
        exact = result.error.reshape(-1)[::step] == 0
    values, counts = np.unique(sample, return_counts=True)
    if counts.max(initial=0) <= 1:
        return float(exact.mean())
    same = values[np.argmax(counts)]
    distinct = float((exact & (sample != same)).mean())
    return min(float(exact.mean()), 2 * distinct) if same == 0 else distinct
