"""Placeholders, computations, axes and reductions: what they make, and one test per refusal."""

import pickle

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright.te.evaluate import evaluate

A = te.placeholder((4, 6), name="A")
K = te.reduce_axis((0, 6), "k")


def test_axis_names_come_from_the_function():
    out = te.compute((4, 6), lambda row, col: A[row, col], name="out")
    assert [ax.name for ax in out.op.axis] == ["row", "col"]
    assert [ax.dom.extent for ax in out.op.axis] == [4, 6]
    many = te.compute((4, 6), lambda *i: A[i], name="many")
    assert [ax.name for ax in many.op.axis] == ["i0", "i1"]
    mixed = te.compute((4, 6), lambda n, *i: A[n, i[0]], name="mixed")
    assert [ax.name for ax in mixed.op.axis] == ["n", "i1"]


def test_names_bound_in_a_default_are_no_axes():
    out = te.compute((4,), lambda i, t=A: t[i, 0], name="out")
    assert [ax.name for ax in out.op.axis] == ["i"]


def test_zero_dimensional_tensors_are_read_like_numbers():
    scale = te.placeholder((), name="scale")
    out = te.compute((4,), lambda i: A[i, 0] * scale, name="out")
    assert te.placeholder((), name="s").shape == ()
    values = [np.full((), 2.0), np.ones((4, 6))]
    assert evaluate(te.ComputeDAG([scale, A, out]), values)[0].tolist() == [2.0] * 4


def test_reduction_over_a_range_that_starts_late():
    k = te.reduce_axis((2, 5), "k")
    out = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="out")
    x = np.arange(24.0).reshape(4, 6)
    assert np.array_equal(evaluate(te.ComputeDAG([A, out]), [x])[0], x[:, 2:5].sum(axis=1))


def test_reduction_where_a_condition_holds():
    out = te.compute((4,), lambda i: te.max(A[i, K], axis=K, where=K < 3), name="out")
    x = np.arange(24.0).reshape(4, 6)
    assert np.array_equal(evaluate(te.ComputeDAG([A, out]), [x])[0], x[:, :3].max(axis=1))


def test_reduction_of_conditions_counts():
    out = te.compute((4,), lambda i: te.sum(A[i, K] > 2.5, axis=K), name="out")
    assert out.dtype == "int32"
    x = np.arange(24.0).reshape(4, 6)
    assert evaluate(te.ComputeDAG([A, out]), [x])[0].tolist() == [3, 6, 6, 6]


def test_extents_may_be_any_integers():
    shape = te.placeholder(np.array([2, 3]), name="x").shape
    assert shape == (2, 3) and all(type(n) is int for n in shape)
    assert te.placeholder((te.const(2, "int32"), np.int64(3)), name="x").shape == (2, 3)
    assert te.reduce_axis(np.int64(3), "k").extent == 3


def test_stages_and_axes_that_share_a_name_are_told_apart():
    """TVM's own declarations do it: two computations named "compute"."""
    k = te.reduce_axis((0, 6), "i")
    twice = te.compute((4, 6), lambda i, j: A[i, j] * 2.0, name="same")
    out = te.compute((4,), lambda i: te.sum(twice[i, k], axis=k), name="same")
    s = te.create_schedule(out.op)
    assert [stage.name for stage in s.stages] == ["A", "same", "same_1"]
    assert [ax.name for ax in s[out].leaf_iter_vars] == ["i", "i_1"]
    x = np.arange(24.0).reshape(4, 6)
    assert np.array_equal(evaluate(te.ComputeDAG([A, out]), [x])[0], 2 * x.sum(axis=1))


def test_thread_axes():
    assert repr(te.thread_axis("blockIdx.x")) == "blockIdx.x:? (blockIdx.x)"
    assert repr(te.thread_axis((0, 8), "threadIdx.x", "t")) == "t:8 (threadIdx.x)"


