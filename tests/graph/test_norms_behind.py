"""A norm of the rows of a product is part of it in one of the ways to group, and nowhere else."""

from collections.abc import Callable

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr
from tilewright.graph.passes import fuse, norms_beside
from tilewright.network.decide import decide
from tilewright.network.evidence import Evidence
from tilewright.network.extract import fused_groups, fused_tasks, ungrouped, ways_to_group
from tilewright.schedule.template import anchored_schedule
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

CUDA = Target("cuda -arch=sm_90")
RNG = np.random.default_rng(0)
ROWS, DEPTH, COLUMNS = 24, 64, 96


def halves(*shape: int) -> Expr:
    return relay.const(RNG.standard_normal(shape).astype("float16"))


def product(x: Expr) -> Expr:
    return nn.dense(x, halves(COLUMNS, x.shape[1])) + halves(COLUMNS)


def standardized(x: Expr) -> Expr:
    """As exporters write a layer norm, in float32."""
    axis = len(x.shape) - 1
    wide = relay.cast(x, "float32")
    centered = wide - relay.mean(wide, axis=axis, keepdims=True)
    variance = relay.mean(centered * centered, axis=axis, keepdims=True)
    norm = centered / relay.sqrt(variance + relay.const(np.float32(1e-5)))
    return relay.cast(norm, "float16")


def normed(x: Expr) -> Expr:
    return standardized(x) * halves(COLUMNS) + halves(COLUMNS)


def after(x: Expr) -> Expr:
    return normed(product(x))


def after_a_view(x: Expr) -> Expr:
    return normed(relay.reshape(product(x), (1, *x.shape[:1], COLUMNS)))


def of_columns(x: Expr) -> Expr:
    rows = product(x)
    centered = rows - relay.mean(rows, axis=0, keepdims=True)
    root = relay.sqrt(relay.mean(centered * centered, axis=0, keepdims=True))
    return centered / (root + relay.const(np.float16(1)))


def short_rows(x: Expr) -> Expr:
    return standardized(nn.dense(x, halves(32, x.shape[1])))


def read_twice(x: Expr) -> Expr:
    rows = product(x)
    return relay.Tuple([normed(rows), relay.sum(rows, axis=0)])


def under_two_shapes(x: Expr) -> Expr:
    rows = product(x)
    viewed = normed(relay.reshape(rows, (1, *rows.shape)))
    return relay.Tuple([relay.sum(rows, axis=0), relay.sum(viewed, axis=1)])


def of_what_comes_later(x: Expr) -> Expr:
    """What is added to the norm is made of the product, too."""
    rows = product(x)
    return normed(rows) + relay.exp(relay.max(rows, axis=0))


# Kernels where norms are apart, and where they are behind.
CASES: dict[str, tuple[Callable[[Expr], Expr], int, int, int]] = {
    "a norm": (after, ROWS, 2, 1),
    "under another shape": (after_a_view, ROWS, 2, 1),
    "of few rows": (after, 4, 2, 0),
    "of short rows": (short_rows, ROWS, 2, 0),
    "along columns": (of_columns, ROWS, 5, 0),
    "something else reads it": (read_twice, ROWS, 3, 2),
    "under two shapes": (under_two_shapes, ROWS, 4, 3),
    "of what comes later": (of_what_comes_later, ROWS, 3, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_values_stay(name: str) -> None:
    make, rows, apart, behind = CASES[name]
    mod = function(make(tensor("x", rows, DEPTH, dtype="float16")))
    plain, last = ungrouped(mod, target=CUDA)
    usual, *others = ways_to_group(plain, last, CUDA)
    assert len(fused_groups(usual["main"])) == apart
    assert [len(fused_groups(way["main"])) for way in others] == ([behind] if behind else [])
    given = {"x": RNG.standard_normal((rows, DEPTH)).astype("float16")}
    for way in others:
        (group,) = (g for g in fused_groups(way["main"]) if g.name.startswith("dense"))
        assert "standardize" in group.name and anchored_schedule(group.dag, CUDA).rows_follow
        results = (m if isinstance(m, (list, tuple)) else [m]
                   for m in (evaluate(way, given), evaluate(mod, given)))  # fmt: skip
        for found, want in zip(*results, strict=True):
            np.testing.assert_allclose(found, want, rtol=3e-2, atol=3e-2)


def test_a_norm_that_reads_what_comes_later_stays() -> None:
    mod = function(of_what_comes_later(tensor("x", ROWS, DEPTH, dtype="float16")))
    plain, _ = ungrouped(mod, target=CUDA)
    fused = fuse(plain)
    assert norms_beside(fused)["main"].body is fused["main"].body


def test_other_devices_norm_apart() -> None:
    plain, last = ungrouped(function(after(tensor("x", ROWS, DEPTH, dtype="float16"))))
    for target in (None, Target("llvm"), Target("opencl"), Target("cuda -arch=sm_61")):
        assert len(ways_to_group(plain, last, target)) == 1


def test_both_are_tasks_and_what_is_measured_decides() -> None:
    mod = function(after_a_view(tensor("x", ROWS, DEPTH, dtype="float16")))
    tasks = fused_tasks(mod, None, CUDA)
    assert len(tasks) == 3

    product, norm, both = (task.dag.hash for task in tasks)
    apart = {product: 3e-6, norm: 3e-6}

    def chosen(seconds: dict[str, float], predicted: dict[str, float]) -> int:
        evidence = Evidence((), [str(CUDA)])
        evidence.seconds = lambda dag: seconds.get(dag.hash)  # type: ignore[method-assign]
        evidence.predicted_seconds = (  # type: ignore[method-assign]
            lambda dag: predicted.get(dag.hash)
        )
        return decide(mod, None, evidence, CUDA).grouping

    assert chosen({**apart, both: 5e-6}, {}) == 1
    assert chosen({**apart, both: 7e-6}, {}) == 0
    assert chosen(apart, {}) == 0
    # what was measured without the norm, and what it is predicted to add
    assert chosen(apart, {product: 4e-6, both: 6e-6}) == 1
    assert chosen(apart, {product: 4e-6, both: 8e-6}) == 0
    assert chosen({product: 3e-6}, {product: 4e-6, both: 6e-6}) == 1
