"""Views and transpositions go behind what is elementwise; nothing else changes its place."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.case import function, tensor
from graph.drawing import networks
from tests.tiers import examples
from tilewright.graph.expr import post_order
from tilewright.graph.passes import canonicalize, moves, moves_last
from tilewright.graph.passes.moves import unstretched
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, prepare
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)


def const(*shape: int) -> relay.Constant:
    return relay.const(RNG.standard_normal(shape))


def matrix(name: str = "x", *shape: int) -> relay.Var:
    return tensor(name, *(shape or (6, 4)), dtype="float64")


def product(name: str = "x") -> relay.Expr:
    return nn.dense(matrix(name), const(8, 4))


def same(f: relay.Function, mod: relay.IRModule) -> None:
    rng = np.random.default_rng(1)
    inputs = {p.name_hint: rng.standard_normal(p.shape).astype(p.dtype) for p in f.params}
    for found, wanted in zip(values(mod, inputs), values(f, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def values(mod: relay.IRModule | relay.Function, inputs: dict[str, np.ndarray]) -> tuple:
    found = relay.evaluate(mod, inputs)
    return found if isinstance(found, tuple) else (found,)


def moved(body: relay.Expr) -> list[str]:
    f = function(body)
    mod = moves_last(canonicalize(relay.IRModule.from_expr(f)))
    same(f, mod)
    return [op_name(n) for n in post_order(mod["main"].body) if op_name(n)]


def kernels(body: relay.Expr) -> list[str]:
    f = function(body)
    mod = prepare(f)
    same(f, mod)
    return [g.name for g in fused_groups(mod["main"]) for _ in g.calls]


def gelu(x: relay.Expr) -> relay.Expr:
    return x * 0.5 * (relay.erf(x * 0.7) + 1.0)


FOLLOWS = {
    "bias": lambda: relay.reshape(product(), (2, 3, 8)) + const(8),
    "all of it": lambda: relay.reshape(product(), (2, 3, 8)) + matrix("y", 2, 3, 8),
    "stretched along the rows": lambda: relay.reshape(product(), (1, 6, 8)) + const(1, 6, 1),
    "read twice": lambda: gelu(relay.reshape(product(), (1, 6, 8))),
    "axes of one element": lambda: relay.transpose(
        relay.reshape(product(), (6, 1, 8)), (1, 0, 2)
    ) + matrix("y", 1, 6, 8),
    "the other operand is one too": lambda: relay.reshape(product(), (2, 3, 8))
    + relay.reshape(matrix("y", 3, 16), (2, 3, 8)),
}  # fmt: skip


@pytest.mark.parametrize("name", FOLLOWS)
def test_what_follows_a_product_under_another_shape_shares_its_kernel(name):
    (kernel,) = kernels(FOLLOWS[name]())
    assert kernel.startswith("dense+")


STAYS = {
    "stretched in part": lambda: relay.reshape(product(), (2, 3, 8)) + const(2, 1, 8),
    "the view is stretched": lambda: relay.reshape(product(), (1, 6, 8)) + matrix("y", 5, 6, 8),
    "also read as it was": lambda: relay.Tuple(
        [relay.reshape(p := product(), (1, 6, 8)) + const(8), p]
    ),
    "a transposition of a value": lambda: relay.transpose(product()) + matrix("y", 8, 6),
    "axes matter": lambda: nn.softmax(relay.reshape(product(), (2, 3, 8)), 1),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_would_mean_something_else_or_gains_nothing_stays(name):
    body = STAYS[name]()
    before = [op_name(n) for n in post_order(body) if op_name(n)]
    if isinstance(body, relay.Tuple):
        after = moves_last(relay.IRModule.from_expr(function(body)))["main"].body
        assert [op_name(n) for n in post_order(after) if op_name(n)] == before
    else:
        assert moved(body) == before


def test_a_scale_passes_heads_and_enters_the_weight():
    heads = relay.transpose(relay.reshape(product(), (1, 6, 2, 4)), (0, 2, 1, 3)) * 0.125
    assert moved(heads) == ["nn.dense", "multiply", "reshape", "transpose"]
    assert sorted(kernels(heads)) == ["dense", "transpose"]


def test_of_two_values_the_one_that_a_product_computes_is_followed():
    """The sum joins the product, not the norm, which others read as well."""
    x = nn.layer_norm(matrix("x", 1, 6, 8), const(8), const(8))
    branch = nn.dense(relay.reshape(x, (6, 8)), const(8, 8))
    added = relay.reshape(branch, (1, 6, 8)) + x
    assert kernels(added)[-1] == "dense+add"


def test_a_transposed_factor_becomes_a_flag_where_neighbours_stay():
    a, b = matrix("a", 2, 3, 4), matrix("b", 2, 5, 4)
    swapped = relay.transpose(b, (0, 2, 1))
    assert moved(nn.batch_matmul(a, swapped, transpose_b=False)) == ["nn.batch_matmul"]
    heads = relay.transpose(matrix("c", 5, 2, 4), (1, 2, 0))  # [2, 4, 5]
    body = nn.batch_matmul(a, relay.reshape(heads, (2, 4, 5)), transpose_b=False)
    assert moved(body) == ["transpose", "nn.batch_matmul"]
    rows = relay.transpose(matrix("d", 5, 2, 4), (1, 0, 2))  # neighbours already
    assert moved(nn.batch_matmul(a, rows, transpose_b=True)) == ["transpose", "nn.batch_matmul"]


@pytest.mark.slow
@given(networks())
@examples(30)
def test_random_networks_mean_the_same(mod):
    same(mod["main"], moves_last(canonicalize(mod)))


@given(st.data())
@examples(40)
def test_an_unstretched_operand_stretches_to_the_same_values(data):
    factors = data.draw(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=5))

    def joined() -> list[int]:
        cuts = data.draw(st.lists(st.booleans(), min_size=len(factors), max_size=len(factors)))
        shape = [1]
        for n, cut in zip(factors, cuts, strict=True):
            shape = [*shape, n] if cut else [*shape[:-1], shape[-1] * n]
        return shape

    whole, wanted = joined(), joined()
    given_shape = [n if data.draw(st.booleans()) else 1 for n in whole]
    shape = unstretched(given_shape, whole, wanted)
    values = RNG.standard_normal(given_shape)
    if shape is not None:
        wide = np.broadcast_to(values.reshape(shape), wanted)
        np.testing.assert_array_equal(wide.ravel(), np.broadcast_to(values, whole).ravel())
    if given_shape in (whole, [1] * len(whole)):
        assert shape is not None


# --- products of one value


def heads(x: relay.Expr) -> relay.Expr:
    split = relay.reshape(x, (1, x.shape[0], 2, x.shape[1] // 2))
    return relay.transpose(split, (0, 2, 1, 3))


def several(*kinds: str) -> relay.Expr:
    """Products of one value, each with a shift or without."""
    x = matrix()
    made = []
    for kind in kinds:
        product = nn.dense(x, const(8, 4))
        made.append(product + const(8) if "+" in kind else product)
    return relay.Tuple([heads(p) if "heads" in k else p for p, k in zip(made, kinds, strict=True)])


@pytest.mark.parametrize("kind", ["heads", "heads+"])
def test_products_that_are_only_moved_are_one(kind):
    found = kernels(several(kind, kind, kind))
    assert [name for name in found if name.startswith("dense")] == [
        "dense" + kind[5:].replace("+", "+add")
    ]
    assert set(found[1:]) == {"strided_slice+transpose"}


@pytest.mark.parametrize("kinds", [("heads", "heads+"), ("heads", "plain"), ("plain", "plain")])
def test_other_products_stay_by_themselves(kinds):
    found = kernels(several(*kinds))
    assert sum(name.startswith("dense") for name in found) == 2


def test_a_value_behind_combined_products_is_computed_once():
    x = nn.dense(matrix(), const(4, 4))
    q, k = (heads(nn.dense(x, const(4, 4))) for _ in range(2))
    y = relay.reshape(q + k, (6, 4)) + x
    r, s = (heads(nn.dense(y, const(4, 4))) for _ in range(2))
    assert sum(name.startswith("dense") for name in kernels(r + s)) == 3


# --- views of slices

PARTS = {
    "heads of a third": (lambda x: relay.strided_slice(x, [0, 8], [6, 16]), (1, 6, 2, 4), True),
    "one of three": (
        lambda x: relay.strided_slice(relay.reshape(x, (6, 3, 8)), [0, 1, 0], [6, 2, 8]),
        (6, 2, 4), True,
    ),
    "across parts": (lambda x: relay.strided_slice(x, [0, 2], [6, 10]), (6, 2, 4), False),
    "every other": (lambda x: relay.strided_slice(x, [0, 0], [6, 24], [1, 2]), (6, 3, 4), False),
    "two axes": (lambda x: relay.strided_slice(x, [1, 8], [3, 16]), (2, 2, 4), False),
}  # fmt: skip


@pytest.mark.parametrize("name", PARTS)
def test_a_slice_is_taken_of_parts_where_it_consists_of_them(name):
    slice_, shape, joins = PARTS[name]
    body = relay.reshape(slice_(matrix("x", 6, 24)), shape)
    body = relay.transpose(
        body, (*range(len(shape) - 3), -2 % len(shape), -3 % len(shape), -1 % len(shape))
    )
    found = kernels(body)
    assert (found == ["strided_slice+transpose"]) == joins


def test_one_of_three_that_were_moved_in_front_is_moved_alone():
    """As exporters write queries, keys and values of one product."""
    three = relay.transpose(relay.reshape(matrix("x", 5, 24), (1, 5, 1, 3, 8)), (3, 1, 2, 0, 4))
    flat = relay.reshape(three, (3, 5, 1, 8))
    parts = [relay.strided_slice(flat, [k, 0, 0, 0], [k + 1, 5, 1, 8]) for k in range(3)]
    moved_ = [relay.transpose(relay.reshape(p, (5, 2, 4)), (1, 0, 2)) for p in parts]
    assert kernels(relay.Tuple(moved_)) == ["strided_slice+transpose"] * 3


def test_a_move_passes_a_chain_at_once(monkeypatch):
    """The rounds that it takes do not grow with the chain."""
    rounds, rewrite = [], moves.rewrite
    monkeypatch.setattr(moves, "rewrite", lambda *args: rounds.append(0) or rewrite(*args))
    for steps in (10, 100):
        body: relay.Expr = relay.reshape(product(), (2, 3, 8))
        for k in range(steps):
            body = body + const(8) if k % 2 else relay.tanh(body)
            body = relay.reshape(body, ((1, 6, 8), (2, 3, 8))[k // 2 % 2])
        assert moved(body) == ["nn.dense", *["tanh", "add"] * (steps // 2), "reshape"]
        assert len(rounds) == 2
        rounds.clear()
