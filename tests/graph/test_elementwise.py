"""Elementwise operators and reductions beyond their rows: compositions, edges, every type."""

import numpy as np
import pytest

import tilewright
from graph.case import function, tensor
from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import ModelError
from tilewright.graph import passes
from tilewright.runtime.device import device
from tilewright_tvm import nd, relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)
X = RNG.normal(size=(3, 4, 5)).astype("float32") * 3
INTEGERS = tuple(t for t in TYPES if DType(t).is_int)


def run_on(target: str, body, inputs):
    """The results of the network built for `target`, run on `inputs` by name."""
    lib = relay.build(relay.IRModule.from_expr(function(body)), target, verify=True)
    module = graph_executor.GraphModule(lib["default"](tilewright.device(target, 0)))
    for name, value in inputs.items():
        module.set_input(name, nd.array(value, tilewright.device(target, 0)))
    module.run()
    found = [module.get_output(k).numpy() for k in range(module.get_num_outputs())]
    return found if isinstance(body, relay.Tuple) else found[0]


def softplus(x):
    return np.logaddexp(x, 0)


ACTIVATIONS = {
    "celu": (lambda x: nn.celu(x, 0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x / 0.7))),
    "elu": (lambda x: nn.elu(x, 0.7), lambda x: np.where(x > 0, x, 0.7 * np.expm1(x))),
    "gelu": (nn.gelu, lambda x: x * 0.5 * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))),
    "hard_sigmoid": (nn.hard_sigmoid, lambda x: np.clip(x / 6 + 0.5, 0, 1)),
    "hard_swish": (nn.hard_swish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "mish": (nn.mish, lambda x: x * np.tanh(softplus(x))),
    "prelu": (
        lambda x: nn.prelu(x, relay.const(np.array([0.1, 0.2, 0.3, 0.4], "float32"))),
        lambda x: np.where(x < 0, x * np.array([0.1, 0.2, 0.3, 0.4])[:, None], x),
    ),
    "selu": (
        nn.selu, lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x))
    ),
    "shrink": (
        lambda x: nn.shrink(x, 1.5, 0.5),
        lambda x: np.where(x < -1.5, x + 0.5, np.where(x > 1.5, x - 0.5, 0)),
    ),
    "silu": (nn.silu, lambda x: x / (1 + np.exp(-x))),
    "softplus": (nn.softplus, softplus),
    "softsign": (nn.softsign, lambda x: x / (1 + np.abs(x))),
    "thresholded_relu": (nn.thresholded_relu, lambda x: np.where(x > 1, x, 0)),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", INTEGERS)
def test_quotients_of_integers_are_rounded_towards_zero(dtype):
    a, b = np.array([7, 9, 100, 3], dtype), np.array([2, 3, 7, 5], dtype)
    if np.iinfo(dtype).min < 0:
        a[:2], b[2] = -a[:2], -b[2]
    want = np.trunc(a.astype("float64") / b).astype(dtype)
    x, y = (relay.var(n, shape=(4,), dtype=dtype) for n in "xy")
    for body in (relay.divide(x, y), x / y):
        assert relay.evaluate(body, {"x": a, "y": b}).tolist() == want.tolist()
        assert run_on("llvm", body, {"x": a, "y": b}).tolist() == want.tolist()


def test_what_a_constant_holds_answers_as_an_array_of_nd():
    held = relay.const(np.arange(3, dtype="float32")).data
    assert type(held.numpy()) is type(held.asnumpy()) is np.ndarray
    assert held.numpy().tolist() == [0, 1, 2]
    assert relay.const(2.5).data.numpy().item() == 2.5


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name, dtype):
    """gelu is compared with its approximation: they differ by 5e-4 at most."""
    make, expected = ACTIVATIONS[name]
    x = X.astype(DType(dtype).storage)
    if name == "prelu" and dtype != "float32":
        return
    found = relay.evaluate(make(tensor("x", *x.shape, dtype=dtype)), {"x": x})
    near = max(DType(dtype).eps, 1e-6) + (5e-4 if name == "gelu" else 0)
    want = expected(x.astype("float64"))
    assert found.dtype == x.dtype
    np.testing.assert_allclose(found.astype("float64"), want, rtol=near, atol=near)


def test_activations_far_out_are_their_limits():
    """No exponential overflows into a NaN."""
    x = np.array([-1e4, 1e4], "float32")
    for name, at in (("softplus", (0, 1e4)), ("elu", (-1, 1e4)), ("mish", (0, 1e4)),
                     ("celu", (-1, 1e4)), ("silu", (0, 1e4))):  # fmt: skip
        found = relay.evaluate(getattr(nn, name)(tensor("x", 2)), {"x": x})
        assert np.allclose(found, at), name


