"""Norms behind products: the kernel that adds up a split sum norms its rows; members at random
compute what the reference says."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest

from tilewright import te, topi
from tilewright.codegen import generate
from tilewright.driver import nvrtc
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Program
from tilewright.ir.verifier import verify
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches, anchored_schedule, fallback_schedule
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import agrees, evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor
from tilewright.topi.templates.gpu_rows_behind import row_warps

CUDA = Target("cuda -arch=sm_90")
RNG = np.random.default_rng(0)
TEMPLATES = ("dense.tensor", "dense.gpu", "dense.groups")


def computation(
    m: int, k: int, n: int, dtype: str = "float16", *, residual: bool = True, view: bool = True,
    center: bool = True, shift: bool = True, wide: bool = False, kept: bool = False,
) -> ComputeDAG:  # fmt: skip
    data = te.placeholder((m, k), dtype, "data")
    weight = te.placeholder((n, k), dtype, "weight", constant=True)
    inputs = [data, weight]
    rows = topi.nn.dense(data, weight)

    def with_input(rows: Tensor, shape: tuple[int, ...], name: str) -> Tensor:
        inputs.append(te.placeholder(shape, dtype, name))
        return topi.add(rows, inputs[-1])

    if residual:
        rows = with_input(with_input(rows, (n,), "bias"), (m, n), "residual")
    if view:
        rows = topi.reshape(rows, (1, m, n))
    before = rows
    norm = topi.nn.standardize(topi.cast(rows, "float32") if wide else rows, (-1,), 1e-5, center)
    rows = topi.cast(norm, dtype)
    if shift:
        rows = with_input(rows, (n,), "shift")
    if kept:
        values = before, rows
        return ComputeDAG(
            [
                *inputs,
                *te.compute(rows.shape, lambda *i: tuple(value[i] for value in values), "results"),
            ]
        )
    return ComputeDAG([*inputs, rows])


CASES = {
    "residual": computation(20, 64, 96),
    "root mean square": computation(24, 64, 72, center=False),
    "nothing before": computation(17, 64, 128, residual=False, view=False),
    "nothing behind": computation(20, 64, 67, shift=False, view=False),
    "read again": computation(20, 64, 96, kept=True),
    "read again, of another shape": computation(20, 64, 96, kept=True, view=False),
    "widened": computation(20, 64, 96, wide=True),
    "wide rows": computation(9, 64, 384),
    "float32": computation(20, 64, 96, "float32"),
}
LARGE = computation(70, 256, 192)  # for groups of warps


@lru_cache
def sketches(case: str) -> dict[str, Sketch]:
    dag = LARGE if case == "groups" else CASES[case]
    return {s.origin.removeprefix("template:"): s for s in anchor_sketches(dag, CUDA)}


def members(sketch: Sketch, count: int) -> list[int]:
    """Some that the device can run, of each way to split the sum."""
    drawn = RNG.integers(0, len(sketch.space), 256)
    legal = [
        int(drawn[row])
        for group in sketch.groups(drawn)
        for row in group.rows[group.verdict.legal(len(group.rows))]
    ]
    found: dict[tuple[bool, int], int] = {}
    for index in legal:
        values = {name: e.value for name, e in sketch.space.get(index).items()}
        found.setdefault((values["split_k"] > 1, values["row_warps"]), index)
    return list(found.values())[:count]


def check(program: Program, dag: ComputeDAG) -> None:
    verify(program)
    inputs = random_inputs(dag, 0)
    expected = evaluate_with_tolerance(dag, inputs)
    given = [
        a if b.packing is None else b.packing.apply(a)
        for a, b in zip(inputs, program.args, strict=False)
    ]
    results = [np.full(t.shape, 99, t.dtype) for t in dag.outputs]
    run_fast(program, [*given, *results])
    for found, value, bound in zip(results, *expected, strict=True):
        assert agrees(found, value, bound).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", TEMPLATES[:2])
@pytest.mark.parametrize("case", CASES)
def test_members_compute_it(case: str, name: str) -> None:
    sketch = sketches(case).get(name)
    if sketch is None:
        assert (case, name) == ("float32", "dense.tensor")
        return
    for index in members(sketch, 3):
        split = sketch.space.get(index)["split_k"].val > 1
        program = lower_schedule(sketch.close(index), CUDA)
        assert len(program.kernels) == 2
        check(program, CASES[case])
        joined = [b.name for b in program.workspaces if "rf" in b.name]
        assert bool(joined) == split


@pytest.mark.slow
def test_sums_of_groups_are_added_where_rows_are_normed() -> None:
    sketch = sketches("groups")["dense.groups"]
    for index in members(sketch, 2):
        program = lower_schedule(sketch.close(index), CUDA)
        assert len(program.kernels) == 2
        check(program, LARGE)


def test_a_block_has_a_row_and_asks_for_vectors() -> None:
    dag = computation(128, 512, 768)
    sketch = next(s for s in anchor_sketches(dag, CUDA) if s.origin == "template:dense.tensor")
    index = sketch.space.index_of(
        {
            **{name: e.value for name, e in sketch.space.get(sketch.fallback()).items()},
            "split_k": 4, "warps_k": 1, "joined": False, "row_warps": 2,
        }
    )  # fmt: skip
    program = lower_schedule(sketch.close(index), CUDA)
    last = program.kernels[-1]
    assert (last.grid, last.block) == ((128, 1, 1), (32, 2, 1))
    source = generate(program, CUDA)
    text = source.text.rpartition("__global__")[2]
    assert "const float4*" in text and "tw_exchange" in text
    made = nvrtc.build(source, CUDA)
    assert all(use["spill_bytes"] == 0 for use in made.resources.values())


def test_what_a_lane_has_of_a_row_is_whole_vectors() -> None:
    assert row_warps(384) == [1, 3] and row_warps(768) == [1, 2, 3, 6]
    assert row_warps(1024) == [1, 2, 4, 8] and row_warps(197) == [1]


def test_records_without_norms_say_nothing_of_warps() -> None:
    sketch = sketches("wide rows")["dense.gpu"]
    values = {name: e.value for name, e in sketch.space.get(5).items() if name != "row_warps"}
    assert sketch.space.get(sketch.space.index_of(values))["row_warps"].val == 3


def test_only_norms_of_whole_rows_follow() -> None:
    for case in ("residual", "widened"):
        found = anchored_schedule(CASES[case], CUDA)
        assert found.rows_follow and found.output.name.startswith("T_add")
    data = te.placeholder((20, 64), "float16", "data")
    weight = te.placeholder((96, 64), "float16", "weight", constant=True)
    rows = topi.nn.dense(data, weight)
    columns = topi.nn.standardize(rows, (0,))
    groups = topi.nn.standardize(topi.reshape(rows, (20, 2, 48)), (2,))
    short = topi.nn.standardize(topi.nn.dense(data, te.placeholder((32, 64), "float16", "w")))
    for other in (columns, groups, short):
        dag = ComputeDAG([data, *(o.output_tensor for o in ComputeDAG([other]).placeholders
                                  if o.name != "data"), other])  # fmt: skip
        assert not anchored_schedule(dag, CUDA).rows_follow
        assert not anchor_sketches(dag, CUDA)


def test_other_devices_have_kernels_of_their_own_for_it() -> None:
    assert fallback_schedule(CASES["residual"], Target("llvm")) is None
