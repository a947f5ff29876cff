"""Norms and softmax in the spellings of exporters become one operator; what is near does not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.case import function, tensor
from tests.tiers import examples
from tilewright.graph.expr import post_order
from tilewright.graph.passes import canonicalize, fold_constants, join_norms
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, prepare
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

SHAPE = (3, 4, 5)


def joined(body: relay.Expr) -> list[str]:
    """The operators afterwards; the value in float32 is as near float64's as before."""
    f = function(body)
    mod = relay.IRModule.from_expr(f)
    after = join_norms(fold_constants(canonicalize(mod)))
    rng = np.random.default_rng(0)
    inputs = {p.name_hint: rng.standard_normal(p.shape).astype(p.dtype) + 2 for p in f.params}
    exact = relay.evaluate(mod, inputs, "float64")
    scale = np.abs(exact).max()
    errors = [np.abs(relay.evaluate(m, inputs) - exact).max() / scale for m in (mod, after)]
    assert errors[1] <= max(2 * errors[0], 1e-6)
    return [op_name(n) for n in post_order(after["main"].body) if op_name(n)]


def mean(x: relay.Expr, axis: object, spelling: str) -> relay.Expr:
    if spelling == "mean":
        return relay.mean(x, axis, keepdims=True)
    total = relay.sum(x, axis, keepdims=True)
    count = x.tensor_type.size // total.tensor_type.size
    return total / float(count) if spelling == "sum / n" else total * (1.0 / count)


SQUARES = {"c * c": lambda c: c * c, "c ** 2": lambda c: relay.power(c, relay.const(2.0))}
ROOTS = {
    "/ sqrt": lambda c, v: c / relay.sqrt(v),
    "* rsqrt": lambda c, v: c * relay.rsqrt(v),
    "rsqrt *": lambda c, v: relay.rsqrt(v) * c,
    "* (1 / sqrt)": lambda c, v: c * (relay.const(1.0) / relay.sqrt(v)),
    "* v ** -0.5": lambda c, v: c * relay.power(v, relay.const(-0.5)),
    "/ v ** 0.5": lambda c, v: c / relay.power(v, relay.const(0.5)),
}
MEANS = ("mean", "sum / n", "sum * 1/n")


@pytest.mark.slow
@given(
    axes=st.sets(st.integers(-3, 2), min_size=1, max_size=3).filter(
        lambda a: len({k % 3 for k in a}) == len(a)
    ),
    square=st.sampled_from(sorted(SQUARES)),
    root=st.sampled_from(sorted(ROOTS)),
    average=st.sampled_from(MEANS),
    center=st.booleans(),
    twice=st.booleans(),
    swapped=st.booleans(),
    epsilon=st.sampled_from([1e-12, 1e-5, 0.3]),
)
@examples(40)
def test_every_spelling_of_a_norm_is_one(
    axes, square, root, average, center, twice, swapped, epsilon
):
    x, axis = tensor("x", *SHAPE), tuple(axes)

    def centered() -> relay.Expr:
        return x - mean(x, axis, average) if center else x

    c = centered()
    variance = mean(SQUARES[square](centered() if twice else c), axis, average)
    e = relay.const(epsilon)
    shifted = e + variance if swapped else variance + e
    made = ROOTS[root](c, shifted)
    assert joined(made) == ["nn.standardize"]
    assert joined(made * 2.0 + tensor("b", 5)) == ["nn.standardize", "multiply", "add"]


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("twice", [False, True])
def test_a_softmax_is_one(axis, twice):
    x = tensor("x", *SHAPE)

    def above() -> relay.Expr:
        return relay.exp(x - relay.max(x, axis, keepdims=True))

    e = above()
    total = relay.sum(above() if twice else e, axis, keepdims=True)
    assert joined(e / total) == ["nn.softmax"]


def test_casts_stay_around():
    x = tensor("x", *SHAPE, dtype="float16")
    wide = relay.cast(x, "float32")
    made = wide * relay.rsqrt(mean(wide * wide, -1, "mean") + relay.const(1e-6))
    assert joined(relay.cast(made, "float16")) == ["cast", "nn.standardize", "cast"]


X, Y = tensor("x", *SHAPE), tensor("y", *SHAPE)
Z, EPS = tensor("z", 4, 4), relay.const(1e-5)


def variance(x: relay.Expr, axis: object = -1, **options: object) -> relay.Expr:
    return relay.mean(x * x, axis, **{"keepdims": True, **options})


