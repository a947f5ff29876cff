"""Schedules, the loop tree behind them, spaces of decisions, templates and tasks.

In order, each importing only what comes before it (import-linter checks that):
`space/` (numbers still open), `state.py` (the loops of all stages at one moment), `steps/` (who
changes them), `tree/` (what they mean), `schedule.py` (the spelling users know), `sketch.py`,
`template.py`, `default.py`, `task.py`.
"""

from typing import Any

from tilewright.base import forward


def __getattr__(name: str) -> Any:
    return forward.find(__name__, name)
