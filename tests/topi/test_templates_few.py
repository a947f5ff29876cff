"""`dense.few`: members at random compute what numpy says; weights come in the order of lanes, far
ahead of their use."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interpreter import run as run_defined
from tests.tiers import examples
from tests.topi.test_templates_few_rows import (
    CUDA,
    Case,
    check,
    dense,
    gated,
    matmul,
    normed,
    of_bytes,
    program_of,
)
from tilewright.base.errors import ScheduleError
from tilewright.codegen.cuda import generate
from tilewright.cost.machine_model import analyse
from tilewright.ir.stmt import AsyncCopy, statements
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright.topi.templates import gpu_few
from tilewright.topi.templates.gpu_few import WHOLE

TF32, SPLIT = (Target(f"cuda -arch=sm_90 -precision={p}") for p in ("tf32", "3xtf32"))
CASES: dict[str, tuple[Case, Target]] = {
    "sixteen rows": (dense(16, 256, 64), CUDA),
    "one row": (dense(1, 256, 48), CUDA),
    "atoms that overhang": (dense(9, 72, 37), CUDA),
    "a depth of no whole atoms": (dense(4, 56, 64), CUDA),
    "bfloat16": (dense(12, 128, 64, "bfloat16"), CUDA),
    "bytes": (of_bytes(6, 128, 64), CUDA),
    "tf32": (dense(8, 64, 64, "float32"), TF32),
    "3xtf32": (dense(8, 64, 64, "float32"), SPLIT),
    "rows in a ring": (dense(16, 1048, 24), CUDA),
    "constants are turned": (matmul(4, 128, 64, constant=True), CUDA),
    "a gate": (gated(4, 128, 32), CUDA),
}


def sketch_of(tensors: list[Tensor], target: Target = CUDA) -> Sketch:
    dag = ComputeDAG(tensors)
    (registered,) = (t for t in anchor_templates(dag, target) if t.name == "dense.few")
    return sketch_of_anchor(registered, dag, target)


def member(sketch: Sketch, tile: tuple[int, int] = (1, 1), **wanted: int) -> int:
    """The first one with these values."""
    positions = []
    for name, knob in sketch.space.space_map.items():
        held = [tuple(e.size[1:]) if name.startswith("tile") else e.val for e in knob]
        value = tile if name == "tile_m" else wanted.get(name, held[0])
        positions.append([held.index(value)])
    return int(sketch.space.indices(np.array(positions))[0])


@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_numpy_says(name: str) -> None:
    case, target = CASES[name]
    sketch = sketch_of(case[0], target)
    some = sketch.space.sample(256, np.random.default_rng(0))
    legal = some[sketch.legal(some)]
    assert len(legal) > 100
    for index in legal[:3]:
        check(case, sketch, int(index))


@pytest.mark.parametrize("rows", [1, 3, 8, 16])
@pytest.mark.parametrize("whole", [True, False])
def test_depths_that_are_no_multiple_of_slices(
    rows: int, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a kernel alone, and as one of a chain."""
    monkeypatch.setattr(gpu_few, "WHOLE", WHOLE if whole else 0)
    for depth in (208, 216):  # 13 steps, and half a one
        case = dense(rows, depth, 24, "bfloat16")
        sketch = sketch_of(case[0])
        index = member(sketch, warps_k=4, step_k=2, stages=3)
        for chained in (False, True):
            check(case, sketch, index, chained=chained)


@pytest.mark.parametrize("whole", [True, False])
def test_no_warp_reads_what_another_still_copies(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_few, "WHOLE", WHOLE if whole else 0)
    case = dense(3, 96, 16)
    sketch = sketch_of(case[0])
    check(case, sketch, member(sketch, warps_k=2, step_k=1, stages=3), run_defined)


@given(
    st.integers(1, 16), st.integers(1, 72), st.sampled_from([24, 32, 40, 64, 264]),
    st.integers(0, 10**6),
)  # fmt: skip
@examples(10)
def test_every_extent(m: int, n: int, k: int, seed: int) -> None:
    case = dense(m, k, n)
    sketch, rng = sketch_of(case[0]), np.random.default_rng(seed)
    some = sketch.space.sample(64, rng)
    check(case, sketch, int(some[sketch.legal(some)][0]))


