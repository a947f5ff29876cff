"""Reductions of columns on GPUs: threads along x have neighbours, those along y share the sum."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.template import anchor_sketches
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import Tensor

CUDA = Target("cuda -arch=sm_90")


def image(*shape: int, dtype: str = "float16") -> Tensor:
    return te.placeholder(shape, dtype, "image")


def mean(x: Tensor) -> list[Tensor]:
    wide = topi.cast(x, "float32")
    return [x, topi.cast(topi.mean(wide, axis=[1, 2], keepdims=True), "float16")]


def pool(kind: str, x: Tensor) -> list[Tensor]:
    return [x, topi.nn.global_pool(x, kind, "NHWC")]


def plain_sum(x: Tensor) -> list[Tensor]:
    """Nothing follows it."""
    return [x, topi.sum(x, axis=0)]


CASES: dict[str, Callable[[], list[Tensor]]] = {
    "mean": lambda: mean(image(1, 5, 6, 40)),
    "mean of two images, odd": lambda: mean(image(2, 7, 5, 21)),
    "global average": lambda: pool("avg", image(1, 4, 4, 64)),
    "global maximum": lambda: pool("max", image(1, 5, 5, 24)),
    "sum": lambda: plain_sum(image(50, 24, dtype="float32")),
}


def origins(tensors: list[Tensor]) -> list[str]:
    return [s.origin for s in anchor_sketches(ComputeDAG(tensors), CUDA)]


def check(schedule: Schedule, tensors: list[Tensor]) -> None:
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, t.shape).astype(t.dtype.storage) for t in tensors[:-1]]
    out = np.zeros(tensors[-1].shape, tensors[-1].dtype.storage)
    run_fast(lower_schedule(schedule, CUDA, args=tensors), [*given, out])
    wanted = evaluate(schedule.dag, given)[0]
    np.testing.assert_allclose(out.astype(float), wanted.astype(float), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_the_reference_says(name: str) -> None:
    tensors = CASES[name]()
    (sketch,) = anchor_sketches(ComputeDAG(tensors), CUDA)
    assert sketch.origin == "template:columns.gpu"
    some = sketch.space.sample(64, np.random.default_rng(0))
    legal = some[sketch.legal(some, sensible=False)]
    for index in legal[:: max(len(legal) // 4, 1)]:
        check(sketch.close(int(index)), tensors)
    check(default_schedule(sketch.dag, CUDA), tensors)


def test_untuned_many_threads_share_a_mean() -> None:
    """One for each channel would read all pixels, one after the other."""
    tree = LoopTree(default_schedule(ComputeDAG(mean(image(1, 14, 14, 208))), CUDA))
    launch = tree.bounds().launch(tree.roots[-1])
    assert launch["threadIdx.y"] >= 16 and launch["threadIdx.x"] >= 4


@pytest.mark.parametrize(
    "tensors",
    [
        [x := image(1, 24, 6, 6), topi.mean(x, axis=[2, 3])],  # along rows
        pool("avg", image(1, 3, 3, 64)),  # few terms
        [y := image(40, 2), topi.sum(y, axis=0)],  # few columns
    ],
)
def test_others_are_refused(tensors: list[Tensor]) -> None:
    assert "template:columns.gpu" not in origins(tensors)
