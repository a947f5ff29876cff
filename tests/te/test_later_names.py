"""Names of `te` that later rooms have: found without an import of theirs, loaded when asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest

from tilewright.base import plugins
from tilewright_tvm import te

LOADED = "print(*sorted(m for m in sys.modules if m.startswith('tilewright')))"


def test_te_alone_makes_schedules_and_loads_no_later_room_before():
    code = ["import sys", "from tilewright import te", LOADED, "te.create_schedule", LOADED]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)], capture_output=True, text=True, timeout=120
    )
    before, after = (set(line.split()) for line in done.stdout.splitlines())
    assert "tilewright.schedule.schedule" in after - before


@pytest.mark.parametrize("name", ["extern", "scan", "gradient"])
def test_a_name_is_no_module_of_the_same_name(name):
    assert import_module(f"tilewright_tvm.te.{name}").__name__.endswith(name)
    assert callable(getattr(te, name))


def test_what_is_registered_later_is_found():
    plugins.register("tests", {"a": "json:dumps"})
    plugins.register("tests", {"b": "json"})
    assert [plugins.placed("tests", name).__name__ for name in "ab"] == ["dumps", "json"]
    assert plugins.placed("tests", "c") is None and plugins.placed("nothing", "a") is None