def around_the_wait(tensors: list[Tensor], **wanted: int) -> tuple[str, str]:
    """The text of a kernel of a chain before it waits for the one before it, and behind that."""
    sketch = sketch_of(tensors)
    program = program_of(sketch, member(sketch, (1, 1), **wanted), tensors)
    copied = [s for k in program.kernels for s in statements(k.body) if isinstance(s, AsyncCopy)]
    assert {s.source.count * s.source.buffer.dtype.bytes for s in copied} == {16}
    steady = frozenset(b for b in program.args if b.name in ("weight.packed", "bias"))
    text = generate(replace(program, steady=steady, lets_in=True), CUDA).text
    body = text.partition("__global__")[2]
    before, behind = re.split(r"tw_await_kernel\w*\(\)", body, maxsplit=1)
    return before, behind


@pytest.mark.parametrize("rows", [1, 3, 8, 16])
def test_slices_of_weights_are_asked_for_before_the_kernel_waits_and_waited_for_alone(
    rows: int,
) -> None:
    """Rows are copied at once, none that there are not."""
    before, behind = around_the_wait(
        dense(rows, 1024, 64, "bfloat16")[0], warps_k=4, step_k=1, stages=4
    )
    slices = re.findall(r"\w+_first = 0; \w+ < (\d+);.*?tw_commit\(\);", before, re.DOTALL)
    assert slices == ["3"] and before.count("tw_copy_16(&weight_packed_shared[") == 1
    assert "data_shared" not in before.partition("tw_copy_16")[2]
    at_once, _, loop = behind.partition("tw_wait_copies(2)")  # two more may be under way
    assert "*reinterpret_cast<uint4*>(data_shared" in at_once and "tw_commit()" not in at_once
    assert "(data + " not in loop and "tw_copy_16(&data" not in behind
    turns = re.findall(r"< (\d+); \+\+\w+\) {\n *\*reinterpret_cast", at_once) or ["1"]
    assert [int(n) for n in turns] == [rows * 1024 // 8 // 128]  # of 128 threads


def test_more_rows_have_a_ring_as_far_ahead_as_that_of_the_weights() -> None:
    before, behind = around_the_wait(dense(16, 2048, 64)[0], warps_k=2, step_k=1, stages=4)
    assert "tw_copy_16(&weight_packed_shared[" in before and "data_shared[" not in before
    assert "tw_copy_16(&data_shared[" in behind and "tw_wait_copies(2)" in behind


@pytest.mark.parametrize("rows", [1, 8, 16])
def test_what_runs_untuned_keeps_most_cores_busy_and_is_well_ahead(rows: int) -> None:
    sketch = sketch_of(dense(rows, 4096, 4096)[0])
    index = sketch.fallback()
    assert index is not None
    (group,) = sketch.groups(np.array([index]))
    (kernel,), _ = analyse(group.resources, 1)
    cores = CUDA.limits.cores
    assert 0.9 * cores < kernel.blocks < 2 * cores
    (ring,) = kernel.rings
    slices = 4096 / ring.waits * 4096 / kernel.blocks * 2  # bytes of weights
    assert ring.ahead * slices * kernel.blocks > 40e3 * cores


def test_one_row_of_many_columns_runs_untuned_by_another_template() -> None:
    assert sketch_of(dense(1, 64, 32768)[0]).fallback() is None
    assert sketch_of(dense(2, 64, 32768)[0]).fallback() is not None


def test_a_gate_runs_untuned_by_another_template() -> None:
    assert sketch_of(gated(4, 128, 32)[0]).fallback() is None


def test_others_are_refused() -> None:
    def why(case: Case, target: Target = CUDA) -> str:
        with pytest.raises(ScheduleError) as caught:
            sketch_of(case[0], target)
        return str(caught.value)

    assert "it has more than 16 rows" in why(dense(17, 128, 64))
    assert "its depth is one atom" in why(dense(4, 16, 64))
    assert "its weights are not constant" in why(dense(4, 128, 64, constant=False))
    assert "its rows are computed" in why(normed(3, 96, 32))
    assert "multiplies no matrices" in why(dense(4, 128, 64, "float32"))
    assert "multiplies no matrices" in why(dense(4, 128, 64), Target("cuda -arch=sm_75"))
