"""take, gather, scatter, order and running sums: what data may hold, ties, NaN, refusals."""

from math import prod
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright import te, topi
from tilewright.base.errors import ExpressionError
from tilewright.driver.build import build
from tilewright.runtime.device import device
from tilewright.runtime.ndarray import array, empty
from tilewright.schedule.default import default_schedule
from tilewright.targets.target import Target
from tilewright.te import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.topi import ranking, scatter, sorting
from tilewright_tvm.topi import testing

small = examples(25)
ANY = st.sampled_from([-(2**31), -12, -1, 0, 1, 4, 5, 12, 2**31 - 1])
LATER = {True: ranking.greater, False: lambda a, b: ranking.greater(b, a)}  # by is_ascend
NUMBERS = st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.0, 3.0, np.inf, np.nan])


def value(f, *arrays):
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"p{k}") for k, a in enumerate(arrays)]
    dag = ComputeDAG([*inputs, f(*inputs)])
    return dag, evaluate(dag, arrays)[0]


def kernel(kind, dag, *arrays):
    if not device(kind).exist:
        pytest.skip(f"no {kind} device here")
    target = Target(kind).native()
    module = build(default_schedule(dag, target), target=target)
    (out,) = dag.outputs
    held = [array(a, module.device) for a in arrays]
    result = empty(out.shape, out.dtype, module.device)
    module(*held, result)
    return result.numpy()


CHOSEN = {
    "take": (lambda x, i: topi.take(x, i, 0), lambda x, i: np.take(x, i, 0, mode="clip")),
    "take, wrap": (
        lambda x, i: topi.take(x, i, 0, mode="wrap"),
        lambda x, i: np.take(x, i, 0, mode="wrap"),
    ),
    "gather": (
        lambda x, i: topi.gather(x, 0, topi.reshape(i, (4, 1))),
        lambda x, i: testing.gather_python(x, 0, i[:, None]),
    ),
    "gather_nd": (
        lambda x, i: topi.gather_nd(x, topi.reshape(i, (2, 2))),
        lambda x, i: testing.gather_nd_python(x, i.reshape(2, 2)),
    ),
    "scatter_elements": (
        lambda x, i: topi.scatter_elements(x, topi.reshape(i, (2, 2)), _corner(x), 0),
        lambda x, i: testing.scatter_elements_python(x, i.reshape(2, 2), x[:2, :2], 0),
    ),
    "scatter_nd": (
        lambda x, i: topi.scatter_nd(x, topi.reshape(i, (1, 4)), topi.take(x, i, 0), "add"),
        lambda x, i: testing.scatter_nd_python(x, i[None], np.take(x, i, 0, mode="clip"), "add"),
    ),
}


def _corner(x):
    return topi.strided_slice(x, (0, 0), (2, 2))


@small
@given(st.lists(ANY, min_size=4, max_size=4), st.sampled_from(sorted(CHOSEN)))
def test_any_index_has_a_meaning(indices, name):
    f, wanted = CHOSEN[name]
    x, i = np.arange(15.0, dtype=np.float32).reshape(5, 3), np.array(indices, np.int32)
    np.testing.assert_array_equal(value(f, x, i)[1], wanted(x, i))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@pytest.mark.parametrize("name", CHOSEN)
def test_kernels_read_nothing_outside(name, kind):
    f, wanted = CHOSEN[name]
    x = np.arange(15.0, dtype=np.float32).reshape(5, 3)
    dag, _ = value(f, x, np.zeros(4, np.int32))
    for indices in ([-(2**31), -1, 4, 2**31 - 1], [5, -6, 0, 2]):
        i = np.array(indices, np.int32)
        np.testing.assert_array_equal(kernel(kind, dag, x, i), wanted(x, i))


@small
@given(st.lists(NUMBERS, min_size=1, max_size=9), st.booleans())
def test_order_of_ties_zeros_and_nan(numbers, ascend):
    x = np.array(numbers, np.float32)
    order = value(lambda x: ranking.topk(x, x.shape[0], is_ascend=ascend), x)[1]
    np.testing.assert_array_equal(order, testing.topk_python(x, len(x), is_ascend=ascend))


@small
@given(st.lists(NUMBERS, min_size=1, max_size=9), st.booleans())
def test_places_of_extremes(numbers, last):
    x = np.array(numbers, np.float32)
    for f, wanted in ((topi.argmax, np.argmax), (topi.argmin, np.argmin)):
        found = value(lambda x, f=f: f(x, select_last_index=last), x)[1]
        assert found == (len(x) - 1 - wanted(x[::-1]) if last else wanted(x))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
