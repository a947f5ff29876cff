"""Products with sparse matrices: every layout against numpy, in the reference and in kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright_tvm
from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.te import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance
from tilewright_tvm import nd, topi
from tilewright_tvm.topi.testing import random_bsr_matrix, sparse_dense_python

M, K, N = 6, 8, 12


def declared(data, lhs=False, most=None):
    """(tensors, arrays) of a product with a sparse matrix [N, K] whose data has this shape."""
    csr = random_bsr_matrix(N, K, 1, 1, 0.4, seed=1)
    sparse = random_bsr_matrix(N, K, *data, 0.4, seed=1) if data else csr
    values = sparse.data if data else sparse.data.reshape(-1)
    dense = np.random.default_rng(2).standard_normal((M, K)).astype(np.float32)
    arrays = [dense, values, sparse.indices, sparse.indptr]
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"p{k}") for k, a in enumerate(arrays)]
    return [*inputs, topi.nn.sparse_dense(*inputs, sparse_lhs=lhs, most=most)], arrays


@pytest.mark.slow
@pytest.mark.parametrize("data", [None, (4, 1), (2, 4), (3, 2)])
@pytest.mark.parametrize("lhs", [False, True])
def test_is_the_dense_product(data, lhs) -> None:
    tensors, arrays = declared(data, lhs)
    dag = ComputeDAG(tensors)
    (value,), (bound,) = evaluate_with_tolerance(dag, arrays)
    expected = sparse_dense_python(*arrays, sparse_lhs=lhs)
    assert np.allclose(value, expected, atol=1e-5)
    func = tilewright.build(te.create_schedule(tensors[-1].op), tensors, "llvm")
    out = nd.empty(value.shape)
    func(*map(nd.array, arrays), out)
    assert agrees(out.numpy(), value, bound).all()


def test_work_is_that_of_what_is_there() -> None:
    tensors, arrays = declared((4, 1))
    assert ComputeDAG(tensors).flop_ct == 2 * M * arrays[1].size


def test_rows_with_a_column_twice_need_to_be_told_so() -> None:
    arrays = [np.ones((1, 2), np.float32), np.arange(3, dtype=np.float32), np.zeros(3, np.int32),
              np.array([0, 3], np.int32)]  # fmt: skip
    inputs = [te.placeholder(a.shape, a.dtype.name, name=f"p{k}") for k, a in enumerate(arrays)]
    out = topi.nn.sparse_dense(*inputs, most=3)
    (value,), _ = evaluate_with_tolerance(ComputeDAG([*inputs, out]), arrays)
    assert value.item() == 3


def test_refusals() -> None:
    (x, w, i, p, _), _ = declared((4, 1))
    (short,) = (te.placeholder((3,), "int32", name="short"),)
    wide = te.placeholder((w.shape[0], 1, 3), name="wide")
    for wrong, text in (
        ((x, w, short, p), "elements have 3 columns"), ((x, w, w, p), "dimensions"),
        ((x, x, i, p), "sparse_data has 2 dimensions"), ((x, wide, i, p), "do not divide 8"),
        ((x, w, i, te.placeholder((4,), name="q")), "sparse_indptr is float32"),
        ((x, w, i, te.placeholder((1,), "int32", name="q")), "there is no row"),
    ):  # fmt: skip
        with pytest.raises(ExpressionError, match=text):
            topi.nn.sparse_dense(*wrong)
    with pytest.raises(ExpressionError, match="at most 0"):
        topi.nn.sparse_dense(x, w, i, p, most=0)
    for sizes, text in (((12, 8, 5, 1, 0.5), "do not divide"), ((12, 8, 4, 1, 0.0), "no share")):
        with pytest.raises(ExpressionError, match=text):
            random_bsr_matrix(*sizes)


def test_a_matrix_by_its_parts() -> None:
    from tilewright_tvm.contrib import sparse

    rng = np.random.default_rng(0)
    dense = np.maximum(rng.normal(size=(5, 7)), 0).astype("float32")
    dense[2] = 0
    held = sparse.array(dense)
    assert held.shape == (5, 7) and held.dtype == "float32" and held.stype == "csr"
    np.testing.assert_array_equal(held.numpy(), dense)
    parts = held.data, held.indices, held.indptr
    np.testing.assert_array_equal(sparse.array(parts, shape=(5, 7)).numpy(), dense)
    tensors = sparse.placeholder((5, 7), nonzeros=held.data.shape[0], name="A")
    x = te.placeholder((3, 7), name="x")
    y = topi.nn.sparse_dense(x, tensors.data, tensors.indices, tensors.indptr)
    arguments = [x, tensors.data, tensors.indices, tensors.indptr, y]
    kernel = tilewright.build(topi.generic.schedule_sparse_dense([y]), arguments, "llvm")
    values, out = (
        rng.normal(size=(3, 7)).astype("float32"),
        tilewright_tvm.nd.empty((3, 5), "float32"),
    )
    kernel(tilewright_tvm.nd.array(values), *parts, out)
    np.testing.assert_allclose(out.numpy(), values @ dense.T, rtol=1e-5, atol=1e-5)
    for wrong, words in (
        (lambda: sparse.array(np.zeros(3)), "1 dimensions are no matrix"),
        (lambda: sparse.array(parts), "the shape is missing"),
        (lambda: sparse.array(dense, stype="csc"), "it is not stored by rows"),
        (lambda: sparse.placeholder((3,)), "it is no matrix"),
    ):
        with pytest.raises(ExpressionError, match=words):
            wrong()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "int16", "int32"])
@pytest.mark.parametrize("bias", [False, True])
def test_products_by_the_names_of_tvm(dtype, bias) -> None:
    from tilewright_tvm.contrib import sparse

    rng = np.random.default_rng(1)
    few = np.maximum(rng.integers(-9, 9, (5, 7)), 0).astype(dtype)
    held = sparse.array(few)
    rows, stored = te.var("rows"), te.var("stored")

    def check(function, a, others, arrays, wanted) -> None:
        tensors = [te.placeholder(x.shape, dtype, name=f"x{k}") for k, x in enumerate(others)]
        out = function(a, *tensors)
        arguments = [a.data, a.indices, a.indptr, *tensors, out]
        kernel = tilewright.build(te.create_schedule(out.op), arguments, "llvm")
        result = nd.empty(wanted.shape, dtype)
        kernel(held.data, held.indices, held.indptr, *map(nd.array, arrays), result)
        np.testing.assert_allclose(result.numpy(), wanted, rtol=1e-5)

    def numbers(*shape):
        return rng.integers(-9, 9, shape).astype(dtype)

    b, column, side, end = numbers(7, 3), numbers(7, 1), numbers(5), numbers(4)
    x, w = numbers(6, 7), numbers(4, 7)
    a = sparse.placeholder((rows, 7), stored, dtype, "a")
    added = side[:, None] if bias else 0
    more = [side] if bias else []
    if not bias:  # of so many rows as the call says
        check(topi.sparse.csrmm, a, [b], [b], few @ b)
    fixed = sparse.placeholder((5, 7), stored, dtype, "a")
    check(topi.sparse.csrmm, fixed, [b, *more], [b, *more], few @ b + added)
    check(topi.sparse.csrmv, fixed, [column, *more], [column, *more], few @ column + added)
    ends = [end] if bias else []
    wanted = few @ w.T + (end if bias else 0)
    check(topi.sparse.dense, fixed, [w, *ends], [w, *ends], wanted)
    ends = [side] if bias else []
    wanted = x @ few.T + (side if bias else 0)
    check(lambda a, x, *m: topi.sparse.dense(x, a, *m), fixed, [x, *ends], [x, *ends], wanted)
    with pytest.raises(ExpressionError, match="is no matrix stored by rows"):
        topi.sparse.csrmm(te.placeholder((5, 7), name="t"), te.placeholder((7, 3), name="b"))
