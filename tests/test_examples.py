"""The examples as users run them, on the CPU with few trials; `tests/device` has the GPUs.

Those that are tests of their package, with more to compare, are `test_examples.py` of its folder.
"""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.base.errors import TilewrightError
from tilewright.measure.database import Database
from tilewright_tvm import relay, tir

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"

MATMUL = ("--size", "32", "--trials", "4")
FEW = ("--tasks", "2", "--trials", "2")

LONG = {
    "tune_model_tvmc.py",
    "tune_network_board.py",
    "tune_network_layouts.py",
    "tune_onnx_network.py",
}

# Script, options, what it prints.
CASES = [
    (
        "first_network.py", ("--trials", "2", "--log", "log"),
        ["^network +mlp$", "^2 trials in", "^untuned: ", "^tuned: ", "^Compiled.*float32"],
    ),
    (
        "torch_module.py", ("--trials", "2", "--log", "log"),
        ["^network +Network$", "^Tilewright: .* ms a run", r"^largest difference: \d.*e-0[6-9]$"],
    ),
    (
        "first_operator.py", ("--size", "32", "--trials", "4", "--log", "log"),
        ["^product: .* ms$", "^examples/rows: .* ms$", "parallel for i.outer in"],
    ),
    (
        "own_instruction.py", (),
        ["^refused: .*the bits are n0", "example.m1n4k2 C.local", "^largest difference: "],
    ),
    (
        "generate.py", ("--prompt", "5,17,60", "--tokens", "8", "--cache", "32"),
        [r"^(\d+ ){8}$", "^prompt: 3 tokens in", "^then .* tokens/s: .* of weights"],
    ),
    ("tune_matmul.py", (*MATMUL, "--log", "log"), [r"len=36,", "^Best config", " ms$"]),
    ("tune_matmul.py", (*MATMUL, "--tuner", "xgb", "--log", "log"), [r"\(4/4\)", " ms$"]),
    (
        "tune_matmul_auto_scheduler.py", (*MATMUL, "--more", "2", "--log", "log"),
        [r"s\[matmul\]\.", " ms$", "Resuming"],
    ),
    ("tune_onnx_network.py", (*FEW, "--log", "log"), [r"^class \d+", "^untuned: ", "^tuned: "]),
    (
        "tune_network_layouts.py",
        ("--network", "dqn", "--trials", "1", "--runs", "2", "--log", "log"),
        ["^untuned", "^kernels tuned", "^kernels and layouts tuned"],
    ),
    ("tune_network_board.py", ("--network", "dqn", *FEW), ["2 re-instantiated", "10 repeats"]),
    (
        "tune_network_board.py",
        ("--network", "dqn", *FEW, "--search", "auto-scheduler", "--min-repeat-ms", "1"),
        [r"5 kernels for llvm \(2 record", "10 repeats"],
    ),
    (
        "tune_model_tvmc.py", ("--trials", "2", "--log", "log"),
        ["^def @main", "^Execution time summary", "^largest difference"],
    ),
    ("operators.py", (), [r"rows\[", "softmax", r"max\("]),
    ("operators.py", ("--target", "llvm"), ["the sum is right"]),
    ("math_functions.py", (), ["expf", "logf", "results are those of numpy"]),
    ("recurrences.py", (), ["recurrences are right"]),
    ("imperative_stages.py", (), ["statements are right"]),
    ("imperative_stages.py", ("--target", "opencl"), ["statements are right"]),
    ("several_results.py", (), ["results are those of numpy"]),
    ("train_network.py", ("--steps", "30"), [r"^step  29: loss 0\.0", "^100% of new pictures"]),
    ("cross_compile.py", (), [r"\['add_one.tar'\] Module add_one", "us there"]),
]  # fmt: skip


def _case(script, options, said):
    long = script in LONG or "--search" in options
    name = f"{script} {' '.join(options)}"
    return pytest.param(script, options, said, id=name, marks=[pytest.mark.long] * long)


