"""NaN, infinity and signed zero in every float type, as the docstring of `ir/expr.py` has them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ir.programs import BOTH
from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import Buffer, Kernel, Program, Store, load

FLOATS = [t for t in map(DType, TYPES) if t.is_float]
NAN, INF = float("nan"), float("inf")
EACH = pytest.mark.parametrize("dtype", FLOATS)
Run = Callable[..., None]


def result(run: Run, of: Callable[..., Expr], dtype: DType, *values: float) -> Any:
    """`of` elements that hold `values`, as a Python number."""
    source = Buffer("x", dtype, len(values))
    node = of(*(load(source, E.const(k)) for k in range(len(values))))
    out = Buffer("out", node.dtype, 1)
    kernel = Kernel("k", (source, out), Store(out, E.const(0), node))
    array = np.zeros(1, node.dtype.storage)
    program = Program("p", (source, out), ("input", "output"), (kernel,))
    run(program, [np.array(values, dtype.storage), array])
    return array.tolist()[0]


def same(a: float, b: float) -> bool:
    """Equal, with the sign of zero; NaN equals itself."""
    return (a != a and b != b) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@BOTH
@EACH
def test_arithmetic(run: Run, dtype: DType) -> None:
    great, small = float(dtype.greatest), dtype.smallest
    cases: list[tuple[Callable[..., Expr], tuple[float, ...], float]] = [
        (lambda x, y: x + y, (great, great), INF),
        (lambda x, y: x - y, (-great, great), -INF),
        (lambda x, y: x * y, (great, -2.0), -INF),
        (lambda x, y: x * y, (0.0, INF), NAN),
        (lambda x, y: x - y, (INF, INF), NAN),
        (lambda x, y: x / y, (-1.0, 0.0), -INF),
        (lambda x, y: x / y, (0.0, 0.0), NAN),
        (lambda x, y: x * y, (-1.0, 0.0), -0.0),
        (lambda x, y: x * y, (small, -0.25), -0.0),
        (lambda x, y: x * y, (small, 1.0), small),
        (lambda x, y: x + y, (-0.0, -0.0), -0.0),
        (lambda x: -x, (0.0,), 0.0),
        (lambda x: -x, (NAN,), NAN),
        (lambda x: x + 1.0, (NAN,), NAN),
        (lambda x: E.call("floor", x), (-0.0,), -0.0),
        (lambda x: E.call("round", x), (-0.25,), -0.0),
        (lambda x: E.call("ceil", x), (-0.5,), -0.0),
        (lambda x: E.call("abs", x), (-0.0,), 0.0),
        (lambda x: E.call("sqrt", x), (-1.0,), NAN),
        (lambda x: E.call("exp", x), (-INF,), 0.0),
        (lambda x: E.call("exp", x), (1e4,), INF),
    ]
    for of, values, expected in cases:
        assert same(result(run, of, dtype, *values), expected), (values, expected)


@BOTH
@EACH
@pytest.mark.parametrize("of", [E.minimum, E.maximum])
def test_minimum_and_maximum_propagate_nan(run: Run, of: Callable[..., Expr], dtype: DType) -> None:
    for values in ((NAN, 1.0), (1.0, NAN), (NAN, INF), (-INF, NAN), (NAN, NAN)):
        assert math.isnan(result(run, of, dtype, *values))
    assert result(run, of, dtype, 0.0, -0.0) == 0.0


@BOTH
@EACH
def test_comparisons_with_nan_are_false_except_one(run: Run, dtype: DType) -> None:
    for name in ("eq", "lt", "le", "gt", "ge", "ne"):
        for values in ((NAN, NAN), (NAN, 0.0), (INF, NAN)):
            found = result(run, lambda x, y, name=name: E.binary(name, x, y), dtype, *values)
            assert found == (name == "ne")
    assert result(run, lambda x, y: x.equal(y), dtype, 0.0, -0.0)


@BOTH
@EACH
def test_casts(run: Run, dtype: DType) -> None:
    for narrow in FLOATS:
        for value in (NAN, INF, -INF, 0.0, -0.0):
            assert same(result(run, lambda x, t=narrow: E.cast(t, x), dtype, value), value)
        if narrow.greatest < dtype.greatest:
            beyond = float(dtype.greatest)
            assert result(run, lambda x, t=narrow: E.cast(t, x), dtype, -beyond) == -INF
        if narrow.smallest > 2 * dtype.smallest:
            found = result(run, lambda x, t=narrow: E.cast(t, x), dtype, -dtype.smallest)
            assert same(found, -0.0)
    assert result(run, lambda x: E.cast("bool", x), dtype, NAN) is True
    assert result(run, lambda x: E.cast("bool", x), dtype, -0.0) is False
    for integer in ("int8", "int32", "uint32"):
        for value in (NAN, INF):
            with pytest.raises(InterpreterError, match="cannot convert float"):
                result(run, lambda x, t=integer: E.cast(t, x), dtype, value)


@EACH
def test_constants(dtype: DType) -> None:
    for value in (NAN, INF, -INF, 0.0, -0.0, dtype.smallest, float(dtype.greatest)):
        assert same(float(E.const(value, dtype).value), value)
    if dtype != "float64":
        with pytest.raises(ExpressionError, match=f"{dtype} holds"):
            E.const(float(dtype.greatest) * 2, dtype)
