"""Shared objects for this machine and for others, made without a toolchain."""

from __future__ import annotations

import importlib.util
import struct
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import DeviceError, ModelError
from tilewright.driver import linking
from tilewright.runtime import cpu, load_module
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.targets import processors
from tilewright_tvm import relay
from tilewright_tvm.contrib import ndk

needs_lld = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="the extra `cross` is not installed"
)
TARGETS = {  # machine in the header of the file, bits
    "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon": (183, 64),
    "llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon": (40, 32),
    "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64": (62, 64),
}


def built(target: str) -> Library:
    x = relay.var("x", shape=(3, 40))
    value = relay.add(relay.tanh(x), relay.sum(relay.exp(x), axis=1, keepdims=True))
    return relay.build(relay.Function([x], value), target)


@needs_lld
@pytest.mark.parametrize("target", TARGETS)
def test_a_library_for_any_machine(target: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(linking.shutil, "which", lambda name: None)  # no toolchain
    path = tmp_path / "net.so"
    built(target).export_library(path, ndk.create_shared)
    head = path.read_bytes()[:64]
    machine, bits = TARGETS[target]
    assert head[:4] == b"\x7fELF" and head[4] == bits // 32
    assert struct.unpack_from("<H", head, 18)[0] == machine
    if bits == 32:  # loaders of such systems want floats in registers
        assert struct.unpack_from("<I", head, 0x24)[0] & 0x400
    again = load_module(path)
    assert again.target == " ".join(sorted(target.split(), key=lambda w: (w != "llvm", w)))
    if processors.elsewhere(target.split("-mtriple=")[1].split()[0]):
        with pytest.raises(DeviceError, match=r"compiled for \S+, and this is"):
            again["default"](cpu())
        return
    x = np.random.default_rng(0).standard_normal((3, 40)).astype("float32")
    module = GraphModule(again["default"](cpu()))
    module.run(x=x)
    expected = np.tanh(x) + np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(module.get_output(0).numpy(), expected, rtol=1e-5)


def test_without_a_linker(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(linking.importlib.util, "find_spec", lambda name: None)
    library = built(next(t for t in TARGETS if processors.elsewhere(t.split("=")[1].split()[0])))
    with pytest.raises(ModelError, match=r"there is none.*pip install ziglang.*\.tar"):
        library.export_library(tmp_path / "net.so")
    library.export_library(tmp_path / "net.tar")
    assert [p.name for p in tmp_path.iterdir()] == ["net.tar"]


def test_what_is_not_run_says_so() -> None:
    target = "llvm -mtriple=riscv64-linux-gnu"
    assert "no kernel was run" in str(built(target).report)
    assert "riscv64-linux-gnu is another machine" in str(built(target).report)


@needs_lld
def test_an_artefact_for_devices_without_llvm(tmp_path: Path) -> None:
    """It is loaded as a shared object, and unloaded with its kernels."""
    library = built("llvm")
    made = [linking.linked(artifact) for artifact in library.kernels]
    assert all(a.binary[16] == 3 for a in made)
    x = np.random.default_rng(0).standard_normal((3, 40)).astype("float32")
    found = []
    for artifacts in (library.kernels, made):
        again = Library(library.plans, artifacts, library.constants, library.report)
        module = GraphModule(again["default"](cpu()))
        module.run(x=x)
        found.append(module.get_output(0).numpy())
    np.testing.assert_array_equal(*found)
    foreign = linking.linked(built(next(iter(TARGETS))).kernels[0])
    with pytest.raises(DeviceError, match="it was compiled for"):
        cpu().driver.load(foreign)
