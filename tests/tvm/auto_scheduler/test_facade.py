"""The auto-scheduler's names: workloads, tasks, policies, models, and the trials of one task."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tests.replay import NullBuilder, ReplayRunner
from tests.tvm.auto_scheduler.workloads import CPU, conv2d_layer, product
from tilewright import te, topi
from tilewright.base.errors import RecordError, SearchError, SpaceError
from tilewright.codegen import generate
from tilewright.lowering.pipeline import lower_schedule
from tilewright.measure.database import Database
from tilewright.measure.jobs import RunResult
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.rules.state import Hardware
from tilewright.te.tensor import Tensor
from tilewright_tvm import auto_scheduler, nd
from tilewright_tvm.target import Target

# -- workloads -------------------------------------------------------------------------------------


def test_the_tutorials_layer_prints_its_seven_lines() -> None:
    task = auto_scheduler.SearchTask(
        func=conv2d_layer, args=(7, 512, 512, (1, 1), (1, 1)), target="cuda"
    )
    assert str(task.compute_dag).splitlines() == [
        "data = PLACEHOLDER [1, 512, 7, 7]",
        "pad_temp(i0, i1, i2, i3) = tir.if_then_else(((((i2 >= 1) && (i2 < 8)) && (i3 >= 1)) && "
        "(i3 < 8)), data[i0, i1, (i2 - 1), (i3 - 1)], 0f)",
        "kernel = PLACEHOLDER [512, 512, 3, 3]",
        "compute(nn, ff, yy, xx) += "
        "(pad_temp[nn, rc, (yy + ry), (xx + rx)]*kernel[ff, rc, ry, rx])",
        "bias = PLACEHOLDER [1, 512, 1, 1]",
        "T_add(ax0, ax1, ax2, ax3) = (compute[ax0, ax1, ax2, ax3] + bias[ax0, ax1, 0, 0])",
        "compute(i0, i1, i2, i3) = max(T_add[i0, i1, i2, i3], 0f)",
    ]
    assert task.workload_key == '["tests/conv2d_layer", 7, 512, 512, [1, 1], [1, 1]]'
    assert (
        task.compute_dag.flop_ct == 2 * 512 * 512 * 9 * 49 + 2 * 512 * 49
    )  # without the predicates of the padding


# Keys that the tutorial on a network prints, hashes included.
KEYS = {
    '["6d628209072e3e3dd8f49359935acea6", [1, 56, 56, 128], [1, 1, 128, 128], [1, 1, 1, 128], '
    "[1, 56, 56, 128]]": ("conv2d_nhwc", 1, 0),
    '["98cde4888c94ec7beaa9972f806856d0", [1, 28, 28, 256], [3, 3, 256, 1], [1, 1, 1, 256], '
    "[1, 28, 28, 256]]": ("depthwise_conv2d_nhwc", 1, 1),
    '["88a2e34d300a6ccfcf0228f0b90f13ec", [1, 14, 14, 512], [3, 3, 512, 1], [1, 1, 1, 512], '
    "[1, 7, 7, 512]]": ("depthwise_conv2d_nhwc", 2, 1),
}


@pytest.mark.parametrize("key", KEYS)
def test_hashed_keys_are_those_of_the_original(key: str) -> None:
    name, stride, padding = KEYS[key]
    _, *shapes, _ = json.loads(key)
    p = [te.placeholder(shape, name=f"p{k}") for k, shape in enumerate(shapes)]
    operator = getattr(topi.nn, name)
    added = topi.add(operator(p[0], p[1], stride, padding, 1), p[2])
    dag = te.ComputeDAG([*p, topi.nn.relu(added, "T_relu", "ax")])
    assert dag.workload_key() == key


def test_the_hashed_key_of_a_softmax() -> None:
    x = te.placeholder((1, 1000), name="p0")
    task = auto_scheduler.SearchTask(compute_dag=[x, topi.nn.softmax(x)], target="cuda")
    assert task.workload_key == '["7d79c516e212fe1d73f5dbb90eaca2cf", [1, 1000], [1, 1000]]'


def test_workloads_by_name_and_by_key() -> None:
    key = auto_scheduler.make_workload_key(product, (4, 5, 6))
    assert key == '["product", 4, 5, 6]' == auto_scheduler.make_workload_key("product", (4, 5, 6))
    dags = [
        auto_scheduler.SearchTask(workload_key=key, target=CPU),
        auto_scheduler.SearchTask(func="product", args=(4, 5, 6), target=CPU),
        auto_scheduler.SearchTask(compute_dag=product(4, 5, 6), workload_key=key, target=CPU),
    ]
    assert {t.compute_dag.hash for t in dags} == {te.ComputeDAG(product(4, 5, 6)).hash}
    assert {t.workload_key for t in dags} == {key}
    with Target("opencl"):
        assert auto_scheduler.SearchTask(workload_key=key).target.kind == "opencl"
    tensors = product(2, 2, 2)
    called = auto_scheduler.SearchTask(compute_dag=tensors, workload_key="mine", target=CPU)
    assert called.workload_key == '["mine"]'
    inp = auto_scheduler.MeasureInput(called, called.compute_dag.init_state)
    line = auto_scheduler.measure_record.dump_record_to_string(
        inp, auto_scheduler.MeasureResult([0.1], 0, "", 0.2, 1)
    )
    again, _ = auto_scheduler.measure_record.load_record_from_string(line)
    assert again.task.workload_key == called.workload_key
    assert auto_scheduler.register_workload_tensors('["abc",[2]]', tensors) == '["abc",[2]]'
    with pytest.raises(SpaceError, match="workload_key"):
        auto_scheduler.register_workload_tensors(ConfigSpace(), tensors)  # type: ignore[arg-type]
    assert auto_scheduler.workload_key_to_tensors('["abc", [2]]') == tensors


def test_numpys_numbers_are_numbers_in_a_key() -> None:
    sizes = np.int64(4), np.int32(5), 6
    assert auto_scheduler.make_workload_key(product, sizes) == '["product", 4, 5, 6]'
    task = auto_scheduler.SearchTask(func=product, args=sizes, target=CPU)
    assert task.workload_key == '["product", 4, 5, 6]' and task.task.args == (4, 5, 6)


def test_a_name_is_taken_unless_override_says_otherwise() -> None:
    def other() -> list[Tensor]:
        return product(2, 2, 2)

    assert auto_scheduler.register_workload("tests/other", other) is other
    auto_scheduler.register_workload("tests/other", other)  # a script that is run again
    with pytest.raises(SpaceError, match="another function has that name"):
        auto_scheduler.register_workload("tests/other", product)
    auto_scheduler.register_workload("tests/other", product, override=True)
    assert auto_scheduler.make_workload_key("tests/other", ()) == '["tests/other"]'


# -- schedules -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, Target("cuda"), Target("opencl -device=mali")], ids=str)
def test_printed_python_runs_though_stages_share_a_name(target: Target) -> None:
    args = 6, 8, 4, 1, 1
    task = auto_scheduler.SearchTask(func="tests/conv2d_layer", args=args, target=target)
    sketches = auto_scheduler.SketchPolicy(task).task().sketches
    assert any(s.origin.startswith("rules:") for s in sketches)
    for sketch in sketches:
        indices = sketch.space.sample(256, np.random.default_rng(0))
        index = int(indices[sketch.legal(indices)][0])
        state = sketch.close(index)
        scope: dict[str, Any] = {"te": te, "tensors": conv2d_layer(*args)}
        exec(task.compute_dag.print_python_code_from_state(state), scope)
        texts = [generate(lower_schedule(s, target), target).text for s in (state, scope["s"])]
        assert texts[0] == texts[1] and "compute_1" in scope


def test_names_that_python_takes_are_changed_in_printed_python() -> None:
    s = te.placeholder((4,), name="s")
    out = te.compute((4,), lambda i: s[i] + 1.0, name="lambda")
    dag = auto_scheduler.ComputeDAG([s, out])
    state = dag.get_init_state()
    state.split(out, state[out].iters[0], [2])
    scope: dict[str, Any] = {"te": te, "tensors": [s, out]}
    exec(dag.print_python_code_from_state(state), scope)
    assert scope["s"].to_json() == state.to_json() and scope["s_"] is s


def test_hardware_is_completed_from_the_target() -> None:
    task = auto_scheduler.SearchTask(func=product, args=(4, 4, 4), target="cuda")
    known = task.hardware_params
    assert (known.num_cores, known.max_threads_per_block, known.warp_size) == (-1, 1024, 32)
    given = auto_scheduler.HardwareParams(-1, 16, 64, 32768, 2147483647, 256, 1, 1)
    small = auto_scheduler.SearchTask(
        func=product, args=(4, 4, 4), target="opencl -device=mali", hardware_params=given
    )
    limits = small.target.limits
    assert (limits.max_threads_per_block, limits.shared_bytes_per_block) == (256, 32768)
    assert small.hardware == Hardware(-1, 256, 1, 1)
    assert str(small.target) == "opencl -device=mali"  # records are found whatever was given
    few = auto_scheduler.HardwareParams(num_cores=3)
    cpu = auto_scheduler.SearchTask(func=product, args=(4, 4, 4), target=CPU, hardware_params=few)
    assert cpu.target.limits.cores == 3 and cpu.hardware_params.vector_unit_bytes == 32


def halve(policy: Any, state: Any, stage_id: int) -> Any:
    stage = state.schedule.stages[stage_id]
    stage.split(stage.op.axis[0], factor=state.choose(stage, "rows", [2, 3]))
    return [[state, stage_id - 1]]


def test_a_rule_of_the_users_own(task: auto_scheduler.SearchTask, options: Any) -> None:
    rule = auto_scheduler.PreloadCustomSketchRule(
        lambda policy, state, k: (
            auto_scheduler.PreloadCustomSketchRule.APPLY_AND_SKIP_REST
            if state.schedule.stages[k].name == "c" else 0
        ),
        halve, "halve",
    )  # fmt: skip
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule], templates=False)
    assert [s.origin for s in policy.generate_sketches()] == ["rules:halve"]
    report = task.tune(options(6), policy)
    assert report.tasks[0].best is not None and report.trials == 6
    assert task.compute_dag.hash == policy.search_task.compute_dag.hash
    broken = auto_scheduler.PreloadCustomSketchRule(lambda *_: 1, lambda *_: "next")
    listed = auto_scheduler.PreloadCustomSketchRule(lambda *_: 1, lambda *_: [0])
    for rule in (broken, listed):
        with pytest.raises(SpaceError, match="Return the id of the next stage"):
            auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule]).generate_sketches()


@pytest.mark.parametrize("answer", [-1, 3, None, "APPLY"])
def test_a_rule_of_the_users_own_answers_one_of_three(
    task: auto_scheduler.SearchTask, answer: Any
) -> None:
    rule = auto_scheduler.PreloadCustomSketchRule(lambda *_: answer, lambda *_: 0)
    with pytest.raises(SpaceError, match="Return PASS, APPLY or APPLY_AND_SKIP_REST"):
        auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule]).generate_sketches()


# -- tuning one task -------------------------------------------------------------------------------


@pytest.mark.long
def test_a_real_search_gives_a_right_kernel(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "folder" / "log.json"
    task = auto_scheduler.SearchTask(func=product, args=(12, 16, 8), target="llvm")
    context = auto_scheduler.LocalRPCMeasureContext(min_repeat_ms=1)
    option = auto_scheduler.TuningOptions(
        num_measure_trials=6, runner=context.runner, builder=auto_scheduler.LocalBuilder(),
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    task.tune(option)
    del context
    out = capsys.readouterr().out
    assert [int(n) for n in re.findall(r"^No: (\d+)\tGFLOPS: ", out, re.M)] == [1, 2, 3, 4, 5, 6]
    assert re.search(r"^Best: [\d.]+ ms, [\d.]+ GFLOPS, by \S+ \(6 trials, \d+ s\)$", out, re.M)
    schedule, args = task.apply_best(log)
    func = tilewright.build(schedule, args, "llvm")
    rng = np.random.default_rng(0)
    a, b = rng.random((12, 8), np.float32) - 0.5, rng.random((8, 16), np.float32)
    result = nd.empty((12, 16))
    func(nd.array(a), nd.array(b), result)
    assert np.allclose(result.numpy(), np.maximum(a @ b, 0), atol=1e-5)
    assert "s = te.create_schedule" in task.print_best(log)
    assert re.search(r"^define void @\w*main", task.print_best(log, print_mode="llvm"), re.M)
    given, found = auto_scheduler.load_best_record(log, task.workload_key)
    assert found.error_no == 0 and given.task.workload_key == task.workload_key
    again, _ = task.compute_dag.apply_steps_from_state(given.state)
    assert again.to_json() == schedule.to_json()


@pytest.mark.long
def test_trials_are_written_told_and_read_back(
    task: auto_scheduler.SearchTask, options: Any, tmp_path: Path
) -> None:
    log, seen = tmp_path / "log.json", []

    class Counting(auto_scheduler.PythonBasedMeasureCallback):
        def callback(self, policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:
            seen.append((policy.search_task, inputs[0].record.trial, results[0].error_no))

    plain_too: list[int] = []
    task.tune(options(
        30, auto_scheduler.RecordToFile(log), Counting(), lambda p, i, r: plain_too.append(len(r))
    ))  # fmt: skip
    assert [(t, n) for t, n, _ in seen] == [(task, n) for n in range(30)]
    assert plain_too == [1] * 30 and {e for _, _, e in seen} == {0, 4}
    pairs = auto_scheduler.load_records(log)
    # lines come as trials end; a final timing stands in the place of its trial
    assert sorted(i.record.trial for i, _ in pairs) == list(range(30))
    assert len(Database.load(log).runs) == 1
    failed = [r for _, r in pairs if r.error_no]
    assert failed and all(r.costs == (float("inf"),) and "lost" in r.error_msg for r in failed)
    good = [(i, r) for i, r in pairs if not r.error_no]
    given, best = auto_scheduler.load_best_record(log)
    assert best.costs[0] == min(r.costs[0] for _, r in good)
    assert given.state.to_json() == given.record.steps
    inputs, results = auto_scheduler.RecordReader(log).read_lines(5, skip_lines=2)
    assert [i.record for i in inputs] == [i.record for i, _ in pairs[2:7]] and len(results) == 5
    auto_scheduler.save_records(tmp_path / "some.json", inputs, results)
    assert len(auto_scheduler.load_records(tmp_path / "some.json")) == 5


@pytest.mark.slow
def test_resuming_restores_population_model_and_best(
    task: auto_scheduler.SearchTask, options: Any, tmp_path: Path
) -> None:
    log = tmp_path / "log.json"
    record = auto_scheduler.RecordToFile(log)
    task.tune(options(40, record))
    before = task.compute_dag.hash, auto_scheduler.load_best_record(log)[1].costs
    model = auto_scheduler.XGBModel()
    assert model.update_from_file(log) == 40 and model.model.trained
    policy = auto_scheduler.SketchPolicy(
        task, model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(log)]
    )
    report = task.tune(options(20, record), policy)
    (state,) = report.tasks
    assert (state.known, state.trials) == (40, 20)
    assert state.best is not None and state.best.seconds <= before[1][0]
    assert len(model.model) == 60  # no trial counts twice
    trials = [r.candidate for r in Database.load(log) if not r.result.final]
    assert len(trials) == len(set(trials)) == 60


@pytest.mark.slow
def test_a_seed_fixes_the_sequence(
    task: auto_scheduler.SearchTask, options: Any, tmp_path: Path
) -> None:
    logs = [tmp_path / f"{k}.json" for k in range(3)]
    for log, seed in zip(logs, (1, 1, 2), strict=True):
        policy = auto_scheduler.SketchPolicy(task, seed=seed)
        task.tune(options(24, auto_scheduler.RecordToFile(log)), policy)
    first, same, other = (
        [r.candidate for r in sorted(Database.load(log), key=lambda r: r.trial)] for log in logs
    )
    assert first == same != other


@pytest.mark.slow
def test_models_and_policies(task: auto_scheduler.SearchTask, options: Any, tmp_path: Path) -> None:
    log, trees = tmp_path / "log.json", tmp_path / "model"
    at_random = auto_scheduler.RandomModel()
    policy = auto_scheduler.SketchPolicy(task, at_random, params={"eps_greedy": 0.05})
    task.tune(options(30, auto_scheduler.RecordToFile(log)), policy)
    model = auto_scheduler.XGBModel()
    assert model.update_from_file(log, n_lines=20) == 20
    model.save(trees)
    loaded = auto_scheduler.XGBModel(model_file=trees)
    assert loaded.model.trained and len(loaded.model) == 0
    found = policy.task()
    candidates = ModelProposer(found, 0, model.model).suggest(8)
    scores = [ModelProposer(found, 0, m.model).predict(candidates) for m in (model, loaded)]
    assert np.allclose(*scores)
    assert task.tune(options(20), auto_scheduler.EmptyPolicy(task)).trials == 1
    assert len(policy.sample_initial_population(5)) == 5


@pytest.mark.slow
def test_timing_the_leaders_again_is_told(
    task: auto_scheduler.SearchTask, options: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    task.tune(options(8, verbose=1))
    *_, last, told, best = capsys.readouterr().out.splitlines()
    assert last.startswith("No: 8\t") and best.startswith("Best: ")
    assert re.fullmatch(r"Timing the leaders again, in turn: [34] candidates\.", told)


@pytest.mark.slow
def test_every_failure_is_summed_up(
    task: auto_scheduler.SearchTask, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.json"
    runner = ReplayRunner(lambda job: RunResult(error="wrong", message="element 3 is wrong"))
    options = auto_scheduler.TuningOptions(
        8, builder=NullBuilder(), runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    with pytest.raises(SearchError, match="none of 8 trials succeeded.*wrong: element 3 is wrong"):
        task.tune(options)
    out = capsys.readouterr().out
    assert "No trial succeeded (8 trials, 8 failed" in out
    assert "8 x wrong: element # is wrong" in out
    with pytest.raises(RecordError, match="every trial failed, most often by wrong: element # is"):
        task.apply_best(log)


@pytest.mark.slow
def test_history_of_other_tasks_teaches_the_scheduler(
    task: auto_scheduler.SearchTask, options: Any, tmp_path: Path, capsys: Any
) -> None:
    log = tmp_path / "old.json"
    task.tune(options(24, auto_scheduler.RecordToFile(log)))
    other = auto_scheduler.SearchTask(func=product, args=(32, 24, 16), target=task.target)
    scheduler = auto_scheduler.TaskScheduler([other], callbacks=[], history=[log])
    chosen = options(8)
    chosen.verbose = 1
    scheduler.tune(chosen)
    assert "The model starts from 24 trials of 1 computations." in capsys.readouterr().out
    assert scheduler.task_cts == [8]
