"""A log read in blocks and by several processes is what it is line by line, whatever its lines."""

from __future__ import annotations

import os
import random
from pathlib import Path

import numpy as np
import pytest

from tilewright.measure import Result, TaskId, lines, parallel_load
from tilewright.measure.contents import Contents
from tilewright.measure.record import DagLine, RunLine, encode, make_record


def draw_line(rng: random.Random, n: int, odd: float) -> bytes:
    """A record most of the time; else what people, editors and attackers leave in a log."""
    task = TaskId("dense", [rng.randrange(9)], f"hash{rng.randrange(3)}", "llvm", "cpu")
    error = rng.choice((None, None, "wrong", "compile"))
    costs = () if error else tuple(rng.random() for _ in range(rng.randint(0, 4)))
    result = Result(costs=costs, error=error, verified=rng.random() < 0.8)
    origin = rng.choice(("template:t", "rules:r", f"own:{rng.randrange(30)}"))
    sound = encode(make_record(task, result, origin=origin, decisions={"n": n}, steps=[[]] * 3))
    at = rng.randrange(1, len(sound) - 1)
    return {
        0: lambda: encode(DagLine(hash=f"hash{rng.randrange(2)}", dag={})),
        1: lambda: encode(RunLine(options={}, versions={})),
        2: lambda: sound[:at] + b"\n" + sound[at:],  # two lines, each a part
        3: lambda: sound[:-1] + sound,  # two records in one line
        4: lambda: sound.replace(b'"n":', b'"n":' + b"[" * 300 + b"]" * 300 + b',"m":'),
        5: lambda: sound.replace(b'"n":', b'"n":"' + b"[{" * 300 + b'","m":'),
        6: lambda: sound.replace(b"dense", "d\u00e9nse".encode()),
        7: lambda: sound.replace(b"dense", b"d\xffnse"),
        8: lambda: rng.choice((b"\n", b"  \n", b"{}\n", b"{\n}\n", b"[]\n", b"\r\n", b"x" * 9000)),
        9: lambda: sound[:-1] + rng.choice((b"\r\n", b" \n", b"\x00\n")),
        10: lambda: sound.replace(b'"name":"dense"', b'"name":3'),
        11: lambda: sound.replace(b'"costs":', b'"costs":-'),
        12: lambda: sound.replace(b'"v":1', b'"v":%d' % rng.randrange(999)),
        13: lambda: sound[:at] + bytes([rng.randrange(256)]) + sound[at + 1 :],
        14: lambda: sound.replace(b'"name":', b'"name": '),
    }.get(rng.randrange(15) if rng.random() < odd else -1, lambda: sound)()


def line_by_line(file: int) -> tuple[Contents, Contents | None]:
    found = Contents()
    blocks = [found.rows]
    for offset, line, end in lines.read_lines(file):
        if end < 0:
            torn = Contents()
            torn.lines = found.lines
            torn._take(offset, line)
            break
        found._take(offset, line)
        found.covered = end
    else:
        torn = None
    found._gather(blocks)
    found.rows = np.concatenate(blocks)
    return found, torn


def told(found: Contents) -> object:
    skipped = [(why, n, found.skipped.lines[why]) for why, n in found.skipped.items()]
    return (
        found.rows.tolist(), found.tasks, found.origins, found.dags, found.runs, skipped,
        found.lines, found.covered,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_blocks_and_parts_tell_what_lines_do(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    path = tmp_path / "log"
    written = b"".join(draw_line(rng, n, (0.1, 0.9)[seed % 2]) for n in range(600))
    path.write_bytes(written[: len(written) - rng.choice((0, 0, 1, 100))])
    monkeypatch.setattr(lines, "_CHUNK", rng.choice((900, 4000, 1 << 17)))
    monkeypatch.setattr(parallel_load, "PART_BYTES", rng.choice((1 << 20, 5000, 20_000)))
    monkeypatch.setattr(parallel_load, "LINE_BYTES", 5000)
    here = lambda path, whose, begin, end: parallel_load.read_part(path, whose, begin, end)  # noqa: E731
    monkeypatch.setattr(parallel_load, "WorkerPool", lambda count: Immediate(here))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(rng.randint(1, 5)))
    with path.open("rb") as f:
        expected, torn = line_by_line(f.fileno())
        found = Contents()
        parallel_load.read_ahead(found, path, f.fileno())
        last = found.read(f.fileno())
    assert told(found) == told(expected)
    assert (torn is None) == (last is None)
    assert torn is None or torn.skipped == last.skipped


class Immediate:
    """A pool that runs each call where it is submitted."""

    def __init__(self, function: object) -> None:
        self.function = function

    def submit(self, _: object, *args: object, timeout: float) -> object:
        import pickle
        from concurrent.futures import Future

        assert timeout > 0
        future: Future[object] = Future()
        future.set_result(pickle.loads(pickle.dumps(self.function(*args))))  # type: ignore[operator]
        return future

    def __enter__(self) -> Immediate:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def sound_log(path: Path, count: int = 300) -> Contents:
    task = TaskId("dense", [1], "hash", "llvm", "cpu")
    path.write_bytes(
        b"".join(
            encode(make_record(task, Result(costs=(1.0 + n,), verified=True), trial=n))
            for n in range(count)
        )
    )
    with path.open("rb") as f:
        return line_by_line(f.fileno())[0]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "no process", "replaced"])
def test_processes_read_a_long_log_and_their_loss_costs_time_only(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    expected = sound_log(path)
    monkeypatch.setattr(parallel_load, "PART_BYTES", 20_000)
    monkeypatch.setattr(parallel_load, "LINE_BYTES", 2000)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(3))
    if fault == "no process":
        monkeypatch.setattr("sys.executable", str(tmp_path / "nothing"))
    joined: list[bool] = []
    real = Contents.join
    monkeypatch.setattr(
        Contents, "join", lambda self, other: joined.append(True) or real(self, other)
    )
    with path.open("rb") as f:
        if fault == "replaced":
            other = tmp_path / "other"
            other.write_bytes(path.read_bytes())
            other.replace(path)
        found = Contents()
        parallel_load.read_ahead(found, path, f.fileno())
        assert found.read(f.fileno()) is None
    assert told(found) == told(expected)
    assert len(joined) == (0 if fault else 2)
