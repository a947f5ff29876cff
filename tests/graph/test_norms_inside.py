"""A norm of few rows is part of the product that alone reads it."""

from collections.abc import Callable

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr
from tilewright.graph.passes import fuse
from tilewright.network.extract import fused_groups, groupings, ungrouped, ways_to_group
from tilewright.schedule.template import fallback_schedule
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

CUDA = Target("cuda -arch=sm_90")
RNG = np.random.default_rng(0)


def product(x: Expr, columns: int = 24) -> Expr:
    weight = RNG.standard_normal((columns, 64)).astype("float16")
    return nn.dense(x, relay.const(weight))


def normed(x: Expr) -> Expr:
    wide = relay.cast(x, "float32")
    mean = relay.mean(wide * wide, axis=2, keepdims=True)
    narrow = relay.cast(wide * relay.rsqrt(mean + relay.const(np.float32(1e-5))), "float16")
    return relay.reshape(narrow, (x.shape[1], 64))


def one(x: Expr) -> Expr:
    return relay.nn.relu(product(normed(x)))


def a_gate(x: Expr) -> Expr:
    rows = normed(x)
    return relay.sigmoid(product(rows)) * product(rows)


def read_twice(x: Expr) -> Expr:
    rows = normed(x)
    return relay.Tuple([product(rows), relay.exp(rows)])


CASES: dict[str, tuple[Callable[[Expr], Expr], int, int]] = {
    "one row": (one, 1, 1),
    "some": (one, 4, 1),
    "many": (one, 5, 2),
    "a gate": (a_gate, 1, 1),
    "something else reads it": (read_twice, 1, 3),
}


@pytest.mark.parametrize("name", CASES)
def test_values_stay(name: str) -> None:
    make, rows, count = CASES[name]
    mod = function(make(tensor("x", 1, rows, 64, dtype="float16")))
    grouped = groupings(mod, None, target=CUDA)[0]
    assert len(fused_groups(grouped["main"])) == count
    given = {"x": RNG.standard_normal((1, rows, 64)).astype("float16")}
    for found, want in zip(evaluate(grouped, given), evaluate(mod, given), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-2)


def test_devices_without_such_products_norm_apart() -> None:
    plain, last = ungrouped(function(one(tensor("x", 1, 1, 64, dtype="float16"))))
    assert last is fuse
    for target in (None, Target("llvm"), Target("opencl")):
        (way,) = ways_to_group(plain, last, target)
        assert len(fused_groups(way["main"])) == 2


def test_it_is_one_kernel_that_norms_in_shared_memory() -> None:
    mod = function(one(tensor("x", 1, 1, 64, dtype="float16")))
    (group,) = fused_groups(groupings(mod, None, target=CUDA)[0]["main"])
    text = str(fallback_schedule(group.dag, CUDA))
    assert text.count("blockIdx.x") == 1 and "T_norm_squares: float32[1, 1, 1] shared" in text
