"""Models as people have them, on a command line: files of PyTorch, scripts, computations."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tilewright import front
from tilewright.base.errors import ModelError
from tilewright.cli import tune
from tilewright.cli.app import main
from tilewright.models import scripts
from tilewright.network import tune_network
from tilewright.network.helpers import Helpers

Run = Callable[..., tuple[Any, str, str]]
WITH_TORCH = find_spec("torch") is not None

SCRIPT = """
import numpy as np
from tilewright import te
from tilewright.graph.expr import Function, TensorType, Var
from tilewright.graph.functions import nn
import beside

x = Var("x", TensorType((2, 8), "float32"))
weight = Var("fc_weight", TensorType((4, 8), "float32"))
graph = Function([x, weight], nn.dense(x, weight))

def net():
    return graph, {"fc_weight": np.full((4, 8), beside.VALUE, "float32")}

def product(n=8):
    a = te.placeholder((n, 4), name="a")
    k = te.reduce_axis((0, 4), name="k")
    return [a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="c")]

def fails():
    raise ValueError("the weights are not here")

def leaves():
    raise SystemExit(3)

def derived():
    class Odd(BaseException):
        pass
    raise Odd("skipped")

def given():
    import torch
    return torch.nn.ReLU(), torch.zeros(4)

def only_input():
    return [te.placeholder((8,), name="a")]

def takes(path, size=3):
    return graph

def nothing():
    pass

def number():
    return 3

def refused():
    return nn.dense(x, weight, units=5)
