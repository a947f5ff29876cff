"""What rooms offer of later ones: found without an import of the user's, loaded when asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tilewright import te
from tilewright.base.offers import load, offer, offered


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


LOADED = "print(*sorted(m for m in sys.modules if m.startswith('tilewright.')))"


def test_te_alone_makes_schedules_and_loads_no_later_room_before():
    code = ["import sys", "from tilewright import te", LOADED, "te.create_schedule", LOADED]
    before, after = (set(line.split()) for line in run("\n".join(code)).splitlines())
    assert "tilewright.schedule.schedule" in after - before


def test_templates_are_found_by_whoever_asks_first():
    code = [
        "import sys", "from tilewright import te", "from tilewright.targets.target import Target",
        "from tilewright.schedule.template import registered_computations as found",
        "assert 'tilewright.topi' not in sys.modules", "found(Target('llvm'))",
        "print('tilewright.topi.templates.winograd' in sys.modules)",
    ]  # fmt: skip
    assert run("\n".join(code)).strip() == "True"


@pytest.mark.parametrize("name", ["extern", "scan", "gradient"])
def test_a_name_is_no_module_of_the_same_name(name):
    assert load(f"tilewright_tvm.te:{name}").__name__.endswith(name)
    assert callable(getattr(te, name))


def test_what_is_offered_later_is_found():
    offer("tests", {"a": "json:dumps"})
    offer("tests", {"b": "json"})
    assert offered("tests") == {"a": "json:dumps", "b": "json"}
    assert [load(place).__name__ for place in offered("tests").values()] == ["dumps", "json"]
    assert offered("nothing") == {}
