"""TVM's tutorials as they are printed, of 0.6 to 0.14: `tvm` is this package, and nothing else is
changed but how long they search."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.measure import Database
from tilewright.runtime.device import device

HERE = Path(__file__).parent

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(params=["opencl", "cuda"])  # OpenCL runs on a processor, too
def target(request: pytest.FixtureRequest) -> str:
    if not device(request.param).exist:
        pytest.skip(f"no device for {request.param}")
    return str(request.param)


def printed(script: str, folder: Path, **options: object) -> str:
    """What the script prints, run in `folder`; options: of it, as environment variables."""
    given = {f"TUTORIAL_{name.upper()}": str(value) for name, value in options.items()}
    given |= {"TUTORIAL_HOST": "llvm"}
    done = subprocess.run(
        [sys.executable, "-m", "tilewright_tvm", HERE / "tutorials" / script],
        cwd=folder, capture_output=True, text=True, timeout=900, env=os.environ | given,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_template_of_tvm_0_6(target: str, tmp_path: Path) -> None:
    out = printed("tune_conv2d_cuda.py", tmp_path, target=target, trials=4, repeat=1)
    assert "ConfigSpace (len=10454400, space_map=\n" in out
    assert [int(n) for n in re.findall(r"^No: (\d+)\t", out, re.M)] == [1, 2, 3, 4]
    assert re.search(r"^Best config:\n(\[\('tile_f', .*\]),,None,\d+$", out, re.M)
    assert re.search(r"^Time cost of this operator: \d+\.\d+$", out, re.M)


def test_a_layer_without_a_template(target: str, tmp_path: Path) -> None:
    short = {"trials": 3, "more": 1, "repeat_ms": 50}
    out = printed("tune_conv2d_layer_cuda.py", tmp_path, target=target, **short)
    assert "\ncompute(nn, ff, yy, xx) += (pad_temp[nn, rc, (yy + ry), (xx + rx)]*kernel" in out
    assert re.search(r"^Execution time of this operator: \d+\.\d+ ms$", out, re.M)
    assert "Equivalent python schedule:" in out and out.endswith("resumed\n")
    assert len([r for r in Database.load(tmp_path / "conv2d.json") if not r.result.final]) == 4


@pytest.mark.long
def test_a_network(target: str, tmp_path: Path) -> None:
    short = {"trials": 1, "repeat": 2, "repeat_ms": 1, "number": 1}
    out = printed("tune_relay_cuda.py", tmp_path, target=target, **short)
    assert [int(n) for n in re.findall(r"\[Task +(\d+)/12\].*\(1/1\).*Done\.$", out, re.M)] == [
        *range(1, 13)
    ]
    assert "Execution time of one call over 2 repeats" in out
    assert len(Database.load(tmp_path / "resnet-18.log").tasks()) == 12


@pytest.mark.long
def test_a_network_on_the_one_board_of_a_tracker(target: str, tmp_path: Path) -> None:
    """Which the script itself holds, by a session it asked what the board is."""
    pytest.importorskip("distributed")
    if target != "opencl":
        pytest.skip("the tutorial's board has a Mali GPU")
    from farm.processes import farm

    (tmp_path / "farm").mkdir()
    with farm(tmp_path / "farm", ["rk3399"]) as made:
        out = printed("tune_network_mali.py", tmp_path, target=target, trials=22, port=made.port)
    assert out.count("(workload key: ") == 22
    assert "=============== Request Remote ===============\n" in out
    assert "Execution time of one call over 3 repeats" in out
