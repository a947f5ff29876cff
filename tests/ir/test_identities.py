"""Every identity holds for values of every type it claims, and is what expressions fold by."""

from __future__ import annotations

import itertools
import math
import operator
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.ir.scalars import WRAP
from tilewright.base.dtype import TYPES, DType
from tilewright.ir import expr as E
from tilewright.ir.identities import IDENTITIES, Identity

ROWS = [
    pytest.param(row, DType(t), id=f"{row.left} = {row.right}, {t}")
    for row in IDENTITIES
    for t in TYPES
    if DType(t).kind in row.kinds
]


class Number:
    """A value whose arithmetic is that of its type: C's where it wraps, Python's elsewhere."""

    def __init__(self, dtype: DType, value: Any) -> None:
        self.dtype, self.value = dtype, value

    def _with(self, other: Any, op: Callable[[Any, Any], Any], turned: bool = False) -> Number:
        a, b = self.value, other.value if isinstance(other, Number) else other
        result = op(b, a) if turned else op(a, b)
        wraps = self.dtype.is_int and not self.dtype.is_index
        return Number(self.dtype, WRAP[self.dtype](result).value if wraps else result)


def _operation(name: str) -> None:
    op = getattr(operator, name)
    setattr(Number, f"__{name.strip('_')}__", lambda s, o: s._with(o, op))
    setattr(Number, f"__r{name.strip('_')}__", lambda s, o: s._with(o, op, turned=True))


for _name in ("add", "sub", "mul", "floordiv", "mod", "and_", "or_"):
    _operation(_name)
Number.__neg__ = lambda s: 0 - s  # type: ignore[attr-defined]


def least(a: Number, b: Number) -> Number:
    """As the interpreter defines it."""
    return a if a.value < b.value or a.value != a.value else b


def greatest(a: Number, b: Number) -> Number:
    return a if a.value > b.value or a.value != a.value else b


def samples(dtype: DType) -> list[Any]:
    """Edges of the type, small numbers and some at random."""
    if dtype == "bool":
        return [False, True]
    if dtype.is_float:
        return [0.0, -0.0, 1.5, float("inf"), float("nan")]
    low, high = (-(2**20), 2**20) if dtype.is_index else (int(dtype.least), int(dtype.greatest))
    drawn = random.Random(str(dtype))
    numbers = {low, high, -2, -1, 0, 1, 2, *(drawn.randint(low, high) for _ in range(4))}
    return sorted(n for n in numbers if dtype.holds(n))


def points(row: Identity, dtype: DType) -> Iterator[dict[str, Any]]:
    letters = [c for c in "xmn" if c in row.left]
    for drawn in itertools.product(samples(dtype), repeat=len(letters)):
        at = dict(zip(letters, drawn, strict=True))
        if row.when and not eval(row.when, dict(at)):
            continue
        if at["x"] != 0 or row.left not in ("0 // x", "0 % x"):
            yield at


@pytest.mark.sampled(53)
@pytest.mark.slow
@pytest.mark.parametrize(("row", "dtype"), ROWS)
def test_both_sides_have_the_same_value(row: Identity, dtype: DType) -> None:
    for at in points(row, dtype):
        scope = {k: Number(dtype, v) for k, v in at.items()}
        scope |= {"min": least, "max": greatest}
        left, right = (eval(side, dict(scope)) for side in (row.left, row.right))
        value = right.value if isinstance(right, Number) else right
        assert repr(left.value) == repr(value), at


@pytest.mark.sampled(74)
@pytest.mark.slow
@pytest.mark.parametrize(("row", "dtype"), ROWS)
def test_the_left_side_is_made_as_the_right_one(row: Identity, dtype: DType) -> None:
    x = E.var("x", dtype)
    builders = {"min": E.minimum, "max": E.maximum, "true": E.const(True), "false": E.const(False)}
    for at in points(row, dtype):
        if at.get("m") == 0 or at.get("n") == 0:
            continue  # another row comes first
        scope = {"x": x, **{k: E.const(v, dtype) for k, v in at.items() if k != "x"}, **builders}
        left, right = (eval(side.lower(), dict(scope)) for side in (row.left, row.right))
        assert left is (right if isinstance(right, E.Expr) else E.const(right, dtype)), at


def test_floats_keep_what_rounding_and_zeros_could_tell() -> None:
    x = E.var("x", "float32")
    for node in (x + 0.0, x * 1.0, x * 0.0, x - x, (x + 1.0) + 2.0, 0.0 + x):
        assert node.op in ("add", "sub", "mul") and len(node.args) == 2
    assert math.isinf(E.const(float("inf"), "float32").value)
    assert (E.const(1.5) + 1.5).op == "add"


def test_vectors_stay_vectors() -> None:
    ramp = E.ramp(E.var("i"), 1, 4)
    assert (ramp - ramp) is E.broadcast(E.const(0), 4)
