"""Functions that te makes of others, tags of a scope, two values where axes stand."""

import math

import numpy as np
import pytest

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.driver.build import build, generate_source
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.operations import FUNCTIONS
from tilewright.lowering.pipeline import lower_schedule
from tilewright.runtime.device import cpu
from tilewright.runtime.ndarray import array
from tilewright.schedule.default import generic_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance


def values(function, *given: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    inputs = [te.placeholder(x.shape, str(x.dtype), name=f"X{k}") for k, x in enumerate(given)]
    out = te.compute(given[0].shape, lambda i: function(*(x[i] for x in inputs)), name="Y")
    result = np.zeros(out.shape, str(out.dtype))
    target = Target("llvm")
    program = lower_schedule(generic_schedule(ComputeDAG([*inputs, out]), target), target)
    run_fast(program, [*given, result])
    return result


SIGNED = np.array([-3.0, -1.0, -0.25, 0.0, 0.25, 1.0, 2.0, 3e30], "float32")
PAIRS = {"atan2": np.arctan2, "hypot": np.hypot, "copysign": np.copysign}


@pytest.mark.parametrize("name", PAIRS)
def test_functions_of_two(name: str) -> None:
    y, x = (a.ravel().copy() for a in np.meshgrid(SIGNED, SIGNED))
    found, wanted = values(getattr(te, name), y, x), PAIRS[name](y, x)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


BY_LOWERING = ("product", "tf32", "two_to", "nearest")  # or a step, which makes them
EXACT = ("abs", "floor", "ceil", "round", "fmod")


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in BY_LOWERING])
def test_every_function_is_in_every_table(name: str) -> None:
    """It is a name of te and has text for each kind of device; the interpreter and a kernel compute
    what the reference says, which knows how it rounds and passes errors on."""
    function = getattr(te, "power" if name == "pow" else name)
    inputs = [te.placeholder((16,), name=f"X{k}") for k in range(FUNCTIONS[name])]
    near = [te.compute((16,), lambda i, x=x: x[i] * 0.7, name="N") for x in inputs]
    out = te.compute((16,), lambda i: function(*(x[i] for x in near)), name="Y")
    dag = ComputeDAG([*inputs, out])
    drawn = [np.random.default_rng(k).random(16).astype("float32") for k in range(len(inputs))]
    given = [np.float32(0.2) + np.float32(0.6) * x for x in drawn]
    given = [x + np.float32(2) if name == "acosh" else x for x in given]
    (wanted,), (bound,) = evaluate_with_tolerance(dag, given)
    assert name in EXACT or np.all(bound > 0)
    for kind in ("llvm", "cuda", "opencl"):
        schedule = generic_schedule(dag, Target(kind))
        assert generate_source(schedule, Target(kind), "f", dag.args).text
    program = lower_schedule(generic_schedule(dag, Target("llvm")), Target("llvm"))
    found, computed = np.zeros(16, "float32"), np.zeros(16, "float32")
    run_fast(program, [*given, found])
    module = build(generic_schedule(dag, Target("llvm")), dag.args, "llvm")
    held = [array(x, cpu()) for x in (*given, computed)]
    module(*held)
    assert agrees(found, wanted, bound).all() and agrees(held[-1].numpy(), wanted, bound).all()


def test_log1p_of_small_numbers() -> None:
    x = np.array([-0.5, -1e-9, 0.0, 1e-30, 1e-9, 1e-4, 0.3, 50.0, np.inf], "float32")
    np.testing.assert_allclose(values(te.log1p, x), np.log1p(x.astype(float)), rtol=1e-6)


def test_ldexp_and_div() -> None:
    n = np.array([-3, -1, 0, 0, 1, 2, 5, -90], "int32")
    np.testing.assert_allclose(values(te.ldexp, SIGNED, n), np.ldexp(SIGNED, n), rtol=1e-6)
    np.testing.assert_array_equal(values(lambda x: te.div(1.0, x), SIGNED + 7), 1 / (SIGNED + 7))
    x, y = np.array([-7, -6, -1, 0, 1, 6, 7, 7], "int32"), np.array([2, 3, 2, 5, 2, -4, -2, 2])
    found = values(te.div, x, y.astype("int32"))  # of integers as in C: towards zero
    assert found.dtype == "int32" and found.tolist() == np.trunc(x / y).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_clz(dtype: str) -> None:
    info = np.iinfo(dtype)
    x = np.array([0, 1, 2, 3, 5, info.max, info.max // 2, info.min], dtype)
    found = values(te.clz, x)
    bits = [info.bits - (int(v) & (2**info.bits - 1)).bit_length() for v in x]
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, bits)


def test_what_is_whole_stays() -> None:
    i = te.var("i")
    for function in (te.round, te.nearbyint, te.trunc, te.ceil, te.floor):
        assert function(i) is i and function(te.const(True)).value is True
    assert te.isnan(i).value is False
    assert te.nearbyint(te.var("x", "float32")).dtype == "float32"


def test_what_is_infinite() -> None:
    x = np.array([0, -1, 3e38, np.inf, -np.inf, np.nan], "float32")
    for function, numpy in ((te.isinf, np.isinf), (te.isfinite, np.isfinite), (te.isnan, np.isnan)):
        as_number = values(lambda v, f=function: te.if_then_else(f(v), 1.0, 0.0), x)
        np.testing.assert_array_equal(as_number.astype(bool), numpy(x))
    i = te.var("i")
    assert te.isinf(i).value is False and te.isfinite(i).value is True


def test_two_values_where_axes_stand() -> None:
    a, b = te.var("a", "float32"), te.var("b", "float32")
    assert te.max(a, b) is te.maximum(a, b) and te.min(a, 2.0) is te.minimum(a, 2.0)
    assert te.sum(a, b) is a + b and te.prod(a, b) is a * b
    k = te.var("k")
    assert te.min(k + 1, 9) is te.minimum(k + 1, 9) and te.max(a, np.int64(2)) is te.maximum(a, 2)
    with pytest.raises(ExpressionError, match="not a reduction axis"):
        te.max(a, axis=0)


def test_short_names_of_types() -> None:
    assert [DType(name) for name in ("float", "int", "uint")] == ["float32", "int32", "uint32"]
    assert DType("uint1") == "bool"
    assert te.var("x", "float").dtype == "float32" and not math.isnan(te.const(1, "float").value)


def test_operators_on_bits() -> None:
    x, y = te.var("x"), te.var("y")
    a, b = np.array([5, -7, 12, 1], "int32"), np.array([3, 6, -1, 2], "int32")
    for function in (
        lambda p, q: p & q, lambda p, q: p | q, lambda p, q: p ^ q,
        lambda p, q: p << 3, lambda p, q: p >> 2, lambda p, q: ~p,
    ):  # fmt: skip
        np.testing.assert_array_equal(values(function, a, b), function(a, b))
    assert ((x < y) & (y > 2)).op == "and" and (~(x < y)).dtype == "bool"
    for places in (-1, 32):
        with pytest.raises(ExpressionError, match="places 0 to 31"):
            _ = x << places
    with pytest.raises(ExpressionError, match="bits"):
        _ = te.const(1.5) ^ 1.0
