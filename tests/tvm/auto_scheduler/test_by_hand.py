"""Inputs and results that users make: built, run, written, read; tuning by its older names."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.tvm.auto_scheduler.workloads import CPU
from tilewright import te, topi
from tilewright.base.errors import RecordError, SpaceError
from tilewright.measure.database import Database
from tilewright_tvm import auto_scheduler, nd
from tilewright_tvm.auto_scheduler import measure, measure_record, utils, workload_registry
from tilewright_tvm.transform import PassContext


def doubled(n: int) -> list[te.Tensor]:
    x = te.placeholder((n, 8), name="x")
    return [x, te.compute((n, 8), lambda i, j: x[i, j] * 2.0, name="y")]


auto_scheduler.register_workload("tests/doubled", doubled)


@pytest.fixture
def task() -> auto_scheduler.SearchTask:
    return auto_scheduler.create_task("tests/doubled", (16,), CPU)


@pytest.fixture
def given(task: auto_scheduler.SearchTask) -> auto_scheduler.MeasureInput:
    state = task.compute_dag.init_state
    state.split(1, state.stages[1].iters[0], [4])
    return auto_scheduler.MeasureInput(task, state)


def result(seconds: float = 0.1, **known: Any) -> auto_scheduler.MeasureResult:
    return auto_scheduler.MeasureResult([seconds], 0, "", 0.2, 1, **known)


def test_what_is_made_by_hand_is_written_and_read(
    given: auto_scheduler.MeasureInput, tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    failed = auto_scheduler.MeasureResult([1e10], 7, "too slow", 0.3, 2)
    auto_scheduler.save_records(log, [given, given], [result(), failed])
    (read, again), results = auto_scheduler.RecordReader(log).read_lines()
    assert read.state == given.state and again.task.workload_key == given.task.workload_key
    assert str(results[0]) == str(result()) and results[0].costs[0].value == 0.1
    assert results[1].error_no == 7 and results[1].error_msg == "too slow"
    recovered = measure.recover_measure_input(read, rebuild_state=True)
    assert str(recovered.state) == str(given.state)
    with pytest.raises(RecordError, match="Cannot find any valid schedule"):
        auto_scheduler.load_best(log)
    auto_scheduler.RecordToFile(log).callback(None, [given], [result(0.05, verified=True)])
    assert auto_scheduler.load_best(log, given.task.workload_key, CPU)[1].costs == (0.05,)


def test_results_replace_those_of_a_record(
    given: auto_scheduler.MeasureInput, tmp_path: Path
) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    auto_scheduler.save_records(first, [given], [result(verified=True)])
    ((read, known),) = auto_scheduler.load_records(first)
    auto_scheduler.save_records(second, [read, read], [known, result(0.5)])
    assert [r.costs for _, r in auto_scheduler.load_records(second)] == [(0.1,), (0.5,)]
    assert next(iter(Database.load(second))) == next(iter(Database.load(first)))


def test_a_pair_as_text(given: auto_scheduler.MeasureInput) -> None:
    text = measure_record.dump_record_to_string(given, result())
    read, found = measure_record.load_record_from_string(text)
    assert read.task.workload_key == given.task.workload_key and str(found) == str(result())
    assert read.state == given.state
    for wrong in ("", text.splitlines()[0], "{}"):
        with pytest.raises(RecordError):
            measure_record.load_record_from_string(wrong)


@pytest.mark.slow
def test_builders_and_runners_take_inputs(
    given: auto_scheduler.MeasureInput, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = auto_scheduler.MeasureInput(given.task, given.task.compute_dag.init_state)
    with auto_scheduler.LocalBuilder(n_parallel=1) as builder:
        built = builder.build([given, wrong])
    assert [b.error_no for b in built] == [0, 0] and [t.name for t in built[0].args] == ["x", "y"]
    lost = measure.BuildResult(None, (), 2, "no compiler", 0.1)
    with auto_scheduler.LocalRunner(number=1, min_repeat_ms=0) as runner:
        ran, failed = runner.run([given, wrong], [built[0], lost])
        with pytest.raises(SpaceError, match="1 inputs and 0 build results"):
            runner.run([given], [])
    assert ran.error_no == 0 and ran.verified and 0 < ran.costs[0] < 1
    assert failed.error_no == 2 and failed.error_msg == "no compiler"
    out = capsys.readouterr().out
    assert "Built 2 of 2 programs." in out and out.count("MeasureResult(cost:[") == 2


@pytest.mark.parametrize(("make", "told"), [
    (lambda task: auto_scheduler.MeasureResult([], 0, "", 0, 0), "not seconds of one run"),
    (lambda task: auto_scheduler.MeasureResult([-1.0], 0, "", 0, 0), "not seconds of one run"),
    (lambda task: auto_scheduler.MeasureResult([1.0], 99, "", 0, 0), "no such number"),
    (lambda task: auto_scheduler.MeasureInput(task, None), "state is None"),
    (
        lambda task: auto_scheduler.MeasureInput(task, _other()),
        "the state is of another computation",
    ),
])  # fmt: skip
def test_what_is_no_input_and_no_result(
    task: auto_scheduler.SearchTask, make: Any, told: str
) -> None:
    with pytest.raises((RecordError, SpaceError), match=told):
        make(task)


def _other() -> Any:
    state = auto_scheduler.ComputeDAG(doubled(4)).get_init_state()
    state.split(1, state.stages[1].iters[0], [2])
    return state


@pytest.mark.slow
def test_tuning_by_older_names(task: auto_scheduler.SearchTask, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    context = auto_scheduler.LocalRPCMeasureContext(number=1)
    options = auto_scheduler.TuningOptions(
        2, runner=context.runner, measure_callbacks=[auto_scheduler.RecordToFile(log)], verbose=0
    )
    schedule, args = auto_scheduler.auto_schedule(
        task, auto_scheduler.EmptyPolicy(task), tuning_options=options
    )
    func = tilewright.build(schedule, args, CPU)
    x, y = np.ones((16, 8), np.float32), nd.empty((16, 8))
    func(nd.array(x), y)
    assert (y.numpy() == 2).all()
    assert auto_scheduler.load_best(log)[0].state.to_json() == schedule.to_json()
    with pytest.raises(SpaceError, match="not TuningOptions"):
        auto_scheduler.auto_schedule(task)


def test_the_registry_travels_as_data(tmp_path: Path) -> None:
    path = tmp_path / "registry.json"
    x = te.placeholder((5, 3), name="x")
    dag = auto_scheduler.ComputeDAG([x, topi.exp(x)])
    key = auto_scheduler.register_workload_tensors(dag.workload_key(), dag.tensors)
    workload_registry.save_workload_func_registry(path)
    entry = json.loads(json.dumps(workload_registry.serialize_workload_registry_entry(key)))
    named = workload_registry.serialize_workload_registry_entry('["tests/doubled", 4]')
    assert named[1].endswith("test_by_hand:doubled")
    for restore in (
        lambda: workload_registry.load_workload_func_registry(path),
        lambda: workload_registry.deserialize_workload_registry_entry(entry),
    ):
        del workload_registry._TENSORS[workload_registry.normal(key)]
        restore()
        made = auto_scheduler.ComputeDAG(auto_scheduler.workload_key_to_tensors(key))
        assert made.hash == dag.hash
    with pytest.raises(SpaceError, match="os.no:path is not there in this process"):
        workload_registry.deserialize_workload_registry_entry(("other", "os.no:path"))
    path.write_text("[1]")
    with pytest.raises(RecordError, match="it is no registry of workloads"):
        workload_registry.load_workload_func_registry(path)
    with pytest.raises(RecordError, match="it cannot be written"):
        workload_registry.save_workload_func_registry(os.path.join(path, "under"))


def test_all_that_is_registered() -> None:
    registry = workload_registry.WORKLOAD_FUNC_REGISTRY
    x = te.placeholder((5, 2), name="x")
    key = auto_scheduler.register_workload_tensors('["tests/exponents",5]', [x, topi.exp(x)])
    assert {key, "tests/doubled"} & set(registry) == {"tests/doubled"}  # a key in its usual form
    assert key in registry and registry[key][0] is x and registry["tests/doubled"] is doubled
    before, entry = (
        len(registry),
        workload_registry.serialize_workload_registry_entry("tests/doubled"),
    )
    del registry["tests/doubled"], registry[key]
    assert len(registry) == before - 2 and key not in registry and "tests/doubled" not in registry
    workload_registry.deserialize_workload_registry_entry(entry)
    registry["tests/exponents_of"] = doubled
    assert registry["tests/doubled"] is doubled and len(registry) == before
    assert auto_scheduler.make_workload_key("tests/exponents_of", (3,))
    with pytest.raises(KeyError):
        registry["tests/nothing"]


def test_functions_within_functions_have_names_of_their_own() -> None:
    def first() -> Any:
        @auto_scheduler.register_workload
        def inner() -> list[te.Tensor]:
            return doubled(2)

        return inner

    def second() -> Any:
        @auto_scheduler.register_workload
        def inner() -> list[te.Tensor]:
            return doubled(4)

        return inner

    keys = [auto_scheduler.make_workload_key(made(), ()) for made in (first, second)]
    shapes = [auto_scheduler.workload_key_to_tensors(key)[0].shape for key in keys]
    assert shapes == [(2, 8), (4, 8)] and keys[0].endswith('first.<locals>.inner"]')


def test_how_far_workloads_are_apart() -> None:
    def factor(*args: Any, name: str = "f") -> float:
        mine = utils.decode_workload_key(json.dumps(["f", [8, 3, 224, 224], [0, 0], "float32"]))
        return utils.calc_workload_dis_factor(
            mine, utils.decode_workload_key(json.dumps([name, *args]))
        )

    assert factor([8, 3, 224, 224], [0, 0], "float32") == 1
    assert factor([1, 3, 112, 112], [0, 0], "float32") == 8 * 2 * 2
    apart = float("inf")
    assert factor([8, 3, 224, 224], [1, 1], "float32") == apart
    assert factor([8, 3, 224, 224], [0, 0], "int8") == apart
    assert factor([8, 3, 223, 224], [0, 0], "float32") == apart
    assert factor([8, 3, 224, 224], [0, 0], "float32", name="g") == apart
    assert utils.get_const_tuple([1, np.int64(2)]) == (1, 2)
    assert utils.get_func_name(doubled) == "tests/doubled"


def test_what_the_pass_context_says() -> None:
    assert not auto_scheduler.is_auto_scheduler_enabled()
    with PassContext(config={"relay.backend.use_auto_scheduler": True}):
        assert auto_scheduler.is_auto_scheduler_enabled()


@pytest.mark.parametrize("name", [
    "rewrite_tensor_shape", "remove_index_check", "get_shape_from_rewritten_layout",
    "ApplyHistoryBestOrSample", "DispatchContext", "FallbackContext", "write_to_file",
])  # fmt: skip
def test_what_is_not_there_says_what_to_use(name: str) -> None:
    with pytest.raises(AttributeError, match=r"does not exist here\. \w+") as told:
        getattr(auto_scheduler, name)
    assert re.search(rf"auto_scheduler\.{name} ", str(told.value))
