"""What a log says is not believed: whose computation is built, what is verified, what is signed."""

from __future__ import annotations

import copy
import json
import time
from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest

from graph.small import database_of
from tilewright import cpu
from tilewright.base.artifact import Artifact
from tilewright.base.errors import DeviceError, ModelError
from tilewright.driver.build import build_artifact, payload_of
from tilewright.driver.cache import default_cache
from tilewright.measure import signatures
from tilewright.measure.database import Database
from tilewright.measure.jobs import Built, Job, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import Result, make_record
from tilewright.network import build_cache
from tilewright.network import kernels as kernels_module
from tilewright.network.extract import fused_tasks
from tilewright.runtime.device import local_target
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.schedule.template import RegisteredAnchor
from tilewright.search.jobs import References, task_id
from tilewright.targets.target import Target
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright_tvm import autotvm, relay


def network(size: int = 6) -> relay.IRModule:
    """relu(conv2d): one kernel with a template."""
    x = relay.var("x", shape=(1, 8, size, size))
    w = relay.const(np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype("float32"))
    return relay.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.nn.conv2d(x, w))))


def task_of(mod: relay.IRModule, target: str = "llvm") -> Task:
    (task,) = fused_tasks(mod, {}, target)
    return task


def is_right(lib: relay.Library, mod: relay.IRModule) -> bool:
    shape = mod["main"].params[0].shape
    data = np.random.default_rng(1).standard_normal(shape).astype("float32")
    module = GraphModule(lib["default"](cpu()))
    module.run(x=data)
    want = relay.evaluate(mod, {"x": data}, "float64")
    return bool(np.abs(module.get_output(0).numpy() - want).max() < 1e-4 * np.abs(want).max())


def only(lib: relay.Library):
    (kernel,) = lib.report.kernels
    return kernel


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Nothing was verified before."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


def saved(database: Database, tmp_path, edit=None) -> str:
    """The log as a file, after `edit` of the text of its first computation."""
    path = tmp_path / "log.jsonl"
    database.save(path)
    if edit is not None:
        lines = path.read_text().splitlines()
        at = next(k for k, line in enumerate(lines) if json.loads(line)["kind"] == "dag")
        changed = edit(lines[at])
        assert changed != lines[at]
        lines[at] = changed
        path.write_text("\n".join(lines) + "\n")
    return str(path)


# -- whose computation -----------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        lambda line: line.replace('"max"', '"min"'),
        lambda line: line.replace('["const","float32",0.0]', '["const","float32",5.0]'),
        lambda line: line.replace('["mul",', '["add",'),
        lambda line: line.replace("[1,8,6,6]", "[1,8,7,6]"),
    ],
    ids=["max to min", "relu's 0 to 5", "mul to add", "an extent"],
)
def test_an_edited_computation_changes_nothing(edit, tmp_path):
    mod = network()
    log = saved(database_of([task_of(mod)]), tmp_path, edit)
    lib = relay.build(mod, "llvm", schedules=log, verify=False)  # there is nothing to find
    assert only(lib).source == "record" and is_right(lib, mod)
    assert Database.load(log).computation(task_of(mod).key) is None


def renamed(record, dag, names):
    """The record and the computation, both with other names of stages and axes."""

    def walk(value):
        if isinstance(value, str):
            return ".".join(names.get(part, part) for part in value.split("."))
        return [walk(v) for v in value] if isinstance(value, list) else value

    data = copy.deepcopy(dag)
    for op in data["ops"]:
        op[1] = names.get(op[1], op[1])
        for axis in op[2] if op[0] == "compute" else ():
            axis[0] = names.get(axis[0], axis[0])
    steps = walk(record.steps)
    made = make_record(record.task, record.result, origin=record.origin, steps=steps)
    return made, data


@pytest.mark.slow
def test_an_equal_computation_with_other_names_is_the_callers_own():
    mod = network()
    task = task_of(mod)
    (record,) = database_of([task])
    log = Database()
    log.append(*renamed(record, task.dag.to_json(), {"ff": "o", "compute": "conv", "ax1": "c"}))
    lib = relay.build(mod, "llvm", schedules=log)
    assert only(lib).source == "record" and not only(lib).note and is_right(lib, mod)
    found = log.lookup(task.dag, task.target)
    assert found.dag.hash == task.dag.hash and "conv" in str(found.dag)
    with autotvm.apply_history_best(log):
        assert only(relay.build(mod, "llvm")).source == "record"


