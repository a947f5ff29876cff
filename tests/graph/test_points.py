"""A scatter to one place is a choice: with the same values, and nothing is moved for it."""

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule, post_order
from tilewright.graph.passes import canonicalize, choose_points
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, prepare
from tilewright_tvm import relay

SIZE = 5


def place(shape: tuple[int, ...] = (1, 1), dtype: str = "int64") -> relay.Var:
    return tensor("i", *shape, dtype=dtype)


def along_the_first() -> Expr:
    return relay.scatter_nd(tensor("x", SIZE, 3, 2), place(), tensor("u", 1, 3, 2))


def without_axes() -> Expr:
    return relay.scatter_nd(tensor("x", SIZE, 3), place((1,), "int32"), tensor("u", 3))


def cache(name: str, at: Expr) -> Expr:
    """Keys or values of heads, of which those of one token change."""
    turned = relay.transpose(tensor(name, 1, 2, SIZE, 4), (2, 0, 1, 3))
    update = relay.transpose(tensor(f"{name}_new", 1, 2, 1, 4), (2, 0, 1, 3))
    return relay.transpose(relay.scatter_nd(turned, at, update), (1, 2, 0, 3))


def caches() -> Expr:
    """Each works out by itself where the token is."""
    i = place()

    def at() -> Expr:
        return i + relay.const(np.array([[1]], "int64"))

    return relay.Tuple([cache("keys", at()), cache("values", at())])


def moved_otherwise() -> Expr:
    turned = relay.transpose(tensor("x", 2, SIZE, 3), (1, 2, 0))
    made = relay.scatter_nd(turned, place(), tensor("u", 1, 3, 2))
    return relay.transpose(made, (1, 0, 2))


CASES = [along_the_first, without_axes, caches, moved_otherwise]


def chosen(body: Expr) -> tuple[IRModule, IRModule]:
    mod = IRModule.from_expr(function(body))
    return mod, choose_points(canonicalize(mod))


def values(mod: IRModule, given: dict[str, np.ndarray]) -> list[np.ndarray]:
    found = evaluate(mod, given)
    return list(found) if isinstance(found, (list, tuple)) else [found]


@pytest.mark.parametrize("make", CASES)
def test_values_stay_inside_and_outside(make) -> None:
    mod, made = chosen(make())
    names = [op_name(n) for n in post_order(made["main"].body)]
    assert "scatter_nd" not in names
    rng = np.random.default_rng(0)
    for at in (0, SIZE - 2, -1, -SIZE, SIZE, 2 * SIZE, -SIZE - 2, -(2**31)):
        given = {
            p.name_hint: np.full(p.shape, at, p.dtype) if p.name_hint == "i"
            else rng.standard_normal(p.shape).astype(p.dtype)
            for p in mod["main"].params
        }  # fmt: skip
        for found, want in zip(values(made, given), values(mod, given), strict=True):
            np.testing.assert_array_equal(found, want)


def test_a_cache_is_read_and_written_once() -> None:
    mod, made = chosen(caches())
    names = [op_name(n) for n in post_order(made["main"].body)]
    assert names.count("equal") == 1  # where the token is, is known once
    groups = [g.name for g in fused_groups(prepare(mod)["main"]) for _ in g.calls]
    assert len(groups) == 2 and all(name.endswith("where") for name in groups)


@pytest.mark.parametrize(
    "body",
    [
        relay.scatter_nd(tensor("x", SIZE, 3), place((1, 2)), tensor("u", 2, 3)),
        relay.scatter_nd(tensor("x", SIZE, 3), place((2, 1)), tensor("u", 1)),
        relay.scatter_nd(tensor("x", SIZE, 3), place(), tensor("u", 1, 3), "add"),
    ],
    ids=["two places", "one element", "what is there is added to"],
)
def test_others_stay(body: Expr) -> None:
    made = chosen(body)[1]
    assert "scatter_nd" in [op_name(n) for n in post_order(made["main"].body)]
