"""Integer and floating-point values in LLVM IR against numpy and exact references."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codegen.llvm_programs import buffers, elementwise, lanes, normal, program, run, text_of
from tests.tiers import examples
from tilewright.codegen import llvm_math
from tilewright.codegen.llvm_text import Module
from tilewright.ir import expr as e
from tilewright.ir.stmt import Allocate, For, Store, load, seq
from tilewright.te.numeric import DOMAINS, FUNCTION_VALUES

# -- integers --------------------------------------------------------------------------------------

OPS = {"floordiv": np.floor_divide, "floormod": np.mod, "min": np.minimum, "max": np.maximum}


@pytest.mark.slow
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("divisor", [1, 3, 8, -5])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_operations_of_indices_and_of_data(op, divisor, dtype):
    (a,) = buffers(48, "a", dtype=dtype)
    b, c, d = buffers(48, "b", "c", "d", dtype=dtype)
    i = e.var("i", dtype)
    by = e.const(divisor, dtype)
    index = For(i, 48, Store(b, i, e.make(op, (i * 3 - 50, by), None, dtype)))
    data = For(i, 48, Store(c, i, e.make(op, (load(a, i), by), None, dtype)))
    at = e.make("ramp", (e.const(0, dtype), e.const(1, dtype)), None, dtype, 16)
    wide = load(a, at)
    vector = Store(d, at, e.make(op, (wide, e.broadcast(by, 16)), None, dtype, 16))
    x = np.arange(-24, 24) * 7
    got = run(program(seq(index, data, vector), [a], [b, c, d]), x)
    assert (got[0] == OPS[op](np.arange(48) * 3 - 50, divisor)).all()
    assert (got[1] == OPS[op](x, divisor)).all()
    assert (got[2][:16] == OPS[op](x[:16], divisor)).all()


def test_comparisons():
    a, b = buffers(16, "a", "b", dtype="int32")
    at = lanes(0)
    x, y = np.arange(16) % 4 - 2, np.arange(16) // 4 - 2
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        reference = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
                     "gt": np.greater, "ge": np.greater_equal}[op]  # fmt: skip
        outputs = buffers(16, "data", "flags", "index", dtype="bool")
        values = load(a, at), load(b, at)
        flags = e.cast("bool", values[0]), e.cast("bool", values[1])
        i = e.var("i")
        body = seq(
            Store(outputs[0], at, e.binary(op, *values)),
            Store(outputs[1], at, e.make(op, flags, None, "bool", 16)),
            For(i, 4, Store(outputs[2], lanes(i * 4, 4), e.binary(op, lanes(0, 4) - 2, i - 2))),
        )
        data, booleans, index = run(program(body, [a, b], outputs), x, y)
        assert (data == reference(x, y)).all() and (index == reference(x, y)).all()
        assert (booleans == reference(x != 0, y != 0)).all()


def test_division_by_what_is_not_constant():
    a, b = buffers(16, "a", "b", dtype="int32")
    c, d, f = buffers(16, "c", "d", "f", dtype="int32")
    i, at = e.var("i"), lanes(0)
    guarded = e.if_then_else(load(b, at).equal(0), e.const(-1), load(a, at) // load(b, at))
    body = seq(
        For(i, 16, Store(c, i, e.if_then_else(load(b, i) > 0, load(a, i) % load(b, i), -1))),
        Store(d, at, guarded),
        For(i, 16, Store(f, i, e.binary("floordiv", 40 - i * 5, i + 1))),
    )
    x, y = np.arange(16) * 9 - 70, np.arange(16) % 5 - 2
    scalar, vector, index = run(program(body, [a, b], [c, d, f]), x, y)
    safe = np.where(y == 0, 1, y)
    assert (scalar == np.where(y > 0, x % safe, -1)).all()
    assert (vector == np.where(y == 0, -1, x // safe)).all()
    assert (index == (40 - np.arange(16) * 5) // (np.arange(16) + 1)).all()


def test_data_wraps_at_its_own_width():
    (a,), (b,), (c,) = (buffers(4, n, dtype="int32") for n in "abc")
    i = e.var("i")
    body = For(i, 4, seq(Store(b, i, load(a, i) * 3 + i), Store(c, i, (load(a, i) + 1) // 2)))
    x = np.array([2**31 - 1, -(2**31), 7, -7], np.int32)
    got, halves = run(program(body, [a], [b, c]), x)
    with np.errstate(over="ignore"):
        assert (got == x * np.int32(3) + np.arange(4, dtype=np.int32)).all()
        assert (halves == (x + np.int32(1)) // 2).all()


_LEAVES = st.sampled_from(["i", "j", "k"]) | st.integers(-9, 9)


def _grow(children):
    return st.tuples(
        st.sampled_from(["+", "-", "*", "min", "max"]), children, children
    ) | st.tuples(st.sampled_from(["//", "%"]), children, st.sampled_from([1, 2, 3, 4, 7, 16]))


_NAMES = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "//": "floordiv",
    "%": "floormod",
    "min": "min",
    "max": "max",
}


@pytest.mark.slow
@examples(40)
@given(st.recursive(_LEAVES, _grow, max_leaves=8), st.sampled_from([1, 4]))
def test_index_arithmetic_agrees_with_numpy(tree, width):
    """One variable serial, one unrolled, one vectorised or serial."""
    variables = {name: e.var(name) for name in "ijk"}
    symbols = {**variables, "k": lanes(variables["k"] * width, width)}
    grids = dict(zip("ijk", np.meshgrid(*map(np.arange, (3, 2, 8)), indexing="ij"), strict=True))

    def build(t):
        if isinstance(t, tuple):
            return e.binary(_NAMES[t[0]], build(t[1]), build(t[2]))
        return symbols[t] if isinstance(t, str) else e.const(t)

    def value(t):
        if not isinstance(t, tuple):
            return grids[t] if isinstance(t, str) else np.int64(t)
        x, y = value(t[1]), value(t[2])
        return {
            "+": np.add, "-": np.subtract, "*": np.multiply, "//": np.floor_divide, "%": np.mod,
            "min": np.minimum, "max": np.maximum,
        }[t[0]](x, y)  # fmt: skip

    expected = np.broadcast_to(value(tree), (3, 2, 8)).ravel()
    if np.abs(expected).max() >= 2**31:
        return
    (b,) = buffers(48, "b", dtype="int32")
    i, j, k = variables.values()
    at = (i * 2 + j) * 8 + symbols["k"]
    body = For(i, 3, For(j, 2, For(k, 8 // width, Store(b, at, build(tree))), "unrolled"))
    assert (run(program(body, [], [b]))[0] == expected).all()


def test_casts():
    x = np.array([-2.5, -1.0, 0.0, 1.5, 3.9, 100.0, -7.0, 0.25], np.float32)
    for dtype in ("int32", "int64", "float64", "bool"):
        got = elementwise(lambda v, d=dtype: e.cast(d, v), x, 8, dtype)
        assert (got == x.astype(dtype)).all() and got.dtype == dtype
        back = elementwise(lambda v: e.cast("float32", v), x.astype(dtype), 8, "float32")
        assert (back == x.astype(dtype).astype("float32")).all()
    assert (elementwise(lambda v: e.cast("int64", v), np.arange(-4, 4, dtype=np.int32), 8, "int64")
            == np.arange(-4, 4)).all()  # fmt: skip


# -- floating point --------------------------------------------------------------------------------


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of the exact float32 result."""
    size = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
    return float(np.max(np.abs(got.astype(np.float64) - exact) / size))


