"""Logs of the auto-scheduler: reading, distilling, what they lack; and what is refused, and how."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.replay import ReplayRunner
from tests.tvm.auto_scheduler.workloads import CPU, invented, product, three
from tilewright import build, te, topi
from tilewright.base.errors import RecordError, SpaceError, TargetError, TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.record import Result, make_record
from tilewright.network.evidence import sources_of
from tilewright.search.jobs import task_id
from tilewright.targets.spec import DeviceSpec
from tilewright_tvm import auto_scheduler
from tilewright_tvm.auto_scheduler import measure_record, search_task
from tilewright_tvm.target import Target


@pytest.mark.slow
def test_a_log_holds_each_trial_once(
    task: auto_scheduler.SearchTask, options: Any, tmp_path: Path
) -> None:
    """Though the leaders are timed again at the end, and the best is chosen by that."""
    log = tmp_path / "log.json"
    task.tune(options(12, auto_scheduler.RecordToFile(log)))
    database = Database.load(log)
    again = database.query(final=True)
    assert again and len(database) == 12 + len(again)
    pairs = auto_scheduler.load_records(log)
    assert len(pairs) == 12 == len({given.record.trial for given, _ in pairs})
    last = {r.candidate: r.result.costs for r in again}
    for given, result in pairs:
        assert result.costs == last.get(given.record.candidate, result.costs)
    inputs, results = auto_scheduler.RecordReader(log).read_lines()
    assert len(inputs) == len(results) == 12
    best = min(pairs, key=lambda pair: pair[0].record.seconds)
    assert best[1].costs == auto_scheduler.load_best_record(log)[1].costs
    history = auto_scheduler.ApplyHistoryBest(log, n_lines=5)
    assert len(history.database) == 5
    with pytest.raises(RecordError, match="n_lines=-1"):
        auto_scheduler.ApplyHistoryBest(log, n_lines=-1)


@pytest.mark.long
def test_distilling(
    task: auto_scheduler.SearchTask, options: Any, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    log = tmp_path / "log.json"
    record = auto_scheduler.RecordToFile(log)
    task.tune(options(12, record))
    three(8)[0].tune(options(12, record))
    assert measure_record.main(["--mode", "distill", "-i", str(log)]) == 0
    assert "2 best records are in" in capsys.readouterr().out
    small = Path(f"{log}.best.json")
    assert len(auto_scheduler.load_records(small)) == 2
    assert task.apply_best(small)[0].to_json() == task.apply_best(log)[0].to_json()
    known = auto_scheduler.ApplyHistoryBest(auto_scheduler.load_records(small))
    best = known.query(CPU, task.workload_key)
    assert best.to_json() == task.apply_best(log)[0].to_json()
    assert known.query("cuda", task.workload_key) is None
    done = subprocess.run(
        [sys.executable, "-m", "tilewright_tvm.auto_scheduler.measure_record", "--mode", "distill",
         "-i", "missing"],
        capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == (
        "error: Database.load('missing'): No such file or directory. Check the path.\n"
    )


OLD = (  # a line of TVM's auto-scheduler
    '{"i": [["[\\"product\\", 12, 16, 8]", "llvm -keys=cpu", [2,64,64,0,0,0,0,0], "", 1, []], '
    '[[], []]], "r": [[1e-3], 0, 1.0, 1], "v": "v0.6"}\n'
)


@pytest.mark.parametrize("use", [
    auto_scheduler.ApplyHistoryBest, auto_scheduler.load_best_record,
    sources_of,  # as relay.build(schedules=log) reads it
    lambda log: auto_scheduler.distill_record_file(log, f"{log}.best"),
])  # fmt: skip
def test_a_log_of_another_program_is_refused(use: Any, tmp_path: Path) -> None:
    log = tmp_path / "old.json"
    log.write_text(OLD)
    with pytest.raises(RecordError, match="a line of TVM's .* `tilewright records import` reads"):
        use(log)
    assert os.listdir(tmp_path) == ["old.json"]


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for write in (auto_scheduler.RecordToFile, auto_scheduler.LogEstimatedLatency):
        with pytest.raises(RecordError, match="it cannot be written .*Name a file in a folder"):
            write(tmp_path / "file" / "log")
    with pytest.raises(RecordError, match="2 inputs and 0 results"):
        task = auto_scheduler.SearchTask(
            compute_dag=[x := te.placeholder((4,)), topi.exp(x)], target=CPU
        )
        given = auto_scheduler.MeasureInput(task, task.compute_dag.init_state)
        auto_scheduler.save_records(tmp_path / "log", [given, given], [])
    assert not (tmp_path / "log").exists()


def test_a_log_finds_hashed_keys_by_itself(options: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    x = te.placeholder((3, 40), name="x")
    task = auto_scheduler.SearchTask(compute_dag=[x, topi.nn.softmax(x)], target=CPU)
    task.tune(options(5, auto_scheduler.RecordToFile(log)))
    given, _ = auto_scheduler.load_best_record(log, task.workload_key, CPU)
    assert given.task.workload_key == task.workload_key


@pytest.mark.slow
def test_what_a_log_lacks_is_told(
    task: auto_scheduler.SearchTask, log: str, tmp_path: Path
) -> None:
    key = re.escape(task.workload_key)
    cuda = auto_scheduler.SearchTask(func=product, args=(12, 16, 8), target="cuda")
    held = re.escape(str(CPU))
    with pytest.raises(RecordError, match=f"{key} on cuda: it holds records for {held}"):
        cuda.apply_best(log)
    with pytest.raises(RecordError, match=f"it holds {key}. Tune this workload first"):
        auto_scheduler.load_best_record(log, '["product", 9, 9, 9]')
    with pytest.raises(RecordError, match="it holds records for"):
        cuda.tune(
            auto_scheduler.TuningOptions(2),
            auto_scheduler.SketchPolicy(
                cuda, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log)]
            ),
        )
    other = auto_scheduler.make_workload_key(product, (9, 9, 9))
    on_cuda = auto_scheduler.SearchTask(workload_key=other, target="cuda")
    both = Database.load(log)
    both.append(make_record(task_id(on_cuda.task), Result(costs=(1.0,), verified=True)))
    both.save(tmp_path / "both")
    with pytest.raises(RecordError, match=f"it holds {key}. Tune this workload first"):
        auto_scheduler.load_best_record(tmp_path / "both", other, CPU)
    empty, newer = tmp_path / "empty", tmp_path / "newer"
    empty.touch()
    newer.write_text('{"kind": "record", "v": 99}\n')
    with pytest.raises(RecordError, match="Cannot find any valid schedule for workload .* empty"):
        task.apply_best(empty)
    with pytest.raises(RecordError, match="schema version 99, this is version 1"):
        auto_scheduler.TaskScheduler([task], load_log_file=newer, callbacks=[]).tune(
            auto_scheduler.TuningOptions(2)
        )
    with pytest.raises(RecordError, match="No such file"):
        auto_scheduler.PreloadMeasuredStates(tmp_path / "missing")


@pytest.mark.slow
def test_what_does_not_compile_in_time_is_refused_by_another_process(
    task: auto_scheduler.SearchTask, log: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_task, "LOG_SECONDS", 1e-4)
    with pytest.raises(RecordError, match=r"best record of .* the build took more than 0.0001 s"):
        task.apply_best(log)
    monkeypatch.setattr(search_task, "LOG_SECONDS", 60.0)
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(Path(log).parent / "kernels"))
    made = build(*task.apply_best(log), target=CPU)
    assert made.artifact.meta["cached"]


@pytest.mark.slow
def test_a_log_of_other_tasks_is_told(
    log: str, options: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = three(8, 12)
    preload = auto_scheduler.PreloadMeasuredStates(log)
    for trials in (options(2, verbose=1), options(2)):
        policy = auto_scheduler.SketchPolicy(tasks[0], init_search_callbacks=[preload])
        tasks[0].tune(trials, policy)
        auto_scheduler.TaskScheduler(tasks, load_log_file=log, callbacks=[]).tune(trials)
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("No trial of")]
    assert told == [
        f"No trial of this task is in {log}: the search starts from nothing.",
        f"No trial of these tasks is in {log}: the search starts from nothing.",
    ]


def test_tasks_that_failed_alike_are_each_told_why(tmp_path: Path) -> None:
    tasks, log = three(4, 8), tmp_path / "log.json"
    with Database(log) as database:
        for k, each in enumerate(tasks):
            lost = Result(error="run", message=f"lost {k} times")
            database.append(make_record(task_id(each.task), lost), each.compute_dag.to_json())
    for each in tasks:
        with pytest.raises(RecordError, match="every trial failed, most often by run: lost #"):
            each.apply_best(log)


def of(**given: Any) -> Any:
    return lambda task: auto_scheduler.SearchTask(**({"target": CPU} | given))


def returning(value: Any) -> Any:
    return lambda task: auto_scheduler.SearchTask(
        func=auto_scheduler.register_workload("tests/odd", lambda: value, override=True),
        args=(), target=CPU,
    )  # fmt: skip


REFUSED: dict[str, tuple[Any, str]] = {
    "no computation": (of(), "Give func= and args=, or compute_dag=, or workload_key="),
    "no target": (
        lambda task: auto_scheduler.SearchTask(func=product, args=(4, 4, 4)), "no target was given"
    ),
    "nothing returned": (returning(None), "it returned a NoneType. Return the list of its input"),
    "a schedule returned": (returning([3]), "a list with a int in it"),
    "no output": (returning([te.placeholder((4,), name="x")]), "no computed output among"),
    "duplicate names": (
        lambda task: auto_scheduler.ComputeDAG(
            [x := te.placeholder((4,), name="x"), y := te.placeholder((4,), name="x"),
             te.compute((4,), lambda i: x[i] + y[i])]
        ),
        "Name every placeholder differently",
    ),
    "zero extent": (of(func=product, args=(0, 4, 4)), "a dimension of extent 0"),
    "symbolic shape": (of(func=product, args=(te.var("n"), 4, 4)), "n is a variable"),
    "unsupported body": (
        lambda task: te.compute((4,), lambda i: "x"), "a str is not an expression"
    ),
    "unknown name": (of(func="nobody", args=()), "no workload is registered by that name"),
    "unregistered": (of(func=lambda: product(2, 2, 2), args=()), "no workload is registered"),
    "unknown key": (of(workload_key='["nobody", 1]'), "no workload 'nobody' is registered"),
    "partial": (
        of(func=functools.partial(product, 4, 4, 4), args=()), "no workload is registered"
    ),
    "no key": (of(workload_key="nobody"), "not a JSON list that starts with a name or a hash"),
    "args": (of(func=product, args=4), "args is a int, not a list"),
    "args of a key": (
        lambda task: auto_scheduler.make_workload_key(product, 4),
        "make_workload_key(args=4): not a list of arguments",
    ),
    "an array in a key": (
        lambda task: auto_scheduler.make_workload_key(product, ([np.ones(2)],)),
        "an argument is an array",
    ),
    "unknown hash": (of(workload_key=f'["{"0" * 32}", [4]]'), "no computation is known by that"),
    "a number registered": (
        lambda task: auto_scheduler.register_workload(3), "register_workload(3): not a function",
    ),
    "a number registered by name": (
        lambda task: auto_scheduler.register_workload("tests/three", 3), "not a function",
    ),
    "a number as limits": (
        of(func=product, args=(4, 4, 4), hardware_params=3), "Use HardwareParams(num_cores=4"
    ),
    "special inputs": (of(func=product, args=(4, 4, 4), task_inputs=["a"]), "no file has it"),
    "no budget": (lambda task: auto_scheduler.TuningOptions(), "nothing would be measured"),
    "half a trial": (
        lambda task: auto_scheduler.TuningOptions(2.5),
        "num_measure_trials is a float, not an integer",
    ),
    "the context itself": (
        lambda task: auto_scheduler.TuningOptions(
            2, runner=auto_scheduler.LocalRPCMeasureContext()
        ), "Pass its .runner",
    ),
    "no callback": (
        lambda task: auto_scheduler.TuningOptions(2, measure_callbacks="log.json"),
        'Use RecordToFile("log.json")',
    ),
    "cores": (lambda task: auto_scheduler.HardwareParams("two"), "num_cores='two'"),
    "parameter": (lambda task: auto_scheduler.SketchPolicy(task, params={"x": 1}), "no such param"),
    "model": (lambda task: auto_scheduler.SketchPolicy(task, "xgb"), "not a cost model"),
    "search callback": (
        lambda task: auto_scheduler.SketchPolicy(task, init_search_callbacks=["log"]),
        "Use PreloadMeasuredStates",
    ),
    "options": (lambda task: task.tune(5), "SearchTask.tune(5): not TuningOptions"),
    "options of many": (
        lambda task: auto_scheduler.TaskScheduler([task]).tune(5), "not TuningOptions"
    ),
    "no policy": (
        lambda task: task.tune(auto_scheduler.TuningOptions(2), "sketch.xgb"),
        "Make it with SketchPolicy(task)",
    ),
    "policy of another": (
        lambda task: task.tune(
            auto_scheduler.TuningOptions(2), auto_scheduler.SketchPolicy(three(4)[0])
        ), "the policy is of another task",
    ),
    "policy for another device": (
        lambda task: task.tune(
            auto_scheduler.TuningOptions(2),
            auto_scheduler.SketchPolicy(
                auto_scheduler.SearchTask(func=product, args=(12, 16, 8), target="cuda")
            ),
        ), "the policy is of another task",
    ),
    "no trees": (lambda task: auto_scheduler.XGBModel().save("m"), "there is nothing to save"),
    "no tasks": (lambda task: auto_scheduler.TaskScheduler([]), "there is no task"),
    "no list of tasks": (
        lambda task: auto_scheduler.TaskScheduler(task), "not a list of SearchTasks"
    ),
    "other tasks": (lambda task: auto_scheduler.TaskScheduler([1]), "extract_tasks make them"),
    "no network": (
        lambda task: auto_scheduler.extract_tasks(None, {}, "llvm"),
        "mod is None, not a module or a Function",
    ),
    "scheduler callback": (
        lambda task: auto_scheduler.TaskScheduler([task], callbacks=[print]),
        "it has no pre_tune and post_tune",
    ),
    "weights in words": (
        lambda task: auto_scheduler.TaskScheduler([task], ["1"]), "not a list of numbers"
    ),
    "weights": (lambda task: auto_scheduler.TaskScheduler([task], [1, 2]), "not 1 numbers from 0"),
    "strategy": (lambda task: auto_scheduler.TaskScheduler([task], strategy="x"), "round-robin"),
    "objective": (
        lambda task: auto_scheduler.TaskScheduler([task], objective_func=3), "it is no function"
    ),
    "too few trials": (
        lambda task: auto_scheduler.TaskScheduler([task, task]).tune(
            auto_scheduler.TuningOptions(1)
        ), "Give at least 2; 1600 is a good number",
    ),
    "search policy": (
        lambda task: auto_scheduler.TaskScheduler([task]).tune(
            auto_scheduler.TuningOptions(1), search_policy="sketch.mlp"
        ), "Use one of default, sketch.xgb, sketch.random",
    ),
    "one policy for two": (
        lambda task: auto_scheduler.TaskScheduler([task, task]).tune(
            auto_scheduler.TuningOptions(2), search_policy=auto_scheduler.SketchPolicy(task)
        ), "not one policy for each task",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_what_was_expected(name: str, task: auto_scheduler.SearchTask) -> None:
    cause, words = REFUSED[name]
    with pytest.raises(TilewrightError, match=re.escape(words)):
        cause(task)


def test_a_measure_callback_needs_a_method() -> None:
    with pytest.raises(TypeError, match="abstract method '?callback"):
        auto_scheduler.PythonBasedMeasureCallback()


def test_printing_for_another_kind_of_device(task: auto_scheduler.SearchTask, log: str) -> None:
    with pytest.raises(SpaceError, match='the task is for llvm. Use "schedule" or "llvm"'):
        task.print_best(log, print_mode="cuda")


def test_an_architecture_that_is_not_the_devices(options: Any) -> None:
    class Other(ReplayRunner):
        def describe(self, target: Target) -> DeviceSpec:
            return DeviceSpec("cuda", arch="sm_80")

    task = auto_scheduler.SearchTask(func=product, args=(4, 4, 4), target="cuda")
    with pytest.raises(TargetError, match="Use Target\\('cuda -arch=sm_80'\\)"):
        task.tune(options(2, runner=Other(invented)))


def test_records_of_any_iterable_are_applied(tmp_path: Path) -> None:
    log, (task,) = tmp_path / "log.json", three(8)
    given = auto_scheduler.MeasureInput(task, task.compute_dag.init_state)
    result = auto_scheduler.MeasureResult([0.1], 0, "", 0.2, 1)
    auto_scheduler.save_records(log, [given], [result])
    for records in (iter(auto_scheduler.load_records(log)), iter([log, log]), {log: 1}):
        with auto_scheduler.ApplyHistoryBest(records) as best:
            assert len(best.database) >= 1
    with pytest.raises(RecordError, match="neither a log nor a record"):
        auto_scheduler.ApplyHistoryBest(iter([3]))


def test_trials_of_a_log_of_tvm(tmp_path: Path) -> None:
    log = tmp_path / "old.json"
    line = OLD.replace("12, 16, 8", "8, 8, 8").replace("llvm -keys=cpu", str(CPU))
    lines = [
        line.replace("[[], []]", f'[[], [["SP", 2, 0, 8, [{size}], 1]]]').replace("1e-3", "0.5")
        for size in (2, 4)
    ]
    unknown = lines[0].replace("product", "nobody_knows_this")
    log.write_text("".join([*lines, unknown]))
    with pytest.warns(RuntimeWarning, match="skipped"):
        pairs = auto_scheduler.load_records(log)
    assert [result.costs[0] for _, result in pairs] == [0.5, 0.5]
    given = pairs[1][0]
    assert given.task.workload_key == '["product", 8, 8, 8]'
    c = given.state.stage_ops[2]
    assert [it.range.extent for it in given.state[c].iters] == [2, 4, 8, 8]
    assert not any(given.record.result.verified for given, _ in pairs)
    (first,), _ = auto_scheduler.RecordReader(log).read_lines(max_lines=1)
    assert first.state == pairs[0][0].state
    assert auto_scheduler.XGBModel().update_from_file(log) == 2
    log.write_text(unknown)
    with pytest.raises(RecordError, match="Register its workload functions"):
        auto_scheduler.load_records(log)