"""


@pytest.fixture
def run(capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line where a script is; gives exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("made", "beside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    Path("made.py").write_text(SCRIPT)
    Path("beside.py").write_text("VALUE = 2.0\n")

    def run(*args: str) -> tuple[Any, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(args))
            sys.exit(0)
        said = capsys.readouterr()
        for name in ("made", "beside"):
            sys.modules.pop(name, None)
        return ended.value.code, said.out, said.err

    return run


@pytest.mark.slow
def test_a_graph_of_a_script_is_tuned_timed_and_compiled(run: Run) -> None:
    code, out, err = run("tune", "made.py:net", "--target", "llvm", "--trials", "2")
    lines = out.splitlines()
    assert code == 0, err
    assert lines[0] == "tuning made.py:net for llvm, results in made.net.llvm.jsonl (0 so far)"
    assert lines[2].startswith("untuned: ") and lines[2].endswith(" a run, 1 kernel")
    assert "x as fast as untuned" in out
    following = lines[-1].removeprefix("Done.  Next: tilewright ").split()
    code, out, err = run(*following)
    assert code == 0 and "  tuned  " in out and "  fc  " in out, err
    shares = [float(line.split("%")[0]) for line in out.splitlines() if "%   " in line]
    assert shares[-1] == 100 and sum(shares[:-1]) == pytest.approx(100, abs=0.5)
    code, out, err = run("compile", "made.py:net", "--target", "llvm")
    assert code == 0 and "made.net.llvm.tar" in out, err


@pytest.mark.slow
def test_a_computation_of_a_script_is_tuned_timed_and_compiled(run: Run) -> None:
    assert "  0  c" in run("tune", "made.py:product", "--target", "llvm", "--tasks", "list")[1]
    code, out, err = run("tune", "made.py:product", "--target", "llvm", "--trials", "2")
    assert code == 0 and "best " in out and "network" not in out, err
    code, out, err = run("bench", "made:product", "--target", "llvm", "--log",
                         "made.product.llvm.jsonl")  # fmt: skip
    assert code == 0 and "  tuned  " in out and "(within it)" in out, err
    code, out, err = run("compile", "made.py:product", "--target", "llvm", "-o", "c.tar")
    assert code == 0 and run("run", "c.tar")[1] == "output_0: float32[8]\n", err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("made.py",), "it is a script of Python, not a model that can be read. Name the function"),
        (("no.py:net",), "no.py:net: there is no script no.py"),
        (
            ("made.py:no",),
            "it has no no. Its functions: net, product, fails, leaves, derived, given,",
        ),
        (("no_such_module:net",), "ModuleNotFoundError: No module named 'no_such_module'"),
        (("made.py:fails",), "ValueError: the weights are not here (line 21 of made.py)"),
        (("made.py:leaves",), "SystemExit: 3"),
        (("made.py:takes",), "it takes arguments: path. Give them defaults."),
        (("made.py:nothing",), "it returns nothing. Return a graph,"),
        (("made.py:number",), "it returns something of type int. Return a graph,"),
        (("made.py:refused",), "nn.dense"),
        (("made.py:derived",), "Odd: skipped (line "),
        pytest.param(
            ("made.py:given", "--shape", "x:[8]"),
            "example inputs that it returns. Leave --shape",
            marks=pytest.mark.skipif(not WITH_TORCH, reason="the script imports torch"),
        ),
        (("made.py:only_input",), "error: made.py:only_input: no computed output"),
        (("keep.onnx:net",), "keep.onnx is no script of Python. Leave :net out"),
        (("made.py:product", "--batch", "2"), "it is one computation, which has its shapes. Leave"),
        (("made.py:product", "--dtype", "float16"), "which has its types. Leave --dtype out."),
    ],
)
def test_refusals_of_scripts(run: Run, args: tuple[str, ...], words: str) -> None:
    Path("keep.onnx").write_text("no script")
    code, _, err = run("compile", *args, "--target", "llvm")
    assert code == 1 and words in err, err
    assert len(err.splitlines()) == 1 and not list(Path().glob("*.tar"))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["tune", "bench", "compile"])
def test_each_command_takes_and_refuses_scripts_alike(run: Run, command: str) -> None:
    for args, words in (
        (("made.py:number",), "it returns something of type int"),
        (("made.py:product", "--dtype", "float16"), "Leave --dtype out."),
    ):
        code, _, err = run(command, *args, "--target", "llvm")
        assert code == 1 and words in err, err


@pytest.mark.slow
def test_a_task_has_its_target(run: Run) -> None:
    Path("made.py").write_text(
        SCRIPT
        + "\ndef one():\n    import tilewright as tw\n    return tw.task(product, (), 'llvm')\n"
    )
    assert "its target is llvm. Give --target llvm." in run(
        "tune", "made.py:one", "--target", "opencl", "--trials", "1"
    )[2]  # fmt: skip
    assert "  0  product" in run("tune", "made.py:one", "--target", "llvm", "--tasks", "list")[1]


def test_what_is_no_script_is_a_path_or_a_name(tmp_path: Path, run: Run) -> None:
    assert scripts.parts_of("net.onnx") is None and scripts.parts_of("https://a.b:c") is None
    assert scripts.parts_of("a/b.py:net") == ("a/b.py", "net")
    assert scripts.parts_of("pkg.models:net") == ("pkg.models", "net")
    assert scripts.parts_of("a-b:net") is None and scripts.parts_of("a.py:2") is None
    Path("odd:name").touch()
    assert scripts.parts_of("odd:name") is None
    with pytest.raises(ModelError, match="tilewright.task makes a task of it"):
        front.load("made.py:product")
    assert front.load("made.py:net").params["fc_weight"].shape == (4, 8)


@pytest.mark.slow
def test_files_of_pytorch(run: Run) -> None:
    torch = pytest.importorskip("torch")
    module, x = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.ReLU()).eval(), torch.ones(2, 6)
    torch.export.save(torch.export.export(module, (x,)), "net.pt2")
    torch.jit.trace(module, x).save("net.pt")
    torch.save(module.state_dict(), "weights.pth")
    assert "dense" in run("tune", "net.pt2", "--target", "llvm", "--tasks", "list")[1]
    shape = ("--shape", "input:[2,6]")
    assert "dense" in run("tune", "net.pt", "--target", "llvm", "--tasks", "list", *shape)[1]
    assert "Give them by the names of its arguments: --shape" in run("bench", "net.pt")[2]
    wrong = ("--shape", "data:[2,6]")
    assert "it has no input 'data'. Its inputs: input" in run("compile", "net.pt", *wrong)[2]
    assert "Weights alone are no network.  Write a function" in run("tune", "weights.pth")[2]
    assert "tilewright compile net.pt2 -o net.tar" in run("run", "net.pt2")[2]
    assert "--shape 'x:[1,3,224,224]'" in run("run", "net.pt")[2]


def test_the_next_command_runs_where_nothing_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for found, words in (("/bin/tilewright", "tilewright"), (None, "python -m tilewright")):
        monkeypatch.setattr(tune.shutil, "which", lambda _, found=found: found)
        assert tune.program() == words


@pytest.mark.slow
def test_a_search_of_seconds_begins_with_the_untuned_network(run: Run, monkeypatch: Any) -> None:
    begun: list[Any] = []
    monkeypatch.setattr(tune_network, "show_untuned", lambda *_: begun.append(1) or [])
    monkeypatch.setattr(tune_network, "confirm", lambda *_: None)

    def tune(*args: Any, helpers: Helpers) -> None:
        if (beside := args[-1](helpers)) is not None:  # while others look
            beside()
        raise ModelError("tune", "enough")

    monkeypatch.setattr(tune_network.tuning, "tune", tune)
    for minutes, wanted in (("0.1", 1), ("0.01", 1)):
        run("tune", "made.py:net", "--target", "llvm", "--minutes", minutes)
        assert len(begun) == wanted