def spread(low, high, n=4096):
    """Values over a range: evenly, and near zero in all magnitudes."""
    x = np.concatenate([np.linspace(low, high, n), np.geomspace(1e-30, 1, n // 2)])
    return x[: len(x) // 16 * 16].astype(np.float32)


SPECIAL = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-40, -1e-40, 200.0, -200.0, 1.0] * 8)
_ERF = np.vectorize(math.erf)
ACCURACY = {
    "exp": (np.exp, spread(-103, 88.7), 1.5),
    "log": (np.log, np.geomspace(1e-44, 3e38, 8192), 1.5),
    "tanh": (np.tanh, np.concatenate([spread(-11, 11), -spread(0, 1)]), 2.5),
    "erf": (_ERF, np.concatenate([spread(-5, 5), -spread(0, 1)]), 3.0),
    "sin": (np.sin, spread(-20, 20), 1.0),
    "tan": (np.tan, spread(-20, 20), 2.0),
    "asin": (np.arcsin, spread(-1, 1), 2.0),
    "acos": (np.arccos, spread(-1, 1), 2.0),
    "atan": (np.arctan, spread(-50, 50), 2.0),
    "sinh": (np.sinh, spread(-80, 80), 3.0),
    "cosh": (np.cosh, spread(-80, 80), 3.0),
    "asinh": (np.arcsinh, spread(-50, 50), 3.0),
    "acosh": (np.arccosh, spread(1, 1.5) + np.float32(1), 3.0),
    "atanh": (np.arctanh, spread(-1, 1) * np.float32(0.99), 3.0),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCURACY)
def test_functions_are_accurate(name):
    reference, x, limit = ACCURACY[name]
    x = x.astype(np.float32)
    got = elementwise(lambda v: e.call(name, v), x)
    assert ulps(got, reference(x.astype(np.float64))) < limit
    assert (elementwise(lambda v: e.call(name, v), x[:64], 1) == got[:64]).all()


def test_exp_chooses_zero_where_rounding_to_it_would_take_long():
    """Masked lanes run with a harmless number, and 0 takes the place of what comes of it."""
    module = Module()
    *_, chosen, ret, _ = module.helpers[llvm_math.helper(module, "exp", 16)].splitlines()
    assert "select <16 x i1> %below, <16 x float> splat (float 0x0000000000000000)" in chosen
    assert ret.split()[-1] == chosen.split()[0]
    x = np.array([-103.9, -104.0, -104.1, -1e5, -3.4e38, -np.inf, np.nan, 0.0] * 8, np.float32)
    with np.errstate(under="ignore"):
        expected = np.exp(x.astype(np.float64)).astype(np.float32)
    got = elementwise(lambda v: e.call("exp", v), x)
    np.testing.assert_array_equal(got[3:], expected[3:])
    assert got[0] == expected[0] > 0 and got[1] == got[2] == 0


@pytest.mark.parametrize(
    "name", ["exp", "log", "tanh", "erf", "sqrt", "abs", "floor", "ceil", "round"]
)
def test_functions_of_special_values(name):
    x = SPECIAL.astype(np.float32)
    references = {"erf": _ERF, "abs": np.abs, "round": np.rint}
    with np.errstate(all="ignore"):
        expected = references.get(name, getattr(np, name, None))(x.astype(np.float64))
        expected = expected.astype(np.float32)
    got = elementwise(lambda v: e.call(name, v), x)
    assert np.allclose(got, expected, rtol=1e-6, atol=0, equal_nan=True)


def test_sigmoid_and_softplus():
    x = spread(-90, 90)
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    got = elementwise(lambda v: 1.0 / (1.0 + e.call("exp", -v)), x)
    assert np.allclose(got, exact, rtol=4e-7, atol=1e-38)


@pytest.mark.parametrize("name", [*ACCURACY, "sqrt", "rsqrt", "cos"])
def test_double_precision_functions(name):
    x = np.linspace(0.1, 9, 16)
    if name in DOMAINS:
        x = DOMAINS[name](x)
    reference = FUNCTION_VALUES[name]
    got = elementwise(lambda v: e.call(name, v), x, 8)
    assert np.allclose(got, reference(x), rtol=1e-14)


def test_power():
    x = np.linspace(0.1, 9, 16).astype(np.float32)
    got = elementwise(lambda v: e.call("pow", v, e.const(1.7)), x, 8)
    assert np.allclose(got, x.astype(np.float64) ** 1.7, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 8])
def test_minimum_and_maximum_propagate_nan(dtype, width):
    x = np.array([1, -1, np.nan, 0, np.inf, -np.inf, 3, np.nan], dtype)
    for op, reference in ((e.maximum, np.maximum), (e.minimum, np.minimum)):
        got = elementwise(lambda v, op=op: op(v, 0.5), x, width)
        assert np.array_equal(got, reference(x, 0.5), equal_nan=True)
        got = elementwise(lambda v, op=op: op(e.cast(dtype, 0.5), v), x, width)
        assert np.array_equal(got, reference(x, 0.5), equal_nan=True)


def test_remainders_of_c():
    x = np.array([7.5, -7.5, 2.0, -2.0, 0.0, 9.0, -9.0, 1e-3], np.float32)
    for by in (2.0, -2.0, 0.7):
        got = elementwise(lambda v, by=by: e.call("fmod", v, e.const(by)), x, 8)
        assert (got == np.fmod(x, np.float32(by))).all()


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int64"])
@pytest.mark.parametrize("width", [1, 8])
def test_operations_on_bits(dtype, width):
    x = np.array([0, 1, 5, 77, 2**31 - 1, 12345, 3, 9], dtype)
    x = x if dtype == "uint32" else x * np.array([1, -1] * 4, dtype)
    for op, reference in (
        ("bitand", np.bitwise_and), ("bitor", np.bitwise_or), ("bitxor", np.bitwise_xor),
        ("shl", np.left_shift), ("shr", np.right_shift),
    ):  # fmt: skip
        got = elementwise(lambda v, op=op: e.binary(op, v, e.const(3, dtype)), x, width)
        assert (got == reference(x, np.array(3, dtype))).all(), op


def test_floor_division_of_floats():
    x = np.array([7.5, -7.5, 2.0, -2.0, 0.0, 9.0, -9.0, 1e-3], np.float32)
    for by in (2.0, -2.0):
        assert (elementwise(lambda v, by=by: v // by, x, 8) == x // np.float32(by)).all()
        assert (elementwise(lambda v, by=by: v % by, x, 8) == x % np.float32(by)).all()


def test_products_are_fused_into_sums_without_reordering():
    a, b, c = buffers(16, "a", "b", "c")
    at = lanes(0)
    x, y, z = (load(v, at) for v in (a, b, c))
    for value, expected in (
        (z + x * y, lambda x, y, z: x * y + z),
        (x * y + z, lambda x, y, z: x * y + z),
        (z - x * y, lambda x, y, z: z - x * y),
        (x * y - z, lambda x, y, z: x * y - z),
        (x * y + y * z, lambda x, y, z: x * y + y * z),
    ):
        (d,) = buffers(16, "d")
        body = Store(d, at, value)
        text = text_of(body, [a, b, c], [d])
        assert "fmuladd" in text and "reassoc" not in text and "fast" not in text
        data = normal(3, 16)
        (got,) = run(program(body, [a, b, c], [d]), *data)
        assert np.allclose(got, expected(*data.astype(np.float64)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions(dtype):
    (a,) = buffers(6 * 32, "a", dtype=dtype)
    total, most = buffers(6, "total", "most", dtype=dtype)
    acc, top = (
        buffers(8, "acc", dtype=dtype, scope="local"),
        buffers(1, "top", dtype=dtype, scope="local"),
    )
    r, k, k2, u = map(e.var, ("r", "k", "k2", "u"))
    (acc,), (top,) = acc, top
    at, zero = lanes(0, 8), e.const(0)
    body = For(r, 6, Allocate(acc, Allocate(top, seq(
        Store(acc, at, e.const(0.0, dtype)),
        Store(top, zero, e.const(float("-inf"), dtype)),
        For(k, 4, Store(acc, at, load(acc, at) + load(a, lanes(r * 32 + k * 8, 8)))),
        For(k2, 32, Store(top, zero, e.maximum(load(top, zero), load(a, r * 32 + k2)))),
        Store(total, r, e.const(0.0, dtype)),
        For(u, 8, Store(total, r, load(total, r) + load(acc, u)), "unrolled"),
        Store(most, r, load(top, zero)),
    ))), "parallel")  # fmt: skip
    x = np.random.default_rng(0).standard_normal((6, 32)).astype(dtype)
    sums, maxima = run(program(body, [a], [total, most]), x)
    assert np.allclose(sums, x.sum(1), rtol=1e-5, atol=1e-6) and (maxima == x.max(1)).all()
