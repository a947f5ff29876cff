"""Python's collector looks seldom where schedules are made by the thousand, and only there."""

from __future__ import annotations

import gc

import pytest

from tilewright.base.garbage import looked_for_seldom


def test_a_search_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold()
    with pytest.raises(ZeroDivisionError), looked_for_seldom():
        assert gc.get_threshold()[0] > before[0]
        raise ZeroDivisionError
    assert gc.get_threshold() == before


def test_a_collector_that_is_off_stays_off() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with looked_for_seldom():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)
