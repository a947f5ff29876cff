"""The tutorials' scripts from end to end, as users run them: without a main guard."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.measure import Database
from tilewright.runtime.device import Device

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.long]  # `tests/tvm/test_tutorials.py` runs by default


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


def test_a_convolution_without_a_template(on_device: Device, kind: str, tmp_path: Path) -> None:
    out = run_script(
        "tune_conv2d_layer_auto_scheduler.py", tmp_path,
        "--target", kind, "--trials", "4", "--more", "2", "--min-repeat-ms", "5",
    )  # fmt: skip
    assert "\ncompute(i0, i1, i2, i3) = max(T_add[i0, i1, i2, i3], 0f)\n" in out
    assert [int(n) for n in re.findall(r"^No: (\d+)\t", out, re.M)] == [1, 2, 3, 4, 1, 2]
    assert re.search(r"^Execution time of this operator: \d+\.\d+ ms$", out, re.M)
    assert "s = te.create_schedule(te.ComputeDAG(tensors))\n" in out
    trials = [r.candidate for r in Database.load(tmp_path / "conv2d.json") if not r.result.final]
    assert len(trials) == len(set(trials)) == 6


def test_a_network_without_templates(on_device: Device, kind: str, tmp_path: Path) -> None:
    out = run_script(
        "tune_network_auto_scheduler.py", tmp_path,
        "--target", kind, "--trials", "22", "--image", "32", "--min-repeat-ms", "1",
    )  # fmt: skip
    assert out.count("(workload key: ") == 22
    assert re.search(r"^Estimated total latency: \S+ ms\tTrials: 22\t", out, re.M)
    assert "Measured end-to-end latency: " in out and "mean" in out.rpartition("Evaluate")[2]
    assert (tmp_path / f"mobilenet-NHWC-B1-{kind}.json").exists()


def test_a_network(on_device: Device, kind: str, tmp_path: Path) -> None:
    out = run_script(
        "tune_network.py", tmp_path,
        "--target", kind, "--trials", "2", "--tasks", "2", "--image", "64", "--tuner", "random",
    )  # fmt: skip
    assert "12 tasks: distinct convolutions" in out
    assert re.search(r"\[Task  2/ 2\] +Current/Best: .* Progress: \(2/2\) .* Done\.", out)
    assert "re-instantiated" in out  # the records are of bare convolutions, the kernels are fused
    assert re.search(r"mean", out)
    assert len(Database.load(tmp_path / "resnet-18.log")) == 2
