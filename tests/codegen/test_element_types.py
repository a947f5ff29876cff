"""Operators in every element type, from tensor expressions to text: NVRTC takes it, devices run it.

Schedules are the templates' own choices (with tiles in shared memory where they have them), drawn
members of the rules' sketches, and the default.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.codegen.typed_operators import OPERATORS
from tilewright import te
from tilewright.base.dtype import DType
from tilewright.driver import nvrtc
from tilewright.driver.build import build_artifact, generate_source
from tilewright.runtime import device
from tilewright.runtime.trial import trial
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import task_of_dag
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs

NARROW = ("float16", "bfloat16", "int8", "uint8")
NAMES = ("elementwise", "dense", "conv2d", "depthwise", "max_pool", "softmax")
CASES = [(n, t) for n in NAMES for t in NARROW if DType(t) in OPERATORS[n][1]]
FULL = [("dense", "float64"), ("dense", "uint32"), ("softmax", "float64"), ("choose", "int16")]


def dag_of(name: str, dtype: str) -> ComputeDAG:
    return ComputeDAG(OPERATORS[name][0](DType(dtype)))


def schedules(dag: ComputeDAG, target: Target) -> Iterator[Schedule]:
    task = with_rules(task_of_dag(dag, target, "case"))
    yield task.default()
    for sketch in task.sketches:
        drawn = sketch.space.sample(200, np.random.default_rng(0))
        own = sketch.fallback()
        good = drawn[sketch.legal(drawn)] if own is None else [own]
        if len(good):
            yield sketch.close(int(good[0]))


@pytest.mark.sampled(8)
@pytest.mark.slow
@pytest.mark.parametrize("name, dtype", CASES + FULL)
def test_results(name: str, dtype: str) -> None:
    on = device("opencl")
    if not on.exist:
        pytest.skip("no opencl device")
    dag = dag_of(name, dtype)
    inputs = random_inputs(dag, 3)
    expected, bound = evaluate_with_tolerance(dag, inputs)
    for schedule in schedules(dag, on.target):
        artifact = build_artifact(schedule, on.target)
        done = trial(artifact, on, inputs, expected, bound, number=1, race=False)
        assert not done.error, f"{done.message}\n{artifact.source.text}"


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name, dtype", [c for c in CASES if c[1] in ("float16", "bfloat16")])
def test_nvrtc_accepts(name: str, dtype: str) -> None:
    target = Target("cuda -arch=sm_90")
    for schedule in schedules(dag_of(name, dtype), target):
        made = nvrtc.build(generate_source(schedule, target), target)
        assert "warning" not in made.meta["log"], made.meta["log"]


def shared_bytes(dtype: str, index: int, target: Target) -> tuple[int, str]:
    """Of one member of the template for dense, and its text."""
    sketches = task_of_dag(dag_of("dense", dtype), target, "case").sketches
    sketch = next(s for s in sketches if s.origin == "template:dense.gpu")
    source = generate_source(sketch.close(index), target)
    return sum(k.shared_bytes for k in source.kernels), source.text


def test_narrow_integers_stay_narrow_in_shared_memory_and_halves_become_float32() -> None:
    """A half is converted once, when its tile is copied, and not at every use."""
    target = Target("cuda -arch=sm_90")
    sketch = task_of_dag(dag_of("dense", "float32"), target, "case").sketches[0]
    index = int(next(i for i in range(len(sketch.space)) if sketch.legal(np.array([i]))))
    whole, _ = shared_bytes("float32", index, target)
    half, text = shared_bytes("float16", index, target)
    assert half == whole > 0 and "tw_float16_to_float32(" in text
    assert "unsigned short* const" not in text
    byte, text = shared_bytes("int8", index, target)
    assert 0 < byte <= whole // 4 + 32  # two tiles, each at a multiple of 16 bytes


def test_16_bytes_of_halves_are_one_access() -> None:
    a, b = (te.placeholder((64, 8), "float16", name) for name in "ab")
    out = te.compute((64, 8), lambda i, j: a[i, j] + b[i, j], name="out")
    s = te.create_schedule(out.op)
    rows, columns = s[out].op.axis
    s[out].bind(rows, te.thread_axis("threadIdx.x"))
    s[out].vectorize(columns)
    text = generate_source(s, Target("cuda")).text
    assert text.count("const uint4*>(") == 2 and text.count("make_uint4(") == 1
