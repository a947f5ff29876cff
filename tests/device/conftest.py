"""The device suite: unchanged on every device that exists here; TILEWRIGHT_DEVICE_KIND picks one.

With `--long` all of it.  TILEWRIGHT_DEVICE_REPORT=path writes a report (commit, device, counts)
after the run; the one for the GPU lives in benchmarks/results/ and the summary says when it is
older than the code it covers.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tilewright.runtime.device import Device, device

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "benchmarks" / "results" / "device_suite_cuda.json"
COVERED = ("base", "targets", "ir", "schedule", "lowering", "codegen", "runtime", "driver")
_outcomes: Counter[str] = Counter()


def code_hash() -> str:
    """Hash of everything the suite covers."""
    digest = hashlib.sha256()
    for room in COVERED:
        for path in sorted((ROOT / "src" / "tilewright" / room).rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def kinds() -> list[str]:
    wanted = os.environ.get("TILEWRIGHT_DEVICE_KIND")
    return [wanted] if wanted else [k for k in ("cuda", "opencl") if device(k).exist]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", kinds())


@pytest.fixture
def on_device(kind: str) -> Device:
    chosen = device(kind)
    problem = chosen.why_not()
    if problem is not None:
        pytest.fail(str(problem))
    return chosen


def pytest_runtest_logreport(report: Any) -> None:
    if "tests/device/" not in report.nodeid:  # pytest calls this for all tests of the run
        return
    if report.when == "call" or not report.passed:  # a device that does not open fails in setup
        _outcomes[report.outcome] += 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    target = os.environ.get("TILEWRIGHT_DEVICE_REPORT")
    if target:
        kind = kinds()[0]
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=False,
        ).stdout.strip()
        body = {
            "suite": "tests/device",
            "commit": os.environ.get("TILEWRIGHT_COMMIT") or commit,
            "code": code_hash(),
            "date": time.strftime("%Y-%m-%d"),
            "device": device(kind).name,
            "kind": kind,
            **_outcomes,
        }
        Path(target).write_text(json.dumps(body, indent=1) + "\n")
    elif REPORT.exists():
        known = json.loads(REPORT.read_text())
        state = (
            "covers this code"
            if known.get("code") == code_hash()
            else "is OLDER than the code it covers"
        )
        terminalreporter.write_line(
            f"device suite on {known['device']} ({known['date']}, commit {known['commit']}): "
            f"{known.get('passed', 0)} passed, {known.get('failed', 0)} failed; it {state}"
        )