def test_names_of_a_log_are_names_only():
    dag = task_of(network()).dag
    data = copy.deepcopy(dag.to_json())
    data["ops"][-1][1] = "out"
    data["ops"][-1][5] = ["const", "float32", 1.0]
    data["ops"][-1][7] = {"workload": "another"}
    named = dag.named_as(data)
    assert named.outputs[0].op.name == "out" and named.hash == dag.hash
    assert named.outputs[0].op.attrs == dag.outputs[0].op.attrs


# -- what is verified ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_records_word_is_worth_nothing(monkeypatch):
    """Whatever it says, its kernel is run, and what is wrong is not shipped.  No schedule makes a
    wrong kernel, so it is the reference that is changed here."""
    mod = network()
    task = task_of(mod)
    monkeypatch.setattr(kernels_module, "References", _Off)
    with pytest.raises(ModelError, match="record refused: wrong result.*default refused: wrong"):
        relay.build(mod, "llvm", schedules=database_of([task]))


class _Off(References):
    """References of which the first element is wrong."""

    def _compute(self, task):
        inputs = random_inputs(task.dag, self.seed)
        expected, tolerance = evaluate_with_tolerance(task.dag, inputs)
        off = [np.array(e) for e in expected]
        off[0].flat[0] += 1.0
        return self._store.put(task.key, inputs, off, tolerance)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("built", "shown", "source"),
    [
        (Built(), None, "record"),
        (Built(), "wrong", "default"),
        (Built(error="compile", message="older"), None, "record"),
        (Built(error="compile", message="no memory", cause="killed"), None, "record"),
    ],
    ids=["right", "wrong", "refused", "no memory"],
)
def test_kernels_are_shipped_when_a_second_trial_has_proven_them(monkeypatch, built, shown, source):
    """On a device that could try threads in turns; `shown`: what that shows of the record's."""
    real, asked = kernels_module._Workers.trial, []

    def trial(workers, choice, run):
        result = real(workers, choice, run)
        how = "proof" if run.proof else "deferred" if run.defer else "whole"
        asked.append((choice.source, how))
        if how == "deferred":
            found = replace(result.result(), verified=False, unproven=run.artifact.source)
        elif how == "whole" or shown is None or choice.source == "default":
            return result
        else:
            found = RunResult(error=shown, message="threads race", first=True)
        return done(found)

    mod = network()
    monkeypatch.setattr(kernels_module._Workers, "trial", trial)
    monkeypatch.setattr(kernels_module._Workers, "compile", lambda *_: done(built))
    lib = relay.build(mod, "llvm", schedules=database_of([task_of(mod)]))
    kernel, last = only(lib), "whole" if built.cause == "killed" else "proof"
    assert kernel.source == source and kernel.check.startswith("verified here")
    # A text with turns that is not compiled proves nothing: the kernel is used, and not signed.
    assert ("proof of order not made" in kernel.check) == (last == "proof")
    assert asked[:2] == [("record", "deferred"), ("record", last)]
    assert ("threads race" in kernel.note) == (shown == "wrong")
    assert asked[2:] == ([("default", "deferred"), ("default", last)] if shown else [])


