"""Boards that differ: each make has its own incumbent, boards of one make are told apart, none is
raced against what a faster one measured, and who changes its speed is named, nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from farm.processes import Farm, Process, farm
from farm.test_faults import runner_of, until
from measure.kernels import TASK, job, reference
from tilewright.farm.runner import FarmRunner
from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import Key, Record
from tilewright.measure.reference import Reference, ReferenceStore
from tilewright.targets.target import Target

# Every kernel takes as long as the file says, and its race ends accordingly.
PACE = """
from dataclasses import replace
from tilewright.farm import board
made, ran, asked = board._run_job, board._ran, []
def noted(*arguments):
    asked[:] = [made(*arguments)]
    return replace(asked[0], race=False)
def timed(result):
    (run,), seconds = asked, float(open({file!r}).read())
    raced = run.race and run.best_seconds is not None and seconds > run.best_seconds
    return ran(replace(result, costs=(seconds,) * 2, raced=raced) if result.costs else result)
board._run_job, board._ran = noted, timed
"""
MAKE = """
fields = board.asdict
board.asdict = lambda spec: fields(spec) | {"fingerprint": "another make", "name": "other"}
"""


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Farm]:
    """A tracker alone."""
    with farm(tmp_path) as made:
        yield made


def paced(made: Farm, name: str, seconds: float, more: str = "") -> Process:
    (made.folder / name).write_text(str(seconds))
    spoiled = PACE.format(file=str(made.folder / name)) + more
    return made.serve_at("k", 0, before=spoiled, fresh=False)  # nobody took what it replaces


def records(
    runner: FarmRunner, builder: LocalBuilder, expected: Reference, count: int,
    database: Database | None = None, first: int = 0,
) -> list[Record]:  # fmt: skip
    with Pipeline(builder, runner, database) as pipeline:
        found = list(pipeline.measure([job("good", expected, first + n) for n in range(count)]))
    assert all(r.result.verified for r in found)
    return found


@pytest.mark.slow
def test_the_incumbent_of_each_make_is_its_own(
    empty: Farm, builder: LocalBuilder, expected: Reference
):
    """One key and one log, a board three times as slow as the other, and then the other again."""
    database, seconds = Database(), {}
    for make, pace in (("", 1e-3), (MAKE, 3e-3), ("", 2e-3)):
        board = paced(empty, f"pace {pace}", pace, make)
        with runner_of(empty) as runner:
            on = runner.describe(Target("llvm")).fingerprint
            found = records(runner, builder, expected, 3, database, first=round(pace * 1e4))
        assert {r.task.fingerprint for r in found} == {on}
        assert {r.result.seconds for r in found} == {pace}
        seconds[on] = min(seconds.get(on, pace), pace)
        # the last board alone is raced: against the first, which is of its own make
        assert all(r.result.raced for r in found) == (pace == 2e-3)
        board.stop()
        until(lambda: "is gone" in empty.tracker.text().splitlines()[-1])
    assert sorted(seconds.values()) == [1e-3, 3e-3]
    for on, best in seconds.items():
        assert database.best(Key(TASK.dag, TASK.target, on)).seconds == best


@pytest.mark.slow
def test_a_board_of_another_make_is_not_used_beside_the_first(
    empty: Farm, builder: LocalBuilder, expected: Reference
):
    notices: list[str] = []
    paced(empty, "one", 1e-3)
    with runner_of(empty, notices) as runner:
        on = runner.describe(Target("llvm")).fingerprint
        paced(empty, "other", 3e-3, MAKE)
        until(lambda: runner._dispatch.total == 2)
        found = records(runner, builder, expected, 6)
        assert {(r.task.fingerprint, r.result.seconds) for r in found} == {(on, 1e-3)}
        assert runner.n_parallel == 1
    assert [text for text in notices if "give it a key of its own" in text] == notices != []


@pytest.mark.slow
def test_a_slow_board_is_told_and_not_raced_against_a_fast_one(
    empty: Farm, builder: LocalBuilder, expected: Reference
):
    notices: list[str] = []
    paced(empty, "fast", 1e-3)
    with runner_of(empty, notices, 0.2) as runner:
        records(runner, builder, expected, 2)
        slow = paced(empty, "slow", 3e-3)
        until(lambda: runner.n_parallel == 2)
        found = records(runner, builder, expected, 8, first=2)
    assert {r.result.seconds for r in found} == {1e-3, 3e-3}
    assert not any(r.result.raced for r in found)
    (told,) = notices
    assert f":{slow.port} and " in told and "differ: the same kernel takes 3 and 1 ms" in told


@pytest.mark.slow
def test_the_drift_of_one_board_is_told_of_it_alone(
    empty: Farm, builder: LocalBuilder, expected: Reference, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tilewright.farm.runner._YARDSTICK_TRIALS", 2)
    notices: list[str] = []
    steady, other = paced(empty, "steady", 1e-3), paced(empty, "other", 1.05e-3)
    with runner_of(empty, notices, 0.1) as runner:
        until(lambda: runner.n_parallel == 2)
        records(runner, builder, expected, 8)
        assert notices == []
        (empty.folder / "other").write_text("2e-3")
        found = records(runner, builder, expected, 12, first=8)
        (empty.folder / "other").write_text("1e-3")
        records(runner, builder, expected, 12, first=20)
    assert [r for r in found if r.result.seconds == 2e-3]
    assert len(notices) == 2 and all(f":{other.port} has changed its speed" in n for n in notices)
    assert "takes 2 and 1.05 ms" in notices[0] and "takes 1 and 2 ms" in notices[1]
    assert not any(f":{steady.port}" in text for text in notices)


@pytest.mark.slow
def test_a_board_that_joins_when_the_first_task_is_over_is_not_lost(
    empty: Farm, builder: LocalBuilder, expected: Reference
):
    """The inputs of the kernel that all boards are timed with are gone by then."""
    notices: list[str] = []
    paced(empty, "first", 1e-3)
    with runner_of(empty, notices, 0.1) as runner:
        with ReferenceStore() as store:
            records(runner, builder, reference(store), 2)
        paced(empty, "second", 1e-3)
        until(lambda: runner.n_parallel == 2)
        assert len(records(runner, builder, expected, 6)) == 6
    assert notices == []
