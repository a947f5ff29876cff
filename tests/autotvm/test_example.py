"""The tutorial's script from end to end, as a user runs it: a main script without a main guard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.measure import Database
from tilewright.runtime.device import device

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "tune_conv2d_cuda.py"


@pytest.mark.opencl
def test_the_script_tunes_builds_checks_and_times(tmp_path: Path) -> None:
    if not device("opencl").exist:
        pytest.skip("no opencl device here")
    assert "__name__" not in SCRIPT.read_text()
    log = tmp_path / "conv2d.log"
    done = subprocess.run(
        [
            sys.executable, str(SCRIPT), "--target", "opencl", "--trials", "4", "--number", "3",
            "--log", str(log),
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=250,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ConfigSpace (len=10454400, space_map=\n" in done.stdout
    trials = re.findall(r"^No: (\d+)\tGFLOPS: [\d.]+/([\d.]+)\t", done.stdout, re.M)
    assert [number for number, _ in trials] == ["1", "2", "3", "4"]
    assert float(trials[-1][1]) > 0
    best = re.search(r"^Best config:\n(\[\('tile_f', .*\]),,None,\d+$", done.stdout, re.M)
    assert best is not None
    assert re.search(r"^Time cost of this operator: \d+\.\d+$", done.stdout, re.M)
    counts = Database.load(log).counts()
    assert counts.records == 4 and counts.ok >= 1 and counts.tasks == 1
