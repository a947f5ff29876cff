"""Two products that a gate joins are one product, whose columns lie side by side."""

from collections.abc import Callable

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule, post_order
from tilewright.graph.passes import canonicalize, pair_gates
from tilewright.graph.passes.mixed_precision import to_mixed_precision
from tilewright.graph.traversal import op_name
from tilewright.network.extract import fused_groups, prepare, ungrouped
from tilewright.schedule.template import fallback_schedule
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)


def product(x: Expr, columns: int = 24) -> Expr:
    return nn.dense(x, relay.const(RNG.standard_normal((columns, 64)).astype("float32")))


def silu(x: Expr) -> Expr:
    return x * relay.sigmoid(x)


def gate(x: Expr) -> Expr:
    return silu(product(x)) * product(x)


def with_shifts(x: Expr) -> Expr:
    shift = relay.const(RNG.standard_normal((1, 24)).astype("float32"))
    return silu(product(x) + shift) * (product(x) - shift)


def read_elsewhere(x: Expr) -> Expr:
    first, second = product(x), product(x)
    return relay.Tuple([silu(first) * second, second])


def of_other_widths(x: Expr) -> Expr:
    return relay.concatenate([silu(product(x)), product(x, 16)], 1)


def three(x: Expr) -> Expr:
    return silu(product(x)) * product(x) + product(x)


def through_a_sum(x: Expr) -> Expr:
    return product(x) * relay.sum(product(x), axis=1, keepdims=True)


CASES: dict[str, tuple[Callable[[Expr], Expr], int, int]] = {
    "a gate": (gate, 1, 1),
    "of some rows": (gate, 4, 1),
    "of many rows": (gate, 5, 2),
    "with shifts": (with_shifts, 2, 1),
    "one is a result, too": (read_elsewhere, 1, 2),
    "other widths": (of_other_widths, 1, 2),
    "three": (three, 1, 3),
    "one meets a sum of the other": (through_a_sum, 1, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_values_stay_and_gates_are_one_product(name: str) -> None:
    make, rows, count = CASES[name]
    mod = canonicalize(IRModule.from_expr(function(make(tensor("x", rows, 64)))))
    made = pair_gates(mod)
    assert [op_name(n) for n in post_order(made["main"].body)].count("nn.dense") == count
    given = {"x": RNG.standard_normal((rows, 64)).astype("float32")}
    for found, want in zip(evaluate(made, given), evaluate(mod, given), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "rows, dtype, count", [(64, "float16", 1), (63, "float16", 2), (64, "float32", 2)]
)
def test_gates_of_many_rows_are_one_where_groups_of_warps_multiply(
    rows: int, dtype: str, count: int
) -> None:
    made = function(gate(tensor("x", rows, 64)))
    if dtype == "float16":
        made = to_mixed_precision(IRModule({"main": made}))["main"]
    main = ungrouped(made, target=Target("cuda -arch=sm_90"))[0]["main"]
    assert [op_name(n) for n in post_order(main.body)].count("nn.dense") == count


@pytest.mark.parametrize("name, count", [("a gate", 1), ("with shifts", 1), ("of many rows", 2)])
def test_a_gate_is_one_kernel(name: str, count: int) -> None:
    make, rows, _ = CASES[name]
    groups = fused_groups(prepare(function(make(tensor("x", rows, 64))))["main"])
    assert len(groups) == count


def test_its_kernel_is_that_of_few_rows() -> None:
    (group,) = fused_groups(prepare(function(gate(tensor("x", 1, 64))))["main"])
    schedule = fallback_schedule(group.dag, Target("cuda -arch=sm_90"))
    assert schedule is not None
    assert "shared" in str(schedule) and str(schedule).count("blockIdx.x") == 1  # one kernel
