"""Threads of a search give way to each other soon, and only there."""

from __future__ import annotations

import sys

import pytest

from tilewright.base.concurrency import short_turns


def test_a_search_leaves_the_turns_of_threads_as_they_were() -> None:
    before = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), short_turns():
        inside = sys.getswitchinterval()
        assert inside < before
        with short_turns():
            assert sys.getswitchinterval() == inside
        assert sys.getswitchinterval() == inside
        raise ZeroDivisionError
    assert sys.getswitchinterval() == before
