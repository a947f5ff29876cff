"""Templates of every target in half precision and with small integers.

Each gives legal members, and interpreted members equal the reference within its bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright.topi.templates  # noqa: F401  (registers them)
from tests.interpreter import run
from tilewright import te, topi
from tilewright.base.dtype import DType
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Program
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.template import (
    Anchored,
    RegisteredAnchor,
    anchor_sketches,
    sketch_of_anchor,
)
from tilewright.search.rules.derive import rule_sketches
from tilewright.search.rules.state import Tiling
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor
from tilewright.topi.templates.gpu import schedule_contraction, vector_widths
from tilewright.topi.templates.gpu_conv2d import roles_of

CUDA = Target("cuda")
TARGETS = tuple(map(Target, ("cuda", "opencl", "llvm -num-cores=2 -vector-bytes=32")))


def placeholders(dtype: str, *shapes: tuple[int, ...]) -> list[Tensor]:
    return [te.placeholder(s, dtype, name=f"p{k}", constant=k == 1) for k, s in enumerate(shapes)]


def conv_nchw(dtype: str) -> Tensor:
    return topi.nn.conv2d_nchw(*placeholders(dtype, (1, 4, 6, 6), (16, 4, 3, 3)), 1, 1)


def conv_nhwc(dtype: str) -> Tensor:
    a, w = placeholders(dtype, (1, 6, 6, 4), (3, 3, 4, 16))
    return topi.nn.conv2d(a, w, 1, 1, data_layout="NHWC")


def dense(dtype: str) -> Tensor:
    return topi.nn.dense(*placeholders(dtype, (4, 16), (16, 16)))


def row(dtype: str) -> Tensor:
    return topi.nn.dense(*placeholders(dtype, (1, 64), (16, 64)))


def depthwise_nchw(dtype: str) -> Tensor:
    return topi.nn.depthwise_conv2d_nchw(*placeholders(dtype, (1, 8, 6, 8), (8, 1, 3, 3)), 1, 1)


def depthwise_nhwc(dtype: str) -> Tensor:
    return topi.nn.depthwise_conv2d_nhwc(*placeholders(dtype, (1, 6, 6, 8), (3, 3, 8, 1)), 1, 1)


def interpreted(program: Program, inputs: list[np.ndarray]) -> np.ndarray:
    *_, out = program.args
    result = np.zeros(out.shape, out.dtype.storage)
    run(program, [*inputs, result])
    return result


COMPUTATIONS: tuple[Callable[[str], Tensor], ...] = (
    conv_nchw, conv_nhwc, dense, row, depthwise_nchw, depthwise_nhwc,
)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("dtype", ["float16", "int8"])
@pytest.mark.parametrize("make", COMPUTATIONS, ids=lambda f: f.__name__)
def test_members_give_the_reference(
    make: Callable[[str], Tensor], dtype: str, target: Target
) -> None:
    dag = ComputeDAG([make(dtype)])
    inputs = random_inputs(dag, 0)
    sketches = task_of_dag(dag, target).sketches
    assert sketches, "a template fits"
    (expected,), (bound,) = evaluate_with_tolerance(dag, inputs)
    for sketch in sketches:
        drawn = sketch.space.sample(200, np.random.default_rng(0))
        legal = [int(i) for i in drawn[sketch.legal(drawn)]]
        untuned = sketch.fallback()
        assert legal and untuned is not None
        for index in (untuned, legal[0]):
            program = lower_schedule(sketch.close(index), target)
            out = interpreted(program, inputs)
            assert agrees(out, expected, bound).all(), (sketch.origin, sketch.space.get(index))


@pytest.mark.long
def test_staged_halves_are_float32_and_fill_vectors_of_sixteen_bytes() -> None:
    """Each is converted once, when it is copied, and not wherever it is multiplied."""
    a, w = placeholders("float16", (1, 16, 8, 8), (64, 16, 3, 3))
    (sketch,) = task_of_dag(ComputeDAG([topi.nn.conv2d_nchw(a, w, 1, 1)]), CUDA).sketches
    drawn = sketch.space.sample(300, np.random.default_rng(0))
    members = (sketch.close(int(i)) for i in drawn[sketch.legal(drawn)])
    texts = [str(lower_schedule(s, CUDA)) for s in members]
    assert any("+: 4] = float32(" in text for text in texts)
    for text in texts:
        copies = [line for line in text.splitlines() if ".shared" in line and "float16[" in line]
        assert not copies, "no buffer of halves in shared memory"


def legal_members(sketch: Sketch, count: int) -> list[Schedule]:
    drawn = sketch.space.sample(300, np.random.default_rng(0))
    return [sketch.close(int(i)) for i in drawn[sketch.legal(drawn)][:count]]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("by_rules", [False, True])
def test_who_schedules_decides_that_halves_are_copied_as_they_are(
    dtype: str, by_rules: bool
) -> None:
    dag = ComputeDAG([conv_nchw(dtype)])
    if by_rules:
        sketch = rule_sketches(dag, CUDA, tiling=Tiling(wide=False))[0]
    else:

        def halves(cfg: Any, at: Anchored) -> None:
            schedule_contraction(cfg, at, roles_of(at), wide=False)

        own = RegisteredAnchor("halves", ("cuda",), ("conv2d_nchw",), halves, None)
        sketch = sketch_of_anchor(own, dag, CUDA)
    inputs = random_inputs(dag, 0)
    (expected,), (bound,) = evaluate_with_tolerance(dag, inputs)
    for schedule in legal_members(sketch, 1):
        program = lower_schedule(schedule, CUDA)
        copies = re.findall(r"alloc \S+\.shared(?:\.local)?: (\w+)\[", str(program))
        assert len(copies) > 1 and set(copies) == {dtype}
        result = np.zeros(dag.outputs[0].shape, DType(dtype).storage)
        run_fast(program, [*inputs, result])
        assert agrees(result, expected, bound).all()


@pytest.mark.parametrize(
    ("dtype", "widths"),
    [("float32", (4, 2, 1)), ("float16", (8, 4, 1)), ("int8", (16, 8, 1)), ("float64", (2, 1))],
)
def test_accesses_of_sixteen_and_eight_bytes(dtype: str, widths: tuple[int, ...]) -> None:
    assert vector_widths(DType(dtype), Target("cuda")) == widths


@pytest.mark.parametrize(("dtype", "each"), [("float16", {1, 2, 4, 8}), ("float32", {1, 2, 4})])
def test_threads_of_depthwise_have_a_word_of_channels(dtype: str, each: set[int]) -> None:
    dag = ComputeDAG([depthwise_nhwc(dtype)])
    (sketch,) = (s for s in anchor_sketches(dag, CUDA) if "depthwise" in s.origin)
    tiles = sketch.space.space_map["tile_c"]
    assert {e.size[2] for e in tiles} == each
    drawn = sketch.space.sample(300, np.random.default_rng(0))
    words = [
        i for i in drawn[sketch.legal(drawn)] if sketch.space.get(int(i))["tile_c"].size[2] == 2
    ]
    program = lower_schedule(sketch.close(int(words[0])), CUDA)
    inputs = random_inputs(dag, 0)
    (expected,), (bound,) = evaluate_with_tolerance(dag, inputs)
    result = np.zeros(dag.outputs[0].shape, DType(dtype).storage)
    run_fast(program, [*inputs, result])
    assert agrees(result, expected, bound).all()