def done(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.mark.slow
def test_the_next_best_record_takes_the_place_of_one_that_is_refused():
    mod = network()
    task = task_of(mod)
    (good,) = database_of([task])
    bad = make_record(
        task_id(task), Result(costs=(1e-9,), verified=True), steps=[["split", "nowhere", "i", 8]]
    )
    log = Database()
    for record in (bad, good):
        log.append(record, task.dag.to_json())
    kernel = only(relay.build(mod, "llvm", schedules=log))
    assert kernel.source == "record" and kernel.check == "verified here"
    assert kernel.note.startswith("record refused: ") and "refused" not in kernel.note[20:]


@pytest.mark.slow
def test_a_kernel_far_slower_than_its_record_is_refused(monkeypatch):
    monkeypatch.setattr(kernels_module, "_MOMENT", 0.0)
    mod = network()
    log = database_of([task_of(mod)], seconds=1e-12)
    kernel = only(relay.build(mod, "llvm", schedules=log))
    assert kernel.source == "default" and "where the log says" in kernel.note


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("size", [1000, 10**5, 10**18])
def test_one_number_hangs_nothing(size):
    """In a split of which the inner loop is a vector: LLVM would take minutes for its text."""
    mod = network()
    task = task_of(mod)
    steps = task.sketches[0].close(task.sketches[0].fallback()).to_json()
    vectors = {(step[1], step[2]) for step in steps if step[0] == "annotate"}
    split = next(s for s in steps if s[0] == "split" and (s[1], f"{s[2]}.inner") in vectors)
    split[3] = size
    log = Database()
    record = make_record(task_id(task), Result(costs=(1e-6,), verified=True), steps=steps)
    log.append(record, task.dag.to_json())
    began = time.monotonic()
    lib = relay.build(mod, "llvm", schedules=log)
    assert time.monotonic() - began < 30  # most of it to start processes
    assert is_right(lib, mod) and only(lib).verified


@pytest.mark.slow
def test_a_build_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(kernels_module, "LOG_SECONDS", 1e-4)
    mod = network()
    kernel = only(relay.build(mod, "llvm", schedules=database_of([task_of(mod)])))
    assert kernel.source == "default" and kernel.verified
    assert "record refused: the build took more than 0.0001 s" in kernel.note


@pytest.mark.slow
def test_what_another_kernel_may_have_caused_is_tried_again(monkeypatch):
    """A trial fails in a process that ran others before, and works in a new one."""
    real, failed = LocalRunner.submit, []

    def submit(self, run):
        if failed:
            return real(self, run)
        failed.append(run)
        future: Future[RunResult] = Future()
        future.set_result(RunResult(error="wrong", message="perhaps", first=False))
        return future

    monkeypatch.setattr(LocalRunner, "submit", submit)
    mod = network()
    kernel = only(relay.build(mod, "llvm", schedules=database_of([task_of(mod)])))
    assert failed and (kernel.source, kernel.check, kernel.note) == ("record", "verified here", "")


@pytest.mark.slow
def test_where_no_process_can_use_the_device_the_report_says_so(monkeypatch):
    def describe(self, target):
        raise DeviceError("device llvm 0", "it is away")

    monkeypatch.setattr(LocalRunner, "describe", describe)
    mod = network()
    lib = relay.build(mod, "llvm", schedules=database_of([task_of(mod)]))
    kernel = only(lib)
    assert kernel.source == "default" and not kernel.verified and kernel.check == "not verified"
    assert "record refused: it cannot be verified (device llvm 0: it is away.)" in kernel.note
    assert lib.report.notes == ("no kernel was run: device llvm 0: it is away.",)
    assert "default, not verified" in str(lib.report) and "0 verified" in str(lib.report)


# -- what is signed --------------------------------------------------------------------------------


def never(*_: object) -> None:
    raise AssertionError("it was called")


@pytest.mark.slow
def test_a_kernel_is_verified_once(monkeypatch):
    mod = network()
    log = database_of([task_of(mod)])
    assert only(relay.build(mod, "llvm", schedules=log)).check == "verified here"
    monkeypatch.setattr(LocalRunner, "submit", never)
    again = relay.build(mod, "llvm", schedules=log)
    assert only(again).check == "verified here before" and only(again).verified
    assert only(again).seconds is not None


@pytest.mark.slow
def test_tuning_signs_what_it_verified(monkeypatch):
    """Tune, then build: nothing runs twice, though tasks and kernels have other names."""
    mod = network()
    target, _ = local_target(Target("llvm"))
    task = task_of(mod, target)
    sketch = task.sketches[0]
    schedule = sketch.close(sketch.fallback())
    references, log = References(), Database()
    payload = payload_of(schedule, "another name")
    job = Job(
        task_id(task), payload, references.get(task), steps=payload["steps"], target=target,
        dag=task.dag.to_json(),
    )  # fmt: skip
    with LocalBuilder(n_parallel=1) as builder, LocalRunner(number=1, repeat=1) as runner:
        with Pipeline(builder, runner, log) as pipeline:
            (record,) = pipeline.measure([job])
    references.close()
    assert record.result.verified
    monkeypatch.setattr(LocalRunner, "submit", never)
    kernel = only(relay.build(mod, "llvm", schedules=log))
    assert (kernel.source, kernel.check) == ("record", "verified here before")


@pytest.mark.slow
def test_a_signature_is_for_one_device_one_code_one_compiler_and_one_text(monkeypatch):
    mod = network()
    lib = relay.build(mod, "llvm")
    (artifact,) = lib.kernels
    dag, here = task_of(mod).key, local_target(Target("llvm"))[0].fingerprint
    assert signatures.signed(artifact, dag, here) == only(lib).seconds
    for changed in others(artifact):
        assert signatures.signed(changed, dag, here) is None
    assert signatures.signed(artifact, dag, here + "2") is None
    assert signatures.signed(artifact, dag[::-1], here) is None
    assert signatures.signed(artifact, dag, "") is None
    monkeypatch.setattr(signatures, "code_digest", lambda: "of another version")
    assert signatures.signed(artifact, dag, here) is None


def others(artifact: Artifact) -> list[Artifact]:
    source = artifact.source
    return [
        replace(artifact, source=replace(source, text=source.text + " ")),
        replace(artifact, source=replace(source, kernels=source.kernels[::-1] + source.kernels)),
        replace(artifact, meta={**artifact.meta, "compiler": "another"}),
    ]


@pytest.mark.slow
def test_without_a_cache_each_build_verifies(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    mod = network()
    for _ in range(2):
        assert only(relay.build(mod, "llvm")).check == "verified here"


# -- what nobody tuned -----------------------------------------------------------------------------


@pytest.mark.slow
def test_what_nobody_tuned_is_chosen_and_lowered_once(monkeypatch):
    mod = network()
    first = relay.build(mod, "llvm")
    monkeypatch.setattr(kernels_module, "default_schedule", never)
    again = relay.build(mod, "llvm")
    assert is_right(again, mod)
    assert [k.source for k in again.kernels] == [k.source for k in first.kernels]
    with pytest.raises(AssertionError):
        relay.build(network(7), "llvm")


@pytest.mark.slow
def test_what_a_log_chose_is_lowered_once(monkeypatch):
    mod = network()
    log = database_of([task_of(mod)])
    first = relay.build(mod, "llvm", schedules=log)
    monkeypatch.setattr(kernels_module, "payload_of", never)
    again = relay.build(mod, "llvm", schedules=log)
    assert is_right(again, mod)
    assert only(again).source == only(first).source == "record"
    assert only(again).check == kernels_module.BEFORE


def test_what_is_remembered_is_of_one_name_and_target_and_of_our_own_templates(monkeypatch):
    task, target = task_of(network()), local_target(Target("llvm"))[0]
    artifact = build_artifact(task.default(), target)
    build_cache.store(artifact, task.dag, None, target, "main")
    found = build_cache.load(task.dag, None, target, "main")
    assert found is not None and (found.source, found.binary) == (artifact.source, artifact.binary)
    assert build_cache.load(task.dag, None, target, "other") is None
    assert build_cache.load(task.dag, None, target.with_limits(cores=3), "main") is None

    def template(cfg, anchored):
        """Somebody's own."""

    own = RegisteredAnchor("own", ("cpu",), ("conv2d_nchw",), template)
    monkeypatch.setattr(build_cache, "anchor_templates", lambda *_: [own])
    assert build_cache.load(task.dag, None, target, "main") is None
    chosen = task.default()  # its steps say all
    build_cache.store(artifact, task.dag, chosen, target, "main")
    assert build_cache.load(task.dag, chosen, target, "main") is not None
    other = Schedule(task.dag)
    assert other.to_json() != chosen.to_json()
    assert build_cache.load(task.dag, other, target, "main") is None


def test_a_damaged_entry_is_none():
    task, target = task_of(network()), local_target(Target("llvm"))[0]
    build_cache.store(build_artifact(task.default(), target), task.dag, None, target, "main")
    for path in default_cache().directory.glob("??/*"):
        path.write_bytes(path.read_bytes()[:-1])
    assert build_cache.load(task.dag, None, target, "main") is None
