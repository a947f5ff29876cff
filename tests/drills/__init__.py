"""Drills: the system is broken on purpose, again and again, and must hold.

`test_drills.py` runs a few seconds of each in CI; the command runs all of it and prints a table:

    PYTHONPATH=src:tests:benchmarks python -m drills [NAME...] [--seed 0] [--jobs 1] [--keep]

A drill is a module of this package with a `DRILL`.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from drills.drill import Counts, Drill

_OTHERS = ("__main__", "drill", "page", "replay")


def names() -> list[str]:
    """Of all drills: those of their modules."""
    modules = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return [n for n in modules if n not in _OTHERS and not n.startswith(("test_", "_"))]


def named(name: str) -> Drill:
    """Nothing that only other drills need is imported."""
    found: Drill = import_module(f"{__name__}.{name}").DRILL
    return found


def drills() -> list[Drill]:
    """All of them, by name."""
    return [named(name) for name in names()]


def run(name: str, tries: int, seed: int) -> Counts:
    """What so many tries of the drill called `name` gave."""
    return named(name).run(tries, seed)
