"""`//` of floats everywhere gives what numpy does, also where x / y rounds up to a whole number.

In: special numbers against each other, and numbers that are nearly multiples of the divisor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tilewright as tw
from tests.interpreter import run as run_plain
from tilewright import te, topi
from tilewright.base.dtype import DType
from tilewright.ir.fast_interpreter import run_fast
from tilewright.te.evaluate import agrees, evaluate_with_tolerance
from tilewright_tvm import relay

Array = np.ndarray[Any, Any]
TYPES = ("float32", "float64", "float16", "bfloat16")
SPECIAL = [0.0, 1.0, 5.0, 6.0, 0.1, 0.3, 0.7, 3.0, 49 * 0.1, 1e-3, 1e-30, 1e30, 1e-40, 1e6, np.inf]
DECIMALS = [0.1, 0.2, 0.3, 0.7, 1.1, 0.01, 3.0]
LANES = 4


def operands(dtype: DType) -> tuple[Array, Array]:
    both = np.array([*SPECIAL, *(-x for x in SPECIAL), np.nan])
    a, b = (g.ravel() for g in np.meshgrid(both, both))
    rng = np.random.default_rng(0)
    by = rng.choice(DECIMALS, 507) * rng.choice([1, -1], 507)
    times = rng.integers(-60, 61, 507)
    by = by.astype(dtype.storage).astype(np.float64)
    with np.errstate(over="ignore"):
        made = np.concatenate([a, times * by]), np.concatenate([b, by])
        return made[0].astype(dtype.storage), made[1].astype(dtype.storage)


def quotient(dtype: DType, a: Array, b: Array) -> Array:
    """Of numpy, for narrow types in float32."""
    wide = dtype.compute.storage
    with np.errstate(all="ignore"):
        return (a.astype(wide) // b.astype(wide)).astype(dtype.storage)


def same(dtype: DType, got: Array, want: Array) -> Array:
    """To the sign of zero; only of large quotients the last digits may differ."""
    g, w = got.astype(np.float64), want.astype(np.float64)
    exact = (g == w) & (np.signbit(g) == np.signbit(w)) | np.isnan(g) & np.isnan(w)
    large = (np.abs(w) * 8 * dtype.eps > 1) & np.isfinite(w)
    with np.errstate(invalid="ignore"):
        return exact | large & (np.abs(g - w) <= 8 * dtype.eps * np.abs(w))


def computed(way: str, dtype: DType, a: Array, b: Array) -> Array:
    x, y = (te.placeholder(a.shape, dtype, name=n) for n in "xy")
    out = te.compute(a.shape, lambda i: x[i] // y[i], name="out")
    s = te.create_schedule(out.op)
    target = "opencl" if way == "opencl" else "llvm"
    dev = tw.device(target)
    if not dev.exist:
        pytest.skip(f"no {target} device")
    if target == "opencl":
        outer, inner = s[out].split(out.op.axis[0], factor=LANES)
        s[out].bind(outer, te.thread_axis("blockIdx.x"))
        s[out].bind(inner, te.thread_axis("threadIdx.x"))
    elif way == "llvm vectors":
        s[out].vectorize(s[out].split(out.op.axis[0], factor=LANES)[1])
    if way in ("plain", "fast"):
        got = np.zeros(a.shape, dtype.storage)
        run: Callable[..., None] = run_plain if way == "plain" else run_fast
        with np.errstate(all="ignore"):
            run(tw.lower(s, [x, y, out], target), [a, b, got])
        return got
    found = tw.runtime.empty(a.shape, dtype, dev)
    tw.build(s, [x, y, out], target)(*(tw.nd.array(v, dev) for v in (a, b)), found)
    return np.asarray(found.numpy())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("way", ["plain", "fast", "llvm", "llvm vectors", "opencl"])
def test_all_ways_give_the_quotient_of_numpy(way: str, dtype: str) -> None:
    kind = DType(dtype)
    a, b = operands(kind)
    got, want = computed(way, kind, a, b), quotient(kind, a, b)
    wrong = ~same(kind, got, want)
    assert not wrong.any(), list(zip(a[wrong], b[wrong], got[wrong], want[wrong], strict=True))[:5]


@pytest.mark.parametrize("dtype", TYPES)
def test_operators_give_it(dtype: str) -> None:
    kind = DType(dtype)
    a, b = operands(kind)
    x, y = (relay.var(n, shape=a.shape, dtype=dtype) for n in "xy")
    with np.errstate(all="ignore"):
        found = relay.evaluate(relay.Function([x, y], relay.floor_divide(x, y)), {"x": a, "y": b})
    assert same(kind, np.asarray(found), quotient(kind, a, b)).all()
    p, q = (te.placeholder((1,), dtype, name=n) for n in "pq")
    assert topi.floor_divide(p, q).op.body.op == "floordiv"


def test_what_onnx_is_given_computes_it() -> None:
    a, b = operands(DType("float32"))
    kept = np.isfinite(a) & np.isfinite(b) & (np.abs(b) > 1e-38)
    a, b = a[kept], b[kept]
    x, y = (relay.var(n, shape=a.shape, dtype="float32") for n in "xy")
    parts = relay.Tuple([relay.floor_divide(x, y), relay.floor_mod(x, y)])
    model = relay.to_onnx(relay.Function([x, y], parts))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    whole, rest = session.run(None, {"x": a, "y": b})
    wrong = ~same(DType("float32"), whole + 0.0, a // b + 0.0)  # its Where drops a zero's sign
    assert not wrong.any(), list(zip(a[wrong], b[wrong], whole[wrong], strict=True))[:5]
    np.testing.assert_allclose(rest, a % b, rtol=1e-6)


def test_the_reference_leaves_no_room_for_the_next_whole_number() -> None:
    x, y = (te.placeholder((3,), name=n) for n in "xy")
    dag = te.ComputeDAG([x, y, te.compute((3,), lambda i: x[i] // y[i], name="out")])
    given = [np.array(v, np.float32) for v in ([5, 1, 6], [0.1, 0.1, 2])]
    (value,), (bound,) = evaluate_with_tolerance(dag, given)
    assert value.tolist() == [49, 9, 3]
    assert agrees(given[0] // given[1], value, bound).all()
    assert not agrees(value + 1, value, bound).any()


def test_the_reference_leaves_room_for_what_rounded_operands_decide() -> None:
    x, y = (te.placeholder((2,), name=n) for n in "xy")
    total = te.compute((2,), lambda i: x[i] + y[i], name="total")
    dag = te.ComputeDAG([x, y, te.compute((2,), lambda i: total[i] // 0.3, name="out")])
    (bound,) = evaluate_with_tolerance(dag, [np.array([0.1, 0.1]), np.array([0.2, 0.3])])[1]
    assert bound[0] == 1 and bound[1] == 0
