"""What tests take: `--times=FILE` keeps it by folder and by file, `BUDGETS` says what it may be.

Measure the whole default run with `-n auto` on two cores that do nothing else: its seconds are
those that go by, in all processes together, and count where nothing else runs.
In: reports of tests.  Out: `benchmarks/results/tests.json`.  Read next: `test_layout.py`.
"""

from __future__ import annotations

import functools
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

# Seconds of the tests of a folder, all together; "": the files in none.  Another folder has OTHER.
BUDGETS: Mapping[str, float] = {
    "": 130, "base": 20, "cli": 40, "codegen": 50, "device": 50, "drills": 50, "driver": 20,
    "farm": 290, "graph": 75, "ir": 35, "lowering": 20, "measure": 45, "models": 65,
    "network": 70, "runtime": 35, "schedule": 65, "search": 75, "te": 15, "topi": 90, "tvm": 235,
}  # fmt: skip
OTHER = 15.0
KEPT = Path(__file__).parents[1] / "benchmarks" / "results" / "tests.json"
WHOLE = 1250.0  # of all; three processes on two cores share them


class Times:
    """A plugin of pytest that sums what tests take; with xdist, where the reports arrive."""

    def __init__(self, path: Path) -> None:
        self._path, self._began = path, time.monotonic()
        self._files: dict[str, float] = defaultdict(float)
        self._tests: dict[str, set[str]] = defaultdict(set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file = report.nodeid.partition("::")[0]
        self._files[file] += report.duration
        self._tests[file].add(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        passed = time.monotonic() - self._began
        counts = {file: len(tests) for file, tests in self._tests.items()}
        told = summary(self._files, counts, passed, session.config.getoption("numprocesses", None))
        self._path.write_text(json.dumps(told, indent=1) + "\n")


def summary(
    files: Mapping[str, float], tests: Mapping[str, int], passed: float, processes: int | None
) -> dict[str, Any]:
    """The entry that is kept.  files: seconds by file; passed: seconds of the run"""
    from benchmarks.results_file import cpu_name, working_commit

    folders: dict[str, float] = defaultdict(float)
    for file, seconds in files.items():
        folders[folder(file)] += seconds
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "commit": working_commit(),
        "device": cpu_name(), "processes": processes or 1, "tests": sum(tests.values()),
        "seconds_passed": round(passed, 1), "seconds": round(sum(files.values()), 1),
        "folders": _sorted(folders), "files": _sorted(files),
    }  # fmt: skip


def folder(file: str) -> str:
    """The folder below `tests` that a file of tests is in: "tests/te/test_dag.py" gives "te"."""
    parts = Path(file).parts
    return parts[1] if len(parts) > 2 else ""


def last_taken(item: pytest.Item) -> float:
    """Seconds that the file of a test took in the last kept run; 0 for one that is new."""
    return _last_run().get(item.nodeid.partition("::")[0], 0.0)


@functools.cache
def _last_run() -> dict[str, float]:
    if not KEPT.exists():  # an archive of the sources holds no figures
        return {}
    files: dict[str, float] = json.loads(KEPT.read_text(encoding="utf-8"))["files"]
    return files


def over(folders: Mapping[str, float]) -> dict[str, str]:
    """The folders that take more than their budget."""
    allowed = ((name, seconds, BUDGETS.get(name, OTHER)) for name, seconds in folders.items())
    return {name: f"{s:.0f} s of {most:.0f}" for name, s, most in allowed if s > most}


def _sorted(seconds: Mapping[str, float]) -> dict[str, float]:
    most_first: Iterable[str] = sorted(seconds, key=lambda name: -seconds[name])
    return {name: round(seconds[name], 2) for name in most_first}
