"""Every command with what people get wrong: exit codes, words of a shell, no litter.

And what the command prints as a command runs as it stands.
"""

from __future__ import annotations

import ast
import fcntl
import itertools
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tarfile
import termios
import zipfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import tilewright
from cli.test_compile import flatten_model
from tilewright import front
from tilewright.base import model_files
from tilewright.base.errors import ModelError, named
from tilewright.cli import tables
from tilewright.cli.app import cli, main
from tilewright.driver import doctor
from tilewright.measure.database import Database
from tilewright.measure.record import Result, TaskId, make_record
from tilewright.models import networks
from tilewright.runtime.network.library import Library
from tilewright_tvm import relay

Run = Callable[..., tuple[int, str, str]]

# What a shell has no use for: calls, keywords with values, names of modules and methods of Python.
PYTHON = re.compile(
    r"\b\w+\([^)]*\)|[({ ]\w+=[\[{(\d'\"]|from_onnx|export_library|\brelay\.|\blib\."
)
pytest.importorskip("onnx")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files: models good and bad, a compiled one, logs."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "net.onnx").write_bytes(flatten_model(2))
    (folder / "open.onnx").write_bytes(flatten_model("n"))
    (folder / "cut.onnx").write_bytes(flatten_model(2)[:60])
    (folder / "a net.onnx").write_bytes(flatten_model("n"))
    (folder / "README.md").write_text("# no model\n")
    y = relay.var("x", shape=(0, 3))
    none = relay.IRModule.from_expr(relay.nn.relu(y))
    (folder / "empty.onnx").write_bytes(relay.to_onnx(none, {}).SerializeToString())
    (folder / "keep.so").write_text("int main() { return 0; }\n")
    (folder / "keep.c").write_text("int main() { return 0; }\n")
    with tarfile.open(folder / "strange.tar", "w") as tar:
        tar.add(folder / "keep.c", "keep.c")
    (folder / "text.npz").write_text("no archive")
    np.savez(folder / "other.npz", y=np.zeros(3))
    np.savez(folder / "shape.npz", x=np.zeros((3, 3), "float32"))
    (folder / "folder").mkdir()
    x = relay.var("x", shape=(2, 3))
    mod = relay.IRModule.from_expr(relay.nn.relu(x))
    relay.build(mod, "llvm").export_library(folder / "net.tar")
    with Database(folder / "log.jsonl") as log:
        log.append(make_record(TaskId("t", [], "d", "llvm"), Result(costs=(1e-3,), verified=True)))
    args = [["TENSOR", [1, 512, 28, 28], "float32"]] * 6
    task = TaskId("conv2d_with_a_very_long_name", args, "d", "llvm -mcpu=native")
    with Database(folder / "long.jsonl") as log:
        log.append(make_record(task, Result(costs=(1.23456,), verified=True)))
    return folder


