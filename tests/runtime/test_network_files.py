"""Exported libraries: what loads them, what is in them, what is refused."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.base.errors import DeviceError, ModelError
from tilewright.runtime import cpu, load_module
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.plan import Operand
from tilewright_tvm import relay

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
KINDS = ["net.tar", "net.tw", pytest.param("net.so", marks=needs_cc)]
SHAPE = (4, 64)

_FRESH = """
import sys
import numpy as np
import tilewright
from tilewright_tvm.contrib import graph_executor
lib = tilewright.runtime.load_module(sys.argv[1])
module = graph_executor.GraphModule(lib["default"](tilewright.cpu()))
module.run(x=np.load(sys.argv[2]))
np.save(sys.argv[2], module.get_output(0).numpy())
print(*(name for name in sys.modules), file=open(sys.argv[2] + ".names", "w"))
"""
# What a process may import of the package to run a network.
_ROOMS = {"base", "targets", "runtime", "contrib"}
_HEAVY = {"xgboost", "onnx", "torch", "rich", "click"}


def network() -> relay.Function:
    x, w = relay.var("x", shape=SHAPE), relay.var("w", shape=(32, 64))
    hidden = relay.nn.relu(relay.nn.dense(x, w))
    return relay.Function([x, w], relay.nn.softmax(relay.add(hidden, hidden)))


def data(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype("float32")


@pytest.fixture(scope="module")
def library() -> Library:
    w = np.random.default_rng(1).standard_normal((32, 64)).astype("float32")
    return relay.build(network(), "llvm", {"w": w})


def run(lib: Library, x: np.ndarray) -> np.ndarray:
    module = GraphModule(lib["default"](cpu()))
    module.run(x=x)
    return module.get_output(0).numpy()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_fresh_process_runs_it_without_the_compiler(library, tmp_path, name):
    path, values = tmp_path / name, tmp_path / "x.npy"
    library.export_library(path)
    np.save(values, data())
    subprocess.run([sys.executable, "-c", _FRESH, path, values], check=True, timeout=60)
    np.testing.assert_array_equal(np.load(values), run(library, data()))
    names = Path(f"{values}.names").read_text().split()
    rooms = {n.split(".")[1] for n in names if n.startswith("tilewright.")}
    assert rooms <= _ROOMS
    heavy = _HEAVY | ({"llvmlite"} if name.endswith(".so") else set())
    assert not heavy & set(names)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_it_is_the_same_library(library, tmp_path, name):
    path = tmp_path / name
    library.export_library(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == [name]
    again = load_module(path)
    assert again.report == library.report and again.plans == library.plans
    np.testing.assert_array_equal(run(again, data(3)), run(library, data(3)))
    for key, value in library.get_params().items():
        np.testing.assert_array_equal(again.get_params()[key], value)
    again.export_library(path)  # over the file that it came from, whose code is loaded
    np.testing.assert_array_equal(run(load_module(path), data(4)), run(again, data(4)))


@pytest.mark.parametrize("name", KINDS)
def test_damage_is_noticed(library, tmp_path, name):
    path = tmp_path / name
    library.export_library(path)
    whole = path.read_bytes()
    weights = whole.index(library.constants[0].tobytes())
    places = [weights + 2, 300 if name.endswith(".so") else weights + 40]
    for damaged in (whole[: len(whole) // 2], *(_flipped(whole, at) for at in places)):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged"):
            load_module(path)
    path.write_bytes(b"text")
    with pytest.raises(ModelError, match="no compiled network"):
        load_module(path)
    with pytest.raises(DeviceError, match="cannot be read"):
        load_module(tmp_path / "missing.so")


def _flipped(whole: bytes, at: int) -> bytes:
    return whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :]


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, slot_bytes=tuple(n // 2 for n in p.slot_bytes)),
        lambda p: replace(p, launches=(replace(p.launches[0], kernel=99),)),
        lambda p: replace(p, launches=(replace(p.launches[0], kernel=-1),)),
        lambda p: replace(p, launches=(replace(p.launches[0], operands=()),)),
        lambda p: replace(p, inputs=(replace(p.inputs[0], shape=(2, 64)),)),
        lambda p: replace(p, inputs=(replace(p.inputs[0], shape=(-4, -64)),)),
        lambda p: replace(p, outputs=((p.outputs[0][0], Operand("slot", -1)),)),
        lambda p: replace(p, outputs=((p.outputs[0][0], Operand("file", 0)),)),
        lambda p: replace(p, outputs=((replace(p.outputs[0][0], shape=(1 << 40,)),
                                       p.outputs[0][1]),)),
        lambda p: replace(p, launches=(replace(p.launches[0], operands=tuple(
            Operand("input", 0) if o.kind == "slot" else o for o in p.launches[0].operands)),)),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_fit_its_kernels_is_refused(library, change):
    """A kernel trusts its arguments, so a launch must not get less memory than it touches."""
    with pytest.raises(ModelError, match="Build and save it again"):
        Library(change(library.plan), library.kernels, library.constants, library.report)


def test_a_tar_is_a_tar(library, tmp_path):
    library.export_library(tmp_path / "net.tar")
    with tarfile.open(tmp_path / "net.tar") as tar:
        names = tar.getnames()
    assert names[0] == "network.json" and names[-1] == "sha256" and "kernel0" in names


def test_without_a_c_compiler(library, tmp_path):
    with pytest.raises(ModelError, match=r"needs a linker.*\.tar"):
        library.export_library(tmp_path / "net.so", cc="no-such-compiler")
    with pytest.raises(ModelError, match="could not compile"):
        library.export_library(tmp_path / "net.so", cc="false")
    assert list(tmp_path.iterdir()) == []


@needs_cc
def test_a_shared_object_can_only_be_copied(library, tmp_path):
    library.export_library(tmp_path / "net.so")
    with pytest.raises(ModelError, match="in a shared object"):
        load_module(tmp_path / "net.so").export_library(tmp_path / "net.tar")


@needs_cc
def test_shared_objects_use_one_pool(library, tmp_path):
    """Theirs, or that of code compiled here: kernels of all run, and apart where that is asked."""
    from tilewright.runtime.drivers.cpu_native import native
    from tilewright.runtime.drivers.cpu_shared import open_shared

    own = native()
    for name in ("a.so", "b.so"):
        library.export_library(tmp_path / name)
        np.testing.assert_array_equal(
            run(load_module(tmp_path / name), data()), run(library, data())
        )
        code = open_shared(str(tmp_path / name), ())

        instead = ctypes.c_void_p.from_address(code.address("tilewright_instead")).value
        assert instead == own.parallel


@needs_cc
def test_a_processor_without_its_instructions(library, tmp_path, monkeypatch):
    from tilewright.runtime.drivers import cpu_features, cpu_host

    needs = library.kernels[0].meta["needs"]
    if platform.machine() != "x86_64" or not needs:
        pytest.skip("only x86-64 tells its instructions")
    assert cpu_features.missing_here(library.kernels[0].meta) == ()
    library.export_library(tmp_path / "net.so")
    lacking = tuple(f for f in cpu_host.flags() if not f.startswith(("avx", "fma")))
    monkeypatch.setattr(cpu_host, "flags", lambda: lacking)
    with pytest.raises(DeviceError, match="avx"):
        load_module(tmp_path / "net.so")["default"](cpu())


def test_the_graph_is_that_of_the_library(library):
    graph = json.loads(library.get_graph_json())
    names = [node["name"] for node in graph["nodes"]]
    assert names[: len(graph["arg_nodes"])] == ["x", *library.get_params()]
    kernels = [node for node in graph["nodes"] if node["op"] == "tvm_op"]
    assert len(kernels) == len(library.plan.launches)
    for k, node in enumerate(graph["nodes"]):  # what is read was written before
        assert all(source < k for source, _, _ in node["inputs"])
    shapes = graph["attrs"]["shape"][1]
    assert [shapes[k] for k, _, _ in graph["heads"]] == [[4, 32]]
    assert len(graph["node_row_ptr"]) == len(names) + 1


def test_what_is_exported_has_the_names_of_the_package():
    assert tilewright.runtime.load_module is load_module
