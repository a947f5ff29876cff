"""Norms and softmax of halves, a warp for each row, whose lanes exchange what they have reduced."""

import numpy as np
import pytest

from strategies import assert_computes
from tests import interpreter
from tilewright import te, topi
from tilewright.base.errors import LoweringError
from tilewright.codegen import generate
from tilewright.driver import nvrtc
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Exchange, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from topi.test_templates_rows import OPERATORS, dag

CUDA = Target("cuda -arch=sm_90")


def sketch_of(computation: ComputeDAG, target: Target = CUDA) -> Sketch:
    return anchor_sketches(computation, target)[0]


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(6, 96), (2, 3, 37), (1, 5, 64), (3, 17)], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_every_member_is_one_right_kernel(name, shape, dtype):
    computation = dag(name, *shape, dtype=dtype)
    sketch = sketch_of(computation)
    assert sketch.origin == "template:rows.warps"
    count = len(sketch.space)
    drawn = np.random.default_rng(0).integers(0, count, 3).tolist()
    for index in {0, count - 1, sketch.fallback(), *drawn}:
        program = lower_schedule(sketch.close(index), CUDA)
        (kernel,) = program.kernels
        assert any(isinstance(s, Exchange) for s in statements(kernel.body))
        assert_computes(program, computation)


def test_sums_are_floats_and_a_lane_reads_16_bytes():
    computation = dag("layer norm", 4, 768, dtype="float16")
    sketch = sketch_of(computation)
    program = lower_schedule(sketch.close(sketch.fallback()), CUDA)
    text = generate(program, CUDA).text
    assert "const uint4*" in text and "float T_norm_sum_partial" in text
    assert "board" not in text


def test_both_interpreters_agree_to_the_last_bit():
    computation = dag("softmax", 3, 50, dtype="float16")
    sketch = sketch_of(computation)
    program = lower_schedule(sketch.close(len(sketch.space) - 1), CUDA)
    given = np.random.default_rng(0).standard_normal((3, 50)).astype(np.float16)
    results = [np.zeros((3, 50), np.float16) for _ in range(2)]
    for run, out in zip((run_fast, interpreter.run), results, strict=True):
        run(program, [given if b.name == "x" else out for b in program.args])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_floats_and_other_devices_have_other_templates(dtype):
    computation = dag("softmax", 4, 96, dtype=dtype)
    for target in (CUDA, Target("cuda -arch=sm_70"), Target("opencl")):
        origins = [s.origin for s in anchor_sketches(computation, target)]
        special = dtype == "float16" and target is CUDA
        assert ("template:rows.warps" in origins) == special
        assert "template:rows.gpu" in origins


@pytest.mark.parametrize(("threads", "tag"), [(64, "threadIdx.x"), (32, "threadIdx.y")])
def test_only_the_lanes_of_a_warp_exchange(threads, tag):
    x = te.placeholder((4, 128), name="x")
    k = te.reduce_axis((0, 128), "k")
    out = te.compute((4,), lambda i: te.sum(x[i, k], axis=k), name="y")
    s = Schedule(ComputeDAG([x, out]))
    _, inner = s[out].split(k, factor=threads)
    s[out].bind(inner, tag)
    s[out].pragma(inner, "exchange", 1)
    with pytest.raises(LoweringError, match="lanes of a warp"):
        lower_schedule(s, CUDA)


def test_a_norm_of_a_sum_is_one_kernel():
    x, y = (te.placeholder((5, 64), "float16", n) for n in "xy")
    computation = ComputeDAG([x, y, topi.nn.standardize(topi.add(x, y))])
    sketch = sketch_of(computation)
    program = lower_schedule(sketch.close(sketch.fallback()), CUDA)
    assert len(program.kernels) == 1
    assert_computes(program, computation)


@pytest.mark.slow
def test_nvrtc_accepts():
    pytest.importorskip("cuda.bindings.nvrtc")
    computation = dag("layer norm", 8, 768, dtype="float16")
    sketch = sketch_of(computation)
    made = nvrtc.build(generate(lower_schedule(sketch.close(sketch.fallback()), CUDA), CUDA), CUDA)
    assert all(use["spill_bytes"] == 0 for use in made.resources.values())
