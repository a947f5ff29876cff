"""Files that are written for users: whole or not at all, and never over a file of another kind."""

from __future__ import annotations

import ast
import errno
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright import runtime, te
from tilewright.base import output
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.driver.archive import write_runtime
from tilewright.driver.build import build
from tilewright.knowledge.install import write_index
from tilewright.measure.database import Database, pick_best
from tilewright.measure.record import Result, TaskId, make_record
from tilewright.runtime.network.archives import write_arrays
from tilewright.runtime.network.param_dict import save_param_dict_to_file
from tilewright.schedule.schedule import create_schedule
from tilewright_tvm import relay
from tilewright_tvm.te.hybrid.module import HybridModule

PACKAGE = Path(output.__file__).parents[1]
KIND = output.FileKind("a note", output.beginning(b"note"))
SCRIPT = "def double(a):\n    b = output_tensor(a.shape, 'float32')\n    return b\n"


def module() -> Any:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] * 2, name="B")
    return build(create_schedule([b.op]), [a, b], "llvm")


@pytest.fixture(scope="module")
def things() -> dict[str, Any]:
    x = relay.var("x", shape=(1, 8))
    mod = relay.Function([x], relay.nn.relu(x))
    database = Database()
    database.append(make_record(TaskId("t", [], "0" * 16, "llvm"), Result(costs=(1.0,))))
    return {"library": relay.build(mod, "llvm"), "module": module(), "log": database}


def _index(path: Path) -> None:
    assert path.name == "knowledge.json"
    write_index(path.parent)


