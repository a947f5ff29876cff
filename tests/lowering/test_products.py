"""A product that is used rounded and in a sum is the same number in both."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright
from tests.tiers import examples
from tilewright import te
from tilewright.codegen import cuda
from tilewright.driver.build import lower
from tilewright.ir import expr as E
from tilewright.lowering.products import rounded_products
from tilewright.schedule.default import default_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm import nd

SHAPE = (4, 100)
SCALES = (1e14, 3.0, -7e20, 0.1)


def softmax(scale, dtype="float32", swapped=False):
    """exp(a * scale - max(a * scale)), as in a softmax whose scale is inlined."""
    a = te.placeholder(SHAPE, dtype, name="A")
    c = E.const(scale, dtype)
    k = te.reduce_axis((0, SHAPE[1]), "k")
    most = te.compute(SHAPE[:1], lambda i: te.max(a[i, k] * c, axis=k), name="M")

    def exponent(i, j):
        product = c * a[i, j] if swapped else a[i, j] * c
        return te.exp(product - most[i])

    return a, te.compute(SHAPE, exponent, name="E")


def kernel(schedule, arrays, target):
    return tilewright.build(schedule, arrays, target), tilewright.device(target)


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("target", ["llvm", pytest.param("opencl", marks=pytest.mark.opencl)])
def test_what_is_taken_from_its_maximum_is_never_above_it(target, dtype, swapped):
    for scale in SCALES:
        a, out = softmax(scale, dtype, swapped)
        f, dev = kernel(te.create_schedule(out.op), [a, out], "llvm") if target == "llvm" else (
            kernel(default_schedule(ComputeDAG([a, out]), Target(target)), [a, out], target)
        )  # fmt: skip
        data = np.random.default_rng(0).standard_normal(SHAPE).astype(dtype)
        made = nd.empty(SHAPE, dtype, dev)
        f(nd.array(data, dev), made)
        product = data * np.dtype(dtype).type(scale)
        want = np.exp(product - product.max(1, keepdims=True))
        np.testing.assert_allclose(made.numpy(), want, rtol=1e-5)


def test_the_gpu_kinds_have_a_word_for_it():
    a, out = softmax(3.0)
    target = Target("cuda")
    text = cuda.generate(
        lower(default_schedule(ComputeDAG([a, out]), target), [a, out], target), target
    ).text
    assert "return __fmul_rn(a, b);" in text and text.count("tw_product_float32(") == 2


def found(*tensors):
    """The products of these stages that are rounded, as texts."""
    return sorted(map(str, rounded_products((t, t.op.body) for t in tensors)))


def test_only_products_that_are_also_used_rounded_are():
    a, b = te.placeholder((8, 8), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), "k")
    matmul = te.compute((8, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k))
    scaled = te.compute((8, 8), lambda i, j: matmul[i, j] * 2.0 + b[i, j])
    assert found(matmul, scaled) == []
    stored = te.compute((8, 8), lambda i, j: a[i, j] * b[i, j])  # of other indices, too
    assert len(found(matmul, stored)) == 1
    compared = te.compute((8, 8), lambda i, j: te.if_then_else(a[i, j] * 2.0 > 1.0, 1.0, 0.0))
    other = te.compute((8, 8), lambda i, j: b[i, j] * 2.0 + 1.0)
    same = te.compute((8, 8), lambda i, j: 1.0 - a[j, i] * 2.0)
    assert found(compared, other) == []
    assert len(found(compared, same)) == 1
    integers = te.placeholder((8,), "int32", name="I")
    whole = te.compute((8,), lambda i: te.max(integers[i] * 3, integers[i] * 3 + 1))
    assert found(whole) == []


def test_a_cached_copy_is_what_it_copies():
    a, out = softmax(3.0)
    s = te.create_schedule(out.op)
    s[s.cache_read(a, "local", [out])].compute_at(s[out], out.op.axis[0])
    assert "product(" in str(lower(s, [a, out], Target("llvm")))


@given(st.integers(0, 2**31))
@examples(25)
def test_residuals_of_a_rounded_product_are_zero(seed):
    """t = max(x * y, 0); t - x * y is 0 wherever t is the product."""
    x, y = te.placeholder((64,), name="x"), te.placeholder((64,), name="y")
    out = te.compute((64,), lambda i: te.max(x[i] * y[i], 0.0) - x[i] * y[i])
    f, dev = kernel(te.create_schedule(out.op), [x, y, out], "llvm")
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(0.1, 9.0, 64).astype("float32") for _ in "ab")
    made = nd.empty((64,), device=dev)
    f(nd.array(a), nd.array(b), made)
    assert not made.numpy().any()
