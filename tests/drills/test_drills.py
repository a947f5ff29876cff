"""A short run of every drill; `python -m drills` makes the long ones."""

from __future__ import annotations

from collections import Counter

import pytest

from drills import drills, page
from drills.drill import Drill


@pytest.mark.parametrize("drill", drills(), ids=lambda drill: drill.name)
def test_nothing_breaks(drill: Drill) -> None:
    counts = drill.run(drill.short, 0)
    assert counts.total() == drill.short
    assert drill.broken(counts) == []


def test_a_drill_says_what_broke_and_what_never_happened() -> None:
    drill = Drill("name", "tries", lambda n, seed: Counter(), ("wrong",), ("refused",), 1, 1)
    assert drill.broken(Counter(refused=2)) == []
    assert drill.broken(Counter(wrong=3)) == ["3 times 'wrong'", "never 'refused'"]


def test_the_page_shows_the_kept_runs() -> None:
    text = page.PAGE.read_text()
    begin, end = text.index(page.BEGIN) + len(page.BEGIN), text.index(page.END)
    assert text[begin:end].strip().splitlines() == page.lines()
