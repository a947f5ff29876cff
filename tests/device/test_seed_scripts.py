"""The tutorials' scripts from end to end, as users run them: without a main guard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tilewright.measure import Database
from tilewright.runtime.device import Device

ROOT = Path(__file__).parents[2]


def run_script(name: str, folder: Path, *options: str) -> str:
    script = ROOT / "examples" / name
    assert "__name__" not in script.read_text()
    done = subprocess.run(
        [sys.executable, str(script), *options],
        cwd=folder, capture_output=True, text=True, timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_convolution(on_device: Device, kind: str, tmp_path: Path) -> None:
    out = run_script(
        "tune_conv2d_cuda.py", tmp_path, "--target", kind, "--trials", "4", "--number", "3"
    )
    assert "ConfigSpace (len=10454400, space_map=\n" in out
    trials = re.findall(r"^No: (\d+)\tGFLOPS: [\d.]+/([\d.]+)\t", out, re.M)
    assert [number for number, _ in trials] == ["1", "2", "3", "4"]
    assert float(trials[-1][1]) > 0
    assert re.search(r"^Best config:\n(\[\('tile_f', .*\]),,None,\d+$", out, re.M)
    assert re.search(r"^Time cost of this operator: \d+\.\d+$", out, re.M)
    counts = Database.load(tmp_path / "conv2d.log").counts()
    assert counts.records == 4 and counts.ok >= 1 and counts.tasks == 1


def test_a_network(on_device: Device, kind: str, tmp_path: Path) -> None:
    out = run_script(
        "tune_network.py", tmp_path,
        "--target", kind, "--trials", "2", "--tasks", "2", "--image", "64", "--tuner", "random",
    )  # fmt: skip
    assert "12 distinct convolutions\n" in out
    assert re.search(r"\[Task  2/ 2\] +Current/Best: .* Progress: \(2/2\) .* Done\.", out)
    assert "re-instantiated" in out  # the records are of bare convolutions, the kernels are fused
    assert re.search(r"mean", out)
    assert len(Database.load(tmp_path / "resnet-18.log")) == 2