def test_activations_are_one_kernel_each():
    for name in ACTIVATIONS.keys() - {"prelu"}:
        f = function(ACTIVATIONS[name][0](tensor("x", 4, 8)))
        fused = passes.fuse(relay.IRModule.from_expr(f))["main"].body
        assert all(isinstance(a, relay.Var) for a in fused.args), name


REDUCTIONS = {
    "variance": (relay.variance, lambda x, **k: x.var(**k)),
    "std": (relay.std, lambda x, **k: x.std(**k)),
    "unbiased": (lambda x, **k: relay.variance(x, unbiased=True, **k),
                 lambda x, **k: x.var(ddof=1, **k)),
    "mean of mean_variance": (lambda x, **k: relay.mean_variance(x, **k)[0],
                              lambda x, **k: x.mean(**k)),
    "std of mean_std": (lambda x, **k: relay.mean_std(x, **k)[1], lambda x, **k: x.std(**k)),
    "logsumexp": (relay.logsumexp, lambda x, **k: np.log(np.exp(x.astype("float64")).sum(**k))),
}  # fmt: skip


@pytest.mark.parametrize("axis", [None, 1, (0, 2)])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name, axis, keepdims):
    make, expected = REDUCTIONS[name]
    found = relay.evaluate(make(tensor("x", *X.shape), axis=axis, keepdims=keepdims), {"x": X})
    want = expected(X, axis=axis, keepdims=keepdims)
    assert found.shape == want.shape
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_logsumexp_of_infinities_and_large_numbers():
    x = np.array([[1e4, 1e4], [-np.inf, -np.inf], [np.inf, 0], [-np.inf, 3]], "float32")
    found = relay.evaluate(relay.logsumexp(tensor("x", 4, 2), axis=1), {"x": x})
    assert np.allclose(found, np.logaddexp(x[:, 0], x[:, 1]))


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_bools_are_reduced(target):
    if not device(target).exist:
        pytest.skip(f"no {target} device")
    x = RNG.random((6, 3)) > 0.6
    for name in ("any", "all"):
        body = getattr(relay, name)(tensor("x", 6, 3, dtype="bool"), axis=1)
        assert (run_on(target, body, {"x": x}) == getattr(np, name)(x, axis=1)).all()


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "dtype"), [*(("llvm", t) for t in INTEGERS), ("opencl", "int8"), ("opencl", "int64")]
)
def test_integer_division_never_faults(target, dtype):
    """By zero, and the least number by -1; towards zero as C and ONNX have it."""
    if not device(target).exist:
        pytest.skip(f"no {target} device")
    kind = DType(dtype)
    a = np.array([7, 7, 0, kind.least, kind.least, kind.greatest, 5, 6] * 4, dtype)
    b = np.array([0, 2, 0, kind.greatest, 1, 3, 7, 5] * 4, dtype)
    if kind.kind == "int":
        a[8:16], b[8:16] = -a[8:16], [-1, 0, 3, -1, -1, -2, -7, -4]
    x, y = (tensor(n, a.size, dtype=dtype) for n in "xy")
    names = ("trunc_divide", "mod", "floor_divide", "floor_mod")
    body = relay.Tuple([getattr(relay, name)(x, y) for name in names])
    with np.errstate(all="ignore"):
        wanted = relay.evaluate(body, {"x": a, "y": b})
    for name, found, want in zip(
        names, run_on(target, body, {"x": a, "y": b}), wanted, strict=True
    ):
        assert (found == want).all() and (want[b == 0] == 0).all(), name


def test_division_rounds_as_its_name_says():
    a, b = np.array([7, -7, 7, -7], "int32"), np.array([2, 2, -2, -2], "int32")
    x, y = tensor("x", 4, dtype="int32"), tensor("y", 4, dtype="int32")
    wanted = {
        "trunc_divide": [3, -3, -3, 3], "mod": [1, -1, 1, -1],
        "floor_divide": [3, -4, -4, 3], "floor_mod": [1, 1, -1, -1],
    }  # fmt: skip
    for name, want in wanted.items():
        assert relay.evaluate(getattr(relay, name)(x, y), {"x": a, "y": b}).tolist() == want


