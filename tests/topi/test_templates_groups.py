"""The template of large products by groups of warps: members compute what numpy says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.topi.test_templates_atoms import (
    CUDA,
    TF32,
    batch_matmul,
    computed,
    dense,
    integers,
    matmul,
    reference,
)
from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.cost.machine_model import seconds
from tilewright.ir.bulk import BulkCopy
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import AsyncCopy, Mma, MmaEnd, Store, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright.topi.templates.gpu_warp_groups import row_bytes


def weights_as_they_lie(m: int, k: int, n: int) -> list[Tensor]:
    a = te.placeholder((m, k), "bfloat16", "a")
    b = te.placeholder((k, n), "bfloat16", "b", constant=True)
    return [a, b, topi.nn.matmul(a, b)]


CASES: dict[str, list[Tensor]] = {
    "dense": dense(128, 128, 64),
    "dense of odd sizes": dense(70, 64, 66),
    "dense of two inputs, in rows of 64 bytes": dense(64, 96, 64, constant=False),
    "dense in tf32": dense(64, 64, 64, dtype="float32"),
    "matmul": weights_as_they_lie(64, 64, 72),
    "batch_matmul": batch_matmul(2, 64, 64, 64),
}


def sketch_of(tensors: list[Tensor], target: Target | None = None) -> Sketch:
    dag = ComputeDAG(tensors)
    target = target or (TF32 if tensors[0].dtype == "float32" else CUDA)
    (registered,) = (t for t in anchor_templates(dag, target) if t.name == "dense.groups")
    return sketch_of_anchor(registered, dag, target)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_numpy_says(name: str) -> None:
    """Integers in halves: exact, whatever the order of the sums."""
    tensors = CASES[name]
    sketch, rng = sketch_of(tensors), np.random.default_rng(len(name))
    some = sketch.space.sample(256, rng)
    legal = some[sketch.legal(some)]
    given = [integers(rng, t) for t in tensors[:-1]]
    whole = reference(name.partition(" ")[0].partition(",")[0], tensors, given)
    for index in legal[:2]:
        got: Any = computed(sketch, int(index), tensors, given)
        np.testing.assert_array_equal(got.astype(np.float64), whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dense of odd sizes", "matmul", "batch_matmul"])
def test_members_whose_tiles_an_engine_brings(name: str) -> None:
    tensors = CASES[name]
    sketch, rng = sketch_of(tensors), np.random.default_rng(0)
    some = sketch.space.sample(512, rng)
    legal = some[sketch.legal(some)]
    index = next(int(i) for i in legal if sketch.space.get(int(i))["engine"].val > 0)
    program = lower_schedule(sketch.close(index), CUDA)
    kinds = {type(s) for kernel in program.kernels for s in statements(kernel.body)}
    assert {BulkCopy, MmaEnd} <= kinds and AsyncCopy not in kinds
    given = [integers(rng, t) for t in tensors[:-1]]
    whole = reference(name.partition(" ")[0], tensors, given)
    got: Any = computed(sketch, index, tensors, given)
    np.testing.assert_array_equal(got.astype(np.float64), whole)


@pytest.mark.slow
@pytest.mark.parametrize("m, n", [(128, 64), (70, 72)])
def test_both_sides_of_a_gate_are_in_its_kernel(m: int, n: int) -> None:
    """Columns in turn: the tile of the product lies in shared memory, half as much is stored."""
    data = te.placeholder((m, 64), "float16", "data")
    weight = te.placeholder((2 * n, 64), "float16", "weight", constant=True)
    both = topi.nn.dense(data, weight)
    left, right = (topi.strided_slice(both, [0, k], [m, 2 * n], [1, 2]) for k in (0, 1))
    tensors = [data, weight, topi.multiply(topi.nn.relu(left), right)]
    sketch, rng = sketch_of(tensors), np.random.default_rng(0)
    some = sketch.space.sample(512, rng)
    legal = some[sketch.legal(some)]
    given = [integers(rng, t) for t in tensors[:-1]]
    sums = given[0].astype(np.float64) @ given[1].astype(np.float64).T
    expected = np.maximum(sums[:, ::2], 0) * sums[:, 1::2]
    for engine in (-1, 4):
        index = next(int(i) for i in legal if sketch.space.get(int(i))["engine"].val == engine)
        program = lower_schedule(sketch.close(index), CUDA, args=tensors)
        (kernel,) = program.kernels
        stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
        assert {s.index.lanes for s in stores if s.buffer.name == program.args[-1].name} == {4}
        got: Any = computed(sketch, index, tensors, given)
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float16))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [-1, 4])
def test_members_that_split_their_sums(engine: int) -> None:
    tensors = dense(64, 256, 64, constant=False)
    sketch, rng = sketch_of(tensors), np.random.default_rng(0)
    some = sketch.space.sample(1024, rng)
    wanted = {"engine": engine, "split_k": 2, "columns": 64}
    index = next(
        int(i) for i in some[sketch.legal(some)]
        if all(sketch.space.get(int(i))[name].val == value for name, value in wanted.items())
    )  # fmt: skip
    program = lower_schedule(sketch.close(index), CUDA)
    multiplying, adding = program.kernels
    assert multiplying.grid[2] == 2 and not any(isinstance(s, Mma) for s in statements(adding.body))
    given = [integers(rng, t) for t in tensors[:-1]]
    got: Any = computed(sketch, index, tensors, given)
    np.testing.assert_array_equal(got.astype(np.float64), reference("dense", tensors, given))


@pytest.mark.slow
@pytest.mark.parametrize("n", [192, 72])
def test_members_that_store_rows(n: int) -> None:
    """A thread stores 16 bytes, its neighbours what is beside them; tiles are many for one core."""
    target = Target(f"{CUDA} -num-cores=1")
    tensors = dense(128, 128, n, constant=False)
    sketch, rng = sketch_of(tensors, target), np.random.default_rng(0)
    some = sketch.space.sample(4096, rng)
    wanted = {"columns": 64, "rows": 1}
    index = next(
        int(i) for i in some[sketch.legal(some)]
        if all(sketch.space.get(int(i))[name].val == value for name, value in wanted.items())
    )  # fmt: skip
    kernel = lower_schedule(sketch.close(index), target).kernels[0]
    stores = [s for s in statements(kernel.body) if isinstance(s, Store)]
    out = [s for s in stores if s.buffer.scope == "global"]
    assert out and all(s.index.lanes * s.buffer.dtype.bytes == 16 for s in out)
    given = [integers(rng, t) for t in tensors[:-1]]
    got: Any = computed(sketch, index, tensors, given)
    np.testing.assert_array_equal(got.astype(np.float64), reference("dense", tensors, given))


def test_groups_whose_sums_do_not_fit_registers_are_refused() -> None:
    """Warps that only load take theirs, too; the assembler would refuse such a kernel."""
    sketch = sketch_of(dense(512, 384, 192, constant=False))
    space = sketch.space

    def legal(groups: int, engine: int) -> bool:
        wanted = {"columns": 192, "stages": 2, "engine": engine, "strip": 1, "split_k": 1}
        wanted |= {"rows": 0}
        places = []
        for name, values in space.space_map.items():
            size = [groups if name == "tile_m" else 1, 1]
            fits = [list(e.size[1:]) == size if name.startswith("tile") else e.val == wanted[name]
                    for e in values]  # fmt: skip
            places.append([fits.index(True)])
        return bool(sketch.legal(space.indices(np.array(places)))[0])

    assert legal(4, -1) and legal(2, 4) and not legal(4, 4)


def test_sums_are_split_where_tiles_are_few() -> None:
    def splits(tensors: list[Tensor]) -> list[int]:
        return [e.val for e in sketch_of(tensors).space.space_map["split_k"]]

    assert splits(dense(128, 3072, 768)) == [1, 2, 4, 8, 16]
    assert splits(dense(128, 192, 768)) == [1]
    assert splits(dense(2048, 2048, 2048)) == [1]


def test_members_multiply_by_groups_of_whole_warps() -> None:
    sketch = sketch_of(dense(512, 512, 512))
    some = sketch.space.sample(64, np.random.default_rng(0))
    for index in some[sketch.legal(some)][:4]:
        kernel, *_ = lower_schedule(sketch.close(int(index)), CUDA).kernels
        found = list(statements(kernel.body))
        assert any(isinstance(s, Mma) and s.atom.by_group for s in found)
        assert found[-1] is not None and any(isinstance(s, MmaEnd) and not s.pending for s in found)
        assert kernel.block[0] == 128


@pytest.mark.parametrize("tensors", [
    dense(16, 512, 512), dense(512, 512, 32), dense(512, 50, 512), matmul(512, 512, 512),
    dense(512, 512, 512, dtype="float32"),
])  # fmt: skip
def test_small_products_and_factors_that_lie_otherwise_are_left_to_others(tensors) -> None:
    with pytest.raises(ScheduleError, match="template for"):
        sketch_of(tensors, CUDA)
    assert not any("groups" in s.origin for s in anchor_sketches(ComputeDAG(tensors), CUDA))


def test_devices_without_groups_are_left_to_others() -> None:
    dag = ComputeDAG(dense(512, 512, 512))
    for arch in ("sm_80", "sm_89", "sm_100"):
        offered = anchor_sketches(dag, Target(f"cuda -arch={arch}"))
        assert not any("groups" in s.origin for s in offered)
    assert any("groups" in s.origin for s in anchor_sketches(dag, CUDA))


@pytest.mark.parametrize(
    ("depth", "size", "expected"),
    [(128, 2, 128), (96, 2, 64), (48, 2, 32), (40, 2, 0), (32, 4, 128)],
)
def test_rows_are_as_long_as_the_depth_has_whole_ones(depth: int, size: int, expected: int) -> None:
    assert row_bytes(depth, size) == expected


def test_the_model_likes_them_for_large_products() -> None:
    dag = ComputeDAG(dense(4096, 4096, 4096))
    best: dict[str, float] = {}
    for sketch in anchor_sketches(dag, CUDA):
        index = sketch.fallback()
        assert index is not None
        (group,) = sketch.groups(np.array([index]))
        best[sketch.origin] = float(seconds(group.resources, 1)[0])
    groups, warps = (next(v for k, v in best.items() if w in k) for w in ("groups", "tensor"))
    assert groups < warps


@pytest.mark.slow
def test_numbers_of_two_parts_are_multiplied_three_times() -> None:
    """As exact as float32: of operands with digits that one product leaves out."""
    target = TF32.with_precision("3xtf32")
    tensors = dense(64, 64, 64, dtype="float32")
    sketch, rng = sketch_of(tensors, target), np.random.default_rng(0)
    some = sketch.space.sample(64, rng)
    index = int(some[sketch.legal(some)][0])
    given = [(1 + rng.random(t.shape)).astype("float32") for t in tensors[:-1]]
    program = lower_schedule(sketch.close(index), target)
    got = np.zeros((64, 64), "float32")
    run_fast(program, [*given, got])
    data, weight, bias = (a.astype(np.float64) for a in given)
    np.testing.assert_allclose(got, np.maximum(data @ weight.T + bias, 0), rtol=2e-6)
