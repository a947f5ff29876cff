"""Reductions whose range depends on other axes; functions of integers; nodes by TVM's names."""

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import generic_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm import tir

SIZE = 7


def run(tensor: te.Tensor, given: np.ndarray, target: str = "llvm") -> np.ndarray:
    s = generic_schedule(ComputeDAG([*tensor.op.input_tensors, tensor]), Target(target))
    out = np.zeros(tensor.shape, str(tensor.dtype))
    run_fast(lower_schedule(s, Target(target)), [given, out])
    return out


@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize(
    "ends",
    [
        lambda i: (0, i),
        lambda i: (i, SIZE),
        lambda i: (i, i + 1),
        lambda i: (i // 2, i + 1),
        lambda i: (3, i),
    ],
)
def test_a_range_that_depends_on_an_axis(ends, target) -> None:  # type: ignore[no-untyped-def]
    x = te.placeholder((SIZE,), "int32", name="X")

    def element(i: te.Expr) -> te.Expr:
        k = te.reduce_axis(ends(i), "k")
        return te.sum(x[k], axis=k)

    y = te.compute((SIZE,), element, name="Y")
    given = np.arange(1, SIZE + 1, dtype="int32")
    expected = [given[slice(*map(int, ends(i)))].sum() for i in range(SIZE)]
    np.testing.assert_array_equal(run(y, given, target), expected)
    again = ComputeDAG.from_json(ComputeDAG([x, y]).to_json())
    assert again.hash == ComputeDAG([x, y]).hash


def test_a_range_that_depends_on_a_reduction_axis() -> None:
    x = te.placeholder((SIZE, SIZE), "int32", name="X")
    i = te.reduce_axis((0, SIZE), "i")
    j = te.reduce_axis((0, i + 1), "j")
    y = te.compute((1,), lambda _: te.sum(x[i, j], axis=[i, j]), name="Y")
    given = np.arange(SIZE * SIZE, dtype="int32").reshape(SIZE, SIZE)
    assert run(y, given)[0] == np.tril(given).sum()


def test_init_needs_a_range_of_numbers() -> None:
    x = te.placeholder((SIZE,), "int32", name="X")

    def element(i: te.Expr) -> te.Expr:
        k = te.reduce_axis((0, i), "k")
        return te.sum(x[k], axis=k, init=3)

    with pytest.raises(ExpressionError, match="lose the beginning"):
        te.compute((SIZE,), element)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_popcount(dtype: str) -> None:
    info = np.iinfo(dtype)
    given = np.array([0, 1, 5, info.max, info.min, info.max // 3, info.min // 5], dtype)
    x = te.placeholder(given.shape, dtype, name="X")
    y = te.compute(given.shape, lambda i: te.popcount(x[i]).astype("int32"), name="Y")
    bits = [bin(int(v) & (2**info.bits - 1)).count("1") for v in given]
    np.testing.assert_array_equal(run(y, given), bits)


def test_division_towards_zero() -> None:
    given = np.array([7, -7, 8, -8, 0, 3, -3], "int32")
    x = te.placeholder((7,), "int32", name="X")
    for divisor in (3, -3):
        quotient = te.compute((7,), lambda i, d=divisor: te.truncdiv(x[i], d), name="Q")
        rest = te.compute((7,), lambda i, d=divisor: te.truncmod(x[i], d), name="R")
        expected = np.trunc(given / divisor).astype("int32")
        np.testing.assert_array_equal(run(quotient, given), expected)
        np.testing.assert_array_equal(run(rest, given), given - expected * divisor)


def test_nodes_by_name() -> None:
    x, y = te.var("x"), te.var("y")
    assert isinstance(x + y, tir.Add) and not isinstance(x - y, tir.Add)
    assert (x + y).a is x and (x + y).b is y and tir.Add(x, y).same_as(x + y)
    assert isinstance(tir.const(1, "int32"), tir.IntImm)
    assert isinstance(tir.IntImm("int64", 4), tir.IntImm) and tir.IntImm("int64", 4).value == 4
    assert isinstance(tir.FloatImm("float32", 1.5), tir.FloatImm)
    assert isinstance(te.max_value("int32"), tir.IntImm)
    assert isinstance(tir.Select(x < y, x, y), tir.Select)
    assert isinstance(tir.Not(tir.And(x < y, x > 0)), tir.Not)
    assert isinstance(x, tir.Var) and not isinstance(x, tir.Min)
    with pytest.raises(ExpressionError, match="two values"):
        _ = x.a
    with pytest.raises(ExpressionError, match="no parts to index"):
        _ = (x + y)[0]


def test_an_expression_and_a_tensor_are_a_tensor() -> None:
    import tilewright.topi  # noqa: F401  (gives tensors their arithmetic)

    x, a = te.var("x", "float32"), te.placeholder((3, 4), name="A")
    for both in (x + a, a + x, x - a, x * a, x / a):
        assert isinstance(both, te.Tensor) and tuple(both.shape) == (3, 4)
