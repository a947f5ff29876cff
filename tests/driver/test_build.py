"""Several functions that one call builds, by their names."""

from pathlib import Path

import numpy as np
import pytest
from tilewright_tvm.target.codegen import llvm_version_major

from tilewright import build, device, lower, runtime, te
from tilewright.base.errors import (
    CompileError,
    DeviceError,
    ExpressionError,
    ScheduleError,
    TilewrightError,
)
from tilewright_tvm import nd, target, tir
from tilewright_tvm.contrib import cc


def lowered(name: str, number: float) -> object:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + number, name="B")
    return lower(te.create_schedule(b.op), [a, b], name=name)


def test_functions_of_a_list_by_their_names() -> None:
    both = build([lowered("one", 1.0), lowered("two", 2.0)], "llvm")
    assert list(both) == ["one", "two"] and len(both) == 2 and both.entry_name == "one"
    a, b = nd.array(np.ones(8, "float32")), nd.array(np.zeros(8, "float32"))
    for name, found in (("one", 2.0), ("two", 3.0)):
        both[name](a, b)
        assert (b.numpy() == found).all()
    both(a, b)
    assert (b.numpy() == 2.0).all()
    with pytest.raises(DeviceError, match="one, two"):
        both["three"]
    with pytest.raises(AttributeError, match=r"m\[name\]"):
        both.export_library("two.so")


def test_what_was_lowered_keeps_its_name_and_takes_its_target_first() -> None:
    assert build(lowered("one", 1.0), "llvm").entry_name == "one"
    assert build(lowered("one", 1.0), "llvm", name="other").entry_name == "other"


@pytest.mark.parametrize("what", [[], [lowered("one", 1.0)] * 2])
def test_no_list_of_functions(what: list[object]) -> None:
    with pytest.raises(ScheduleError, match="different names"):
        build(what, target="llvm")


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_what_is_stored_nowhere_is_computed_for_the_caller(target: str) -> None:
    a = te.placeholder((6, 20), name="A")
    b = te.compute((6, 20), lambda i, j: a[i, j] + 1.0, name="B")
    k = te.reduce_axis((0, 20), "k")
    c = te.compute((6,), lambda i: te.sum(b[i, k], axis=k), name="C")
    d = te.compute((6,), lambda i: c[i] * 2.0, name="D")
    s = te.create_schedule(d.op)
    s[b].compute_inline()
    outer, inner = s[d].split(d.op.axis[0], 2)
    s[c].compute_at(s[d], inner)
    if target == "opencl":
        s[d].bind(outer, "blockIdx.x")
        s[d].bind(inner, "threadIdx.x")
    dev = device(target)
    x = np.random.default_rng(0).standard_normal((6, 20)).astype("float32")
    made = [nd.array(np.zeros(t.shape, "float32"), dev) for t in (b, c, d)]
    build(s, [a, b, c, d], target)(nd.array(x, dev), *made)
    want = ((x + 1), (x + 1).sum(1), (x + 1).sum(1) * 2)
    for found, expected in zip(made, want, strict=True):
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


def test_the_version_of_llvm() -> None:
    assert llvm_version_major() >= 15
    with pytest.raises(AttributeError, match=r"target.codegen.build_module does not exist here"):
        _ = target.codegen.build_module


def test_objects_and_texts(tmp_path: Path) -> None:
    module = build(lowered("one", 1.0), "llvm")
    for name in ("one.o", "one.so", "one.bin"):
        module.save(tmp_path / name)
        loaded = runtime.load_module(tmp_path / name)
        a, b = nd.array(np.ones(8, "float32")), nd.array(np.zeros(8, "float32"))
        loaded["one"](a, b)
        assert (b.numpy() == 2.0).all()
    assert (tmp_path / "one.o").read_bytes().startswith(b"\x7fELF")
    module.export_library(tmp_path / "two.o")
    assert not (tmp_path / "two.o").read_bytes().startswith(b"\x7fELF")
    assert runtime.load_module(tmp_path / "two.o").entry_name == "one"
    for name, fmt in (("one.ll", "ll"), ("one.s", "asm"), ("one.asm", "asm")):
        module.save(tmp_path / name)
        whence, _, text = (tmp_path / name).read_text().partition("\n")
        assert "Tilewright" in whence and text == module.get_source(fmt)
    cut = (tmp_path / "one.o").read_bytes()[:-30]
    (tmp_path / "cut.o").write_bytes(cut)
    with pytest.raises(TilewrightError):
        runtime.load_module(tmp_path / "cut.o")
    wrong = bytearray((tmp_path / "one.o").read_bytes())
    wrong[-100] ^= 1
    (tmp_path / "wrong.o").write_bytes(wrong)
    with pytest.raises(DeviceError, match="damaged"):
        runtime.load_module(tmp_path / "wrong.o")


