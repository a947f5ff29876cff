"""Normalisation layers and losses against numpy, and what they refuse."""

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Function, post_order
from tilewright_tvm import relay
from tilewright_tvm.relay import nn, optimize

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 6, 4, 5)) * 3 + 1
G, B = RNG.standard_normal((2, 6))


def value_of(body, **inputs) -> np.ndarray:
    return relay.evaluate(function(body), inputs)


def like(**arrays) -> list[relay.Var]:
    return [tensor(n, *v.shape, dtype=v.dtype.name) for n, v in arrays.items()]


def standard(x: np.ndarray, axes, epsilon: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def affine(x: np.ndarray) -> np.ndarray:
    return x * G[:, None, None] + B[:, None, None]


WANTED = {
    "layer_norm": (lambda *v: nn.layer_norm(*v, axis=1), affine(standard(X, 1))),
    "instance_norm": (nn.instance_norm, affine(standard(X, (2, 3)))),
    "group_norm": (
        lambda *v: nn.group_norm(*v, 3),
        affine(standard(X.reshape(2, 3, 2, 4, 5), (2, 3, 4)).reshape(X.shape)),
    ),
    "rms_norm": (
        lambda x, g, b: nn.rms_norm(x, g, axis=1) + relay.reshape(b, (6, 1, 1)),
        affine(X / np.sqrt((X * X).mean(1, keepdims=True) + 1e-5)),
    ),
    "not scaled": (
        lambda *v: nn.instance_norm(*v, epsilon=0.5, scale=False, center=False),
        standard(X, (2, 3), 0.5),
    ),
}


@pytest.mark.parametrize("name", WANTED)
def test_layers_mean_what_numpy_says_and_are_one_kernel(name):
    build, wanted = WANTED[name]
    f = function(build(*like(x=X, g=G, b=B)))
    np.testing.assert_allclose(relay.evaluate(f, {"x": X, "g": G, "b": B}), wanted, atol=1e-12)
    main = optimize(f)["main"]
    kernels = [n for n in post_order(main.body) if isinstance(n, Call)]
    assert len([n for n in kernels if isinstance(n.op, Function)]) == 1


def test_l2_normalize_divides_by_the_root_of_the_squares():
    found = value_of(nn.l2_normalize(tensor("x", *X.shape, dtype="float64"), 1e-9, [1]), x=X)
    np.testing.assert_allclose(found, X / np.sqrt((X * X).sum(1, keepdims=True)))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda x, g, b: nn.standardize(x, (1, -3)), "twice"),
        (lambda x, g, b: nn.standardize(x, 4), "out of range"),
        (lambda x, g, b: nn.standardize(x, 1, -1.0), "negative"),
        (lambda x, g, b: nn.standardize(relay.cast(x, "int32")), "floating-point"),
        (lambda x, g, b: nn.group_norm(x, g, b, 4), "do not fall"),
        (lambda x, g, b: nn.group_norm(x, g, b, 2, axis=0), "no axis behind"),
        (lambda x, g, b: nn.instance_norm(relay.reshape(x, (2, -1)), g, b), "no axis besides"),
    ],
)
def test_what_does_not_fit_is_refused(build, reason):
    with pytest.raises(ModelError, match=reason):
        build(*like(x=X, g=G, b=B))


SCORES, TARGETS = RNG.standard_normal((3, 4, 2)), np.array([[0, 1], [3, 1], [2, 9]])


def likelihood(weights: np.ndarray, ignored: int | None) -> tuple[np.ndarray, np.ndarray]:
    """The loss and the weight of each target, one by one."""
    loss, share = np.zeros((2, *TARGETS.shape))
    for (n, d), c in np.ndenumerate(TARGETS):
        if c != ignored and c < 4:
            loss[n, d], share[n, d] = -SCORES[n, c, d] * weights[c], weights[c]
    return loss, share


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ignored", [None, 1])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_losses_mean_what_numpy_says(reduction, ignored, weighted):
    weights = np.array([0.5, 1.5, 2.0, 3.0]) if weighted else np.ones(4)
    x, t, w = like(x=SCORES, t=TARGETS, w=weights)
    made = nn.nll_loss(x, t, w if weighted else None, reduction, ignored)
    inputs = {"x": SCORES, "t": TARGETS, **({"w": weights} if weighted else {})}
    loss, share = likelihood(weights, ignored)
    wanted = {"none": loss, "sum": loss.sum(), "mean": loss.sum() / share.sum()}
    np.testing.assert_allclose(value_of(made, **inputs), wanted[reduction])


def test_what_losses_refuse():
    x, t = like(x=SCORES, t=TARGETS)
    with pytest.raises(ModelError, match="reduction"):
        nn.nll_loss(x, t, reduction="max")
    with pytest.raises(ModelError, match="no class for each"):
        nn.nll_loss(x, relay.reshape(t, (2, 3)))
    with pytest.raises(ModelError, match="Cast"):
        nn.nll_loss(x, relay.cast(t, "float32"))


FAR = (100 + 0.01 * np.random.default_rng(1).random((1, 2, 256, 256))).astype("float32")
FAR_STATISTICS = {
    "mean": (lambda x: relay.mean(x, axis=(2, 3)), lambda x: x.mean((2, 3)), 1e-6),
    "variance": (lambda x: relay.variance(x, axis=(2, 3)), lambda x: x.var((2, 3)), 1e-3),
    "instance norm": (lambda x: nn.standardize(x, (2, 3)), lambda x: standard(x, (2, 3)), 3e-2),
    "channels last": (
        lambda x: nn.standardize(relay.transpose(x, (0, 2, 3, 1)), (1, 2)),
        lambda x: standard(x.transpose(0, 2, 3, 1), (1, 2)), 3e-2,
    ),
    "group norm": (
        lambda x: nn.standardize(relay.reshape(x, (1, -1)), (1,)),
        lambda x: standard(x.reshape(1, -1), 1), 3e-2,
    ),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "opencl"])
@pytest.mark.parametrize("name", FAR_STATISTICS)
def test_statistics_of_many_values_far_from_zero(name, target):
    """Deviations of 3e-5 of the values: what is left of them shows how good the mean is."""
    make, wanted, error = FAR_STATISTICS[name]
    (x,) = like(x=FAR)
    run = relay.create_executor("graph", relay.IRModule.from_expr(function(make(x))), target=target)
    expected = wanted(FAR.astype("float64"))
    found = run.evaluate()(FAR).numpy()
    assert np.abs(found - expected).max() <= error * np.abs(expected).max()
