"""The auto-scheduler's `TaskScheduler`: budgets, tables, callbacks, whole networks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay import NullBuilder, ReplayRunner
from tests.tvm.auto_scheduler.workloads import invented, three
from tilewright.base.errors import RecordError, SearchError
from tilewright.measure.database import Database
from tilewright.measure.jobs import Job, RunResult
from tilewright.measure.record import Result, make_record
from tilewright.search.jobs import task_id
from tilewright_tvm import auto_scheduler, relay


def small_network() -> Any:
    data = relay.var("data", shape=(1, 4, 8, 8))
    weight = relay.const(np.ones((4, 4, 1, 1), np.float32))
    x = relay.nn.relu(relay.nn.conv2d(data, weight, kernel_size=(1, 1), channels=4))
    x = relay.nn.relu(relay.nn.conv2d(x, weight, kernel_size=(1, 1), channels=4))
    x = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(x)))
    return relay.Function([data], x)


@pytest.mark.long
def test_a_network_is_tuned_timed_and_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks, weights = auto_scheduler.extract_tasks(small_network(), {}, "llvm")
    assert sorted(weights) == [1, 1, 2] and all(t.workload_key[2:34].isalnum() for t in tasks)
    runner = auto_scheduler.LocalRunner(min_repeat_ms=1, number=1)
    option = auto_scheduler.TuningOptions(
        9, num_measures_per_round=4, runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile("log.json")],
    )  # fmt: skip
    scheduler = auto_scheduler.TaskScheduler(tasks, weights)
    scheduler.tune(option)
    runner.close()
    out = capsys.readouterr().out
    assert out.count("[ Task Scheduler ]") == 4 and "Next ID: " in out
    last = out.rpartition("[ Task Scheduler ]")[2]
    rows = re.findall(r"^\| +(\d+) \|.*\| +([\d.]+) \| +([\d.]+|-) \| +(\d+) \|$", last, re.M)
    assert len(rows) == 3 and sum(int(row[3]) for row in rows) == 9
    total = scheduler.estimated_latency()
    assert total is not None
    assert f"Estimated total latency: {total * 1e3:.3f} ms\tTrials: 9\t" in last
    assert re.search(r"^Measured end-to-end latency: [\d.]+ ms \(estimated: .*ms\)$", last, re.M)
    lines = Path("total_latency.tsv").read_text().splitlines()
    assert [line.split("\t")[-1] for line in lines] == ["4", "8", "9"]
    assert lines[-1].split("\t")[3] == f"{total * 1e3:.3f}"
    with auto_scheduler.ApplyHistoryBest("log.json"):
        library = relay.build(small_network(), target="llvm")
    assert {k.source for k in library.report.kernels} == {"record"}
    more = auto_scheduler.TaskScheduler(tasks, weights, load_log_file="log.json", callbacks=[])
    report = more.tune(auto_scheduler.TuningOptions(3, verbose=0, runner="local"))
    assert [t.known for t in report.tasks] and more.ct == 12
    assert more.measured_latency is not None and capsys.readouterr().out == ""


@pytest.mark.long
def test_time_goes_where_gain_is_expected_or_round(options: Any) -> None:
    def shares(strategy: str) -> list[int]:
        scheduler = auto_scheduler.TaskScheduler(
            three(8, 12, 16), [1, 1, 500], strategy=strategy, callbacks=[]
        )
        scheduler.tune(options(60))
        assert scheduler.ct == 60
        return scheduler.task_cts

    gain, turns = shares("gradient"), shares("round-robin")
    assert gain[2] > 30 and max(turns) - min(turns) <= 8


@pytest.mark.long
def test_the_scheduler_stops_when_nothing_improves(options: Any) -> None:
    scheduler = auto_scheduler.TaskScheduler(three(8, 12), callbacks=[])
    report = scheduler.tune(options(400, early_stopping=30))
    assert 30 <= report.trials < 400
    scheduler = auto_scheduler.TaskScheduler(three(8, 12), callbacks=[])
    report = scheduler.tune(options(400), per_task_early_stopping=20)
    assert report.trials < 400 and scheduler.dead_tasks == {0, 1}


@pytest.mark.slow
def test_callbacks_see_every_round(options: Any) -> None:
    calls: list[tuple[str, int, int]] = []

    class Seen(auto_scheduler.TaskSchedulerCallback):
        def pre_tune(self, task_scheduler: Any, task_id: int) -> None:
            calls.append(("pre", task_id, task_scheduler.ct))

        def post_tune(self, task_scheduler: Any, task_id: int) -> None:
            calls.append(("post", task_id, task_scheduler.ct))

    scheduler = auto_scheduler.TaskScheduler(three(8, 12), callbacks=[Seen()])
    model = auto_scheduler.RandomModel()
    policies = [auto_scheduler.SketchPolicy(task, model) for task in scheduler.tasks]
    scheduler.tune(options(20, num_measures_per_round=8), search_policy=policies)
    assert [c[2] for c in calls if c[0] == "post"] == [8, 16, 20]
    assert [c[0] for c in calls] == ["pre", "post"] * 3 and {c[1] for c in calls} <= {0, 1}


@pytest.mark.slow
def test_the_log_of_latencies_starts_anew_with_each_run(options: Any, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "total.tsv"
    scheduler = auto_scheduler.TaskScheduler(
        three(8), callbacks=[auto_scheduler.LogEstimatedLatency(path)]
    )
    for trials in ([4, 8], [4, 6]):
        scheduler.tune(options(trials[-1], num_measures_per_round=4))
        lines = path.read_text().splitlines()
        assert [int(line.split("\t")[-1]) for line in lines] == trials
    path.unlink()
    path.mkdir()
    with pytest.raises(RecordError, match="total.tsv': it cannot be written"):
        scheduler.tune(options(8))
    assert scheduler.ct == 0  # told before a round is over


def test_what_another_program_measured_is_no_trial(options: Any, tmp_path: Path) -> None:
    tasks, log = three(8), tmp_path / "log.json"
    with Database(log) as database:
        old = make_record(task_id(tasks[0].task), Result(costs=(1e-3,)), origin="import:ansor-v0.6")
        database.append(old, tasks[0].compute_dag.to_json())
    scheduler = auto_scheduler.TaskScheduler(tasks, load_log_file=log, callbacks=[])
    scheduler.tune(options(6))
    assert scheduler.ct == 6


@pytest.mark.slow
def test_a_task_without_a_valid_schedule_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = three(8, 12)
    hopeless = tasks[1].compute_dag.hash

    def result(job: Job) -> RunResult:
        return RunResult(error="run", message="no") if job.task.dag == hopeless else invented(job)

    options = auto_scheduler.TuningOptions(40, builder=NullBuilder(), runner=ReplayRunner(result))
    scheduler = auto_scheduler.TaskScheduler(tasks, callbacks=[])
    report = scheduler.tune(options)
    out = capsys.readouterr().out
    assert "No valid schedule was found for tasks 1; they keep their defaults." in out
    assert report.tasks[0].best is not None and scheduler.estimated_latency() is None
    assert "Estimated total latency: - ms\tTrials: 40" in out


@pytest.mark.slow
def test_a_second_run_that_starts_from_nothing_forgets_the_first(options: Any) -> None:
    scheduler = auto_scheduler.TaskScheduler(three(8), callbacks=[])
    scheduler.tune(options(10))
    assert scheduler.estimated_latency() is not None
    lost = ReplayRunner(lambda job: RunResult(error="run", message="no"))
    with pytest.raises(SearchError, match="none of 10 trials succeeded"):
        scheduler.tune(options(10, runner=lost))
    assert scheduler.estimated_latency() is None
