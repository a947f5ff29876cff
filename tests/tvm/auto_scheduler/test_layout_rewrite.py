"""Layouts of weights: what each option lets a search do, and what it makes of a schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.tvm.auto_scheduler.workloads import CPU, conv2d_layer
from tilewright import te, topi
from tilewright.base.errors import SpaceError
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.steps import Pack
from tilewright.te.tensor import Tensor
from tilewright_tvm import auto_scheduler, nd
from tilewright_tvm.auto_scheduler import LayoutRewriteOption as Option

NO, INSERT, PRE = Option
CONV = (8, 16, 8, (1, 1), (1, 1))


@auto_scheduler.register_workload("tests/dense_layer")
def dense_layer(rows: int) -> list[Tensor]:
    data, weight = te.placeholder((rows, 24), name="data"), te.placeholder((32, 24), name="weight")
    return [data, weight, topi.nn.relu(topi.nn.dense(data, weight))]


def packs(schedule: Schedule) -> bool:
    return any(isinstance(step, Pack) for step in schedule.steps)


def templates(task: Any) -> list[bool]:
    """Whether schedules of its templates pack."""
    found = [s.close(s.fallback()) for s in task.task.sketches if s.fallback() is not None]
    return [packs(schedule) for schedule in found]


def task_of(option: Any, target: Any = CPU, rows: int = 64) -> Any:
    return auto_scheduler.SearchTask(
        func=dense_layer, args=(rows,), target=target, layout_rewrite_option=option
    )


def prepacked(task: Any) -> list[str]:
    return [op.name for op in task.compute_dag.placeholders if op.constant]


@pytest.mark.slow
def test_each_option_decides_what_a_search_may_do() -> None:
    assert templates(task_of(None)) == templates(task_of(INSERT)) == [True]
    assert templates(task_of(NO)) == [] and not prepacked(task_of(NO))
    assert templates(task_of(PRE)) == [True] and prepacked(task_of(PRE)) == ["weight"]
    assert task_of(2).layout_rewrite_option is PRE
    conv = auto_scheduler.SearchTask(
        func=conv2d_layer, args=CONV, target=CPU, layout_rewrite_option=PRE
    )
    assert prepacked(conv) == ["kernel"] and any(templates(conv))
    again = auto_scheduler.SearchTask(
        compute_dag=conv.compute_dag, target=CPU, layout_rewrite_option=INSERT
    )
    assert not prepacked(again)


def test_an_attribute_names_the_weights() -> None:
    a, b = te.placeholder((8, 8), name="a"), te.placeholder((8, 8), name="b")
    r = te.reduce_axis((0, 8), name="r")
    out = te.compute(
        (8, 8), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r),
        attrs={"layout_free_placeholders": ["a"]},
    )  # fmt: skip
    task = auto_scheduler.SearchTask(compute_dag=[a, b, out], target=CPU, layout_rewrite_option=PRE)
    assert prepacked(task) == ["a"]


def test_defaults_of_targets() -> None:
    default = Option.get_target_default
    assert default("llvm") is INSERT and default("opencl -device=mali") is INSERT
    assert default("cuda") is default("opencl") is NO
    assert default("cuda", True) is default("llvm", in_relay_integration=True) is PRE
    assert task_of(None).layout_rewrite_option is INSERT


@pytest.mark.slow
@pytest.mark.parametrize("measured", [INSERT, PRE])
@pytest.mark.parametrize("option", [None, *Option])
def test_a_schedule_computes_the_same_with_every_option(measured: Any, option: Any) -> None:
    task = task_of(measured, "llvm")
    (sketch,) = [s for s in task.task.sketches if s.fallback() is not None]
    state = sketch.close(sketch.fallback())
    schedule, args = task.compute_dag.apply_steps_from_state(state, option)
    assert packs(schedule) == (option is not NO)
    wanted = measured if option is None else option
    assert ([op.constant for op in schedule.dag.placeholders] == [False, True]) == (wanted is PRE)
    func = tilewright.build(schedule, args, "llvm")
    rng = np.random.default_rng(0)
    data, weight = (rng.standard_normal(t.shape).astype(np.float32) for t in args[:2])
    out = nd.empty((64, 32))
    func(nd.array(data), nd.array(weight), out)
    assert np.allclose(out.numpy(), np.maximum(data @ weight.T, 0), atol=1e-4)


def test_a_gpu_transforms_in_a_kernel_of_its_own() -> None:
    task = auto_scheduler.SearchTask(
        func=conv2d_layer, args=CONV, target="opencl", layout_rewrite_option=PRE
    )
    found = [s.close(s.fallback()) for s in task.task.sketches if s.fallback() is not None]
    (state,) = [s for s in found if packs(s)][:1]
    counts = {}
    for option in (INSERT, PRE):
        schedule, args = task.compute_dag.apply_steps_from_state(state, option)
        counts[option] = len(tilewright.lower(schedule, args, target="opencl").kernels)
    assert counts[INSERT] == counts[PRE] + 1
    with pytest.raises(SpaceError, match="does not go without its packing"):
        task.compute_dag.apply_steps_from_state(state, NO)  # a copy of the packed one is in shared


@pytest.mark.long
def test_a_search_for_constants_applies_its_best(options: Any, tmp_path: Path) -> None:
    task, log = task_of(PRE, "llvm"), tmp_path / "log.json"
    run = {"runner": auto_scheduler.LocalRunner(min_repeat_ms=1), "builder": "local"}
    task.tune(options(3, auto_scheduler.RecordToFile(log), **run))
    schedule, args = task.apply_best(log)
    assert [t.op.constant for t in args[:2]] == [False, True]
    plain, _ = task.apply_best(log, layout_rewrite_option=NO)
    assert not packs(plain)
    assert tilewright.build(schedule, args, "llvm") is not None


def test_refusals() -> None:
    for wrong in (7, "insert"):
        with pytest.raises(SpaceError, match="no such option"):
            task_of(wrong)
    task = task_of(None)
    with pytest.raises(SpaceError, match="no such option"):
        task.compute_dag.apply_steps_from_state(task.compute_dag.get_init_state(), 9)
