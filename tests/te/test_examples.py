"""The examples about tensor expressions, as users run them."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from tilewright import device

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Runs an example in an empty directory; gives what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name: str, *options: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, *options])
        runpy.run_path(str(EXAMPLES / name))
        return capsys.readouterr().out

    return run


@pytest.mark.slow
@pytest.mark.parametrize("gpu", ["cuda", "opencl"])
def test_tensor_expressions(run, gpu: str) -> None:
    out = run("tensor_expressions.py", "--size", "64", "--gpu", gpu)
    assert "in ((n + 7) // 8):" in out and "n[0]" in out
    times = re.findall(r"^(.*\S) +[\d.]+ ms$", out, re.M)
    assert times == ["as declared", "tiles", "and vectors", "packed, all cores"]


@pytest.mark.parametrize("gpu", ["cuda", "opencl"])
def test_schedules(run, gpu: str) -> None:
    out = run("schedules.py", "--target", gpu)
    assert out.count("\n# ") == 9 and ("barrier" in out or "__syncthreads" in out)
    assert ("rows are right" in out) == device(gpu).exist
