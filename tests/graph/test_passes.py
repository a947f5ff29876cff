"""Every pass keeps the meaning; each rule does what it says, and refuses what it must."""

import numpy as np
import pytest
from hypothesis import given

from graph.cases import function, tensor
from graph.drawing import networks
from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright.graph import passes
from tilewright.graph.expr import post_order
from tilewright.graph.traversal import op_name
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)


def const(*shape: int, low: float = -1.0) -> relay.Constant:
    return relay.const(RNG.uniform(low, 1.5, shape))


def image(channels: int = 4, size: int = 5, name: str = "x") -> relay.Var:
    return tensor(name, 2, channels, size, size, dtype="float64")


def inputs_of(f: relay.Function) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {p.name_hint: rng.standard_normal(p.shape).astype(p.dtype) for p in f.params}


def apply(body, *changes) -> relay.Expr:
    """The body after some passes, checked to mean the same."""
    before = relay.IRModule.from_expr(function(body))
    after = before
    for change in changes:
        after = change(after)
    inputs = inputs_of(before["main"])
    compare(relay.evaluate(before, inputs), relay.evaluate(after, inputs))
    return after["main"].body


def compare(a, b) -> None:
    if isinstance(a, tuple):
        for left, right in zip(a, b, strict=True):
            compare(left, right)
        return
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(a).max())


def names(body) -> list[str]:
    return [op_name(n) for n in post_order(body) if op_name(n)]


@pytest.mark.slow
@given(networks())
@examples(40)
def test_every_pass_keeps_the_meaning_of_random_networks(mod):
    inputs = inputs_of(mod["main"])
    wanted = relay.evaluate(mod, inputs)
    for change in passes.PASSES:
        mod = change(mod)
        compare(wanted, relay.evaluate(mod, inputs))
    assert "nn.batch_norm" not in str(mod)


# --- simplify, canonicalise, fold constants, dead code


def norm(x, axis=1, **options):
    n = x.shape[axis]
    return nn.batch_norm(x, const(n), const(n), const(n), const(n, low=0.5), axis, **options)[0]


@pytest.mark.parametrize("options", [{}, {"scale": False}, {"center": False}, {"epsilon": 0.5}])
def test_batch_norm_becomes_a_scale_and_a_shift(options):
    body = apply(norm(image(), **options), passes.simplify_inference, passes.fold_constants)
    assert names(body) == ["multiply", "add"]


def test_batch_norm_along_another_axis_stays_arithmetic():
    """A normalisation along H cannot enter the weight; it still must come out right."""
    weight = const(3, 3, 4, 6)
    x = tensor("x", 1, 5, 5, 4, dtype="float64")
    conv = nn.conv2d(x, weight, 1, 1, data_layout="NHWC", kernel_layout="HWIO")
    body = apply(norm(conv, axis=1), *passes.PASSES[:-1])
    assert names(body) == ["nn.conv2d", "multiply", "add"]


def test_statistics_can_be_read():
    x = image()
    m = const(4)
    result = nn.batch_norm(x, const(4), const(4), m, const(4, low=0.5))
    body = apply(relay.Tuple([result[0], result[1]]), *passes.PASSES)
    assert body.fields[1].data is m.data


def test_dropout_disappears():
    assert names(apply(nn.dropout(nn.relu(image())), passes.simplify_inference)) == ["nn.relu"]


def test_canonical_spelling():
    x, c = image(), const(4, 1, 1, low=0.5)
    body = apply(c * (x - c) / c, passes.canonicalize)
    assert names(body) == ["add", "multiply", "multiply"]
    assert all(n.data.ndim == 4 for n in post_order(body) if isinstance(n, relay.Constant))
    biased = apply(nn.bias_add(x, const(4)), passes.canonicalize, passes.fold_constants)
    assert names(biased) == ["add"]


def test_division_by_a_constant_with_a_zero_stays():
    c = relay.const(np.array([1.0, 0.0, 2.0, 4.0]).reshape(4, 1, 1))
    x = relay.var("x", shape=(4, 1, 1), dtype="float64")
    mod = passes.canonicalize(relay.IRModule.from_expr(function(x / c)))
    assert names(mod["main"].body) == ["divide"]


def test_constants_are_computed():
    a, b = const(3, 4), const(4)
    whole = relay.concatenate([relay.exp(a) + b, relay.reshape(b, (1, 4))])
    body = apply(image(4, 4) * relay.sum(whole), passes.fold_constants)
    assert names(body) == ["multiply"]