def test_printing():
    out = te.compute((4,), lambda i: A[i, 0], name="out")
    assert repr(out) == "Tensor(shape=[4], dtype=float32, name=out)"
    assert repr(A.op) == "placeholder(A, [4, 6], float32)"
    assert repr(out.op) == "compute(out, [4], float32)"


def test_tensors_survive_pickling():
    out = te.compute((4,), lambda i: te.sum(te.exp(A[i, K]), axis=K), name="out")
    copy, source = pickle.loads(pickle.dumps((out, A)))
    assert copy.op.input_tensors == (source,)
    assert str(te.ComputeDAG([source, copy])) == str(te.ComputeDAG([A, out]))
    x = np.linspace(0, 1, 24).reshape(4, 6)
    both = [evaluate(te.ComputeDAG(d), [x])[0] for d in ([source, copy], [A, out])]
    assert np.array_equal(*both)


REFUSALS = {
    "too few indices": (
        lambda: A[0] + 1.0,
        r"A\[0\]: 1 indices for a tensor of shape \[4, 6\]. Give 2",
    ),
    "rows of a row": (lambda: A[0][1, 2], r"A\[0, 1, 2\]: 3 indices for a tensor of shape"),
    "float index": (
        lambda: te.compute((4,), lambda i: A[i, A[i, 0]]),
        r"A\[i, A\[i, 0\]\]: the index A\[i, 0\] of type float32 is not an integer. Use axes",
    ),
    "condition as index": (lambda: A[0, te.var("i") < 2], "of type bool is not an integer"),
    "float as extent": (
        lambda: te.placeholder((te.var("x", "float32"),), name="x"),
        r"placeholder\('x'\): the dimension x is no number and no expression of te.var",
    ),
    "axis as extent": (lambda: te.compute((4, K), lambda i, j: A[i, j]), "k:6 is no number and no"),
    "element as extent": (
        lambda: te.reduce_axis((0, te.placeholder((1,), "int32", name="N")[0]), "k"),
        r"the end N\[0\] is no number and no expression"
    ),
    "fractional shape": (lambda: te.placeholder((2.5,)), "the dimension 2.5 is no integer"),
    "fractional constant": (lambda: te.placeholder((te.const(2.5),)), "is no integer"),
    "text as shape": (lambda: te.placeholder("4, 6"), "dimension '4, 6' is no integer"),
    "missing shape": (lambda: te.placeholder(None, name="x"), "dimension None is no integer"),
    "fractional range": (lambda: te.reduce_axis((0, 2.5), "k"), "the end 2.5 is no integer"),
    "three ends": (lambda: te.reduce_axis((0, 1, 2), "k"), r"\(0, 1, 2\) is no range. Give"),
    "negative shape": (lambda: te.placeholder((3, -1), name="x"), "a dimension of extent -1"),
    "dtype": (lambda: te.placeholder((3,), "float8", "x"), "dtype 'float8' is not supported"),
    "negative range": (lambda: te.reduce_axis((3, 2), "k"), r"\[3, 2\) ends before it begins"),
    "beginning of nothing": (
        lambda: te.sum(A[0, 0], axis=te.reduce_axis(0), init=2.0), "there is nothing to reduce"
    ),
    "thread tag": (lambda: te.thread_axis("threadIdx.w"), "unknown tag. Use one of blockIdx.x"),
    "axis count": (lambda: te.compute((4, 6), lambda i: A[i, 0]), "takes 1 axes for 2 dimensions"),
    "no function": (lambda: te.compute((4,), 3), "fcompute is a int, not a function"),
    "inner reduction": (
        lambda: te.compute((4,), lambda i: te.sum(A[i, K], axis=K) + 1.0),
        "a reduction inside a larger expression",
    ),
    "nested reduction": (
        lambda: te.compute((4,), lambda i: te.max(te.sum(A[i, K], axis=K), axis=K)),
        "a reduction inside a larger expression",
    ),
    "free axis": (lambda: te.compute((4,), lambda i: A[i, K]), "k is not an axis of this"),
    "no expression": (lambda: te.compute((4,), lambda i: "x"), "a str is not an expression"),
    "a tuple inside a tuple": (
        lambda: te.compute((4,), lambda i: (A[i, 0], (A[i, 1],)), name="C"),
        r"compute\('C'\): the function gives a tuple, .*a tuple of expressions for several tensors",
    ),
    "identities of several values": (
        lambda: te.comm_reducer(lambda x, y: x, lambda t: t, name="argmax")((1, 2), axis=K),
        "fidentity: it is called with 2 types: .* Take a type for each",
    ),
    "a combination of one of several values": (
        lambda: te.comm_reducer(lambda x, y: x[0], lambda *t: t, name="a")((1, 2), axis=K),
        "fcombine: lhs for 2 values. Return a tuple with one for each of them",
    ),
    "a reduction beside an element": (
        lambda: te.compute((4,), lambda i: (te.sum(A[i, K], axis=K), A[i, 0])),
        "a reduction inside a larger expression",
    ),
    "a beginning that may be left out": (
        lambda: te.sum(A[0, K], axis=K, where=K.var < 2, init=1.0),
        "a step that `where` leaves out would lose the beginning",
    ),
    "no return": (lambda: te.compute((4,), lambda i: None), "the function gives a NoneType, not"),
    "whole tensor": (
        lambda: te.compute((4,), lambda i: A),
        "the function gives all of A, not one element. Index it with 2",
    ),
    "reduction as index": (
        lambda: te.compute((4,), lambda i: A[i, te.sum(K, axis=K)]),
        "a reduction inside a larger expression",
    ),
    "spatial axis": (
        lambda: te.compute((4,), lambda i: te.sum(A[i, 0], axis=te.thread_axis("vthread"))),
        "not a reduction axis",
    ),
    "no axis": (lambda: te.sum(A[0, K], axis=[]), "no axis to reduce over"),
    "same axis twice": (lambda: te.sum(A[0, K], axis=[K, K]), "an axis is listed twice"),
    "where": (lambda: te.sum(A[0, K], axis=K, where=A[0, K]), "a condition must be bool"),
    "combiner type": (
        lambda: te.comm_reducer(lambda x, y: x < y, lambda t: te.const(0, t), "less")(A[0, K], K),
        "fcombine turns float32 into bool",
    ),
    "no output": (lambda: te.ComputeDAG([A]), "no computed output among the tensors"),
    "no tensors": (lambda: te.ComputeDAG([]), "no computed output among the tensors"),
    "no tensor": (lambda: te.ComputeDAG([A, 3]), "ComputeDAG: 3 is no tensor. Pass what te.placeh"),
    "nothing": (lambda: te.ComputeDAG(None), "None is no tensor"),
    "equal names": (
        lambda: te.ComputeDAG(
            te.compute((4,), lambda i: A[i, 0] + te.placeholder((4,), name="A")[i])
        ),
        r"2 placeholders are called 'A'. Name every placeholder differently",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    attempt, reason = REFUSALS[name]
    with pytest.raises(ExpressionError, match=reason):
        attempt()


def test_extents_of_axes_have_a_value_as_in_scripts_of_tvm():
    k = te.reduce_axis((2, 9), "k")
    assert (k.dom.min.value, k.dom.extent.value, k.dom.extent) == (2, 7, 7)
    assert type(pickle.loads(pickle.dumps(k.dom.extent))) is int
    n = te.var("n")
    assert te.compute((n, 4), lambda i, j: i + j).op.axis[0].dom.extent is n


def test_pickles_of_before_scans_were_a_class_are_read() -> None:
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] * 2, name="B")
    _, slots = b.op.__reduce_ex__(2)[2]
    made = object.__new__(type(b.op))
    made.__setstate__((None, {**slots, "recurrence": None}))
    assert made.shape == (4,) and made.body is b.op.body
    with pytest.raises(ExpressionError, match="a scan of an older version"):
        made.__setstate__((None, {**slots, "recurrence": object()}))
    assert pickle.loads(pickle.dumps(b)).shape == (4,)
