"""Lines that are damaged on purpose: all readers of a log judge them alike, none raises foreign."""

from __future__ import annotations

import contextlib
import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drills.log_lines import OPERATORS, RECORD, sound_lines
from tilewright import te
from tilewright.base.errors import RecordError, TilewrightError
from tilewright.measure import index
from tilewright.measure.database import Database
from tilewright.measure.record import Result, TaskId, encode, make_record
from tilewright.schedule.task import task_of_dag
from tilewright.search.transfer import recall
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm import auto_scheduler

VALUES = ("null", "1", '"x"', "[]", "{}", "1e999", "-1", '"\\ud800"', "true")
LINES = sound_lines()
DAGS = [line for line in LINES[OPERATORS:] if json.loads(line)["kind"] == "dag"]


def twice(line: bytes) -> Iterator[bytes]:
    """Each key of a record comes twice: the other value before it, or behind it."""
    data = json.loads(line)
    for place in (data, data["task"], data["result"]):
        for key, value in place.items():
            for other in VALUES:
                for pair in ((other, json.dumps(value)), (json.dumps(value), other)):
                    both = ",".join(f"{json.dumps(key)}:{text}" for text in pair)
                    marked = copy.copy(place)
                    marked[key] = "@@"
                    text = json.dumps(marked).replace(f'{json.dumps(key)}: "@@"', both)
                    yield line_with(data, place, text)


def line_with(data: Any, place: Any, text: str) -> bytes:
    """The record with `text` for one of its objects."""
    if place is data:
        return text.encode() + b"\n"
    whole = {k: "@@" if v is place else v for k, v in data.items()}
    return json.dumps(whole).replace('"@@"', text).encode() + b"\n"


@pytest.mark.parametrize("one_by_one", [False, True])
def test_a_key_that_comes_twice_costs_at_most_its_line(tmp_path: Path, one_by_one: bool) -> None:
    sound, path = LINES[RECORD], tmp_path / "log"
    changed = list(twice(sound))
    assert len(changed) > 300
    path.write_bytes(sound + b"garbage\n" * one_by_one + b"".join(changed) + sound)
    database = Database.load(path)
    kept = len(database) - 2
    assert len(list(database.records)) == len(database)  # each is decoded as it was counted
    assert 0 < kept < len(changed) and sum(database.skipped.values()) == len(changed) - kept + (
        one_by_one
    )
    for task in database.tasks():
        database.best(task)
        database.leaders(task, 3)
    database.query(ok=True)
    database.distill()


def test_the_last_of_two_tasks_counts_for_every_reader(tmp_path: Path) -> None:
    """A line whose first task is null, and whose second is the best of all."""
    path, best = tmp_path / "log", json.loads(LINES[RECORD])
    best["result"]["costs"] = [1e-9]
    hostile = b'{"task":null,' + json.dumps(best).encode()[1:] + b"\n"
    path.write_bytes(LINES[RECORD] * 2 + hostile)
    database = Database.load(path)
    (task,) = database.tasks()
    found = database.best(task)
    assert found is not None and found.seconds == 1e-9 and len(database.query(task)) == 3


def test_an_integer_without_bounds_needs_no_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "FROM_BYTES", 1)
    path = tmp_path / "log"
    task = TaskId("t", [10**30], "0" * 32, "llvm")
    path.write_bytes(encode(make_record(task, Result(costs=(1.0,), verified=True))))
    for _ in range(2):
        assert Database.load(path).tasks() == [task]


def attributes(line: bytes) -> Iterator[bytes]:
    """The line of a computation with its attribute `workload` gone, or otherwise."""
    data = json.loads(line)

    def told(change: Any) -> bytes:
        changed = copy.deepcopy(data)
        for op in changed["dag"]["ops"]:
            if isinstance(op[-1], dict) and "workload" in op[-1]:
                change(op[-1])
        return json.dumps(changed).encode() + b"\n"

    yield told(lambda attrs: attrs.pop("workload"))
    for value in (None, 1, "dense", [], ["dense"], {}, [[]], [1, 2, 3], ["x"] * 9, [None] * 9):
        yield told(lambda attrs, v=value: attrs.update(workload=v))
    for at in range(8):
        for value in (None, -1, 0, 10**30, "x", [], ["TENSOR"], ["TENSOR", "x", 1], {"a": 1}):

            def replace(attrs: Any, at: int = at, value: Any = value) -> None:
                attrs["workload"][at : at + 1] = [value]

            yield told(replace)
        yield told(lambda attrs, at=at: attrs["workload"].__delitem__(slice(at, at + 1)))


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(DAGS)))
def test_attributes_that_do_not_describe_an_operation(tmp_path: Path, number: int) -> None:
    """They do not count for the hash, so a line with them is read."""
    dag, path, read = DAGS[number], tmp_path / "log", 0
    record = LINES[LINES.index(dag) + 1]
    for changed in attributes(dag):
        path.write_bytes(changed + record)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pairs = auto_scheduler.load_records(path)
            for given, _ in pairs:
                with contextlib.suppress(TilewrightError):
                    read += bool(given.state)
            with contextlib.suppress(RecordError):
                auto_scheduler.load_best_record(path)
            recall(Database.load(path))
        assert len(pairs) == 1
    assert read > 20


@pytest.mark.parametrize("tag", ["dense", "batch_matmul", "conv2d_nchw", "depthwise_conv2d_nchw",
                                 "group_conv2d_nchw"])  # fmt: skip
@pytest.mark.parametrize("target", ["llvm", "cuda", "opencl"])
def test_a_stage_with_the_tag_of_an_operator_and_nothing_else(tag: str, target: str) -> None:
    a, b = te.placeholder((1, 8, 9, 9), name="A"), te.placeholder((8, 8), name="B")
    k = te.reduce_axis((0, 8), name="k")
    c = te.compute(
        (1, 8, 9, 9), lambda n, i, y, x: te.sum(a[n, k, y, x] * b[i, k], axis=k), tag=tag
    )
    task_of_dag(ComputeDAG([a, b, c]), Target(target))