@pytest.mark.slow
@pytest.mark.parametrize(("script", "options", "said"), [_case(*case) for case in CASES])
def test_an_example(script, options, said, monkeypatch, tmp_path, capsys) -> None:
    if script.startswith("torch_"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, *options])
    monkeypatch.setenv("TILEWRIGHT_CERTIFICATES", os.environ.get("TILEWRIGHT_CERTIFICATES", ""))
    runpy.run_path(str(EXAMPLES / script))
    out = capsys.readouterr().out
    for text in said:
        assert re.search(text, out, re.M), text
    if "--log" in options:
        records = list(Database.load("log"))
        assert records and all(r.result.ok for r in records if r.result.verified)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options, status, told",
    [
        (("--tokens", "0"), 2, "--tokens is less than 1"),
        (("--temperature", "nan"), 2, "--temperature is nan"),
        (("network.tar", "--weights", "int4"), 2, "--weights: network.tar is compiled"),
        (("network.tar",), 1, "generate.py: open('network.tar'): it is no compiled network"),
    ],
)
def test_generate_tells_what_is_wrong_in_a_line(options, status, told, tmp_path) -> None:
    (tmp_path / "network.tar").write_text("none")
    done = subprocess.run(
        [sys.executable, EXAMPLES / "generate.py", *options], capture_output=True, text=True,
        timeout=100, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (status, "")
    assert told in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("sh"), reason="no shell to run the commands in")
def test_the_commands(tmp_path) -> None:
    import onnx

    net, weights = relay.testing.mlp.get_workload(1)
    onnx.save(relay.to_onnx(relay.bind_params(net, weights)), tmp_path / "mlp.onnx")
    (tmp_path / "tilewright").write_text(f'#!/bin/sh\nexec {sys.executable} -m tilewright "$@"\n')
    (tmp_path / "tilewright").chmod(0o755)
    (tmp_path / "python3").symlink_to(sys.executable)
    places = [str(tmp_path), os.environ.get("PATH", "")]
    done = subprocess.run(
        ["sh", EXAMPLES / "command_line.sh", "mlp.onnx"], capture_output=True, text=True,
        timeout=300, cwd=tmp_path,
        env=os.environ | {"PATH": os.pathsep.join(places), "TRIALS": "2",
                          "TILEWRIGHT": str(tmp_path / "tilewright"),
                          "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "largest difference: " in done.stdout
    with np.load(tmp_path / "after.npz") as after:
        assert after["output_0"].shape == (1, 10)


def test_every_example_is_run() -> None:
    tests = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    assert [p.name for p in EXAMPLES.iterdir() if p.is_file() and p.name not in tests] == []


def test_the_page_names_examples_that_there_are() -> None:
    page = (ROOT / "docs" / "tvm" / "compatibility.md").read_text(encoding="utf-8")
    rows = page.partition("## Scripts of TVM's galleries")[2].splitlines()[6:]
    cells = [row.split("|") for row in rows if row.startswith("|")]
    named = {name for _, _, ours, *_ in cells for name in re.findall(r"`(.+?)`", ours)}
    assert len(cells) > 25 and len(named) > 15
    assert {name for name in named if not (EXAMPLES / name).is_file()} == set()


# What scripts of TVM's galleries say where they end, and what they are told.
ENDS = [
    ("s[C].tensorize(C.op.axis[0], None)", "atom is None"),
    ("te.decl_tensor_intrin(C.op, None)", "tilewright_tvm.te.decl_tensor_intrin"),
    ('s[C].pragma(C.op.axis[0], "import_c", "void f() {}")', "Declare what it computes"),
    ("from tilewright_tvm.contrib import tedd", "print.s. shows the loops"),
    ("from tilewright_tvm.contrib.cc import create_executable", "the target says what to link for"),
    ("from tilewright.script import tir", "declare with te.compute"),
    ("from tilewright_tvm.relay.backend.contrib.uma import UMABackend", "Compilers of others"),
    ("tir.call_pure_extern('float32', '__expf', A[0])", "te has exp, log, erf"),
    ("tilewright.build(s, [A, C], 'llvm').import_module(None)", "one file holds the code"),
]


@pytest.mark.parametrize(("line", "told"), ENDS, ids=[line for line, _ in ENDS])
def test_a_script_that_ends_is_told_what_to_use(line: str, told: str) -> None:
    A = te.placeholder((4,), name="A")
    C = te.compute((4,), lambda i: A[i] * 2.0, name="C")
    names = {"tilewright": tilewright, "te": te, "tir": tir, "A": A, "C": C}
    names["s"] = te.create_schedule(C.op)
    with pytest.raises((TilewrightError, ImportError, AttributeError), match=told):
        exec(line, names)
