"""A product whose halves a gate joins is two, which become one with its columns side by side."""

from collections.abc import Callable

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule, post_order
from tilewright.graph.passes import canonicalize, halve_gates, moves_last, pair_gates
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, groupings, prepare
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((72, 64)).astype("float32")


def silu(x: Expr) -> Expr:
    return x * relay.sigmoid(x)


def parts(x: Expr, columns: int = 48, begins: tuple[int, ...] = (0, 24)) -> list[Expr]:
    """Parts of 24 columns of one product."""
    rows = x.shape[0]
    whole = relay.reshape(nn.dense(x, relay.const(WEIGHTS[:columns])), (1, rows, columns))
    return [relay.strided_slice(whole, (0, 0, b), (1, rows, b + 24)) for b in begins]


def halves(x: Expr) -> Expr:
    first, second = parts(x)
    return silu(first) * second


def turned(x: Expr) -> Expr:
    second, first = parts(x, begins=(24, 0))
    return silu(second) * first


def read_elsewhere(x: Expr) -> Expr:
    first, second = parts(x)
    return relay.Tuple([silu(first) * second, first])


def thirds(x: Expr) -> Expr:
    first, second, last = parts(x, 72, (0, 24, 48))
    return silu(first) * second + last


def overlapping(x: Expr) -> Expr:
    first, second = parts(x, begins=(0, 8))
    return silu(first) * second


# How many rows, and how many products stand between the passes: two where it is one of these.
CASES: dict[str, tuple[Callable[[Expr], Expr], int, int]] = {
    "halves": (halves, 2, 2),
    "the other way around": (turned, 1, 2),
    "of many rows": (halves, 5, 1),
    "a half is a result, too": (read_elsewhere, 1, 1),
    "thirds": (thirds, 1, 1),
    "parts that overlap": (overlapping, 1, 1),
}


def products(mod: IRModule) -> int:
    return [op_name(n) for n in post_order(mod["main"].body)].count("nn.dense")


@pytest.mark.parametrize("name", CASES)
def test_halves_that_meet_are_products_that_become_one(name: str) -> None:
    make, rows, count = CASES[name]
    mod = canonicalize(IRModule.from_expr(function(make(tensor("x", rows, 64)))))
    two = halve_gates(mod)
    made = pair_gates(moves_last(two))
    assert (products(mod), products(two), products(made)) == (1, count, 1)
    given = {"x": RNG.standard_normal((rows, 64)).astype("float32")}
    wanted = evaluate(mod, given)
    for each in (two, made):
        for found, want in zip(evaluate(each, given), wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["halves", "the other way around"])
def test_the_gate_is_one_kernel_with_its_product(name: str) -> None:
    make, rows, _ = CASES[name]
    groups = fused_groups(prepare(function(make(tensor("x", rows, 64))))["main"])
    assert len(groups) == 1


@pytest.mark.parametrize("target, count", [("cuda -arch=sm_90a", 1), ("llvm", 2)])
def test_of_many_rows_where_groups_of_warps_multiply(target: str, count: int) -> None:
    x = tensor("x", 64, 64, dtype="float16")
    whole = nn.dense(x, relay.const(WEIGHTS[:48].astype("float16")))
    first, second = (relay.strided_slice(whole, (0, b), (64, b + 24)) for b in (0, 24))
    (mod,) = groupings(function(silu(first) * second), target=Target(target))[:1]
    assert len(fused_groups(mod["main"])) == count
