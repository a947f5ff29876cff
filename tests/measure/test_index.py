"""The index of a long log: it is used, it is never believed, its loss costs nothing but time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from tilewright.measure import Database, Result, TaskId, index
from tilewright.measure.contents import Contents
from tilewright.measure.record import Record, encode, make_record
from tilewright.measure.record_table import Changed

TASKS = [TaskId("dense", [n], f"hash{n % 3}", "llvm", f"cpu{n % 2}") for n in range(6)]


def draw(n: int, rng: random.Random) -> Record:
    result = Result(costs=(rng.randint(1, 40) / 8,), verified=rng.random() < 0.9)
    kind = rng.random()
    if kind < 0.2:
        result = Result(error="wrong" if kind < 0.05 else "compile", message="no")
    elif kind < 0.3:
        result = replace(result, final=True)
    elif kind < 0.35:
        result = replace(result, same_as=1)
    origin = rng.choice(("template:t", "rules:r"))
    decisions = {"a": rng.randrange(12)}
    return make_record(
        rng.choice(TASKS), result, origin=origin, decisions=decisions, trial=n, timestamp=1e9 + n
    )


def some_lines(count: int, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    lines = [encode(draw(n, rng)) for n in range(count)]
    for at in (3, 17):
        lines[at] = b"garbage\n"
    return lines


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log that is long enough for an index, of which there is none yet."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(index, "FROM_BYTES", 1000)
    path = tmp_path / "log.jsonl"
    path.write_bytes(b"".join(some_lines(200)))
    return path


def kept(tmp_path: Path) -> Path:
    (found,) = (tmp_path / "cache" / "logs").iterdir()
    return found


def told(database: Database) -> object:
    keys = [t.key for t in database.tasks()]
    bests = [database.best(k, o) for k in keys for o in (None, "rules:r")]
    return list(database), database.tasks(), bests, database.counts(), database.skipped.lines


def the_old_way(records: list[Record]) -> Record | None:
    """The best of a task's records, straight from its definition."""
    wrong = {r.candidate for r in records if r.result.error == "wrong"}
    last = {r.candidate: r for r in records if r.result.final and r.result.error != "wrong"}
    usable = [
        r for r in records
        if r.result.ok and r.result.verified and r.result.same_as is None
        and r.candidate not in wrong and last.get(r.candidate, r) is r
    ]  # fmt: skip
    return min(usable, key=lambda r: r.seconds, default=None)


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Where each reading of lines began."""
    began: list[int] = []
    real = Contents.read

    def read(self: Contents, file: int) -> Contents | None:
        began.append(self.covered)
        return real(self, file)

    monkeypatch.setattr(Contents, "read", read)
    return began


@pytest.mark.parametrize("seed", range(5))
def test_the_best_is_what_the_definition_says(seed: int, tmp_path: Path) -> None:
    rng, path = random.Random(seed), tmp_path / "log"
    records = [draw(n, rng) for n in range(300)]
    path.write_bytes(b"".join(map(encode, records)))
    memory = Database()
    for record in records:
        memory.append(record)
    for database in (memory, Database.load(path)):
        for task in database.tasks():
            own = [r for r in records if r.key == task.key]
            assert database.best(task) == the_old_way(own)
            for origin in ("template:t", "rules:r"):
                of = the_old_way([r for r in own if r.origin == origin])
                assert database.best(task, origin) == of


def test_the_second_load_reads_nothing_again_and_finds_the_same(
    log: Path, tmp_path: Path, reading: list[int]
) -> None:
    first = told(Database.load(log))
    assert kept(tmp_path).stat().st_mode & 0o077 == 0
    assert told(Database.load(log)) == first
    assert reading == [0, log.stat().st_size]


def test_only_what_was_appended_is_read(log: Path, reading: list[int]) -> None:
    Database.load(log)
    size = log.stat().st_size
    with log.open("ab") as f:
        f.writelines(some_lines(30, seed=1))
        f.write(encode(draw(5, random.Random(7)))[:40])  # another process is writing
    again = Database.load(log)
    assert reading == [0, size] and again.skipped.lines["not JSON, or cut off"][-1] == 231
    assert len(again) == len(Database.load(log)) == 200 + 30 - 4


def _truncated(log: Path) -> None:
    os.truncate(log, 3000)


def _replaced(log: Path) -> None:
    lines = log.read_bytes().splitlines(True)
    other = log.with_suffix(".new")
    other.write_bytes(b"".join(lines[::-1]))
    os.replace(other, log)


def _changed_inside(log: Path) -> None:
    data = log.read_bytes()
    at = data.index(b'"costs":[', len(data) // 2) + len(b'"costs":[')
    with log.open("r+b") as f:
        f.seek(at)
        f.write(b"9")


def _rewritten_at_the_end(log: Path) -> None:
    with log.open("r+b") as f:
        f.seek(-300, os.SEEK_END)
        f.write(b"x" * 200 + b"\n")


@pytest.mark.parametrize("change", [_truncated, _replaced, _changed_inside, _rewritten_at_the_end])
def test_a_log_that_was_changed_is_read_anew(
    change: Callable[[Path], None], log: Path, reading: list[int], monkeypatch
) -> None:
    Database.load(log)
    change(log)
    os.utime(log, ns=(1, 1))  # as if the clock had gone on
    found = told(Database.load(log))
    assert reading[-1] == 0
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    assert told(Database.load(log)) == found


@pytest.mark.slow
def test_a_damaged_index_costs_only_time(log: Path, tmp_path: Path, reading: list[int]) -> None:
    expected = told(Database.load(log))
    path, rng = kept(tmp_path), random.Random(0)
    sound = path.read_bytes()
    for _ in range(60):
        bad = bytearray(sound)
        for _ in range(rng.choice((1, 1, 50))):
            bad[rng.randrange(len(bad))] = rng.randrange(256)
        path.write_bytes(bad[: rng.choice((len(bad), len(bad), rng.randrange(len(bad))))])
        assert told(Database.load(log)) == expected


LIES = {"seconds": 1e-9, "offset": 0, "task": 0, "origin": 0, "size": 9}


@pytest.mark.parametrize("column", LIES)
def test_an_index_that_lies_makes_no_record_best(
    column: str, log: Path, tmp_path: Path, reading: list[int]
) -> None:
    """Its rows say of other records that they are fast, sound, of this task."""
    sound = Database.load(log)
    expected, place = told(sound), kept(tmp_path)
    with log.open("rb") as f:
        contents, _ = index.contents_of(log, f.fileno(), fresh=True)
        contents.rows[column] = LIES[column]
        index._save(place, log, f.fileno(), contents)
    database = Database.load(log)
    assert reading[-1] > 0  # it was taken for true
    assert {t.key: database.best(t) for t in database.tasks()}.items() <= {
        **{t.key: sound.best(t) for t in sound.tasks()}
    }.items()
    assert told(database) == expected and reading[-1] == 0  # all was read again
    index._save(place, log, os.open(log, os.O_RDONLY), contents)
    with pytest.raises(Changed):
        list(Database.load(log))
    assert told(Database.load(log)) == expected


def test_another_users_index_is_not_read(log: Path, reading: list[int], monkeypatch) -> None:
    Database.load(log)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    Database.load(log)
    assert reading == [0, 0]


def test_without_a_cache_a_log_loads_all_the_same(log: Path, tmp_path: Path, monkeypatch) -> None:
    expected = told(Database.load(log))
    for value in ("off", str(log / "no folder")):
        monkeypatch.setenv("TILEWRIGHT_CACHE", value)
        assert told(Database.load(log)) == expected


def test_a_short_log_has_no_index(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "log"
    path.write_bytes(b"".join(some_lines(50)))
    Database.load(path)
    assert os.listdir(tmp_path) == ["log"]


def test_few_indices_are_kept(log: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(index, "_MOST", 3)
    for n in range(6):
        other = log.with_name(f"log{n}")
        other.write_bytes(log.read_bytes())
        Database.load(other)
    assert len(list((tmp_path / "cache" / "logs").iterdir())) == 3


def test_a_log_that_is_cut_while_in_use_is_read_anew_or_refused(log: Path) -> None:
    database = Database.load(log)
    os.truncate(log, 3000)
    bests = [database.best(t) for t in database.tasks()]
    assert len(database) < 20 and all(b is None or b in list(database) for b in bests)
    database = Database.load(log)
    log.write_bytes(b"")
    with pytest.raises(Changed, match="changed while it was in use.*Load it again"):
        list(database)


def test_what_was_appended_is_read_back_from_the_file(tmp_path: Path) -> None:
    """Not from memory: a long run stays small.  Another process writes in between."""
    path, rng = tmp_path / "log", random.Random(3)
    records = [draw(n, rng) for n in range(40)]
    with Database(path) as one, Database(path) as two:
        for n, record in enumerate(records):
            (one if n % 3 else two).append(record)
        own = [r for n, r in enumerate(records) if n % 3]
        assert all(held is None for held in one._table.held)
        assert list(one) == own
    assert list(one) == own and sorted(r.trial for r in Database.load(path)) == list(range(40))
