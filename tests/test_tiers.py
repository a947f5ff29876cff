"""What is left out by default is what its marks say; processes that pools leave are good ones."""

from __future__ import annotations

import os
import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests import tiers, times, workers
from tilewright.measure.pool import Options, WorkerCrash, WorkerPool


class Item:
    def __init__(self, name: str, **marks: int) -> None:
        self.nodeid, self.marks = f"tests/test_x.py::{name}", marks

    def get_closest_marker(self, name: str) -> Any:
        return SimpleNamespace(args=(self.marks[name],)) if name in self.marks else None


def kept(items: list[Any]) -> list[str]:
    out = tiers.left_out(items)
    return [item.nodeid.partition("::")[2] for item in items if item not in out]


def test_what_is_long_is_left_out_and_of_what_is_sampled_some_cases() -> None:
    cases = [Item(f"test_a[{x}-{y}]", sampled=3) for x in "uvw" for y in (1, 2, 3)]
    assert kept([Item("test_b", long=0), Item("test_c")]) == ["test_c"]
    left = kept(cases)
    assert left == kept(list(reversed(cases)))[::-1] and len(left) == 3
    assert {name[7] for name in left} == set("uvw") and {name[9] for name in left} == set("123")
    assert len(kept(cases[:2])) == 2


def test_properties_draw_more_where_all_is_asked_for(monkeypatch) -> None:
    for long, drawn in ((False, [10, 100]), (True, [80, 300])):
        monkeypatch.setattr(tiers, "_long", long)
        assert [tiers.examples(n).max_examples for n in (10, 100)] == drawn


def test_budgets_are_of_folders() -> None:
    assert [times.folder(f) for f in ("tests/te/test_dag.py", "tests/test_x.py")] == ["te", ""]
    most = {name: seconds + 1 for name, seconds in times.BUDGETS.items()}
    assert times.over(most).keys() == times.BUDGETS.keys()
    assert times.over({"new": times.OTHER}) == {}


def process(pool: WorkerPool) -> int:
    return pool.submit(os.getpid, timeout=20.0).result()


def gone(pid: int) -> bool:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.slow
@pytest.mark.own_workers
def test_a_pool_begins_with_the_process_of_an_earlier_one_unless_that_failed() -> None:
    options = Options(memory_bytes=9 << 30)  # of no other test
    with workers.keep():
        with WorkerPool(1, options) as pool:
            first = process(pool)
        with WorkerPool(1, options) as pool:
            assert process(pool) == first
            pool.replace_workers()
            second = process(pool)
            assert second != first and gone(first)
        with WorkerPool(1, options) as pool:
            assert process(pool) == second
            with pytest.raises(WorkerCrash):
                pool.submit(os.kill, second, signal.SIGKILL, timeout=20.0).result()
            assert process(pool) != second
        with WorkerPool(1, Options(memory_bytes=10 << 30)) as pool:
            other = process(pool)
            assert other != second
    with WorkerPool(1, Options(memory_bytes=10 << 30)) as pool:
        assert process(pool) != other