def test_what_does_nothing_disappears():
    x = image()
    nothing = relay.transpose(relay.copy(nn.pad(x, [(0, 0)] * 4) + 0.0) * 1.0, (0, 1, 2, 3))
    nothing = relay.cast(relay.concatenate([nothing], 1), "float64")
    assert names(apply(nn.relu(nothing), passes.eliminate_dead_code)) == ["nn.relu"]
    views = relay.reshape(relay.expand_dims(nn.batch_flatten(x), 0), x.shape)
    assert names(apply(nn.relu(views), passes.eliminate_dead_code)) == ["nn.relu"]
    pair = relay.Tuple([x, relay.exp(x)])
    assert names(apply(nn.relu(pair[0]), passes.eliminate_dead_code)) == ["nn.relu"]


def test_adding_zeros_that_stretch_is_no_identity():
    x = tensor("x", 1, 4, dtype="float64")
    zeros = relay.zeros((3, 4), "float64")
    assert names(apply(x + zeros, passes.eliminate_dead_code)) == ["add"]


# --- scales and shifts


def conv(x, out=6, kernel=3, padding=1, **options):
    groups = options.get("groups", 1)
    return nn.conv2d(x, const(out, x.shape[1] // groups, kernel, kernel), 1, padding, **options)


def channels(n=4, low=-1.0):
    return const(1, n, 1, 1, low=low)


AFTER = {
    "conv": lambda x: conv(x) * channels(6),
    "bias": lambda x: (conv(x) + channels(6)) * channels(6),
    "groups": lambda x: conv(x, out=8, groups=2) * channels(8),
    "depthwise": lambda x: conv(x, out=4, groups=4) * channels(4),
    "both-of-a-sum": lambda x: (conv(x) + conv(x, kernel=1, padding=0)) * channels(6),
    "relu": lambda x: nn.relu(conv(x) + channels(6)) * channels(6, low=0.1),
    "number": lambda x: conv(x) * relay.const(-0.5, "float64"),
    "dense": lambda x: nn.dense(nn.batch_flatten(x), const(3, 100)) * const(1, 3),
    "view": lambda x: relay.reshape(conv(x), (2, 6, 25)) * const(1, 6, 1),
    "twice": lambda x: conv(nn.relu(conv(x) * channels(6))) * channels(6),
}


@pytest.mark.parametrize("kind", AFTER)
def test_scale_enters_the_weight_from_behind(kind):
    body = apply(AFTER[kind](image()), passes.canonicalize, passes.fold_scale_after)
    assert "multiply" not in names(body)


KEPT_AFTER = {
    "negative-relu": lambda x: nn.relu(conv(x)) * channels(6, low=-1.0),
    "max-pool": lambda x: nn.max_pool2d(conv(x), 2) * channels(6, low=0.1),
    "avg-pool": lambda x: nn.avg_pool2d(conv(x), 3, padding=1) * channels(6),
    "per-pixel": lambda x: conv(x) * const(1, 6, 5, 5),
    "read-twice": lambda x: (lambda y: y * channels(6) + nn.relu(y))(conv(x)),
    "no-conv": lambda x: nn.relu(x) * channels(),
    "one-side-of-a-sum": lambda x: (conv(x, out=4) + x) * channels(),
    "unknown-weight": lambda x: nn.conv2d(x, tensor("w", 4, 4, 1, 1, dtype="float64")) * channels(),
    "stretching": lambda x: nn.dense(tensor("d", 1, 3, dtype="float64"), const(2, 3)) * const(5, 2),
}


@pytest.mark.parametrize("kind", KEPT_AFTER)
def test_scale_stays_behind(kind):
    body = apply(KEPT_AFTER[kind](image()), passes.canonicalize, passes.fold_scale_after)
    assert names(body).count("multiply") == 1


BEFORE = {
    "conv": lambda x: conv(x * channels()),
    "shift": lambda x: conv(x * channels(low=0.2) + channels()),
    "relu": lambda x: conv(nn.relu(x * channels(low=0.1) + channels())),
    "groups": lambda x: conv(x * channels(), out=8, groups=2),
    "depthwise": lambda x: conv(x * channels(), out=4, groups=4),
    "two-readers": lambda x: (lambda y: conv(y) + conv(y, kernel=1, padding=0))(x * channels()),
    "dense": lambda x: nn.dense(
        nn.relu(nn.batch_flatten(x) * const(1, 100, low=0.1)), const(3, 100)
    ),
    "flatten": lambda x: nn.dense(nn.batch_flatten(x * channels()), const(3, 100)),
    "nhwc": lambda x: nn.conv2d(
        relay.transpose(x, (0, 2, 3, 1)) * const(1, 1, 1, 4), const(3, 3, 4, 2), 1, 1,
        data_layout="NHWC", kernel_layout="HWIO",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BEFORE)
def test_scale_enters_the_weight_from_in_front(kind):
    body = apply(BEFORE[kind](image()), passes.canonicalize, passes.fold_scale_before)
    assert "multiply" not in names(body)


KEPT_BEFORE = {
    "pool": lambda x: conv(nn.max_pool2d(x * channels(low=0.1), 2)),
    "negative-relu": lambda x: conv(nn.relu(x * channels(low=-1.0))),
    "one-reader-disagrees": lambda x: (lambda y: conv(y, out=4) + y)(x * channels()),
    "is-a-result": lambda x: (lambda y: relay.Tuple([conv(y), y]))(x * channels()),
    "per-pixel": lambda x: conv(x * const(1, 4, 5, 5)),
    "zero-and-shift": lambda x: conv(
        x * relay.const(np.array([1.0, 0, 2, 3]).reshape(1, 4, 1, 1)) + channels()
    ),
    "overflow": lambda x: conv(
        x * relay.const(np.full((1, 4, 1, 1), 1e-300)) + relay.const(np.full((1, 4, 1, 1), 1e300))
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KEPT_BEFORE)
def test_scale_stays_in_front(kind):
    body = apply(KEPT_BEFORE[kind](image()), passes.canonicalize, passes.fold_scale_before)
    assert names(body).count("multiply") == 1


def test_shifts_and_scales_in_a_row_join():
    x = image()
    body = apply(x + channels() + channels(), passes.canonicalize, passes.fold_shift)
    assert names(body) == ["add"]
    body = apply(x * channels() * channels(), passes.canonicalize, passes.fold_shift)
    assert names(body) == ["multiply"]


def test_shift_that_is_read_twice_stays():
    y = image() + channels()
    body = apply(nn.relu(y) + (y + channels()), passes.canonicalize, passes.fold_shift)
    assert names(body).count("add") == 3


def test_shift_moves_behind_a_contraction_without_padding():
    biased = apply(
        conv(image() + channels(), padding=0, dilation=2) + channels(6), passes.canonicalize,
        passes.fold_shift, passes.fold_shift,
    )  # fmt: skip
    assert names(biased) == ["nn.conv2d", "add"]
    grouped = apply(
        conv(image() + channels(), out=8, padding=0, groups=2), passes.canonicalize,
        passes.fold_shift,
    )  # fmt: skip
    assert names(grouped) == ["nn.conv2d", "add"]
    x = tensor("x", 2, 5, dtype="float64")
    dense = apply(nn.dense(x + const(1, 5), const(3, 5)), passes.canonicalize, passes.fold_shift)
    assert names(dense) == ["nn.dense", "add"]


def test_shift_does_not_pass_padding():
    """Zeros outside the image are not shifted, so the result would be wrong at the border."""
    body = apply(conv(image() + channels(), padding=1), passes.canonicalize, passes.fold_shift)
    assert names(body) == ["add", "nn.conv2d"]


# --- parameters


def test_params_become_constants():
    f = function(nn.dense(tensor("x", 2, 3), tensor("w", 4, 3)))
    mod = relay.bind_params(relay.IRModule.from_expr(f), {"w": np.ones((4, 3), "float32")})
    assert [p.name_hint for p in mod["main"].params] == ["x"]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"v": np.ones(3, "float32")}, ["no such parameter", "x, w"]),
        ({"w": np.ones((3, 4), "float32")}, ["w", "(3, 4)", "(4, 3)"]),
        ({"w": np.ones((4, 3), "float64")}, ["float64", "float32"]),
    ],
)
def test_params_that_do_not_fit_are_refused(params, words):
    f = function(nn.dense(tensor("x", 2, 3), tensor("w", 4, 3)))
    with pytest.raises(ModelError) as e:
        relay.bind_params(relay.IRModule.from_expr(f), params)
    assert all(w in str(e.value) for w in words)


def test_observe_sees_every_pass():
    seen = []
    mod = relay.IRModule.from_expr(function(conv(image())))
    relay.optimize(mod, observe=lambda name, m: seen.append((name, len(str(m)))))
    assert [name for name, _ in seen] == [p.__name__ for p in passes.PASSES]