@pytest.fixture
def run(
    capsys: pytest.CaptureFixture[str], made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Runs a command line in a folder with all of `made`; gives exit code, output, errors."""
    for file in made.iterdir():
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(args))
            sys.exit(0)
        said = capsys.readouterr()
        code = ended.value.code
        return (code if isinstance(code, int) else 0), said.out, said.err

    yield run


GOOD = [
    ["--help"], ["--version"], ["tune", "--help"], ["records", "--help"], ["farm", "--help"],
    ["farm", "tracker", "--help"], ["farm", "server", "--help"], ["farm", "status", "--help"],
    ["tune", "net.onnx", "--tasks", "list", "--tuner", "auto-scheduler"],
    ["compile", "net.onnx", "-o", "made.tar"], ["run", "net.tar"], ["records", "log.jsonl"],
    ["records", "distill", "log.jsonl", "-o", "best.json"], ["records", "use"],
    ["runtime-archive", "runtime.pyz"],
]  # fmt: skip
USAGE = [  # what is typed is wrong, whatever there is
    [], ["sing"], ["tune"], ["bench"], ["compile"], ["run"], ["records"], ["runtime-archive"],
    ["records", "publish"], ["records", "import", "log.jsonl"], ["farm"], ["farm", "tracker", "-x"],
    ["farm", "server"], ["farm", "status", "--port", "x"], ["doctor", "now"],
    ["tune", "net.onnx", "--nonsense"], ["tune", "net.onnx", "--trials", "none"],
    ["tune", "net.onnx", "--target", "tpu"], ["tune", "net.onnx", "--target", "llvm -mattr=avx2"],
    ["tune", "net.onnx", "--target", "llvm -num-cores=x"], ["tune", "net.onnx", "--tuner", "x"],
    ["tune", "net.onnx", "--target", "cuda -arch=sm_1"], ["tune", "net.onnx", "--target", ""],
    ["tune", "net.onnx", "--batch", "0"], ["tune", "net.onnx", "--batch", "1,1"],
    ["tune", "net.onnx", "--batch", "²"], ["tune", "net.onnx", "--shape", "x:"],
    ["tune", "net.onnx", "--shape", "x=2,3"], ["tune", "net.onnx", "--shape", "x:[2,3] x:[2,4]"],
    ["tune", "net.onnx", "--shape", "x:" + "9" * 400], ["tune", "net.onnx", "--log", "-"],
    ["tune", "net.onnx", "--farm", "h:1"], ["bench", "net.onnx", "--batch", "x"],
    ["bench", "net.onnx", "--log", "missing.jsonl"], ["compile", "net.onnx", "-o", "-"],
    ["compile", "net.onnx", "-o", "folder"], ["run", "missing.tar"], ["run", "-"],
    ["run", "folder"], ["run", "net.tar", "--inputs", "missing.npz"],
    ["run", "net.tar", "--repeat", "0"],
    ["records", "-"], ["records", "missing.jsonl"], ["records", "distill", "missing.jsonl"],
    ["records", "log.jsonl", "--failures", "-1"], ["records", "log.jsonl", "--pick-best", "-"],
    ["records", "import", "missing.json", "--log", "n"], ["runtime-archive", "-"],
    ["tune", "net.onnx", "--tasks", "3-1"], ["tune", "net.onnx", "--shape", "x:[2,3,16"],
    ["tune", "net.onnx", "--shape", "x:2,3]"],
]  # fmt: skip


def numbers() -> Iterator[list[str]]:
    """Every option that is a number, with what none of them may be; those of farms by name."""
    commands = {**cli.commands, **cli.commands["records"].commands}  # type: ignore[attr-defined]
    for name, one in commands.items():
        for option in one.params:
            if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
                group = [] if name in cli.commands else ["records"]
                first = "net.tar" if name == "run" else "net.onnx"
                for value in ("-1", "nan", "-" + "9" * 400, "9" * 5000, "x", ""):
                    yield [*group, name, first, f"{option.opts[0]}={value}"]
    for option in ("--port", "--port-end", "--builders"):
        for value in ("-1", "70000", "nan", "9" * 5000):
            yield ["farm", "server", "--tracker", "h:1", "--key", "k", f"{option}={value}"]
            if option != "--builders":
                yield ["farm", "tracker", f"{option}={value}"]
    for value in ("-1", "0", "70000", "nan"):
        yield ["farm", "status", "--host", "h", f"--port={value}"]
    for option in ("trials", "number", "repeat", "early-stopping", "parallel", "seed"):
        yield ["tune", "net.onnx", f"--{option}={10**30}"]
    for option in ("minutes", "timeout", "min-repeat-ms"):
        yield from (["tune", "net.onnx", f"--{option}={value}"] for value in ("1e30", "inf"))


NUMBERS = list(numbers())
BAD = [  # what there is does not fit: the words that tell
    (["tune", "nonet"], "there is no such network"),
    (["tune", "missing.onnx"], "missing.onnx: there is no such file"),
    (["tune", "https://x.org/net.onnx"], "it is an address"),
    (["tune", "folder"], "it is a folder"),
    (["tune", "README.md"], "README.md: its 11 bytes are no ONNX model"),
    (["tune", "cut.onnx"], "cut.onnx: "),
    (["tune", "net.tar"], "tilewright run net.tar --repeat 10"),
    (["tune", "log.jsonl"], "tilewright records log.jsonl"),
    (["tune", "open.onnx"], "Give --batch 1, or --shape 'x:[1,3,4]'"),
    (["tune", "open.onnx", "--shape", "x:2,3"], "is no shape. Write --shape 'x:[1,3,4]'"),
    (["tune", "open.onnx", "--shape", "x:[2,3]"], "has 2 extents, the input has 3"),
    (["tune", "open.onnx", "--shape", "y:[2,3]"], "the model has no such input. Its inputs are x"),
    (["bench", "open.onnx", "--shape", "n:[2]"], "is no int. Give a number by its name: --shape"),
    (["compile", "open.onnx"], "--batch 1"),
    (["compile", "net.onnx", "--shape", "x:[100000000,3,4]"], "in Python, by tilewright.relay"),
    (["compile", "net.onnx", "--shape", "x:[100000000000,3,4]"], "net.onnx: input 'x': the shape"),
    (["compile", "mlp", "--shape", "x:[1]"], "mlp: its shapes are fixed"),
    (["compile", "net.onnx", "-o", "no/such/net.tar"], "-o no/such/net.tar: it cannot be written"),
    (["compile", "net.onnx", "-o", "keep.so"], "is not a compiled network or kernel, so it is not"),
    (["bench", "empty.onnx"], "error: empty.onnx: the network has no kernel to time"),
    (["tune", "empty.onnx", "--trials", "1"], "the network has no kernel to tune. Tune one that"),
    (["compile", "net.onnx", "--target", "llvm -mcpu=hasswell"], "Did you mean haswell"),
    (["compile", "net.onnx", "--target", "llvm -mtriple=x-y"], "LLVM knows no target 'x-y'"),
    (["tune", "net.onnx", "--tasks", "7-9", "--trials", "1"], "--tasks list shows them"),
    (["tune", "net.onnx", "--log", "no/such/log"], "cannot be written"),
    (["tune", "net.onnx", "--target", "llvm -mtriple=aarch64-linux-gnu"], "of another kind"),
    (["tune", "net.onnx", "--history", "README.md", "--trials", "1"], "no line can be used"),
    (["tune", "net.onnx", "--farm", "nowhere", "--key", "k"], "it is no address"),
    (["bench", "net.onnx", "--log", "README.md"], "no line can be read"),
    (["compile", "net.onnx", "--log", "README.md", "-o", "n.tar"], "no line can be read"),
    (["run", "net.onnx"], "tilewright compile net.onnx -o net.tar"),
    (["run", "a net.onnx"], "tilewright compile 'a net.onnx' -o 'a net.tar'"),
    (["run", "README.md"], "`tilewright compile` writes one"),
    (["run", "net.tar", "--inputs", "text.npz"], "cannot be read"),
    (["run", "net.tar", "--inputs", "other.npz"], "the network has no input 'y'"),
    (["run", "net.tar", "--inputs", "shape.npz"], "input 'x'"),
    (["run", "net.tar", "--outputs", "no/such.npz"], "cannot be written"),
    (["records", "README.md"], "no line can be read"),
    (["records", "distill", "README.md"], "no line can be read"),
    (["records", "import", "README.md", "--log", "n"], "no line of it became a record"),
    (["records", "use", "no/such/folder"], "no/such/folder"),
    (["records", "use", "--forget", "nothing"], "nothing"),
    (["runtime-archive", "no/such/file.pyz"], "no/such/file.pyz: it cannot be written"),
    (["bench", "net.onnx", "--log", "keep.c"], "log 'keep.c': no line can be read"),
    (["run", "strange.tar"], "damaged (it holds no sha256)"),
    (["farm", "status", "--host", "127.0.0.1", "--port", "1"], "127.0.0.1:1"),
    (["farm", "status"], "Give --host and --port"),
]


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("args", GOOD, ids=shlex.join)
def test_what_works_ends_with_0(run: Run, args: list[str]) -> None:
    code, out, err = run(*args)
    assert (code, out != "") == (0, True), err


@pytest.mark.slow
@pytest.mark.parametrize("args", USAGE, ids=shlex.join)
def test_a_wrong_option_ends_with_2(run: Run, args: list[str]) -> None:
    before = set(Path().iterdir())
    code, out, err = run(*args)
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err and "sage: tilewright" in err
    assert not PYTHON.search(err), err
    assert set(Path().iterdir()) == before


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize(("args", "words"), BAD, ids=lambda v: shlex.join(v) if v else "")
def test_what_fails_ends_with_1_and_speaks_of_options(
    run: Run, args: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TVM_TRACKER_HOST", raising=False)
    before = set(Path().iterdir())
    code, _, err = run(*args)
    told = err.strip().splitlines()[-1]
    assert code == 1 and words in told, err
    assert "Traceback" not in err and told.startswith("error: ")
    told = told.replace(
        "in Python, by tilewright.relay.frontend.from_onnx", ""
    )  # there is no other way
    assert not PYTHON.search(told), told
    assert set(Path().iterdir()) == before, "it left a file"


@pytest.mark.slow
@pytest.mark.parametrize("args", NUMBERS, ids=lambda a: shlex.join(a)[:60])
def test_a_number_that_cannot_be_ends_with_2(run: Run, args: list[str]) -> None:
    code, out, err = run(*args)
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err and "sage: tilewright" in err
    assert args[-1].partition("=")[0] in err


def test_options_that_are_numbers_are_found() -> None:
    found = {args[-1].partition("=")[0] for args in NUMBERS}
    assert {"--seed", "--trials", "--failures", "--repeat", "--minutes", "--port"} <= found


@pytest.mark.parametrize(
    "args",
    [
        ["tune", "net.onnx", "--report", "no/such.html"],
        ["bench", "net.onnx", "--report", "no/such.md"],
        ["report", "log.jsonl", "-o", "no/such.csv"], ["compile", "net.onnx", "-o", "no/such.so"],
        ["run", "net.tar", "--outputs", "no/such.npz"],
    ],
    ids=shlex.join,
)  # fmt: skip
def test_a_folder_that_is_not_there_is_told_before_the_work(
    run: Run, args: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for begun in ("models.networks.load_sizes", "runtime.network.compiled.open",
                  "reporting.write.report"):  # fmt: skip
        monkeypatch.setattr(f"tilewright.{begun}", None)
    code, out, err = run(*args)
    assert (code, out) == (1, "") and "it cannot be written (No such file or directory)" in err


@pytest.mark.slow
@pytest.mark.parametrize(
    "args", [["bench", "keep.c"], ["compile", "keep.c"], ["run", "net.tar", "--outputs", "keep.c"]]
)
def test_what_is_refused_is_so_before_anything_is_done(run: Run, args: list[str]) -> None:
    code, out, err = run(*args)
    assert (code, out) == (1, "") and len(err.splitlines()) == 1 and "keep.c: " in err


def stopped(*_: Any, **__: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("args", "place", "name"),
    [
        (["tune", "net.onnx"], front, "search"), (["bench", "net.onnx"], front, "compile"),
        (["compile", "net.onnx"], front, "compile"),
        (["run", "net.tar"], Library, "load_on"), (["records", "log.jsonl"], Database, "load"),
        (["records", "distill", "log.jsonl"], Database, "distill"),
        (["doctor"], doctor, "diagnose"),
    ],
)  # fmt: skip
def test_ctrl_c_ends_with_130(
    run: Run, args: list[str], place: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "as_described", lambda target, *_: target)
    monkeypatch.setattr(front, "begun", lambda *_: nullcontext())
    monkeypatch.setattr(place, name, stopped)
    before = set(Path().iterdir())
    code, _, err = run(*args)
    assert code == 130 and "Traceback" not in err
    assert set(Path().iterdir()) == before


# -- what files are --------------------------------------------------------------------------------


def zipped(*names: str) -> bytes:
    path = Path("made.zip")
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    data = path.read_bytes()
    path.unlink()
    return data


FOREIGN = {
    "net.tflite": (b"\0\0\0\x1cTFL3", "TensorFlow Lite", "--tflite net.tflite"),
    "net.h5": (b"\x89HDF\r\n\x1a\n", "Keras", "model.export"),
    "net.pb": (b"\n\5", "a graph of TensorFlow", "--graphdef net.pb"),
    "old.pt": (b"\x80\x02\x8a", "PyTorch", "SCRIPT.py:FUNCTION"),
    "weights.pt": (["w/data.pkl"], "PyTorch", "(module, example inputs)"),
    "net.keras": (["config.json", "model.weights.h5"], "Keras", "model.export"),
    "net.mlmodel": (b"\b\1", "Core ML", "Export it to ONNX"),
    "net.safetensors": (b"\x10\0\0\0\0\0\0\0{}", "safetensors", "SCRIPT.py:FUNCTION"),
    "net.gguf": (b"GGUF", "GGUF", "Weights alone"),
    "net.engine": (b"ftrt", "TensorRT", "ONNX model"),
    "page.onnx": (b"<!DOCTYPE html>", "a web page", "Download the file itself"),
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS", "git lfs pull"),
    "empty.onnx": (b"", "an empty file", ".onnx"),
    "a.npz": (["x.npy"], "numpy", "--inputs"),
    "net.so": (b"\x7fELF\2\1", "a shared object", "Machine code tells no network"),
    "net.py": (b"x = 3\n", "a script of Python", "net.py:FUNCTION"),
    "log": (b'{"kind":"record"}\n', "a log", "tilewright records log"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_program_is_named_and_the_way_told(
    run: Run, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begins, what, way = FOREIGN[name]
    Path(name).write_bytes(begins if isinstance(begins, bytes) else zipped(*begins))
    for command in ("tune", "bench", "compile"):
        code, _, err = run(command, name)
        assert code == 1 and what in err and way in err and "not a model that can be read" in err
    code, _, err = run("run", name)
    assert code == 1 and err.startswith(f"error: {name}: ")


def test_folders_and_pipes(run: Run) -> None:
    Path("saved").mkdir()
    assert "it is a folder" in run("tune", "saved")[2]
    Path("saved", "saved_model.pb").touch()
    assert "--saved-model saved --output net.onnx" in run("tune", "saved")[2]
    assert "there is no such file" in run("tune", "")[2] or run("tune", "")[0] == 1
    assert model_files.kind_of(Path("/dev/zero")) == ""


# -- what is printed runs --------------------------------------------------------------------------


def parsed(line: str) -> dict[str, Any]:
    """What the command takes a line for.  Raises click's error for one that it refuses."""
    words = shlex.split(line)
    assert words[0] == "tilewright"
    command: click.Command = cli
    name, rest = "tilewright", words[1:]
    context = command.make_context(name, list(rest))
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert found is not None
        command, context = found, found.make_context(name, list(rest), parent=context)
    return dict(context.params)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mlp", "net.onnx", "./a net.onnx", "./-it's.onnx"])
@pytest.mark.parametrize(
    "options",
    [
        [], ["--batch", "2"], ["--batch", "1,4"],
        ["--shape", "x:[2,3] n:8", "--shape", "s:[] t:4,5"],
        ["--shape", "in put:0:[1,3]"], ["--dtype", "float16", "--desired-layout", "NHWC"],
        ["--log", "logs of/a b.jsonl"], ["--log", "./-"], ["--log", "-odd"],
        ["--target", "llvm -num-cores=2 -mattr=+avx,+avx2"],
        ["--target", "opencl -device=mali -host='llvm -mtriple=aarch64-linux-gnu -mattr=+neon'"],
        ["--target", "llvm -model='two words'"], ["--farm", "127.0.0.1:9190", "--key", "a b"],
        ["--target", "nvidia/geforce-rtx-3090"],
    ],
)  # fmt: skip
def test_the_next_command_means_what_was_tuned(
    run: Run, monkeypatch: pytest.MonkeyPatch, model: str, options: list[str]
) -> None:
    monkeypatch.setattr(networks, "check", lambda model: None)
    monkeypatch.setattr(front, "as_described", lambda target, *_: target)
    monkeypatch.setattr(front, "begun", lambda *_: nullcontext())
    monkeypatch.setattr(front, "load", lambda *_, **__: None)
    monkeypatch.setattr(front, "search", lambda *_, **__: None)
    Path("logs of").mkdir()
    Path("logs of/a b.jsonl").touch()
    args = ["tune", model, *options]
    code, out, err = run(*args)
    assert code == 0, err
    line = out.split("Next: ")[1].strip()
    words = shlex.split(line)
    Path(words[words.index("--log") + 1]).touch()  # which the run would have written
    before, after = parsed(shlex.join(["tilewright", *args])), parsed(line)
    assert Path(before["model"]) == Path(after["model"])
    for name in ("target", "dtype", "batch", "shape", "layout", "farm", "key"):
        assert before[name] == after[name], name
    assert before["target"].host == after["target"].host


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [["net.onnx"], ["open.onnx", "--batch", "1,3"], ["a net.onnx", "--shape", "n:2,4"],
     ["net.onnx", "--log", "a b.jsonl"]],
)  # fmt: skip
def test_the_next_command_runs_and_tells_of_each_size(run: Run, args: list[str]) -> None:
    code, out, err = run("tune", *args, "--trials", "2", "--tuner", "auto-scheduler")
    assert code == 0, err
    code, out, err = run(*shlex.split(out.split("Next: ")[1])[1:])
    assert code == 0, err
    sizes = re.findall(r"x:\[(\d+),3,4\]", out)
    wanted = {"open.onnx": ["1", "3"], "a net.onnx": ["2", "4"]}
    assert sizes == wanted.get(args[0], [])
    assert out.count("untuned") == max(len(sizes), 1) == out.count("within it")


