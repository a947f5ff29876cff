"""Every code block of the pages runs, those for a shell in a shell; those that cannot say why."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from tests.blocks import CODE, ROOT, Block, blocks, blocks_of
from tilewright import te
from tilewright.cli.app import cli, main
from tilewright_tvm import relay
from tilewright_tvm.tvmc.main import run as tvmc

BLOCKS = blocks()
RUN = sorted({b.page for b in BLOCKS if b.runs and b.kind != "command"})
LEAST = 0.8  # of all blocks of code
SECONDS = 120


def vector() -> np.ndarray:
    return np.zeros((1, 1, 28, 28), "float32")


def of_torch() -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, 4), torch.nn.ReLU(), torch.nn.Flatten())
    return {"model": model, "x": torch.randn(1, 3, 224, 224)}


def matrices() -> dict[str, Any]:
    a, b = np.random.default_rng(0).standard_normal((2, 512, 512), "float32")
    return {"x": vector(), "a": a, "b": b}


# Names that the code of a page takes as known.
GIVEN: dict[str, Callable[[], dict[str, Any]]] = {
    "docs/schedules.md": lambda: {"te": te},
    "README.md": matrices,
    "docs/pytorch.md": of_torch,
    "docs/tutorials/decoder.md": of_torch,  # for nothing but a PyTorch that is there
}


# Of the first layer of the network in `net.onnx`.
LINE_OF_AUTOTVM = """{"input": ["llvm -keys=cpu", "dense_nopack.x86",
[["TENSOR", [1, 784], "float32"], ["TENSOR", [128, 784], "float32"], null, "float32"], {}],
"config": {"index": 3, "code_hash": null, "entity": [["tile_y", "sp", [-1, 1]],
["tile_x", "sp", [-1, 8]], ["tile_k", "sp", [-1, 4]]]},
"result": [[0.0001], 0, 1.0, 1600000000.0], "version": 0.2, "tvm_version": "0.14.0"}
""".replace("\n", " ")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the code of a page runs: models of the names that pages use, the commands first."""
    pytest.importorskip("onnx")
    mlp = relay.to_onnx(*relay.testing.mlp.get_workload(1)).SerializeToString()
    for name in ("resnet18.onnx", "net.onnx"):
        (tmp_path / name).write_bytes(mlp)
    (tmp_path / "script.py").write_text("import tvm\nfrom tvm import te\nprint(te.var('n'))\n")
    (tmp_path / "old.json").write_text(LINE_OF_AUTOTVM)
    for name in ("src", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / "bin"
    programs.mkdir()
    ours = {"tilewright": f"{sys.executable} -m tilewright", "python": sys.executable}
    for name, command in (ours | {"python3": sys.executable}).items():
        (programs / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_the_code_of_a_page_runs(page: str, folder: Path) -> None:
    names = {"__name__": "__main__", **GIVEN.get(page, dict)()}
    for block in BLOCKS:
        if block.page != page or not block.runs or block.kind == "command":
            continue
        if block.kind == "prints":
            printed = io.StringIO()
            with redirect_stdout(printed):
                execute(block, block.said, names)
            assert printed.getvalue().rstrip() == block.text.rstrip(), f"{page}:{block.line}"
        elif block.language == "python":
            with redirect_stdout(io.StringIO()):
                if block.kind == "after":
                    execute(block, block.said, names)
                execute(block, block.small(), names)
        elif all(line.startswith(tuple(COMMANDS)) for line in plain_lines(block)):
            in_this_process(block)
        else:
            in_a_shell(block)
    if page == "README.md":
        np.testing.assert_allclose(names["c"], names["a"] @ names["b"], rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(names["tw"].open("r18.so")(names["x"]), names["y"])


# What starts a line of a shell: a function that takes the rest, and ends as the command would.
COMMANDS: dict[str, Callable[[list[str]], object]] = {
    "tilewright ": main,
    "python -m tilewright_tvm.driver.tvmc ": lambda args: sys.exit(tvmc(args)),
}


def plain_lines(block: Block) -> list[str]:
    """The commands of a block, one a line; one that wants a shell is not plain, so a word."""
    lines = block.small().replace("\\\n", " ").splitlines()
    return ["&" if re.search(r"[&|;$<>]", line) else line for line in lines if line.strip()]


def in_this_process(block: Block) -> None:
    """Run its commands as the shell would, but for the seconds that new processes take."""
    for line in plain_lines(block):
        begin = next(words for words in COMMANDS if line.startswith(words))
        with pytest.raises(SystemExit) as ended, redirect_stdout(io.StringIO()):
            COMMANDS[begin](shlex.split(line.removeprefix(begin), comments=True))
            sys.exit(0)
        assert ended.value.code in (None, 0), f"{block.page}:{block.line}: {line}"


def execute(block: Block, text: str, names: dict[str, Any]) -> None:
    # What a traceback shows has the page's lines.
    exec(compile("\n" * block.line + text, str(ROOT / block.page), "exec"), names)


def in_a_shell(block: Block) -> None:
    """Run it until its last command has ended; then what it left in the background is ended."""
    if re.search(r"(?m)^cc ", block.text) and shutil.which("cc") is None:
        return  # a compiler is not on every machine
    text = block.small().replace("9190", str(free_port()))
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", text], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, start_new_session=True, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        code = process.wait(SECONDS)
    finally:
        with suppress(ProcessLookupError):  # nothing of it is left
            os.killpg(process.pid, signal.SIGKILL)
    assert code == 0, f"{block.page}:{block.line}: {process.stdout.read()}"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_most_blocks_run_and_others_say_why() -> None:
    code = [b for b in BLOCKS if b.is_code]
    ran = [b for b in code if b.runs]
    assert len(code) > 15 and len(ran) >= LEAST * len(code), f"{len(ran)} of {len(code)}"
    assert all(len(b.said) > 10 for b in code if b.kind == "not run")


def test_every_command_line_in_a_block_is_one() -> None:
    """Also in those that do not run."""
    seen = 0
    for block in BLOCKS:
        if block.language not in ("sh", "bash"):
            continue
        text = block.text.replace("\\\n", " ")
        for line in re.findall(r"(?:^|&& |; |/)(tilewright [^&|;#\n]+)", text, re.M):
            seen += 1
            command: Any = cli
            for word in shlex.split(line)[1:]:
                if isinstance(command, click.Group) and word in command.commands:
                    command = command.commands[word]
                elif getattr(command, "name", "") == "records":
                    command = command.commands["show"]  # which may be left out
                elif word.startswith("-"):
                    options = [n for p in command.params for n in (*p.opts, *p.secondary_opts)]
                    known = command.context_settings.get("ignore_unknown_options")
                    assert known or word.partition("=")[0] in [*options, "--help"], line
    assert seen >= 8


def test_blocks_are_found_with_what_is_said_of_them() -> None:
    text = "<!-- not run: no GPU -->\n```sh\nx\n```\n\n  ```python\n  y\n  ```\n```\nz\n```\n"
    found = blocks_of("p", text)
    assert [(b.language, b.text, b.kind, b.runs) for b in found] == [
        ("sh", "x\n", "not run", False), ("python", "y\n", "", True), ("", "z\n", "", False),
    ]  # fmt: skip
    assert [b.line for b in found] == [2, 6, 9] and "sh" in CODE
    small = Block("p", 1, "sh", "tilewright tune resnet-18 --minutes 5 --target cuda", "", "")
    assert small.small() == "tilewright tune mlp --trials 2 --target llvm"
