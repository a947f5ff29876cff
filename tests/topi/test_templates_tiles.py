"""The template of large products without matrix units: members compute what numpy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.topi.test_templates_atoms import CUDA, computed, dense, integers, reference
from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.codegen.cuda import generate
from tilewright.ir.stmt import AsyncCopy, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright.topi.templates.gpu_tiles import UNITS, _tiles, _unit


def matmul(m: int, k: int, n: int) -> list[Tensor]:
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    return [a, b, topi.nn.matmul(a, b)]


def batch_matmul(batch: int, m: int, k: int, n: int) -> list[Tensor]:
    a, b = te.placeholder((batch, m, k), name="a"), te.placeholder((batch, n, k), name="b")
    return [a, b, topi.nn.batch_matmul(a, b)]


CASES: dict[str, list[Tensor]] = {
    "dense": dense(128, 64, 128, dtype="float32"),
    "dense of odd sizes": dense(70, 37, 131, dtype="float32"),
    "dense of two inputs": dense(64, 48, 96, constant=False, dtype="float32"),
    "matmul": matmul(64, 40, 68),
    "matmul of odd sizes": matmul(65, 33, 67),
    "batch_matmul": batch_matmul(2, 64, 32, 66),
}


def sketch_of(tensors: list[Tensor], target: Target = CUDA) -> Sketch:
    dag = ComputeDAG(tensors)
    (registered,) = (t for t in anchor_templates(dag, target) if t.name == "dense.tiles")
    return sketch_of_anchor(registered, dag, target)


def legal(sketch: Sketch, seed: int) -> Any:
    some = sketch.space.sample(128, np.random.default_rng(seed))
    return some[sketch.legal(some)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_numpy_says(name: str) -> None:
    """Integers: exact, whatever the order of the sums."""
    tensors = CASES[name]
    sketch, rng = sketch_of(tensors), np.random.default_rng(len(name))
    given = [integers(rng, t) for t in tensors[:-1]]
    whole = reference(name.partition(" ")[0], tensors, given)
    found = legal(sketch, len(name))
    split = [i for i in found if sketch.space.get(int(i))["split_k"].val > 1]
    for index in [*found[:2], *split[:1]]:
        got: Any = computed(sketch, int(index), tensors, given)
        np.testing.assert_array_equal(got.astype(np.float64), whole)


@pytest.mark.parametrize("name", ["dense", "dense of odd sizes", "matmul of odd sizes"])
def test_no_multiply_add_has_a_guard_and_slices_come_by_themselves(name: str) -> None:
    sketch = sketch_of(CASES[name])
    found = [
        i for i in legal(sketch, 1)
        if (c := sketch.space.get(int(i)))["stages"].val and c["split_k"].val == 1
    ]  # fmt: skip
    program = lower_schedule(sketch.close(int(found[0])), CUDA)
    (kernel,) = program.kernels
    assert any(isinstance(s, AsyncCopy) for s in statements(kernel.body))
    text = generate(program, CUDA).text
    inner = text[text.index("int k_inner") :]
    inner = inner[: inner.index("+=")]
    assert "if (" not in inner and inner.count("float4*>(") >= 2


@pytest.mark.parametrize("tensors", [
    dense(63, 512, 512, dtype="float32"), dense(512, 512, 32, dtype="float32"),
    dense(512, 512, 512),
])  # fmt: skip
def test_small_products_and_halves_are_left_to_others(tensors: list[Tensor]) -> None:
    with pytest.raises(ScheduleError, match="template for"):
        sketch_of(tensors)
    assert not any("tiles" in s.origin for s in anchor_sketches(ComputeDAG(tensors), CUDA))


@pytest.mark.parametrize("extent", [64, 70, 100, 131, 1000, 1024, 4097])
def test_extents_are_rounded_up_a_little_to_whole_tiles(extent: int) -> None:
    unit = _unit(extent)
    padded = -(-extent // unit) * unit
    assert unit in UNITS and padded <= 1.05 * (-(-extent // 32) * 32)
    for _, chunks, warps in _tiles(padded, 16):
        assert padded % (chunks * warps * 16) == 0


def test_untuned_builds_take_them_for_large_products_that_matrix_units_may_not_compute() -> None:
    large, small = (ComputeDAG(dense(n, n, n, dtype="float32")) for n in (1024, 64))
    units = Target("cuda -arch=sm_90 -precision=tf32")
    assert next(s.origin for s in anchor_sketches(large, units)).endswith("dense.tensor")
    tiles = next(s for s in anchor_sketches(large, CUDA) if s.has_fallback)
    assert tiles.origin.endswith("dense.tiles") and tiles.fallback() is not None
    tiles = next(s for s in anchor_sketches(small, CUDA) if s.has_fallback)
    assert tiles.origin.endswith("dense.tiles") and tiles.fallback() is None


def test_untuned_sums_are_split_where_tiles_are_few() -> None:
    for size, shares in ((1024, 4), (4096, 1)):
        sketch = sketch_of(dense(size, size, size, dtype="float32"))
        index = sketch.fallback()
        assert index is not None
        knobs = sketch.space.get(index)
        assert knobs["split_k"].val == shares and knobs["stages"].val == 4
        assert [knobs[name].size[1] for name in ("tile_m", "tile_n")] == [2, 2]
