"""What rooms find in later ones: without an import of the user's, and loaded when asked for."""

from __future__ import annotations

import subprocess
import sys


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
