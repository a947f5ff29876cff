"""Networks compiled here run right on ARM boards, emulated: every operator, by the runtime."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from boards.corpus import corpus, wrong
from boards.emulated import BOARDS, FOLDER, Board, made
from graph.cases import CASES
from tilewright.driver.archive import write_runtime
from tilewright.driver.c_interface import HEADER
from tilewright_tvm import relay

ziglang = pytest.importorskip("ziglang")
BOARDS_AT = made()
EXAMPLE = Path(__file__).parents[2] / "examples/c/main.c"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BOARDS_AT is None or shutil.which("dpkg") is None,
        reason=f"no boards: `tests/boards/emulated.py FOLDER` makes them for {FOLDER}=FOLDER",
    ),
]
every_board = pytest.mark.parametrize("board", BOARDS, ids=lambda b: b.name)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runtime") / "tilewright-runtime.pyz"
    write_runtime(path)
    return path


@every_board
def test_every_operator_is_right(board: Board, archive: Path, tmp_path: Path) -> None:
    made = corpus(CASES, board.target)
    assert BOARDS_AT is not None and wrong(made, board, BOARDS_AT, archive, tmp_path) == []


@every_board
def test_a_board_tells_its_target(board: Board, archive: Path) -> None:
    assert BOARDS_AT is not None
    done = board.run(BOARDS_AT, [archive])
    assert f"-mtriple={board.libraries.replace('arm-', 'armv7l-')}" in done.stdout, done.stderr
    assert "neon" in done.stdout and "vector_bytes 16" in done.stdout


@every_board
def test_a_python_of_android_runs_what_was_compiled_for_linux(
    board: Board, archive: Path, tmp_path: Path
) -> None:
    """As far as it can be seen here: by the name that Python gives the system."""
    x = relay.var("x", shape=(4, 64))
    made = relay.Function([x], relay.exp(relay.nn.softmax(x)))
    relay.build(made, board.target).export_library(tmp_path / "net.so")
    run = "import runpy, sys; sys.platform = 'android'; sys.argv = sys.argv[1:]; "
    run += "runpy.run_path(sys.argv[0], run_name='__main__')"
    assert BOARDS_AT is not None
    told = board.run(BOARDS_AT, ["-c", run, archive])
    assert f"-mtriple={board.libraries.replace('arm-', 'armv7l-')}" in told.stdout, told.stderr
    done = board.run(BOARDS_AT, ["-c", run, archive, tmp_path / "net.so"])
    assert done.returncode == 0 and "median" in done.stdout, done.stderr


def test_code_for_a_newer_processor_is_refused(archive: Path, tmp_path: Path) -> None:
    x = relay.var("x", shape=(4, 4))
    newer = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"
    relay.build(relay.Function([x], x + x), newer).export_library(tmp_path / "net.so")
    assert BOARDS_AT is not None
    for cpu, works in (("cortex-a53", False), ("max", True)):
        done = BOARDS[0].run(
            BOARDS_AT, [archive, tmp_path / "net.so"], environment={"QEMU_CPU": cpu}
        )
        assert (done.returncode == 0) == works, done.stderr
        assert works or "compiled for a processor with dotprod, fullfp16" in done.stderr


@pytest.mark.sampled(
    1
)  # linking a program against a board's C library takes 17 seconds the first time
@every_board
def test_a_program_in_c_runs_a_network(board: Board, tmp_path: Path) -> None:
    """`examples/c/main.c`, without Python on the board."""
    assert BOARDS_AT is not None
    x, w = relay.var("x", shape=(3, 8)), relay.var("w", shape=(5, 8))
    weights = np.random.default_rng(0).standard_normal((5, 8)).astype("float32")
    body = relay.tanh(relay.nn.dense(x, w))
    library = relay.build(relay.Function([x, w], body), board.target, {"w": weights})
    library.export_library(tmp_path / "net.so")
    program = [
        Path(ziglang.__file__).with_name("zig"), "cc", "-target", f"{board.libraries}.2.36",
        f"-I{HEADER.parent}", EXAMPLE, tmp_path / "net.so", "-o", tmp_path / "main",
        "-lm", "-ldl", "-lpthread",
    ]  # fmt: skip
    done = subprocess.run(program, capture_output=True, text=True)
    assert not done.returncode, done.stderr
    given = np.random.default_rng(1).standard_normal((3, 8)).astype("float32")
    given.tofile(tmp_path / "x")
    emulator = BOARDS_AT / "qemu" / f"qemu-{board.qemu}-static"
    command = [emulator, "-L", board.root(BOARDS_AT), tmp_path / "main", "x", "y"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert not done.returncode, done.stderr
    found = np.fromfile(tmp_path / "y", np.float32).reshape(3, 5)
    np.testing.assert_allclose(found, np.tanh(given @ weights.T), rtol=1e-4, atol=1e-5)