def test_order_in_kernels(kind):
    rng = np.random.default_rng(0)
    x = rng.choice([-np.inf, -1.0, 0.0, 2.0, np.inf, np.nan], (2, 600)).astype(np.float32)
    for k, ascend in ((5, False), (5, True), (300, False)):
        dag, wanted = value(lambda x, k=k, a=ascend: ranking.topk(x, k, is_ascend=a), x)
        np.testing.assert_array_equal(kernel(kind, dag, x), wanted)
        np.testing.assert_array_equal(wanted, testing.topk_python(x, k, is_ascend=ascend))


@small
@given(st.integers(1, 1200), st.integers(1, 1200), st.booleans())
def test_blocks_do_not_change_the_order(count, k, ascend):
    x = np.random.default_rng(count).integers(-9, 9, (1, count)).astype(np.int8)
    k = min(k, count)
    found = value(lambda x: ranking.topk(x, k, is_ascend=ascend), x)[1]
    np.testing.assert_array_equal(found, testing.topk_python(x, k, is_ascend=ascend))


@pytest.mark.slow
@small
@given(st.integers(1, 90), st.integers(1, 90), st.integers(1, 7), st.integers(2, 5), st.booleans())
def test_merges_of_any_size(count, k, block, radix, ascend):
    x = np.random.default_rng(count).integers(-3, 4, (2, count)).astype(np.float32)
    x[x == 3] = np.nan
    k = min(k, count)
    with patch.object(sorting, "BLOCK", block), patch.object(sorting, "RADIX", radix):
        found = value(lambda x: sorting.first_places(x, k, LATER[ascend]), x)[1]
    np.testing.assert_array_equal(found, testing.topk_python(x, k, is_ascend=ascend))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16"])
def test_long_sorts_of_every_kind_of_type(dtype):
    x = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 99, (520,)).astype(dtype)
    dag, found = value(ranking.argsort, x)
    np.testing.assert_array_equal(found, np.argsort(x, kind="stable"))
    np.testing.assert_array_equal(kernel("llvm", dag, x), found)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "f",
    [
        ranking.argsort, lambda x: ranking.topk(x, 1000), lambda x: ranking.topk(x, 5),
        lambda x: topi.scatter_nd(x, topi.reshape(topi.cast(x, "int32"), (1, -1)), x, "add"),
        lambda x: topi.scatter_elements(x, topi.cast(x, "int32"), x), topi.cumsum,
    ],
)  # fmt: skip
def test_long_sorts_scatters_and_sums_are_not_quadratic(f):
    def steps(n: int) -> int:
        x = te.placeholder((n,), "float32", "x")
        ops = te.ComputeDAG([x, f(x)]).compute_ops
        return sum(prod(op.shape) * prod(a.size for a in op.reduce_axis) for op in ops)

    assert steps(1 << 16) < 3 * 16 * steps(1 << 12)
    assert steps(1 << 16) < 3000 << 16


REDUCTIONS = ("update", "add", "mul", "min", "max")


@pytest.mark.slow
@small
@given(st.integers(1, 40), st.integers(1, 60), st.sampled_from(REDUCTIONS), st.integers(0, 1))
def test_sorted_updates_mean_the_same(places, count, reduction, axis):
    rng = np.random.default_rng(places * count)
    x = rng.integers(-9, 9, (places, 3)).astype(np.int64)
    i = rng.integers(-places - 2, places + 2, (count, 2)).astype(np.int32)
    u = rng.integers(-9, 9, (count, 2)).astype(np.int64)
    if axis:
        x, i, u = x.T.copy(), i.T.copy(), u.T.copy()
    with patch.object(scatter, "_SORTED_AT", 0), patch.object(sorting, "BLOCK", 8):
        found = value(lambda *a: topi.scatter_elements(*a, axis, reduction), x, i, u)[1]
        wanted = testing.scatter_elements_python(x, i, u, axis, reduction)
        np.testing.assert_array_equal(found, wanted)
        i, rows = np.stack([i.reshape(-1), i.reshape(-1)[::-1]]), u.reshape(-1)
        found = value(lambda *a: topi.scatter_nd(*a, reduction), x, i, rows)[1]
    np.testing.assert_array_equal(found, testing.scatter_nd_python(x, i, rows, reduction))


