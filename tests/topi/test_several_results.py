"""Kernels of GPUs with two results: a sum that is kept, and what is made of its elements."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.template import anchor_sketches
from tilewright.search.rules.derive import rule_sketches
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import Tensor

CUDA = Target("cuda -arch=sm_90")


def placeholder(name: str, *shape: int, dtype: str = "float16", constant: bool = False) -> Tensor:
    return te.placeholder(shape, dtype, name, constant=constant)


def both(inputs: list[Tensor], made: Tensor, channel: int) -> list[Tensor]:
    """A residual is added; the sum is a result, and with another bias and a relu."""
    kind = str(made.dtype)
    shape = [n if d == channel else 1 for d, n in enumerate(made.shape)]
    other = placeholder("other", *made.shape, dtype=kind)
    bias = placeholder("bias", *shape, dtype=kind, constant=True)
    total = topi.add(made, other)
    behind = topi.nn.relu(topi.add(total, bias))
    results = te.compute(made.shape, lambda *i: (total[i], behind[i]), "results")
    return [*inputs, other, bias, *results]


def conv(layout: str, dtype: str = "float16", c: int = 16, f: int = 24) -> list[Tensor]:
    first = layout == "NCHW"
    data = placeholder("data", *((1, c, 6, 6) if first else (1, 6, 6, c)), dtype=dtype)
    shape = (f, c, 3, 3) if first else (3, 3, c, f)
    weight = placeholder("weight", *shape, dtype=dtype, constant=True)
    made = topi.nn.conv2d(data, weight, 1, 1, 1, data_layout=layout)
    return both([data, weight], made, 1 if first else 3)


def dense(m: int, k: int, n: int, dtype: str = "float16") -> list[Tensor]:
    data = placeholder("data", m, k, dtype=dtype)
    weight = placeholder("weight", n, k, dtype=dtype, constant=True)
    return both([data, weight], topi.nn.dense(data, weight), 1)


def depthwise() -> list[Tensor]:
    data = placeholder("data", 1, 7, 6, 8)
    weight = placeholder("weight", 3, 3, 8, 1, constant=True)
    return both([data, weight], topi.nn.depthwise_conv2d_nhwc(data, weight, 1, 1), 3)


def elements() -> list[Tensor]:
    data = placeholder("data", 136, 1024)
    return both([data], topi.multiply(data, 2.0), 1)


CASES = {
    "conv NHWC": conv("NHWC"),
    "conv NCHW": conv("NCHW"),
    "conv NCHW in float32": conv("NCHW", "float32", 4, 6),
    "dense": dense(40, 64, 24),
    "dense of odd sizes": dense(33, 50, 7),
    "dense, few rows": dense(3, 64, 48),
    "dense of tiles": dense(64, 32, 64),
    "dense in float32": dense(24, 40, 20, "float32"),
    "depthwise": depthwise(),
    "elements": elements(),
}


def check(schedule: Schedule, tensors: list[Tensor]) -> None:
    rng, first = np.random.default_rng(0), len(tensors) - 2
    given = [rng.integers(-2, 3, t.shape).astype(t.dtype.storage) for t in tensors[:first]]
    program = lower_schedule(schedule, CUDA, args=tensors)
    found = [np.zeros(t.shape, t.dtype.storage) for t in tensors[first:]]
    packed = [
        a if b.packing is None else b.packing.apply(a)
        for a, b in zip(given, program.args, strict=False)
    ]
    run_fast(program, [*packed, *found])
    for own, wanted in zip(found, evaluate(schedule.dag, given), strict=True):
        np.testing.assert_array_equal(own, wanted)


@pytest.mark.parametrize("name", CASES)
def test_members_of_templates_and_rules_give_both(name: str) -> None:
    tensors = CASES[name]
    dag, rng = ComputeDAG(tensors), np.random.default_rng(1)
    check(default_schedule(dag, CUDA), tensors)
    for sketch in (*anchor_sketches(dag, CUDA), *rule_sketches(dag, CUDA)[:2]):
        some = sketch.space.sample(64, rng)
        for index in some[sketch.legal(some)][:2]:
            check(sketch.close(int(index)), tensors)
