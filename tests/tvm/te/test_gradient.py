"""Derivatives against differences of the float64 reference, and against what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import topi
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.te.dag import op_flops
from tilewright.te.evaluate import evaluate
from tilewright_tvm import nd, te
from tilewright_tvm.te.gradient import gradient
from tilewright_tvm.te.solving import solve

STEP = 1e-5


def values_of(tensors: list[te.Tensor], given: dict[te.Tensor, Any]) -> list[Any]:
    """In float64."""
    dag = te.ComputeDAG([*given, *tensors])
    return [np.asarray(v, np.float64) for v in evaluate(dag, [given[t] for t in given])]


def drawn(tensors: list[te.Tensor], low: float, high: float) -> dict[te.Tensor, Any]:
    rng = np.random.default_rng(7)
    return {t: rng.uniform(low, high, t.shape) for t in tensors}


def check(out: te.Tensor, inputs: list[te.Tensor], low: float = -2, high: float = 2) -> None:
    """The derivatives of a weighted sum of `out`, of some elements by differences."""
    rng = np.random.default_rng(3)
    head = te.placeholder((2, *out.shape), F, name="head")
    known = drawn(inputs, low, high)
    weights = rng.standard_normal(head.shape)
    found = values_of(te.gradient(out, inputs, head), known | {head: weights})
    for source, grads in zip(inputs, found, strict=True):
        assert grads.shape == (2, *source.shape)
        for _ in range(5):
            at = tuple(rng.integers(n) for n in source.shape)
            ends = []
            for sign in (1, -1):
                moved = known[source].copy()
                moved[at] += sign * STEP
                (value,) = values_of([out], known | {source: moved})
                ends.append(value)
            slope = (weights * (ends[0] - ends[1])).reshape(2, -1).sum(1) / (2 * STEP)
            np.testing.assert_allclose(grads[(slice(None), *at)], slope, rtol=1e-4, atol=1e-5)


F = "float64"
A, B = te.placeholder((6, 6), F, name="A"), te.placeholder((6, 6), F, name="B")
product = te.comm_reducer(lambda x, y: x * y, lambda t: te.const(1, t), name="product")


def k() -> te.IterVar:
    return te.reduce_axis((0, 6), name="k")


ELEMENTS: dict[str, Callable[..., Any]] = {
    "both ways": lambda i, j: A[i, j] * (B[j, i] + A[j, i]),
    "quotient": lambda i, j: A[i, j] / (3.0 + B[i, j] * B[j, j]),
    "power": lambda i, j: te.power(te.abs(A[i, j]) + 0.1, B[j, i]),
    "choice": lambda i, j: te.if_then_else(i > j, A[i - 1, j] * A[i - 1, j], B[i, 5 - j]),
    "selected": lambda i, j: te.select(A[i, j] > B[i, j], te.sin(A[i, j]), te.cos(B[i, j])),
    "extremes": lambda i, j: te.maximum(A[i, j], B[i, j]) - te.minimum(A[j, i], 0.3),
    "steps": lambda i, j: A[i, j] * (te.floor(B[i, j]) + te.ceil(A[i, j]) + te.round(B[j, i])),
    "remainders": lambda i, j: te.fmod(A[i, j], 1.5 + te.abs(B[i, j])),
    "hyperbolic": lambda i, j: te.tanh(A[i, j]) + te.sinh(B[i, j]) * te.cosh(A[j, i]),
    "inverse": lambda i, j: te.asinh(A[i, j]) + te.atan(B[i, j]) + te.acosh(2.0 + te.exp(A[j, i])),
    "arcs": lambda i, j: te.asin(A[i, j] / 3) + te.acos(B[i, j] / 3) + te.atanh(A[j, i] / 3),
    "others": lambda i, j: te.erf(A[i, j]) + te.rsqrt(4 + B[i, j]) + te.log(3 + A[j, i]),
    "roots": lambda i, j: te.sqrt(4 + A[i, j]) * te.tan(B[i, j] / 2) + te.sigmoid(A[i, j]),
    "matmul": lambda i, j: te.sum(A[i, (r := k())] * B[r, j], axis=r),
    "diagonals": lambda i, j: te.sum(A[(r := k()), r] - A[te.minimum(j + r, 5), j], axis=r),
    "part": lambda i, j: te.sum(A[i, (r := k())] * B[i, r], axis=r, where=r < j),
    "greatest": lambda i, j: te.max(A[i, (r := k())] * B[r, j], axis=r),
    "least": lambda i, j: te.min(A[i, (r := k())] + B[r, j] * A[i, r], axis=r),
    "product": lambda i, j: product(A[i, (r := k())] + B[r, j] + 2, axis=r),
    "own product": lambda i, j: te.prod(A[i, (r := k())] + B[r, j], axis=r),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_of_an_element(name: str) -> None:
    check(te.compute((6, 6), ELEMENTS[name], name="C"), [A, B])


def test_a_sigmoid_is_flat_far_out():
    """exp(-x) is infinite in float32 for x below -88."""
    x = te.placeholder((5,), "float32", name="x")
    out = te.compute(x.shape, lambda i: te.sigmoid(x[i]))
    (grad,) = te.gradient(out, x, topi.full_like(out, 1.0))
    s = te.create_schedule(grad.op)
    run = tilewright.build(s, [x, grad], "llvm")
    values = np.array([-1000, -100, 0, 2, 500], "float32")
    found = nd.array(np.ones(5, "float32"))
    run(nd.array(values), found)
    inner = 1 / (1 + np.exp(-2.0))
    np.testing.assert_allclose(found.numpy(), [0, 0, 0.25, inner * (1 - inner), 0], 1e-6, 1e-20)


@pytest.mark.slow
def test_of_networks() -> None:
    x, w = te.placeholder((1, 2, 6, 6), F, name="X"), te.placeholder((2, 2, 3, 3), F, name="W")
    inner = topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))
    both = x + topi.nn.conv2d(inner, w, 1, 1, 1)
    check(both, [x, w], -1, 1)
    (by_inner,) = te.gradient(te.compute(both.shape, lambda *i: inner[i] * x[i]), inner, x)
    known = drawn([x], -1, 1)
    np.testing.assert_allclose(values_of([by_inner], known)[0], known[x] ** 2)
    flat = topi.reshape(both, (4, 18))
    check(topi.nn.softmax(flat), [x, w], -0.3, 0.3)
    check(topi.nn.log_softmax(flat), [x, w], -0.3, 0.3)
    parts = topi.split(topi.transpose(flat), 2, axis=0)
    check(topi.concatenate([parts[1], parts[0]], 1), [x, w], -1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_of_windows(stride: int, dilation: int) -> None:
    x, w = te.placeholder((1, 2, 9, 9), F, name="X"), te.placeholder((2, 2, 3, 2), F, name="W")
    check(topi.nn.conv2d(x, w, stride, 1, dilation), [x, w])
    for kind in ("max", "avg"):
        window, steps = [3, 3], [stride, stride]
        check(topi.nn.pool2d(x, window, steps, [dilation] * 2, [0, 0, 0, 0], kind), [x])


def test_without_a_head_it_is_the_derivative_of_each_element() -> None:
    product_ = te.compute((6, 6), ELEMENTS["matmul"], name="C")
    (found,) = te.gradient(product_, A)
    assert tuple(found.shape) == (6, 6, 6, 6)
    b = np.random.default_rng(0).standard_normal((6, 6))
    (value,) = values_of([found], {B: b})
    np.testing.assert_allclose(value, np.einsum("ia,bj->ijab", np.eye(6), b), atol=1e-12)


def test_built_derivatives_are_those_of_the_reference() -> None:
    out = te.compute((6, 6), ELEMENTS["greatest"], name="C")
    head = te.placeholder((6, 6), F, name="head")
    grads = te.gradient(out, [A, B], head)
    func = tilewright.build(te.create_schedule([g.op for g in grads]), [A, B, head, *grads])
    given = drawn([A, B, head], -1, 1)
    outs = [nd.empty(g.shape, F) for g in grads]
    func(*map(nd.array, given.values()), *outs)
    for mine, wanted in zip(outs, values_of(grads, given), strict=True):
        np.testing.assert_allclose(mine.numpy(), wanted, rtol=1e-9, atol=1e-12)


def test_little_is_summed_that_is_zero() -> None:
    """As many operations as the layer has, times a small number, and none for a reshape."""
    x, w = te.placeholder((1, 8, 32, 32), name="X"), te.placeholder((8, 8, 3, 3), name="W")
    layer = topi.nn.conv2d(x, w, 1, 1, 1)
    grads = te.gradient(layer, [x, w], topi.full_like(layer, 1.0))
    own, needed = (
        sum(op_flops(op, "float") for op in te.ComputeDAG(of).compute_ops)
        for of in ([layer], grads)
    )
    assert needed < 3 * own
    flat = topi.reshape(x, (32, 256))
    (back,) = te.gradient(flat, x, te.placeholder((32, 256), name="head"))
    assert back.op.reduce_axis == () and te.ComputeDAG([back]).flop_ct == 0


def test_of_equal_values_the_first_has_it() -> None:
    r = k()
    top = te.compute((6,), lambda i: te.max(te.maximum(A[i, r], 0.0), axis=r), name="top")
    (grad,) = te.gradient(top, A, topi.full_like(top, 1.0))
    (value,) = values_of([grad], {A: np.ones((6, 6))})
    np.testing.assert_array_equal(value, np.eye(1, 6).repeat(6, 0))


def test_inputs_of_other_kinds() -> None:
    chosen = te.placeholder((9,), "int32", name="chosen")
    taken = topi.take(A, chosen, axis=0)
    head = te.placeholder((9, 6), F, name="head")
    grad, none = te.gradient(taken * 2.0, [A, B], head)
    picks, weights = np.array([0, 5, 2, 2, 1, 0, 0, 3, 5]), np.arange(54.0).reshape(9, 6)
    given = {chosen: picks, head: weights}
    wanted = np.zeros((6, 6))
    np.add.at(wanted, picks, 2 * weights)
    np.testing.assert_allclose(values_of([grad], given)[0], wanted)
    np.testing.assert_array_equal(values_of([none], given)[0], np.zeros((6, 6)))
    half = te.placeholder((4, 8), "float16", name="half")
    r = te.reduce_axis((0, 8))
    total = te.compute((4,), lambda i: te.sum(half[i, r] * half[i, r], axis=r))
    (grad,) = te.gradient(total, half, topi.full_like(total, 1.0))
    assert grad.dtype == "float16"
    x = np.random.default_rng(0).standard_normal((4, 8)).astype("float16")
    np.testing.assert_allclose(values_of([grad], {half: x})[0], 2 * x.astype(float), rtol=1e-3)


def test_of_an_extent_that_calls_give() -> None:
    n = te.var("n")
    x, head = te.placeholder((n, 4), name="x"), te.placeholder((n,), name="head")
    r = te.reduce_axis((0, 4))
    out = te.compute((n,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), name="out")
    (grad,) = te.gradient(out, x, head)
    func = tilewright.build(te.create_schedule(grad.op), [x, head, grad])
    for rows in (1, 5):
        data = np.random.default_rng(rows).standard_normal((rows, 4)).astype("float32")
        result = nd.empty((rows, 4))
        func(nd.array(data), nd.array(np.arange(rows, dtype="float32")), result)
        np.testing.assert_allclose(result.numpy(), 2 * data * np.arange(rows)[:, None], rtol=1e-5)


@pytest.mark.parametrize("seed", range(40))
def test_solutions_are_all_iterations(seed: int) -> None:
    """For random indices of reads: those that the axes have, each once."""
    rng = np.random.default_rng(seed)
    axes = [te.reduce_axis((0, int(n)), name=f"a{n}") for n in rng.integers(1, 5, 3)]
    u, v, w = (ax.var for ax in axes)
    flat = (u * axes[1].size + v) * axes[2].size + w
    forms = [
        [u * int(rng.integers(1, 4)) + v * int(rng.integers(-2, 3)) + 3, w],
        [flat // 6, flat // 2 % 3, flat % 2], [w // 2, w % 2, v + w], [u + v + w], [u * v, w],
        [flat % 4], [E.const(1), 2 - u, v], [u, u, v],
    ]  # fmt: skip
    indices = forms[seed % len(forms)]
    there = np.stack(np.meshgrid(*(range(ax.size) for ax in axes), indexing="ij"), -1).reshape(
        -1, 3
    )

    def number(e: Any, at: Any) -> int:
        return int(E.substitute(E.convert(e), {q: E.const(int(n)) for q, n in at}).attr)

    variables = [ax.var for ax in axes]
    rows = [tuple(zip(variables, point, strict=True)) for point in there]
    reads = [tuple(number(e, row) for e in indices) for row in rows]
    sizes = [E.var(f"x{d}") for d in range(len(indices))]
    extents = [max(max(column), 0) + 1 for column in zip(*reads, strict=True)]
    known = solve(indices, dict(zip(sizes, extents, strict=True)), axes)
    for element in np.ndindex(*extents):
        at = tuple(zip(sizes, element, strict=True))
        found = []
        for free in np.ndindex(*(ax.size for ax in known.left)):
            here = (*at, *zip((ax.var for ax in known.left), free, strict=True))
            if all(number(c, here) for c in known.conditions):
                found.append(tuple(number(known.value(q), here) for q in variables))
        wanted = [
            tuple(p) for p, read in zip(there.tolist(), reads, strict=True) if read == element
        ]
        assert sorted(found) == sorted(wanted), (indices, element)


def test_refusals() -> None:
    whole = te.placeholder((6,), "int32", name="whole")
    for bad in (whole, 3):
        with pytest.raises(ExpressionError, match="te.gradient"):
            te.gradient(te.compute((6,), lambda i: A[i, i]), [bad])
    out = te.compute((6, 6), lambda i, j: A[i, j] * 2.0)
    with pytest.raises(ExpressionError, match="does not end with"):
        gradient(out, A, te.placeholder((6,)))
    pair = te.compute((6, 6), lambda i, j: (A[i, j], A[j, i]), name="pair")
    with pytest.raises(ExpressionError, match="pair is a stage of several tensors"):
        te.gradient(te.compute((6,), lambda i: pair[0][i, i]), A)
    cells = te.extern((6,), [A], lambda ins, outs: outs[0].vstore(0, ins[0].vload((0, 0))))
    with pytest.raises(ExpressionError, match="is a te.extern"):
        te.gradient(te.compute((6,), lambda i: cells[i] * 1.0), A)