@pytest.mark.parametrize("kind", ["llvm", "opencl"])
@pytest.mark.parametrize("reduction", ["update", "add"])
def test_sorted_updates_in_kernels(kind, reduction):
    x = np.arange(15.0, dtype=np.float32).reshape(5, 3)
    u = np.arange(1.0, 9.0, dtype=np.float32).reshape(4, 2)
    with patch.object(scatter, "_SORTED_AT", 0), patch.object(sorting, "BLOCK", 2):
        dag, _ = value(lambda *a: topi.scatter_elements(*a, 0, reduction), x, np.zeros(
            (4, 2), np.int32), u)  # fmt: skip
    for indices in ([-(2**31), -1, 4, 2**31 - 1], [5, -6, 0, -5], [2, 2, 2, 2]):
        i = np.array([indices, indices[::-1]], np.int32).T.copy()
        wanted = testing.scatter_elements_python(x, i, u, 0, reduction)
        np.testing.assert_array_equal(kernel(kind, dag, x, i, u), wanted)


@small
@given(st.integers(1, 600), st.booleans(), st.booleans(), st.booleans())
def test_running_sums_of_any_length(count, exclusive, reverse, product):
    x = np.random.default_rng(count).integers(-2, 3, (2, count, 3)).astype(np.int64)
    f = topi.cumprod if product else topi.cumsum
    x = np.sign(x) if product else x
    found = value(lambda x: f(x, 1, None, exclusive, reverse), x)[1]
    wanted = testing.cumulative_python(x, 1, product, exclusive, reverse)
    np.testing.assert_array_equal(found, wanted)


@small
@given(
    st.sampled_from(["edge", "reflect", "symmetric", "wrap"]), st.integers(1, 4),
    st.integers(0, 9), st.integers(0, 9),
)  # fmt: skip
def test_padding_with_what_is_there(mode, extent, before, after):
    x = np.arange(2.0 * extent).reshape(extent, 2)
    width = ((before, after), (0, 0))
    found = value(lambda x: topi.mirror_pad(x, width, mode), x)[1]
    np.testing.assert_array_equal(found, np.pad(x, width, mode))


X = te.placeholder((5, 3), name="x")
INDEX, F = (te.placeholder((4,), t, name="i") for t in ("int32", "float32"))
ROW = topi.reshape(INDEX, (4, 1))
REFUSALS = {
    "float indices": (lambda: topi.take(X, F, 0), "no integers"),
    "mode": (lambda: topi.take(X, INDEX, 0, mode="raise"), "the mode 'raise'"),
    "batch_dims": (lambda: topi.take(X, INDEX, 1, batch_dims=1), "not common to both"),
    "gather shape": (lambda: topi.gather(X, 0, INDEX), "do not fit"),
    "gather_nd rank": (lambda: topi.gather_nd(X, INDEX), "4 indices"),
    "updates": (lambda: topi.scatter_nd(X, topi.reshape(INDEX, (1, 4)), F), "updates of shape"),
    "reduction": (
        lambda: topi.scatter_elements(
            X, topi.reshape(INDEX, (4, 1)), topi.reshape(F, (4, 1)), 0, "or"
        ),
        "reduction='or'",
    ),
    "k": (lambda: ranking.topk(X, 4), "k=4 of 3 elements"),
    "running bool": (lambda: topi.cumsum(topi.greater(X, X)), "no arithmetic on bool"),
    "pad mode": (lambda: topi.mirror_pad(X, ((1, 0), (0, 0)), "bounce"), "the mode 'bounce'"),
    "set outside": (lambda: topi.strided_set(X, X, (1, 0), (5, 9)), "the slice has shape"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    f, words = REFUSALS[name]
    with pytest.raises(ExpressionError, match=words):
        f()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("kind", ["llvm", "opencl"])
def test_indices_of_any_integer_type(dtype, kind):
    x = np.arange(5.0, dtype=np.float32)
    ends = np.iinfo(dtype)
    i = np.array([ends.min, ends.max, 0, 3, 4, 5, 6], dtype)
    for mode in ("clip", "wrap"):
        dag, found = value(lambda x, i, m=mode: topi.take(x, i, 0, mode=m), x, i)
        wanted = [int(k) % 5 if mode == "wrap" else min(max(int(k), 0), 4) for k in i]
        np.testing.assert_array_equal(found, wanted)
        np.testing.assert_array_equal(kernel(kind, dag, x, i), wanted)
    dag, found = value(lambda x, i: topi.scatter_elements(x, i, topi.cast(i, "float32"), 0), x, i)
    np.testing.assert_array_equal(kernel(kind, dag, x, i), found)