# Whatever writes a file for a user: name of the file, how.
WRITERS: dict[str, tuple[str, Callable[[dict[str, Any], Path], object]]] = {
    "library tar": ("n.tar", lambda t, p: t["library"].export_library(p)),
    "library so": ("n.so", lambda t, p: t["library"].export_library(p)),
    "library zip": ("n.zip", lambda t, p: t["library"].export_library(p)),
    "module": ("m.tw", lambda t, p: t["module"].save(p)),
    "module object": ("m.o", lambda t, p: t["module"].save(p)),
    "module text": ("m.ll", lambda t, p: t["module"].save(p)),
    "module asm": ("m.s", lambda t, p: t["module"].save(p)),
    "log": ("l.jsonl", lambda t, p: t["log"].save(p)),
    "log appended": ("l.jsonl", lambda t, p: Database(p).append(t["log"].records[0])),
    "params": ("p.params", lambda t, p: save_param_dict_to_file({"a": np.ones(3)}, p)),
    "arrays": ("a.npz", lambda t, p: write_arrays(p, {"a": np.ones(3)}, "run")),
    "runtime": ("r.pyz", lambda t, p: write_runtime(p)),
    "script": ("s.py", lambda t, p: HybridModule(SCRIPT, "double").save(str(p))),
    "index": ("knowledge.json", lambda t, p: _index(p)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", WRITERS)
def test_a_file_gives_way_to_one_of_its_kind_and_to_no_other(name, things, tmp_path):
    file, write = WRITERS[name]
    others = {}
    for other, (its, make) in WRITERS.items():
        folder = tmp_path / other
        folder.mkdir()
        make(things, folder / its)
        others[other] = (folder / its).read_bytes()
    path = tmp_path / name / file
    write(things, path)  # over its own
    mine = path.read_bytes()
    same = {k for k in others if k.split()[0] == name.split()[0]}
    loadable = {k for k in others if k.split()[0] in ("library", "module")}
    text = {"module text", "module asm"}
    same = text if name in text else loadable - text if name in loadable else same
    foreign = {
        **{k: v for k, v in others.items() if k not in same},
        "onnx": b"\x08\x07\x12\x07pytorch:\x9a\x01", "source": b"import os\n\nprint(os.name)\n",
        "json": b'{"name": "x"}\n', "binary": bytes(range(256)), "elf": b"\x7fELF" + bytes(200),
        "zip": b"PK\3\4" + bytes(100), "pem": b"-----BEGIN CERTIFICATE-----\n",
    }  # fmt: skip
    for what, data in foreign.items():
        path.write_bytes(data)
        before = sorted(path.parent.iterdir())
        with pytest.raises(TilewrightError, match="is not replaced.*another file, or remove"):
            write(things, path)
        assert path.read_bytes() == data, what
        assert sorted(path.parent.iterdir()) == before
    for data in (others[name], mine, b""):
        path.write_bytes(data)
        write(things, path)
        assert path.stat().st_size


def test_a_log_of_which_only_the_first_line_was_begun_goes_on(things, tmp_path):
    path = tmp_path / "log"
    things["log"].save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    with Database(path) as log:
        log.append(things["log"].records[0])
    assert len(Database.load(path)) == 1
    path.write_bytes(b"\n\n" + whole)
    assert len(Database(path)) == 1


def test_merging_does_not_replace_a_model(things, tmp_path):
    things["log"].save(tmp_path / "log")
    (tmp_path / "net.onnx").write_bytes(b"\x08\x07\x12\x07pytorch")
    with pytest.raises(TilewrightError, match="is not a log"):
        pick_best(tmp_path / "log", tmp_path / "net.onnx")
    assert (tmp_path / "net.onnx").read_bytes() == b"\x08\x07\x12\x07pytorch"


def note(path: Path, data: bytes = b"note 2") -> None:
    output.write(path, data, KIND, "write", ModelError)


def test_what_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"note 1")

    def fail(error: BaseException) -> None:
        with output.replacing(path, KIND, "write", ModelError) as made:
            Path(made).write_bytes(b"not")
            raise error

    with pytest.raises(ModelError, match="it cannot be written .No space"):
        fail(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt())
    assert path.read_bytes() == b"note 1" and list(tmp_path.iterdir()) == [path]


def test_links_modes_and_places_that_are_no_files(tmp_path):
    path, link = tmp_path / "a", tmp_path / "link"
    link.symlink_to(path)
    note(link)
    assert link.is_symlink() and path.read_bytes() == b"note 2"
    path.chmod(0o640)
    note(link, b"note 3")
    assert path.read_bytes() == b"note 3" and path.stat().st_mode & 0o777 == 0o640
    fresh = tmp_path / "fresh"
    note(fresh)
    plain = tmp_path / "plain"
    plain.touch()
    assert fresh.stat().st_mode == plain.stat().st_mode
    note(Path(os.devnull))
    for wrong in (tmp_path, tmp_path / "none" / "a", path / "a"):
        with pytest.raises(ModelError, match="cannot be written.*Name a file in a folder"):
            note(wrong)


def test_a_shared_object_of_somebody_else_is_kept(tmp_path, things):
    path = tmp_path / "net.so"
    path.write_bytes(b"\x7fELF" + bytes(100))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("other", b"")
    with pytest.raises(ModelError, match="is not replaced"):
        things["library"].export_library(path)
    path.unlink()
    things["library"].export_library(path)
    runtime.load_module(path)
    things["library"].export_library(path)


# Modules that write files themselves, and why that is right.
OWN = {
    "base/output.py": "it is this",
    "measure/database.py": "appends to a log, which `check` has seen",
    **dict.fromkeys(
        ("driver/cache.py", "measure/index.py", "measure/reference.py", "measure/worker.py",
         "farm/file_store.py", "by_name.py", "runtime/drivers/opencl_icd.py",
         "driver/linking.py", "runtime/drivers/cpu_shared.py", "knowledge/install.py",
         "lowering/pipeline.py", "contrib/debugger/debug_executor.py",
         "models/torch/store.py", "driver/c_interface.py", "contrib/clang.py"),
        "under names of its own in a folder of its own",
    ),
    **dict.fromkeys(("measure/rescue.py", "autotvm/tuners.py"), "under a name that is new"),
    "farm/certificates.py": "replaces its own, and refuses others",
    "cli/app.py": "opens the null device",
    "auto_scheduler/task_inputs.py": "NAME.SHAPE_TYPE.npy, as TVM",
    **dict.fromkeys(
        ("runtime/network/library_file.py", "runtime/network/archives.py", "tvmc/model.py",
         "contrib/cc.py", "driver/archive.py"),
        "the name that `replacing` gave, or memory",
    ),
}  # fmt: skip


def writes(tree: ast.AST) -> bool:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = getattr(getattr(function, "value", None), "id", "")
        modes = [a.value for a in [*node.args, *(k.value for k in node.keywords)]
                 if isinstance(a, ast.Constant) and isinstance(a.value, str)]  # fmt: skip
        flags = {n.attr for a in node.args for n in ast.walk(a) if isinstance(n, ast.Attribute)}
        opens = name in ("open", "fdopen", "ZipFile", "NamedTemporaryFile") and (
            any(m.strip("bt+") in ("w", "a", "x") or m in ("r+", "r+b", "rb+") for m in modes)
            or name == "NamedTemporaryFile"
        )
        if opens or flags & {"O_CREAT", "O_WRONLY"} or name in ("write_text", "write_bytes"):
            return True
        if owner == "np" and name in ("save", "savez", "savez_compressed", "savetxt"):
            return True
    return False


@pytest.mark.slow
def test_files_are_written_through_one_door():
    found = {
        str(path.relative_to(package))
        for package in (PACKAGE, PACKAGE.with_name("tilewright_tvm"))
        for path in package.rglob("*.py")
        if writes(ast.parse(path.read_text()))
    }
    assert found - {*OWN} == set(), "use base/output.py"
    assert {*OWN} - found <= {"base/output.py"}, "no longer needed here"
