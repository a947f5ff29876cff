"""`python -m tilewright_tvm.driver.tvmc`: TVM's options work, or say what to do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright_tvm import relay, tvmc
from tilewright_tvm.tvmc import main as command
from tilewright_tvm.tvmc.main import run
from tvm.tvmc.test_calls import network

pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.onnx").write_bytes(relay.to_onnx(*network()).SerializeToString())
    return tmp_path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """What the functions of Python are called with."""
    seen: dict[str, object] = {}
    for name in ("tune_model", "compile_model"):
        monkeypatch.setattr(command, name, lambda *args, **given: seen.update(given, args=args))
    return seen


@pytest.mark.slow
def test_tune_compile_and_run_in_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    tune = ["tune", "net.onnx", "--target", "llvm", "-o", "rec.json", "--trials", "1"]
    assert run([*tune, "--number", "1", "--repeat", "1", "--min-repeat-ms", "1"]) == 0
    compile_ = ["compile", "net.onnx", "--target", "llvm", "--tuning-records", "rec.json"]
    assert run([*compile_, "--dump-code", "ll,relay", "-O", "3"]) == 0
    assert Path("module.tar").is_file() and "define" in Path("module.tar.ll").read_text()
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype("float32")
    np.savez("in.npz", x=x)
    capsys.readouterr()
    ran = ["run", "module.tar", "--device", "cpu", "-i", "in.npz", "-o", "out.npz"]
    assert run([*ran, "--print-time", "--print-top", "2"]) == 0
    said = capsys.readouterr().out
    assert "Execution time summary" in said and said.count("array(") == 2
    want = tvmc.run(tvmc.TVMCPackage("module.tar"), inputs={"x": x}, benchmark=False).outputs
    with np.load("out.npz") as found:
        assert all(np.array_equal(found[name], want[name]) for name in want)


def test_options_reach_the_functions(calls: dict[str, object]) -> None:
    options = "--target llvm --target-llvm-mcpu haswell --trials 7 --tuner xgb-rank --tasks 0,2-3"
    more = "--rpc-tracker 10.0.0.1:9191 --rpc-key pi --early-stopping 5 --desired-layout NHWC"
    rules = "--enable-autoscheduler --num-cores 2 --vector-unit-bytes 32 -v"
    words = f"tune -o r.json net.onnx {options} {more} {rules}".split()
    assert run([*words, "--input-shapes", "x:[1,4,8,8]"]) == 0
    assert calls["additional_target_options"] == {"llvm": {"mcpu": "haswell"}}
    told = ("trials", "tuner", "tasks_filter", "hostname", "port", "rpc_key", "tuning_records")
    assert [calls[name] for name in told] == [
        7, "xgb-rank", "0,2-3", "10.0.0.1", 9191, "pi", "r.json",
    ]  # fmt: skip
    hardware = calls["hardware_params"]
    assert (hardware.num_cores, hardware.vector_unit_bytes) == (2, 32)
    words = "compile net.onnx --target llvm -o n.so -f so --disabled-pass FuseOps,FoldConstant"
    assert run([*words.split(), "--pass-config", "relay.FuseOps.max_depth=4"]) == 0
    assert calls["disabled_pass"] == ["FuseOps", "FoldConstant"]
    assert calls["pass_context_configs"] == ["relay.FuseOps.max_depth=4"]
    assert (calls["package_path"], calls["output_format"]) == ("n.so", "so")


REFUSED = [
    ("compile net.onnx --target llvm --executor aot", "microcontrollers.*TVM 0.18"),
    ("compile net.onnx --target llvm -f mlf", "--output-format mlf.*TVM 0.18"),
    ("compile net.onnx --target llvm --executor-aot-link-params 1", "one executor"),
    ("compile net.onnx --target llvm --mixed-precision", "--dtype float16"),
    ("compile net.onnx --target llvm --mixed-precision-ops nn.conv2d", "--dtype float16"),
    ("compile net.onnx --target llvm --print-ir-after [A]", "--dump-code"),
    ("compile net.onnx --target llvm --workspace-pools x", "memory is planned by itself"),
    ("compile net.onnx --target llvm --use-vm", "use_vm"),
    ("compile net.onnx --target ethos-u,llvm", "compilers of others"),
    ("compile net.onnx", "there is no target"),
    ("compile gone.onnx --target llvm", "^Error: gone.onnx: there is no such file"),
    ("tune net.onnx -o r --target llvm --trials 0", "nothing to try"),
    ("tune net.onnx -o r --target llvm --num-cores 2", "only rules look at them"),
    ("tune net.onnx -o r --target llvm --rpc-tracker h:1", "need both"),
    ("compile net.onnx --target llvm --tuning-records no", "^Error: --tuning-records no: there is"),
    ("run net.onnx", "^Error: net.onnx: it is no compiled network"),
    ("run gone.tar", "^Error: gone.tar: the file cannot be read"),
    ("run gone.tar --input a.npz --output b.npz", "^Error: gone.tar"),  # as TVM cuts them short
    ("run module.tar --device micro", "no such file|microcontrollers"),
    ("micro create-project x", "TVM 0.18 was the last"),
]


@pytest.mark.parametrize(("words", "told"), REFUSED)
def test_what_is_not_there_says_what_to_do(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = set(Path().iterdir())
    assert run(words.split()) == 4
    said = capsys.readouterr()
    assert said.out == "" and re.search(told, said.err), said.err
    assert said.err.startswith("Error: ") and len(said.err.splitlines()) == 1
    assert set(Path().iterdir()) == before


def test_a_wrong_option_is_told_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(["compile", "net.onnx", "--target", "llvm", "--nonsense"])
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err


@pytest.mark.slow
def test_the_module_is_the_command_by_all_its_names() -> None:
    for name in ("tilewright_tvm.driver.tvmc", "tilewright_tvm.tvmc"):
        done = subprocess.run(
            [sys.executable, "-m", name, "micro"], capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 4 and done.stderr.startswith("Error: tvmc micro: ")
