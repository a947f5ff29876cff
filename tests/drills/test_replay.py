"""The replay of kernels' texts: what it says of two dumps."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from drills import replay


def changed(dump: Path, name: str, text: str) -> Path:
    """A copy of a dump in which the entry has another text."""
    entries = json.loads(dump.read_text())
    texts = json.loads(gzip.decompress(replay.texts_of(dump).read_bytes()))
    copy = dump.with_name("changed.json")
    copy.write_text(json.dumps({**entries, name: "other"}))
    replay.texts_of(copy).write_bytes(gzip.compress(json.dumps({**texts, "other": text}).encode()))
    return copy


def test_equal_programs_are_equal_and_a_changed_line_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    for out in (a, b):
        replay.dump(out, ["golden"], 1)
    assert replay.compared(a, b) == 0
    name = "golden/matmul/cuda"
    text = json.loads(gzip.decompress(replay.texts_of(a).read_bytes()))[
        json.loads(a.read_text())[name]
    ]
    capsys.readouterr()
    assert replay.compared(a, changed(b, name, text.replace("matmul", "product", 1))) == 1
    said = capsys.readouterr().out
    assert f"differs: {name}\n" in said and f"+++ b/{name}\n" in said


def test_a_text_by_another_name_is_no_difference(tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    for out, name in ((a, "test/old#1"), (b, "test/new#1")):
        out.write_text(json.dumps({name: "0"}))
        replay.texts_of(out).write_bytes(gzip.compress(b'{"0": "text"}'))
    assert replay.compared(a, b) == 0
    b.write_text(json.dumps({"test/new#1": "1"}))
    replay.texts_of(b).write_bytes(gzip.compress(b'{"1": "another"}'))
    assert replay.compared(a, b) == 2  # one is gone, one is new