def test_code_of_another_machine_is_built_and_saved(tmp_path: Path) -> None:
    module = build(lowered("one", 1.0), "llvm -mtriple=armv7-none-linux-gnueabihf")
    module.save(tmp_path / "one.o")
    head = (tmp_path / "one.o").read_bytes()[:20]
    assert head[:4] == b"\x7fELF" and head[18] == 0x28
    module.save(tmp_path / "one.asm")
    assert "vadd" in (tmp_path / "one.asm").read_text()
    a, b = (nd.array(np.ones(8, "float32")) for _ in range(2))
    with pytest.raises(DeviceError, match="it was compiled for armv7"):
        module(a, b)
    with pytest.raises(DeviceError, match="it was compiled for armv7"):
        runtime.load_module(tmp_path / "one.o")


def test_binds_change_nothing() -> None:
    n = te.size_var("n")
    a = te.placeholder((n, 3), name="A")
    b = te.compute((n, 3), lambda i, j: a[i, j] + 1.0, name="B")
    s, buffer = te.create_schedule(b.op), tir.decl_buffer((n, 3), name="A")
    assert str(lower(s, [a, b], binds={a: buffer})) == str(lower(s, [a, b]))
    out = nd.array(np.zeros((2, 3), "float32"))
    build(s, [a, b], "llvm", binds={a: buffer})(nd.array(np.ones((2, 3), "float32")), out)
    assert (out.numpy() == 2.0).all()
    for wrong in (tir.decl_buffer((n, 4)), tir.decl_buffer((n, 3), "int32")):
        for function in (lower, build):
            with pytest.raises(ScheduleError, match="Leave binds out"):
                function(s, [a, b], binds={a: wrong})
    with pytest.raises(ExpressionError, match="would repeat its elements"):
        tir.decl_buffer((n, 3), buffer_type="auto_broadcast")


@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_arrays_of_bits_for_bfloat16(target: str) -> None:
    a = te.placeholder((8,), "bfloat16", name="A")
    b = te.compute((8,), lambda i: a[i] + a[i], name="B")
    s = te.create_schedule(b.op)
    if target == "opencl":
        s[b].bind(b.op.axis[0], "threadIdx.x")
    dev = device(target)
    numbers = np.arange(8, dtype="float32") / 4
    bits = (numbers.view("uint32") >> 16).astype("uint16")
    out = nd.array(np.zeros(8, "uint16"), dev)
    build(s, [a, b], target)(nd.array(bits, dev), out)
    found = (out.numpy().astype("uint32") << 16).view("float32")
    np.testing.assert_array_equal(found, numbers * 2)
    with pytest.raises(DeviceError, match="its dtype is int16, not bfloat16"):
        build(s, [a, b], target)(nd.array(bits.astype("int16"), dev), out)


@pytest.mark.skipif(cc.get_cc() is None, reason="no C compiler")
def test_linking_by_hand(tmp_path: Path) -> None:
    build(lowered("one", 1.0), "llvm").save(tmp_path / "one.o")
    build(lowered("two", 2.0), "llvm").save(tmp_path / "two.o")
    cc.create_shared(str(tmp_path / "one.so"), [str(tmp_path / "one.o")])
    loaded = runtime.load_module(tmp_path / "one.so")
    a, b = nd.array(np.ones(8, "float32")), nd.array(np.zeros(8, "float32"))
    loaded["one"](a, b)
    assert (b.numpy() == 2.0).all()
    cc.create_shared(tmp_path / "both.so", [tmp_path / "one.o", tmp_path / "two.o"], ["-O1"])
    with pytest.raises(TilewrightError):  # which of them is meant?
        runtime.load_module(tmp_path / "both.so")
    with pytest.raises(CompileError, match="nowhere"):
        cc.create_shared(tmp_path / "none.so", tmp_path / "nowhere.o")
    with pytest.raises(AttributeError, match="the target says what to link for"):
        _ = cc.create_executable
