"""The auto-scheduler's tutorials as users run them, on the CPU; `tests/device` has the GPUs."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from tilewright.measure.database import Database
from tilewright.runtime import device, opencl

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Runs an example in an empty directory; gives what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(EXAMPLES / name))
        return capsys.readouterr().out

    return run


@pytest.mark.long
def test_a_convolution_layer(run) -> None:
    out = run(
        "tune_conv2d_layer_auto_scheduler.py", "--target", "llvm", "--trials", "4",
        "--more", "2", "--min-repeat-ms", "2",
    )  # fmt: skip
    assert [int(n) for n in re.findall(r"^No: (\d+)\t", out, re.M)] == [1, 2, 3, 4, 1, 2]
    assert "Resuming: the best of earlier runs takes" in out
    trials = [r.candidate for r in Database.load("conv2d.json") if not r.result.final]
    assert len(trials) == len(set(trials)) == 6


@pytest.mark.long
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_a_product_with_a_sparse_matrix(run, target: str) -> None:
    """It compares its own results; the rule of its own is searched."""
    if not device(target).exist:
        pytest.skip(f"no {target} device")
    out = run(
        "tune_sparse_dense_auto_scheduler.py", "--target", target, "--trials", "6",
        "--min-repeat-ms", "2",
    )  # fmt: skip
    assert [int(n) for n in re.findall(r"^No: (\d+)\t", out, re.M)] == [1, 2, 3, 4, 5, 6]
    assert "Execution time of this operator" in out
    records = list(Database.load("sparse_dense.json"))
    assert any(r.origin == "rules:SparseDense" and r.result.verified for r in records)
    assert len(list(Path().glob("sparse_dense_bsr_*.npy"))) == 3


@pytest.mark.long
def test_a_network(run) -> None:
    out = run(
        "tune_network_auto_scheduler.py", "--target", "llvm", "--trials", "22", "--image", "32",
        "--min-repeat-ms", "1",
    )  # fmt: skip
    assert out.count("(workload key: ") == 22
    last = out.rpartition("[ Task Scheduler ]")[2]
    counts = re.findall(r"\| +(\d+) \|$", last, re.M)
    assert len(counts) == 22 and sum(map(int, counts)) == 22
    assert re.search(r"^Measured end-to-end latency: [\d.]+ ms \(estimated: ", last, re.M)
    assert "(22 record)" in last


@pytest.mark.long
@pytest.mark.skipif(not opencl().exist, reason="no OpenCL device to stand in for a Mali")
def test_a_network_for_a_mali(run) -> None:
    """Made for a board that is elsewhere; an OpenCL device of this machine measures its kernels."""
    out = run("tune_network_mali.py", "--trials", "22", "--image", "32", "--min-repeat-ms", "1")
    assert out.count("(workload key: ") == 22
    assert re.search(r"^22 kernels for opencl -device=mali \(22 record\)", out, re.M)
    assert "aarch64-linux-gnu is another machine" in out
    assert "Execution time of one call over 3 repeats" in out.rpartition("Evaluate inference")[2]
