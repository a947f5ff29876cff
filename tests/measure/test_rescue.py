"""A log that cannot be written to the end: its lines are saved elsewhere, or told."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.measure.test_database import A, B, FullDisk, bad, ok
from tilewright.base.errors import RecordError
from tilewright.measure import Database
from tilewright.measure import rescue as R


@pytest.fixture
def full(tmp_path, monkeypatch):
    """A database whose disk is full, and a folder of temporary files that is not."""
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(other))
    heard = []
    database = Database(tmp_path / "log.jsonl", on_error=heard.append)
    database.append(ok(9.0))
    disk = FullDisk(room=0)
    monkeypatch.setattr("tilewright.measure.database.os.write", disk)
    for record in (ok(4.0), ok(3.0), bad("run", "crash"), ok(7.0, B)):
        database.append(record, {"ops": [1]})
    assert len(heard) == 1 and database.unwritten == 6  # a line per computation, too
    yield database, disk, other
    monkeypatch.undo()
    database.close()


def test_lines_are_saved_in_another_file_which_the_error_names(full, tmp_path):
    database, disk, other = full
    words = r"No space left on device; 6 lines are not in it, but in (.*)\. Free .* append"
    with pytest.raises(RecordError, match=words):
        database.flush()
    (file,) = other.iterdir()
    assert file.name.startswith("log-rescued-")
    rescued = Database.load(file)
    assert [r.seconds for r in rescued if r.result.ok] == [4.0, 3.0, 7.0]
    assert rescued.dag("aaaa") == {"ops": [1]} and len(rescued) == 4
    with pytest.raises(RecordError, match=str(other)):
        database.flush()
    (again,) = other.iterdir()  # not one more for each try
    assert len(Database.load(again)) == 4
    disk.room = 1 << 30
    database.flush()
    assert database.unwritten == 0 and not list(other.iterdir())
    assert len(Database.load(tmp_path / "log.jsonl")) == 5


def test_what_nobody_takes_is_the_errors_last_word(full, monkeypatch):
    database, _, _ = full

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkstemp", no_space)
    with pytest.raises(RecordError, match="no other folder takes them. Keep these") as raised:
        database.flush()
    _, *lines = str(raised.value).splitlines()
    assert sorted(line.count('"costs":[3.0]') for line in lines) == [0, 1]  # the best of A
    Path(tempfile.gettempdir(), "told").write_text("\n".join(lines) + "\n")
    told = Database.load(Path(tempfile.gettempdir(), "told"))
    assert (told.best(A).seconds, told.best(B).seconds) == (3.0, 7.0)


def test_a_folder_that_is_full_half_way_keeps_nothing(tmp_path, monkeypatch):
    half, whole = tmp_path / "half", tmp_path / "whole"
    for folder in (half, whole):
        folder.mkdir()
    monkeypatch.setattr(R, "_FOLDERS", (lambda: half, lambda: whole))
    real = os.fsync

    def full(fd):
        if str(half) in os.readlink(f"/proc/self/fd/{fd}"):
            raise OSError(28, "No space left on device")
        real(fd)

    monkeypatch.setattr(os, "fsync", full)
    file = R.save_elsewhere(tmp_path / "log.jsonl", [b"1\n", b"2\n"])
    assert file.parent == whole and file.read_bytes() == b"1\n2\n" and not list(half.iterdir())