def strings() -> Iterator[tuple[str, str]]:
    """Every text of the package, with `{}` for what is filled in, and where it is."""
    root = Path(tilewright.__file__).parent
    for path in sorted(root.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (v.value if isinstance(v, ast.Constant) else "X" for v in node.values)
                yield str(path.relative_to(root)), "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield str(path.relative_to(root)), node.value


def commands_in(text: str) -> list[str]:
    """`tilewright compile m.onnx -o m.tar` out of a sentence."""
    quoted = re.findall(r"`(tilewright(?: [^`\n]+)?)`", text)
    return quoted + re.findall(r": (tilewright [a-z][^`\n.]*)$", text)


@pytest.mark.slow
def test_every_command_in_a_text_is_there_with_its_options() -> None:
    seen = 0
    for place, text in strings():
        for line in commands_in(text):
            seen += 1
            command: Any = cli
            for word in shlex.split(line.replace("'", ""))[1:]:
                if isinstance(command, click.Group) and word in command.commands:
                    command = command.commands[word]
                elif isinstance(command, click.Group) and not word.startswith("-"):
                    assert command.name == "records", f"{place}: {line}"
                    command = command.commands["show"]
                elif word.startswith("-") and command.context_settings.get("help_option_names", 1):
                    names = [n for p in command.params for n in (*p.opts, *p.secondary_opts)]
                    assert word in [*names, "--help"], f"{place}: {line}"
    assert seen > 30


def test_a_place_is_named_as_the_user_named_it() -> None:
    for place, wanted in {
        "from_onnx: input 'x'": "net.onnx: input 'x'", "from_onnx": "net.onnx",
        "from_onnxes: x": "from_onnxes: x", "other: from_onnx": "other: from_onnx",
    }.items():  # fmt: skip
        with pytest.raises(ModelError) as raised, named("net.onnx", "from_onnx"):
            raise ModelError(place, "no", "Pass shape=.", command="Give --shape.")
        assert raised.value.place == wanted and raised.value.args[0] == wanted
        assert raised.value.in_command() == f"{wanted}: no. Give --shape."
        assert str(raised.value) == f"{wanted}: no. Pass shape=."


def columns(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_are_as_wide_as_columns_says(
    run: Run, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, out, _ = run("records", "long.jsonl")
    assert width - 40 < columns(out) <= width
    assert "1.235 s" in out  # a figure stays in one piece
    _, out, _ = run("--help")
    assert columns(out) <= width and "..." not in out.partition("Commands:")[2]
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr(tables, "_has_terminal", lambda: False)
    assert 80 < columns(run("records", "long.jsonl")[1]) <= 120


def test_a_row_that_is_too_wide_for_the_terminal_is_a_block(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    _, out, _ = run("records", "long.jsonl")
    lines = out.splitlines()
    assert "  best     1.235 s" in lines and any(line.startswith("  by ") for line in lines)


@pytest.mark.slow
def test_a_table_has_the_width_of_its_terminal(made: Path) -> None:
    """Of a real one, whose output goes through a pager as well."""
    lines = made / "long.jsonl"
    for width, pager in itertools.product((60, 100), ("", " | cat")):
        command = f"{shlex.quote(sys.executable)} -m tilewright records {shlex.quote(str(lines))}"
        said = in_terminal(f"{command}{pager}", width)
        assert width - 45 < columns(said) <= width, said


def in_terminal(command: str, width: int) -> str:
    """What a command writes to a pseudo terminal of that width."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        ["sh", "-c", command], stdin=child, stdout=child, stderr=child, close_fds=True,
        env={**env, "TERM": "xterm"},
    )  # fmt: skip
    os.close(child)
    said = b""
    with suppress(OSError):  # the other end is closed
        while block := os.read(parent, 1 << 16):
            said += block
    assert process.wait(60) == 0
    os.close(parent)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", said.decode()).replace("\r\n", "\n")


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_help_speaks_of_the_command_and_of_tilewright(run: Run, command: str) -> None:
    group = cli.commands[command]
    for inner in ([], *([name] for name in getattr(group, "commands", ()))):
        _, out, _ = run(command, *inner, "--help")
        assert not re.search(r"load_module|relay\.|\blib\.|export_library", out), out
