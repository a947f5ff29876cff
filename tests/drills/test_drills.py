"""A short run of every drill; `python -m drills` makes the long ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from drills import drills, page
from drills._doors import doors, files
from drills.drill import Drill

LONG = {
    "differential",
    "forks",
    "kills",
    "log_lines",
    "long_run",
    "machine_faults",
    "models",
    "planted_faults",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "drill",
    [
        pytest.param(drill, id=drill.name, marks=[pytest.mark.long] if drill.name in LONG else [])
        for drill in drills()
    ],
)
def test_nothing_breaks(drill: Drill) -> None:
    counts = drill.run(drill.short, 0)
    assert counts.total() == drill.short
    assert drill.broken(counts) == []


# These need PyTorch, a log with records, a tracker, a registered buffer; one is abstract.
REFUSED = {
    "autotvm.RPCRunner", "auto_scheduler.RPCRunner",
    "relay.frontend.from_exported_program", "relay.frontend.from_pytorch",
    "auto_scheduler.load_best_record", "auto_scheduler.load_best",
    "auto_scheduler.get_task_input_buffer",
    "autotvm.ApplyGraphBest", "autotvm.apply_graph_best",
    "autotvm.task.ApplyGraphBest", "autotvm.database.Database",
}  # fmt: skip


@pytest.mark.slow
def test_right_arguments_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the drill of the doors reaches what stands behind them."""
    monkeypatch.chdir(tmp_path)
    files()
    wrong = {}
    for door in doors():
        try:
            door(door.arguments())
        except Exception as error:
            wrong[door.name] = str(error)
    assert {name: why for name, why in wrong.items() if name not in REFUSED} == {}


def test_a_drill_says_what_broke_and_what_never_happened() -> None:
    drill = Drill("name", "tries", lambda n, seed: Counter(), ("wrong",), ("refused",), 1, 1)
    assert drill.broken(Counter(refused=2)) == []
    assert drill.broken(Counter(wrong=3)) == ["3 times 'wrong'", "never 'refused'"]


def test_the_page_shows_the_kept_runs() -> None:
    text = page.PAGE.read_text()
    begin, end = text.index(page.BEGIN) + len(page.BEGIN), text.index(page.END)
    assert text[begin:end].strip().splitlines() == page.lines()