@pytest.mark.slow
@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_the_width_shift_everything_out(dtype):
    bits = DType(dtype).bits
    a, b = np.full(4, 77, dtype), np.array([0, 1, bits - 1, bits], dtype)
    x, y = tensor("x", 4, dtype=dtype), tensor("y", 4, dtype=dtype)
    both = relay.Tuple([relay.left_shift(x, y), relay.right_shift(x, y)])
    left, right = run_on("llvm", both, {"x": a, "y": b})
    assert (left == np.left_shift(a, b)).all() and left[3] == 0
    assert (right == np.right_shift(a, b)).all() and right[3] == 0


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64"])
def test_powers_of_integers(dtype):
    a = np.array([2, 3, 0, 1, 5, 7, 1, 2], dtype)
    b = np.array([5, 4, 0, 70, 2, 0, 99, 6], dtype)
    if DType(dtype).kind == "int":
        a[3], a[6], b[4] = -1, -1, -2
    body = relay.power(tensor("x", 8, dtype=dtype), tensor("y", 8, dtype=dtype))
    exact = [float(p) ** int(q) if p else float(q == 0) for p, q in zip(a, b, strict=True)]
    want = np.trunc(exact)
    assert (run_on("llvm", body, {"x": a, "y": b}) == want.astype(dtype)).all()
    assert (relay.evaluate(body, {"x": a, "y": b}) == want.astype(dtype)).all()


def test_small_exponents_become_products():
    x = tensor("x", 3)
    assert relay.power(x, 1) is x
    assert relay.power(x, 2).op.name == "multiply"
    assert relay.power(x, 0.5).op.name == "sqrt"
    assert relay.power(x, 2.5).op.name == "power"
    assert np.allclose(relay.evaluate(relay.power(x, 3), {"x": X[0, 0, :3]}), X[0, 0, :3] ** 3)


def test_truncation_and_logarithms():
    x = np.array([0.5, -0.5, 2.7, -2.7, 8, 100], "float32")
    data = tensor("x", 6)
    assert (relay.evaluate(relay.trunc(data), {"x": x}) == np.trunc(x)).all()
    assert np.allclose(relay.evaluate(relay.log2(data), {"x": abs(x)}), np.log2(abs(x)))
    assert np.allclose(relay.evaluate(relay.log10(data), {"x": abs(x)}), np.log10(abs(x)))


def test_choices_of_numbers_have_no_axes():
    """Kernels of zero-dimensional values."""
    x = tensor("x")
    body = relay.where(relay.greater(x, 0.0), x, 1.0)
    for value in (2.5, -2.5):
        found = run_on("llvm", body, {"x": np.float32(value)})
        assert found.shape == () and found == (value if value > 0 else 1)


REFUSALS = {
    "bits of floats": (lambda: relay.bitwise_and(tensor("x", 2), 1.0), "no operations on bits"),
    "logic of ints": (lambda: relay.logical_not(tensor("x", 2, dtype="int32")), "not bool"),
    "division of floats": (lambda: relay.trunc_divide(tensor("x", 2), 2.0), "not an integer"),
    "any of floats": (lambda: relay.any(tensor("x", 2)), "of bool tensors"),
    "gelu": (lambda: nn.gelu(tensor("x", 2), "fast"), "not known"),
    "gelu of ints": (lambda: nn.gelu(tensor("x", 2, dtype="int32")), "floating-point tensors"),
    "celu": (lambda: nn.celu(tensor("x", 2), 0.0), "divided by alpha"),
    "prelu": (lambda: nn.prelu(tensor("x", 2, 3), tensor("a", 4)), "no vector along that axis"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    attempt, words = REFUSALS[name]
    with pytest.raises(ModelError, match=words):
        attempt()


def test_a_rest_of_the_other_sign_rounds_to_the_size_of_its_divisor():
    x, y = relay.var("x", shape=(64,)), relay.var("y", shape=(64,))
    small = np.linspace(-1e-5, -1e-3, 64, dtype="float32")
    large = np.linspace(100, 200, 64, dtype="float32")
    run = relay.create_executor("graph", target="llvm").evaluate(
        relay.Function([x, y], relay.floor_mod(x, y))
    )
    np.testing.assert_allclose(run(small, large).numpy(), np.mod(small, large), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_small_sigmoid_keeps_its_digits(dtype):
    x = np.array([-80, -30, -8, -1e-3, 0, 1e-3, 8, 80, np.inf, -np.inf, np.nan], dtype)
    wide = x.astype("longdouble")
    found = relay.evaluate(function(relay.sigmoid(tensor("x", x.size, dtype=dtype))), {"x": x})
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-wide)), rtol=8 * np.finfo(dtype).eps)
