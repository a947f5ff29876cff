"""Lines that anyone may have written: sizes, nesting, text, numbers; what is told of them."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import RecordError
from tilewright.base.text import printable
from tilewright.measure import Database, Result, TaskId
from tilewright.measure.lines import DEPTH, LINE_BYTES, Skipped, decoded, is_deep, read_lines
from tilewright.measure.record import Record, decode, encode, make_record

TASK = TaskId("dense", [1], "hash", "llvm", "a cpu")


def record(seconds: float = 1.0, name: str = "dense") -> Record:
    task = TaskId(name, [1], "hash", "llvm", "a cpu")
    result = Result(costs=(seconds,), verified=True)
    return make_record(task, result, decisions={"a": 1}, steps=[["split", 2]], trial=3)


def lines_of(path: Path) -> list[tuple[int, bytes | None, int]]:
    file = os.open(path, os.O_RDONLY)
    try:
        return list(read_lines(file))
    finally:
        os.close(file)


@pytest.mark.slow
@given(lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=20))
def test_lines_come_with_their_offsets(lines: list[bytes], tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("lines") / "log"
    data = b"\n".join(lines)
    path.write_bytes(data)
    found = lines_of(path)
    assert [line for _, line, _ in found] == (lines[:-1] if not lines or not lines[-1] else lines)
    for offset, line, end in found:
        assert data[offset : offset + len(line)] == line
        assert end == (offset + len(line) + 1 if offset + len(line) < len(data) else -1)


def test_a_line_without_end_costs_itself_and_no_memory(tmp_path: Path) -> None:
    path, good = tmp_path / "log", encode(record())
    with path.open("wb") as f:
        f.write(good)
        for _ in range(64):
            f.write(b"x" * (1 << 20))
        f.write(b"\n" + good + b"y" * (LINE_BYTES + 1))
    tracemalloc.start()
    found = lines_of(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [line and len(line) + 1 for _, line, _ in found] == [len(good), None, len(good), None]
    assert found[1][2] == found[2][0] == len(good) + (64 << 20) + 1 and found[3][2] == -1
    assert peak < 8 * LINE_BYTES
    database = Database.load(path)
    assert len(database) == 2 and database.skipped == {"longer than 1 MiB": 2}
    assert database.skipped.lines == {"longer than 1 MiB": [2, 4]}


@pytest.mark.slow
@pytest.mark.parametrize("filling", [b"7", b"[],", b'"', b"\\", b"1,", b'"a":1,', b"[", b"0."])
def test_two_lines_with_a_huge_field_take_no_time(filling: bytes, tmp_path: Path) -> None:
    good, path = encode(record()), tmp_path / "log"
    huge = good.replace(b'"a":1', b'"a":' + filling * ((LINE_BYTES - 1000) // len(filling)))
    path.write_bytes(good + huge + huge.replace(b'"trial":3', b'"trial":-1') + good)
    began = time.process_time()
    assert len(Database.load(path)) >= 2
    assert time.process_time() - began < 5


@given(
    depth=st.integers(0, 3 * DEPTH), opened=st.sampled_from(["[", '{"a":']), quoted=st.booleans()
)
def test_nesting_is_counted_outside_of_strings(depth: int, opened: str, quoted: bool) -> None:
    closed = {"[": "]", '{"a":': "}"}[opened]
    text = opened * depth + "1" + closed * depth
    if quoted:
        text = '["' + text.replace('"', '\\"') + '\\\\", "\\""]'
    assert is_deep(text.encode()) == (depth > DEPTH and not quoted)
    if depth <= DEPTH or quoted:
        decoded(text.encode(), "text")
    else:
        with pytest.raises(RecordError, match="nested more than 200 deep"):
            decoded(text.encode(), "text")


BAD = {
    b'"costs":[1.0]': [b'"costs":[-1.0]', b'"costs":[0]', b'"costs":[-0.0]', b'"costs":[1e999]',
                       b'"costs":[NaN]', b'"costs":[1e300]', b'"costs":[null]'],
    b'"trial":3': [b'"trial":-1', b'"trial":1e18', b'"trial":99999999999999999999'],
    b'"timestamp":': [b'"timestamp":-', b'"timestamp":9999999999', b'"timestamp":NaN,"x":'],
    b'"seed":0': [b'"seed":1e30', b'"seed":' + b"9" * 6000],
    b'{"a":1}': [b"[" * 990 + b"]" * 990, b"[" * 100_000, b'{"\xff":1}', b'{"a":"\\ud800"}',
                 b"[" * (DEPTH + 1) + b"]" * (DEPTH + 1)],
    b'"name":"dense"': [b'"name":"\xc3("', b'"name":7', b'"name":"' + b"\\u12" + b'"'],
    b'"args":[1]': [b'"args":' + b"[" * 300 + b"]" * 300, b'"args":[' + b"9" * 5000 + b"]"],
}  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [(k, v) for k, vs in BAD.items() for v in vs])
def test_a_damaged_line_costs_only_itself(old: bytes, new: bytes, tmp_path: Path) -> None:
    good, path = encode(record()), tmp_path / "log"
    bad = encode(record(0.5)).replace(b'"costs":[0.5]', b'"costs":[1.0]')
    assert old in bad
    bad = bad.replace(old, new)
    path.write_bytes(good + bad + good)
    database = Database.load(path)
    assert len(database) == 2 and database.skipped.total() == 1
    assert list(database.skipped.lines.values()) == [[2]]
    assert database.best(TASK).candidate == record().candidate
    with pytest.raises(RecordError):
        decode(bad)


@pytest.mark.parametrize("field", [b'"decisions":', b'"steps":'])
@pytest.mark.parametrize("value", [b"1e999", b"9" * 500, b'"x"', b"null", b"7"])
def test_values_inside_decisions_and_steps_are_judged_when_asked_for(
    field: bytes, value: bytes, tmp_path: Path
) -> None:
    """The loader does not decode them; who does gets an error of ours, and none is the best."""
    line, path = encode(record(0.5)), tmp_path / "log"
    at = line.index(field) + len(field)
    end = line.index(b',"', at)
    bad = line[:at] + value + line[end:]
    with pytest.raises(RecordError):
        found = decode(bad)
        _ = found.decisions, found.steps
    path.write_bytes(bad + encode(record()) + bad)
    database = Database.load(path)
    assert len(database) == 3 and database.best(TASK).seconds == 1.0


def test_what_is_skipped_is_told_with_the_first_numbers() -> None:
    skipped = Skipped()
    for n in range(7):
        skipped.note("cut off", n + 1)
    skipped.note("odd \x1b[31m", 9)
    assert skipped.told() == ["7 lines (1, 2, 3, 4, 5, ...): cut off", "1 line (9): odd \\x1b[31m"]
    for n in range(1000):
        skipped.note(f"reason {n}", n)
    assert len(skipped) == 41 and skipped["other reasons"] == 1000 - 38
    assert len(max(skipped, key=len)) < 300


def test_reasons_are_short_whatever_the_line_says(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"v": "' + b"\\u001b" * 1000 + b'"}\n{"kind": "' + b"x" * 5000 + b'"}\n')
    skipped = Database.load(path).skipped
    assert skipped.total() == 2 and all(len(reason) <= 240 for reason in skipped)
    assert not any("\x1b" in reason for reason in skipped)


@given(st.text())
def test_printable_text_has_no_control_characters(text: str) -> None:
    shown = printable(text)
    assert all(c in "\n\t" or (ord(c) >= 32 and not 127 <= ord(c) < 160) for c in shown)
    assert printable(shown) == shown


def test_names_of_a_log_reach_the_terminal_without_control_characters() -> None:
    odd = record(name="\x1b[2J\u202e")
    assert decode(encode(odd)).task.name == "\x1b[2J\u202e"  # the record keeps it
    assert "\x1b" not in repr(odd) and "\\x1b[2J\\u202e" in repr(odd)
    error = RecordError("log", f"it holds {odd.task.name}", "Give another.")
    assert str(error) == "log: it holds \\x1b[2J\\u202e. Give another."


def test_an_endless_message_is_written_with_both_its_ends() -> None:
    text = "begin" + "x" * (2 * LINE_BYTES) + "end"
    found = decode(encode(make_record(TASK, Result(error="compile", message=text))))
    assert isinstance(found, Record) and len(found.result.message) < 30_000
    assert found.result.message.startswith("begin") and found.result.message.endswith("end")
    with pytest.raises(RecordError, match="a log's have 1048576 at most"):
        encode(make_record(TASK, Result(), decisions={"a": "x" * LINE_BYTES}))
