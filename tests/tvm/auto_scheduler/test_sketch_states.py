"""Sketches as states: what rules derived of small computations, and what is asked about it."""

from __future__ import annotations

import pytest

from tilewright.base.errors import SpaceError
from tilewright_tvm import auto_scheduler
from tilewright_tvm.auto_scheduler import _ffi_api
from tilewright_tvm.auto_scheduler.loop_state import Stage, State
from tilewright_tvm.testing import auto_scheduler as computations

ROOT, INLINED, INSIDE = (Stage.COMPUTE_AT_TRANS_TABLE[k] for k in ("root", "inlined", "iter"))
tiled = _ffi_api.SearchPolicyUtilsIsTiled
written = _ffi_api.SearchPolicyUtilsHasCacheWriteStage
read = _ffi_api.SearchPolicyUtilsHasCacheReadStage
partial = _ffi_api.SearchPolicyUtilsHasRfactorStage
crossed = _ffi_api.SearchPolicyUtilsHasCrossThreadReduction


def sketches(workload: object, args: tuple[int, ...], target: str = "llvm") -> list[State]:
    known = auto_scheduler.HardwareParams(num_cores=4, target=target)
    task = auto_scheduler.SearchTask(
        func=workload, args=args, target=target, hardware_params=known
    )  # fmt: skip
    return list(auto_scheduler.SketchPolicy(task, verbose=0).generate_sketches())


def test_a_product_is_tiled_and_perhaps_computed_aside() -> None:
    alone, outer, inner = sketches(computations.matmul_auto_scheduler_test, (64, 64, 64))
    assert tiled(alone.stages[2]) and not written(alone, 2) and alone.stages[2].compute_at == ROOT
    for found in (outer, inner):
        assert [op.name for op in found.stage_ops] == ["A", "B", "C.local", "C"]
        assert written(found, 2) and not written(found, 3) and tiled(found.stages[3])
        assert found.stages[2].compute_at == INSIDE and tiled(found.stages[2])
    assert outer != inner and not tiled(alone.stages[0])


def test_a_long_sum_is_divided() -> None:
    first, second, plain = sketches(computations.min_nm_auto_scheduler_test, (10, 1024))
    assert partial(first, 1) and partial(second, 1) and first != second
    assert not partial(first, 2) and not partial(plain, 1)
    assert plain.transform_steps == [] and first.transform_steps


def test_rows_without_a_product_stay_as_they_are() -> None:
    every = sketches(computations.softmax_nm_auto_scheduler_test, (1, 1024))
    assert len(every) == 9 and len(every[8].transform_steps) == 0
    assert [partial(found, 1) for found in every] == [True, True, False] * 3


def test_what_follows_a_convolution_is_inlined() -> None:
    sizes = (1, 8, 8, 16, 16, 3, 1, 1)
    fused, _, apart = sketches(computations.conv2d_nchw_bn_relu_auto_scheduler_test, sizes)
    for found, place in ((fused, INSIDE), (apart, ROOT)):
        assert found.stages[3].compute_at == place and tiled(found.stages[3])
        assert [found.stages[k].compute_at for k in (5, 7, 9)] == [INLINED] * 3
        assert tiled(found.stages[10]) is (found is fused) and not tiled(found.stages[1])


def test_copies_and_threads_of_a_gpu() -> None:
    (found,) = sketches(computations.matmul_auto_scheduler_test, (512, 512, 512), "cuda")
    assert [read(found, k) for k in range(6)] == [True, False, True, False, False, False]
    assert [found.stages[k].compute_at for k in (1, 3, 4)] == [INSIDE] * 3 and written(found, 4)
    assert not crossed(found, 4)
    shared, plain = sketches(computations.min_nm_auto_scheduler_test, (10, 1024), "cuda")
    assert crossed(shared, 1) and not crossed(plain, 1) and plain.transform_steps == []


def test_a_sketch_keeps_its_space() -> None:
    for found in sketches(computations.matmul_auto_scheduler_test, (8, 8, 8)):
        assert found.origin.startswith("rules:") and found.space.range_length > 1
        closed = State(found.close(found.space.range_length - 1))
        assert closed.compute_dag.hash == found.compute_dag.hash
        assert found.copy().steps == found.steps
        with pytest.raises(AttributeError, match="nothing_like_it"):
            _ = found.nothing_like_it
    with pytest.raises(SpaceError, match="the state has 3 stages"):
        written(sketches(computations.matmul_auto_scheduler_test, (8, 8, 8))[-3], 3)


def test_an_untuned_sketch_is_its_schedule() -> None:
    task = auto_scheduler.SearchTask(
        func=computations.matmul_auto_scheduler_test, args=(8, 8, 8), target="llvm"
    )
    (sketch,) = auto_scheduler.EmptyPolicy(task).task().sketches
    assert sketch.outline().to_json() == sketch.close(0).to_json()
