"""History of other tasks, shapes and devices: models start from it; nothing of it is believed."""

import json

import numpy as np
import pytest
from msgspec.structs import replace

from search.spaces import Instant, cpu_task
from search.test_imported import autotvm
from tilewright.base.errors import RecordError, SpaceError
from tilewright.measure.database import Database
from tilewright.measure.record import TaskId
from tilewright.search import transfer
from tilewright.search.loop import tune
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.report import Options
from tilewright.search.transfer import read_history, recall, teach
from tilewright_tvm import autotvm as at
from tilewright_tvm.autotvm.plan_proposer import Planning, PlanProposer
from tilewright_tvm.autotvm.tuner import XGBTuner

QUIET = {"negligible": 0, "fruitless": 0, "leaders": 0}


def log_of(tasks, trials=48, path=None):
    """What a search of these tasks leaves."""
    measurer, database = Instant(tasks), Database(path)
    tune(tasks, measurer, options=Options(trials=trials, tuner="random", **QUIET), verify=False)
    dags = {t.key: t.dag.to_json() for t in tasks}
    for record in measurer.records:
        database.append(record, dags[record.task.dag])
    return database


def other():
    return cpu_task(96, 48, 64)


@pytest.mark.slow
def test_a_model_is_taught_by_other_shapes():
    database, task = log_of([other()]), cpu_task()
    history = recall(database, "llvm")
    assert history.rows == 48 and not history.skipped
    model = CostModel()
    teach(model, history)
    assert model.trained and len(model) == 48
    told = []
    measurer = Instant([task])
    tune(
        [task], measurer, options=Options(trials=16, **QUIET), history=database, verify=False,
        on_event=lambda e: told.append(e.message),
    )  # fmt: skip
    assert "The model starts from 48 trials of 1 computations." in told


@pytest.mark.slow
def test_the_first_batches_are_better_with_history():
    database, task = log_of([other(), cpu_task(32, 96, 48)], 100), cpu_task()
    best = {True: [], False: []}
    for seed in (0, 1):
        for with_history in best:
            measurer = Instant([task])
            tune(
                [task], measurer, options=Options(trials=16, seed=seed, **QUIET), verify=False,
                history=database if with_history else None,
            )  # fmt: skip
            best[with_history].append(min(r.seconds for r in measurer.records))
    assert sum(best[True]) < sum(best[False])


@pytest.mark.slow
@pytest.mark.parametrize("features", ["knob", "itervar", "curve"])
def test_plans_start_from_other_shapes(features):
    task = cpu_task()
    proposer = PlanProposer(task, 0, Planning(features, size=16))
    assert not proposer.learn_from(recall(log_of([other()], 64), "llvm").told)
    assert proposer.model.trained and len(proposer._plan) == 16


def test_steps_are_enough_where_the_template_is_unknown():
    """Its records are replayed on the computation that the log tells."""
    database, strange = log_of([other()], 24), Database()
    for record in database:
        named = TaskId("nobody's", [], record.task.dag, record.task.target)
        strange.append(
            replace(record, task=named, origin="template:nobody's"), database.dag(record.task.dag)
        )
    history = recall(strange)
    assert history.rows >= 20 and not history.skipped
    knobs = PlanProposer(cpu_task(), 0, Planning("knob"))
    assert knobs.learn_from(history.told) == {"knobs of another template": history.rows}
    assert not knobs.model.trained


def test_of_many_lists_of_steps_some_are_replayed(monkeypatch):
    monkeypatch.setattr(transfer, "REPLAYED", 5)
    database, strange = log_of([other()], 24), Database()
    for record in database:
        named = replace(record.task, name="nobody's")
        strange.append(
            replace(record, task=named, origin="template:nobody's"), other().dag.to_json()
        )
    history = recall(strange)
    assert history.rows == 5 and history.skipped["more than 5 lists of steps"] == 19


def test_what_is_of_no_use_is_counted():
    database, made = log_of([other()], 24), Database()
    dag = database.dag(other().key)
    for k, record in enumerate(database.query()):
        task = record.task
        if k % 4 == 0:
            record = replace(record, task=replace(task, target="cuda -arch=sm_90"))
        elif k % 4 == 1:
            record = replace(record, task=replace(task, dag="f" * 40))
        elif k % 4 == 2:
            broken = replace(record, origin="rules:none", task=replace(task, name="nobody's"))
            record = replace(broken, steps_json=type(record.steps_json)(b'[["split","Q","i"]]'))
        made.append(record, dag)
    history = recall(made, "llvm")
    assert 0 < history.rows <= 7 and history.skipped.total() >= 15
    assert any("for cuda, not llvm" in reason for reason in history.skipped)
    assert any("does not tell its computation" in reason for reason in history.skipped)
    assert "cannot be used" in history.text()


def test_the_same_computation_elsewhere_is_tried_first():
    task = cpu_task()
    database = Database()
    for record in log_of([task]).query():  # on another device of the class
        moved = replace(record.task, target="llvm -num-cores=64", fingerprint="other")
        database.append(replace(record, task=moved), task.dag.to_json())
    best = sorted(database, key=lambda r: r.seconds)[:8]
    measurer = Instant([task])
    tune([task], measurer, options=Options(trials=16, **QUIET), history=database, verify=False)
    first = {str(r.decisions) for r in measurer.records[:12]}
    assert len({str(r.decisions) for r in best} & first) >= 6


@pytest.mark.slow
def test_logs_of_tvm_count(tmp_path):
    old, own = tmp_path / "old.log", tmp_path / "own.jsonl"
    task = cpu_task()
    legal = np.flatnonzero(task.sketches[0].legal(np.arange(task.config_space.range_length)))
    old.write_text("\n".join(autotvm(int(i), 1e-3 * (1 + k)) for k, i in enumerate(legal[:20])))
    log_of([other()], path=own).close()
    both = read_history([old, own])
    assert len({r.task.dag for r in both}) == 2
    history = recall(both, "llvm")
    assert {past.task.key for past in history.told} == {task.key, other().key}
    tuner = XGBTuner(cpu_task(24, 32, 16))
    tuner.load_history(at.record.load_from_file(old))
    assert len(tuner.model) == 20


def test_load_history_takes_logs_and_plain_records(tmp_path, caplog):
    path = tmp_path / "log.jsonl"
    log_of([other(), cpu_task()], 60, path).close()
    records = at.record.load_from_file(path)
    tuner = XGBTuner(cpu_task())
    tuner.load_history(records)
    assert tuner.model.trained and len(tuner.model) == 60
    plain = XGBTuner(cpu_task(24, 32, 16))
    plain.load_history(list(at.record.load_from_file(path)))  # of templates that are known by name
    assert len(plain.model) == 60 and not caplog.text
    with pytest.raises(SpaceError, match="load_history.*is no record"):
        tuner.load_history([3])


def test_a_file_of_nothing_is_an_error(tmp_path):
    path = tmp_path / "x.log"
    path.write_text(json.dumps({"a": 1}) + "\n")
    with pytest.raises(RecordError, match="no line can be used"):
        read_history([path])
    with pytest.raises(RecordError):
        read_history([tmp_path / "missing"])
