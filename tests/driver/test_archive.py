"""The runtime alone: it runs a network where Python has numpy and nothing else."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright.driver.archive import write_runtime
from tilewright_tvm import relay

LARGEST = 260_000  # bytes

_BOARD = """
import sys
sys.path[:0] = sys.argv[1:3]
import numpy as np
import tilewright
from tilewright_tvm.contrib import graph_executor
lib = tilewright.runtime.load_module(sys.argv[3])
module = graph_executor.GraphModule(lib["default"](tilewright.cpu()))
module.run(x=np.arange(12, dtype="float32").reshape(3, 4))
print(*module.get_output(0).numpy().ravel())
run = tilewright.open(sys.argv[3])
assert (run(np.ones((3, 4), "float32")) == 2).all()
print(tilewright.cpu().spec.code[0])
print(*sorted({name.partition(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("board") / "tilewright-runtime.pyz"
    assert write_runtime(path) == path.stat().st_size < LARGEST
    return path


@pytest.mark.parametrize("page", ["README.md", "docs/boards.md"])
def test_the_sizes_in_the_pages_are_those_of_the_files(page: str, tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / page).read_text()
    told = {False: re.findall(r"(?:alone|file)(?:,| of) (\d+) KB", text),
            True: re.findall(r"--server` \((\d+) KB", text)}  # fmt: skip
    assert told[False] and (told[True] or page == "README.md")
    for server, figures in told.items():
        size = write_runtime(tmp_path / "runtime.pyz", server) / 1e3
        for figure in figures:
            assert size == pytest.approx(int(figure), rel=0.15), page


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages that has numpy."""
    folder = tmp_path_factory.mktemp("site")
    for name in ("numpy", "numpy.libs"):
        found = Path(np.__file__).parents[1] / name
        if found.exists():
            (folder / name).symlink_to(found)
    return folder


def isolated(*args: object) -> str:
    """Python without the packages that are installed here."""
    done = subprocess.run(
        [sys.executable, "-I", "-S", *map(str, args)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None and importlib.util.find_spec("ziglang") is None,
                    reason="no linker")  # fmt: skip
def test_numpy_and_the_archive_run_a_network(archive: Path, bare: Path, tmp_path: Path) -> None:
    x = relay.var("x", shape=(3, 4))
    relay.build(relay.Function([x], x * 2.0), "llvm").export_library(tmp_path / "net.so")
    found, code, names = isolated("-c", _BOARD, archive, bare, tmp_path / "net.so").splitlines()
    assert found.split() == [f"{2.0 * k}" for k in range(12)]
    assert "mtriple" in code
    assert {"numpy", "tilewright"} <= set(names.split())
    assert not {"llvmlite", "msgspec", "ml_dtypes", "click", "rich"} & set(names.split())


@pytest.mark.slow
def test_a_server_needs_no_compiler(tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    write_runtime(tmp_path / "server.pyz", server=True)
    code = """
import sys
sys.path[:0] = [sys.argv[1]]
import tilewright_tvm.exec.rpc_server, tilewright.farm.server, tilewright.measure.calls
assert tilewright.farm.server.__file__.startswith(sys.argv[1])
assert not {"llvmlite", "xgboost", "rich", "onnx"} & set(sys.modules)
"""
    run = [sys.executable, "-s", "-c", code, str(tmp_path / "server.pyz")]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(run, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, done.stderr


def test_equal_sources_make_equal_files(archive: Path, tmp_path: Path) -> None:
    write_runtime(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == archive.read_bytes()


@pytest.mark.slow
def test_the_file_tells_what_the_machine_is(archive: Path, bare: Path, tmp_path: Path) -> None:
    path = os.pathsep.join(map(str, (archive, bare)))
    run = [sys.executable, "-s", str(archive)]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(run, capture_output=True, text=True, env=environment, timeout=120)
    assert "target: llvm -mtriple=" in done.stdout and "cores" in done.stdout
    (tmp_path / "net.so").write_bytes(b"text")
    done = subprocess.run([*run, tmp_path / "net.so"], capture_output=True, text=True,
                          env=environment, timeout=120)  # fmt: skip
    assert done.returncode == 1 and done.stderr.startswith("error: load(")
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be written"):
        write_runtime(tmp_path / "missing" / "file")
