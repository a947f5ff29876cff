"""How AutoTVM's scripts of all ages register templates, create tasks, count those of networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay import NullBuilder, ReplayRunner
from tilewright import te
from tilewright.base.errors import SpaceError
from tilewright.measure.jobs import Job, RunResult
from tilewright.schedule.task import Task
from tilewright_tvm import autotvm, relay
from tilewright_tvm.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, XGBTuner

DIRECT, SMALL, LARGE = 3e-3, 2e-3, 1e-3  # seconds of Winograd's are less


def sums(n: int, m: int) -> Any:
    a = te.placeholder((n, m), name="a")
    r = te.reduce_axis((0, m), name="r")
    b = te.compute((n,), lambda i: te.sum(a[i, r], axis=r), name="b")
    s = te.create_schedule(b.op)
    cfg = autotvm.get_config()
    cfg.define_split("tile", s[b].op.axis[0], num_outputs=2)
    cfg["tile"].apply(s, b, s[b].op.axis[0])
    return s, [a, b]


def test_a_template_without_a_name_has_that_of_its_function() -> None:
    made = autotvm.template(sums)
    named = autotvm.task.register("tests/sums of rows")(sums)
    by_call = autotvm.task.template("tests/sums by call", sums)
    for function, name in (
        (made, "sums"),
        (named, "tests/sums of rows"),
        (by_call, "tests/sums by call"),
    ):
        task = autotvm.task.create(function, args=(8, 4), target="llvm")
        assert task.name == name and task.workload == (name, 8, 4)
        assert task.key == autotvm.create(name, (8, 4), "llvm", "llvm").key
        assert len(task.config_space) == 4
        assert len(function(8, 4)[1]) == 2


def test_what_has_no_name_is_no_template() -> None:
    with pytest.raises(SpaceError, match=r"it has no name. Use @autotvm.template\("):
        autotvm.template(type("Nameless", (), {"__call__": sums})())
    with pytest.raises(SpaceError, match="implementations have names of their own"):
        autotvm.task.create(sums, (8, 4), "llvm", template_key="winograd")
    assert (
        autotvm.task.create(autotvm.template(sums), (8, 4), "llvm", None, "direct").name == "sums"
    )


@pytest.fixture(scope="module")
def task() -> Task:
    x = relay.var("x", shape=(1, 8, 10, 10))
    w = relay.const(np.ones((8, 8, 3, 3), "float32"))
    mod = relay.IRModule.from_expr(relay.nn.relu(relay.nn.conv2d(x, w, padding=1)))
    (found,) = autotvm.task.extract_from_program(mod, {}, "llvm")
    return found


def seconds_of(task: Task) -> dict[str, float]:
    small, large = task.others
    return {task.key: DIRECT, small.key: SMALL, large.key: LARGE}


def option(task: Task) -> Any:
    seconds = seconds_of(task)

    def measured(job: Job) -> RunResult:
        return RunResult(costs=(seconds[job.task.dag],), verified=True)

    return autotvm.measure_option(NullBuilder(), ReplayRunner(measured))


def test_each_implementation_of_a_convolution_is_one_task(task: Task) -> None:
    assert [t.instead_of for t in task.others] == [task.key] * 2
    both = autotvm.task.extract_from_multiple_program([network() for _ in "ab"], target="llvm")
    assert [(t.weight, *(o.weight for o in t.others)) for t in both] == [(2, 2, 2)]


def network() -> relay.IRModule:
    x = relay.var("x", shape=(1, 8, 10, 10))
    w = relay.const(np.ones((8, 8, 3, 3), "float32"))
    return relay.IRModule.from_expr(relay.nn.conv2d(x, w, padding=1))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        XGBTuner, lambda t: XGBTuner(t, feature_type="knob", loss_type="rank"), RandomTuner,
        GridSearchTuner, lambda t: GATuner(t, pop_size=8), autotvm.tuner.DropletTuner,
    ],
    ids=["xgb", "knob", "random", "grid", "genetic", "droplet"],
)  # fmt: skip
def test_a_tuner_tries_every_implementation_in_its_trials(
    make: Any, task: Task, tmp_path: Path
) -> None:
    log, tuner, seen = tmp_path / "log", make(task), []
    tuner.tune(
        40, option(task),
        callbacks=[autotvm.callback.log_to_file(log), lambda *told: seen.append(told)],
    )  # fmt: skip
    assert tuner.ttl == len(seen) <= 40
    tried = [given.task.key for _, (given,), _ in seen]
    assert set(tried) == set(seconds_of(task))
    assert tuner.best_flops == pytest.approx(task.flop / LARGE)
    assert tuner.best_measure_pair[0].task is task.others[1]
    best = tmp_path / "best"
    autotvm.record.pick_best(log, best)
    lib = relay.build(network(), "llvm", schedules=str(best), verify=False)
    assert "6x6x8x8" in lib.report.kernels[0].label and lib.report.kernels[0].source == "record"

    again, more = make(task), []
    again.load_history(autotvm.record.load_from_file(log))
    again.tune(40, option(task), callbacks=[lambda *told: more.append(told)])
    places = [{(g.task.key, str(g.config)) for _, (g,), _ in each} for each in (seen, more)]
    assert not places[0] & places[1]


@pytest.mark.slow
def test_early_stopping_counts_the_trials_of_all(task: Task) -> None:
    tuner = RandomTuner(task)
    tuner.tune(200, option(task), early_stopping=20)
    assert tuner.ttl <= 60


def test_a_range_of_indices_is_one_of_the_direct_implementation(task: Task) -> None:
    tuner, tried = RandomTuner(task, range_idx=(0, 50)), []
    tuner.tune(30, option(task), callbacks=[lambda _, given, __: tried.append(given[0].task)])
    assert tried and all(t is task for t in tried)
