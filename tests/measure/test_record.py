"""Records: lines and back, values of numpy, what is wrong with a line."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import RecordError
from tilewright.measure.record import (
    ERROR_KINDS,
    DagLine,
    Record,
    Result,
    RunLine,
    TaskId,
    candidate_of,
    decode,
    encode,
    make_record,
)

TASK = TaskId("conv2d", [["TENSOR", [1, 3, 8, 8], "float32"], 1], "abc", "llvm")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.slow
@given(
    decisions=st.dictionaries(st.text(max_size=6), JSON, max_size=4),
    steps=st.lists(st.lists(JSON, max_size=3), max_size=4),
    costs=st.lists(st.floats(1e-9, 10), max_size=4),
    error=st.sampled_from([None, *ERROR_KINDS]),
    message=st.text(max_size=30),
)
def test_a_record_survives_its_line(decisions, steps, costs, error, message):
    result = Result(costs=tuple(costs), error=error, message=message, raced=True)
    record = make_record(TASK, result, decisions=decisions, steps=steps, seed=3, trial=9)
    line = encode(record)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert decode(line) == record
    assert record.decisions == decisions and record.steps == steps


def test_the_line_has_the_documented_fields():
    result = Result(costs=(1e-3,), verified=True)
    record = make_record(TASK, result, origin="template:t", decisions={"tile_f": [4, 8]})
    data = json.loads(encode(record))
    assert (data["kind"], data["v"], data["origin"]) == ("record", 1, "template:t")
    assert data["task"] == {
        "name": "conv2d", "args": [["TENSOR", [1, 3, 8, 8], "float32"], 1], "dag": "abc",
        "target": "llvm",
    }  # fmt: skip
    assert data["decisions"] == {"tile_f": [4, 8]} and data["result"]["costs"] == [1e-3]
    assert data["versions"]["tilewright"] and data["timestamp"] > 1e9


def test_numpy_values_become_plain():
    record = make_record(
        TASK, Result(), decisions={"tile": np.array([2, 3]), "n": np.int64(4), "x": np.float32(0.5)}
    )
    assert record.decisions == {"tile": [2, 3], "n": 4, "x": 0.5}


def test_a_value_that_is_not_json_is_refused():
    with pytest.raises(RecordError, match="not JSON.*Use numbers"):
        make_record(TASK, Result(), decisions={"f": object()})


def test_the_time_of_a_record_is_the_median_and_of_a_failure_infinite():
    assert Result(costs=(1.0, 5.0, 2.0)).seconds == 2.0
    assert Result(error="run", costs=()).seconds == float("inf")


def test_a_candidate_is_known_again_before_it_has_a_record():
    record = make_record(TASK, Result(), origin="o", decisions={"a": 1}, steps=[["Split", 2]])
    assert record.candidate == candidate_of("o", {"a": 1}, [["Split", 2]])
    assert record.candidate != candidate_of("o", {"a": 2}, [["Split", 2]])


def test_other_lines_survive_too():
    run = RunLine(options={"seed": 1, "model": "resnet-18"})
    assert decode(encode(run)) == run
    dag = decode(b'{"kind":"dag","v":1,"hash":"abc","dag":{"ops":[1,2]}}')
    assert isinstance(dag, DagLine) and bytes(dag.dag) == b'{"ops":[1,2]}'


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"kind":"record","v":1,"task":{"na', "not JSON, or cut off"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b"# a comment", "not JSON, or cut off"),
        (b"[1, 2]", "not a JSON object"),
        (b'{"kind":"record","v":2}', "schema version 2, this is version 1"),
        (b'{"kind":"record","v":1}', "not a record (Object missing required field `task`)"),
        (b'{"kind":"poem","v":1}', "not a record (Invalid value 'poem' - at `$.kind`)"),
        (b'{"input":["cuda","t",[],{}],"config":{},"version":0.2}', "a line of TVM's AutoTVM log"),
        (b'{"i":[["x","llvm"],[[],[]]],"r":[[1],0,1,1],"v":"v0.6"}', "TVM's auto-scheduler log"),
    ],
)
def test_a_bad_line_is_explained(line, reason):
    with pytest.raises(RecordError) as caught:
        decode(line)
    assert reason in str(caught.value)


def test_an_unknown_kind_of_error_is_refused():
    line = encode(make_record(TASK, Result(error="run"))).replace(b'"run"', b'"gremlins"')
    with pytest.raises(RecordError, match="gremlins"):
        decode(line)


def test_records_cannot_be_changed():
    record: Record = make_record(TASK, Result())
    with pytest.raises(AttributeError):
        record.seed = 4  # type: ignore[misc]


def test_repr_says_what_was_measured_in_one_line():
    good = make_record(TASK, Result(costs=(2e-3, 1e-3, 3e-3)), origin="rules:fuse", trial=4)
    bad = make_record(TASK, Result(error="compile", message="a\nlong text"))
    assert repr(good) == "Record(conv2d for llvm: 2 ms, rules:fuse, trial 4)"
    assert repr(bad) == "Record(conv2d for llvm: failed (compile), default, trial 0)"