NEARLY = {
    "another value": lambda: Y * relay.rsqrt(variance(X) + EPS),
    "squares of two": lambda: X * relay.rsqrt(relay.mean(X * Y, -1, keepdims=True) + EPS),
    "the third power": lambda: (
        X * relay.rsqrt(relay.mean(relay.power(X, relay.const(3.0)), -1, keepdims=True) + EPS)
    ),
    "no epsilon": lambda: X / relay.sqrt(variance(X)),
    "less than the mean": lambda: X / relay.sqrt(variance(X) + relay.const(-1e-5)),
    "epsilon is a value": lambda: X / relay.sqrt(variance(X) + tensor("e", 3, 4, 1)),
    "sum": lambda: X / relay.sqrt(relay.sum(X * X, -1, keepdims=True) + EPS),
    "n - 1": lambda: X / relay.sqrt(relay.sum(X * X, -1, keepdims=True) / 4.0 + EPS),
    "times the root": lambda: X * relay.sqrt(variance(X) + EPS),
    "divided by the inverse": lambda: X / relay.rsqrt(variance(X) + EPS),
    "another root": lambda: X * relay.power(variance(X) + EPS, relay.const(-0.25)),
    "two over the root": lambda: X * (relay.const(2.0) / relay.sqrt(variance(X) + EPS)),
    "stretched along other axes": lambda: Z * relay.rsqrt(relay.mean(Z * Z, -1) + EPS),
    "softmax of a shifted value": lambda: (
        relay.exp(X) / relay.sum(relay.exp(X - relay.max(X, -1, keepdims=True)), -1, keepdims=True)
    ),
    "softmax over two axes": lambda: (
        (e := relay.exp(X - relay.max(X, (1, 2), keepdims=True)))
        / relay.sum(e, (1, 2), keepdims=True)
    ),
    "maximum along another axis": lambda: (
        (e := relay.exp(X - relay.max(X, 0, keepdims=True))) / relay.sum(e, -1, keepdims=True)
    ),
}


@pytest.mark.parametrize("name", NEARLY)
def test_what_is_nearly_a_norm_stays(name):
    after = joined(NEARLY[name]())
    assert not {"nn.standardize", "nn.softmax"} & set(after)


def test_a_mean_of_other_axes_leaves_a_norm_without_center():
    c = X - relay.mean(X, 0, keepdims=True)
    assert joined(c * relay.rsqrt(variance(c) + EPS))[-1] == "nn.standardize"
    assert "mean" in joined(c * relay.rsqrt(variance(c) + EPS))


def test_a_root_that_is_read_twice_is_computed_once():
    root = relay.rsqrt(variance(X) + EPS)
    assert "nn.standardize" not in joined(X * root + root)


def test_a_norm_of_layers_is_one_kernel():
    from tilewright.network.extract import fused_groups, prepare

    c = X - relay.mean(X, -1, keepdims=True)
    made = c / relay.sqrt(variance(c) + EPS) * tensor("g", 5) + tensor("b", 5)
    (group,) = fused_groups(prepare(function(made))["main"])
    reference = nn.layer_norm(X, tensor("g", 5), tensor("b", 5))
    (wanted,) = fused_groups(prepare(function(reference))["main"])
    assert group.key == wanted.key


def normed(x: relay.Expr) -> relay.Expr:
    squares = relay.mean(x * x, -1, keepdims=True)
    return x * relay.rsqrt(squares + relay.const(1e-5, str(x.dtype)))


def residual(kind: str, view: bool) -> relay.Function:
    """A norm of what others read as well, in float32 inside."""
    x = tensor("x", 1, 2, 64, dtype=kind) + tensor("y", 1, 2, 64, dtype=kind)
    inner = relay.reshape(x, (2, 64)) if view else x
    wide = relay.cast(inner, "float32")
    if view:
        wide = relay.reshape(wide, (1, 2, 64))
    norm = relay.cast(normed(wide), kind)
    return function(relay.Tuple([x, norm]))


@pytest.mark.parametrize("view", [False, True])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_norm_of_halves_widens_them_itself(kind: str, view: bool) -> None:
    mod = relay.IRModule.from_expr(residual(kind, view))
    groups = fused_groups(prepare(mod)["main"])
    names = [g.name for g in groups for _ in g.calls]
    assert sorted(names)[0] == "add" and len(names) == 2 and "standardize" in sorted(names)[1]
    (norm,) = (g for g in groups if "standardize" in g.name)
    assert [str(a.dtype) for a in norm.dag.args] == [kind, kind]


def test_a_cast_that_others_read_has_its_kernel() -> None:
    wide = relay.cast(tensor("x", 2, 64, dtype="float16"), "float32")
    mod = relay.IRModule.from_expr(function(relay.Tuple([wide, normed(wide)])))
    assert len(fused_groups(prepare(mod)["main"])) == 2
    narrow = relay.cast(tensor("x", 2, 64), "float16")  # rounds: once for all passes
    mod = relay.IRModule.from_expr(function(normed(narrow)))
    assert len(fused_groups(prepare(mod)["main"])) == 2
