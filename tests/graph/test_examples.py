"""Examples about networks that are not tuned, as users run them, on the CPU."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

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


@pytest.mark.long
def test_a_network_is_compiled(run) -> None:
    out = run("compile_network.py")
    assert "nn.conv2d" in out and "multiplications" in out
    differences = re.findall(r"largest difference .*: (\S+)$", out, re.M)
    assert len(differences) == 2 and all(float(d) < 1e-5 for d in differences)


@pytest.mark.slow
def test_a_network_is_deployed(run) -> None:
    out = run("deploy_network.py")
    assert "inputs: {'data': (2, 3, 32, 32)}" in out
    assert "Execution time of one call over 3 repeats" in out
    assert "batch 1 gives (1, 4)" in out and "batch 5 gives (5, 4)" in out
