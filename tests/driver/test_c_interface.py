"""Networks through `tilewright.h`: examples in C and C++, every refusal, GPUs by a fake driver."""

from __future__ import annotations

import ctypes
import importlib.util
import re
import shutil
import subprocess
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tilewright
from driver import c_calls
from driver.c_calls import (
    CC,
    CXX,
    DEVICE,
    FILE,
    INVALID,
    OK,
    WRONG_THREAD,
    WRONG_VERSION,
    Options,
    compiled,
)
from tilewright.base.artifact import TensorMap
from tilewright.base.dtype import TYPES
from tilewright.base.errors import ModelError
from tilewright.cli.app import main
from tilewright.driver import c_interface, linking
from tilewright.driver.c_interface import HEADER
from tilewright.runtime.network.library import Library
from tilewright_tvm import relay

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")
ROOT = Path(__file__).parents[2]
EXAMPLES, FAKE = ROOT / "examples/c", Path(__file__).with_name("c") / "fake_cuda.c"
W = np.random.default_rng(1).standard_normal((32, 64)).astype("float32")


class Interface(c_calls.Interface):
    def run(self, x: np.ndarray) -> np.ndarray:
        y = np.zeros((len(x), 32), np.float32)
        value, made = self.of("input", x), self.of("output", y)
        assert self("set_input", self.net, 0, ctypes.byref(value)) == OK, self.error
        assert self("run", self.net) == OK, self.error
        assert self("get_output", self.net, 0, ctypes.byref(made)) == OK, self.error
        return y


def module(batch: int, name: str = "x") -> relay.Function:
    x, w = relay.var(name, shape=(batch, 64)), relay.var("w", shape=(32, 64))
    return relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w)))


def data(batch: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((batch, 64)).astype("float32")


def expected(x: np.ndarray) -> np.ndarray:
    return np.maximum(x.astype("float64") @ W.T, 0)


@pytest.fixture(scope="module")
def library() -> Library:
    return relay.build([module(4), module(2)], "llvm", {"w": W})


@pytest.fixture(scope="module")
def path(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("c") / "net.so"
    library.export_library(path)
    return path


@pytest.fixture
def api(path: Path):
    made = Interface(path)
    assert made.open() == OK, made.error
    yield made
    made("close", made.net)


@pytest.mark.slow
def test_the_example_in_c(path: Path, tmp_path: Path) -> None:
    compiled("-std=c99", EXAMPLES / "main.c", path, "-o", tmp_path / "main")
    x, files = data(4), [tmp_path / "x", tmp_path / "y"]
    x.tofile(files[0])
    done = subprocess.run([tmp_path / "main", *files], capture_output=True, text=True)
    assert not done.returncode, done.stderr
    y = np.fromfile(files[1], np.float32).reshape(4, 32)
    np.testing.assert_array_equal(y, tilewright.open(path)(x))
    np.testing.assert_allclose(y, expected(x), rtol=1e-4, atol=1e-4)
    x[:1].tofile(files[0])
    done = subprocess.run([tmp_path / "main", *files], capture_output=True, text=True)
    assert done.returncode == 2 and "input x is 1024 bytes of float32" in done.stderr


@pytest.mark.skipif(CXX is None, reason="no C++ compiler")
@pytest.mark.slow
def test_the_example_in_cpp_has_several_networks(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    relay.build(module(1), "llvm", {"w": 2 * W}).export_library(other)
    compiled("-std=c++11", EXAMPLES / "main.cc", "-o", tmp_path / "main", "-ldl", cc=CXX)
    names = (path, other, tmp_path / "none.so")
    done = subprocess.run([tmp_path / "main", *names], capture_output=True, text=True)
    found = [float(v) for v in re.findall(r"output0\[0\] = (\S+),", done.stdout)]
    one = expected(np.ones((1, 64), "float32"))[0, 0]
    np.testing.assert_allclose(found, [one, 2 * one], rtol=1e-4)
    assert done.returncode == 1 and "none.so" in done.stderr


def test_inputs_and_outputs_are_described(api: Interface) -> None:
    count = ctypes.c_int()
    for what, wanted in (("inputs", 1), ("outputs", 1), ("shapes", 2)):
        assert api(what, api.net, ctypes.byref(count)) == OK and count.value == wanted
    x = api.tensor("input")
    assert (x.name, x.type, x.shape[: x.rank], x.bytes) == (b"x", 1, [4, 64], 1024)
    assert x.data % 64 == 0 and api.tensor("output").shape[1] == 32
    assert api("input_index", api.net, b"x", ctypes.byref(count)) == OK and count.value == 0
    assert api("input_index", api.net, b"y", ctypes.byref(count)) == INVALID
    assert 'input_index("y"): the network has no such input' in api.error
    assert api.lib.tilewright_version().decode() == tilewright.__version__
    assert api.lib.tilewright_target() == b"llvm" and api("interface") == 2


def test_both_sets_of_shapes_run(api: Interface) -> None:
    np.testing.assert_allclose(api.run(data(4)), expected(data(4)), rtol=1e-4, atol=1e-4)
    x = data(2, 1)
    small = api.of("input", x)
    shape = (ctypes.c_int64 * 2)(2, 64)
    small.shape, small.bytes = shape, x.nbytes
    assert api("set_input", api.net, 0, ctypes.byref(small)) == INVALID
    assert "tilewright_use_shapes(network, 1)" in api.error
    assert api("use_shapes", api.net, 1) == OK
    np.testing.assert_allclose(api.run(x), expected(x), rtol=1e-4, atol=1e-4)
    assert api("use_shapes", api.net, 2) == INVALID and "Use 0 to 1" in api.error


def test_memory_of_the_network_itself(api: Interface) -> None:
    x, y, given = api.tensor("input"), api.tensor("output"), data(4, 3)
    ctypes.memmove(x.data, given.ctypes.data, x.bytes)
    assert api("set_input", api.net, 0, ctypes.byref(x)) == OK  # where it is
    assert api("run", api.net) == OK
    found = np.frombuffer(ctypes.string_at(y.data, y.bytes), np.float32).reshape(4, 32)
    np.testing.assert_allclose(found, expected(given), rtol=1e-4, atol=1e-4)


WRONG = {
    "float64": ({"type": 2}, r"the tensor is float64\[4, 64\], input x is float32\[4, 64\]"),
    "no type": ({"type": 99}, r"the tensor is no type\[4, 64\]"),
    "rank": ({"rank": 1}, r"the tensor is float32\[4\]"),
    "a negative rank": ({"rank": -1}, "has no shape"),
    "no shape": ({"shape": None}, "has no shape. tilewright_input tells it"),
    "shape": ({"shape": (ctypes.c_int64 * 2)(64, 4)}, r"the tensor is float32\[64, 4\]"),
    "bytes": ({"bytes": 1020}, "bytes is 1020, input x has 1024"),
    "no data": ({"data": None}, "data is null"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_tensor_is_refused(api: Interface, name: str) -> None:
    fields, text = WRONG[name]
    x = data(4)
    value, made = api.of("input", x), api.of("output", np.zeros((4, 32), np.float32))
    for field, wrong in fields.items():
        setattr(value, field, wrong)
    assert api("set_input", api.net, 0, ctypes.byref(value)) == INVALID
    assert re.search(text, api.error), api.error
    assert api("call", api.net, ctypes.byref(value), 1, ctypes.byref(made), 1) == INVALID
    assert re.search(text, api.error), api.error


def test_null_is_refused_by_every_function(api: Interface) -> None:
    count, x = ctypes.c_int(), api.tensor("input")
    for name, *rest in (
        ("inputs", ctypes.byref(count)), ("outputs", ctypes.byref(count)),
        ("shapes", ctypes.byref(count)), ("input", 0, ctypes.byref(x)),
        ("output", 0, ctypes.byref(x)), ("input_index", b"x", ctypes.byref(count)),
        ("use_shapes", 0), ("set_input", 0, ctypes.byref(x)), ("run",),
        ("get_output", 0, ctypes.byref(x)), ("call", None, 0, None, 0), ("set_stream", None),
        ("synchronize",), ("release",),
    ):  # fmt: skip
        assert api(name, None, *rest) == INVALID and "the network is null" in api.error
        assert api(name, ctypes.c_void_p(12345), *rest) == INVALID
        assert "none of this library" in api.error
        empty = [None if isinstance(a, type(ctypes.byref(x))) else a for a in rest]
        if empty != rest:
            assert api(name, api.net, *empty) == INVALID and "null" in api.error
    assert api("call", api.net, None, 1, None, 1) == INVALID and "inputs is null" in api.error
    assert api("call", api.net, None, 2, None, 1) == INVALID and "2 inputs and 1" in api.error
    assert api("open", 2, None, None) == INVALID and api("close", None) == OK
    for index in (-1, 1, 2**31 - 1):
        assert api("set_input", api.net, index, ctypes.byref(x)) == INVALID
        assert api("get_output", api.net, index, ctypes.byref(x)) == INVALID
        assert "Use 0 to 0" in api.error
    assert api("set_stream", api.net, ctypes.c_void_p(8)) == INVALID and "CPU" in api.error
    assert api("set_threads", -3) == INVALID and api("set_threads", 1025) == INVALID


def test_a_closed_network_is_refused(path: Path) -> None:
    one, two = Interface(path), Interface(path)
    assert one.open() == OK and two.open(Options(2, 0)) == OK and one.net.value != two.net.value
    assert one("close", one.net) == OK
    assert one("run", one.net) == INVALID and "is closed" in one.error
    assert one("close", one.net) == INVALID
    np.testing.assert_allclose(two.run(data(4)), expected(data(4)), rtol=1e-4, atol=1e-4)
    two("close", two.net)
    for options in (Options(-1, 0), Options(2000, 0), Options(0, -1), Options(0, 1)):
        assert one.open(options) == INVALID and not one.net.value


def test_another_header_is_refused_with_both_versions(path: Path) -> None:
    api = Interface(path)
    assert api("open", 7, None, ctypes.byref(api.net)) == WRONG_VERSION
    assert "interface 7, the library has interface 2" in api.error
    assert tilewright.__version__ in api.error
    api.lib.tilewright_functions.restype = ctypes.c_void_p
    assert api.lib.tilewright_functions(7) is None and api.lib.tilewright_functions(2)


def test_a_network_belongs_to_a_thread_or_takes_turns(api: Interface) -> None:
    api.run(data(4))
    found: list[object] = []

    def other() -> None:
        found.append(api("run", api.net))
        found.append(api.error)

    def shared(seed: int) -> None:
        for k in range(40):
            x, y = data(4, seed + k), np.zeros((4, 32), np.float32)
            value, made = api.of("input", x), api.of("output", y)
            status = api("call", api.net, ctypes.byref(value), 1, ctypes.byref(made), 1)
            close = np.allclose(y, expected(x), rtol=1e-4, atol=1e-4)
            found.append((status, bool(close)))

    in_threads(other)
    assert found[0] == WRONG_THREAD and "another thread uses this network" in str(found[1])
    assert api("release", api.net) == OK
    found.clear()
    in_threads(lambda: shared(0), lambda: shared(100), lambda: shared(200))
    assert found == [(OK, True)] * 120
    in_threads(lambda: api("run", api.net))
    assert api("run", api.net) == WRONG_THREAD and api("release", api.net) == WRONG_THREAD


def in_threads(*functions) -> None:
    threads = [threading.Thread(target=f) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("damage", ["cut", "another", "gone", "flipped"])
@pytest.mark.slow
def test_a_file_that_changed_is_refused(path: Path, tmp_path: Path, damage: str) -> None:
    copy = tmp_path / "net.so"
    shutil.copyfile(path, copy)
    api = Interface(copy)
    whole = copy.read_bytes()
    copy.unlink()  # the loader keeps what it has
    if damage == "cut":
        copy.write_bytes(whole[:-40])
    if damage == "flipped":
        at = whole.index(W.T[0, :1].tobytes()) + 2
        copy.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    if damage == "another":
        relay.build(module(4), "llvm", {"w": W + 1}).export_library(copy)
    assert api.open() == FILE and not api.net.value
    text = {"cut": "its end is missing", "another": "another one than was loaded",
            "flipped": "a checksum differs"}  # fmt: skip
    assert text.get(damage, "cannot be read") in api.error


@pytest.mark.slow
def test_a_processor_without_its_instructions(library: Library, tmp_path: Path) -> None:
    flags = {"x86_64": "avx512er", "aarch64": "sme"}
    needed = flags.get(linking.processors.here())
    told = needed and c_interface.cpu_features.missing_here({"needs": [needed]})
    if not told:
        pytest.skip("this processor has it, or tells nothing")
    kernels = [replace(k, meta={**k.meta, "needs": [needed]}) for k in library.kernels]
    path = tmp_path / "net.so"
    Library(library.plans, kernels, library.constants, library.report).export_library(path)
    api = Interface(path)
    assert api.open() == DEVICE and f"a processor with {needed}, which this one" in api.error


@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="no `cross`")
@pytest.mark.slow
def test_without_a_c_compiler(library: Library, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(linking.shutil, "which", lambda name: None)
    library.export_library(tmp_path / "net.so")
    api = Interface(tmp_path / "net.so")
    assert api.open() == OK, api.error
    np.testing.assert_allclose(api.run(data(4)), expected(data(4)), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_names_are_as_they_were(tmp_path: Path) -> None:
    name = 'a"b\\n??/\n%sé'
    x = relay.var(name, shape=(3,))
    relay.build(relay.Function([x], x + x), "llvm").export_library(tmp_path / "net.so")
    api = Interface(tmp_path / "net.so")
    assert api.open() == OK and api.tensor("input").name.decode() == name
    wrong = api.tensor("input")
    wrong.type = 2
    assert api("set_input", api.net, 0, ctypes.byref(wrong)) == INVALID and name in api.error


def test_the_header_has_every_element_type(api: Interface) -> None:
    api.lib.tilewright_type_name.restype = ctypes.c_char_p
    numbers = dict(re.findall(r"TILEWRIGHT_(\w+) = (\d+)", HEADER.read_text()))
    told = {name: api.lib.tilewright_type_name(int(numbers[name.upper()])) for name in TYPES}
    assert told == {name: name.encode() for name in TYPES}
    assert api.lib.tilewright_type_name(-1) == api.lib.tilewright_type_name(77) == b""


def test_a_header_gives_way_to_another_one_only(tmp_path: Path) -> None:
    path = tmp_path / "tilewright.h"
    c_interface.write_header(path)
    c_interface.write_header(path)
    assert path.read_bytes() == HEADER.read_bytes()
    path.write_text("something of the user's")
    with pytest.raises(ModelError, match="is not tilewright.h"):
        c_interface.write_header(path)


# -- GPUs ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Library:
    pytest.importorskip("cuda.bindings.nvrtc")
    return relay.build([module(4), module(2)], "cuda -arch=sm_90", {"w": W})


RUN = """
#include <stdio.h>
#include "tilewright.h"
#define MUST(call) if (call) return puts(tilewright_error()), 1
int main(void) {
  TilewrightNetwork *a, *b; TilewrightTensor x, y; char in[1024] = {1}, out[512]; int stream;
  MUST(tilewright_open(TILEWRIGHT_INTERFACE, NULL, &a));
  MUST(tilewright_open(TILEWRIGHT_INTERFACE, NULL, &b));
  MUST(tilewright_input(a, 0, &x)); MUST(tilewright_output(a, 0, &y));
  x.data = in, y.data = out;
  MUST(tilewright_call(a, &x, 1, &y, 1));
  MUST(tilewright_set_stream(a, &stream)); MUST(tilewright_use_shapes(a, 1));
  MUST(tilewright_run(a)); MUST(tilewright_synchronize(a)); MUST(tilewright_set_stream(a, NULL));
  MUST(tilewright_close(a)); MUST(tilewright_run(b)); MUST(tilewright_close(b));
  TilewrightOptions far = {0, 1};
  return tilewright_open(TILEWRIGHT_INTERFACE, &far, &a) != TILEWRIGHT_DEVICE;
}
"""


def run_on_fake(library: Library, folder: Path) -> str:
    """What happens to a library for GPUs, as `RUN` uses it; the driver is `FAKE`."""
    library.export_library(folder / "net.so")
    (folder / "main.c").write_text(RUN)
    compiled(folder / "main.c", folder / "net.so", "-o", folder / "main")
    compiled("-shared", "-fPIC", FAKE, "-o", folder / "libcuda.so.1")
    done = subprocess.run(
        [folder / "main"], capture_output=True, text=True, env={"LD_LIBRARY_PATH": str(folder)}
    )
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_kernels_of_a_gpu_are_launched_as_they_are_to_be(gpu: Library, tmp_path: Path) -> None:
    told = run_on_fake(gpu, tmp_path)
    assert "left open: 0, contexts: 0" in told  # all that was made is gone
    infos = [[i for n in p.launches for i in gpu.kernels[n.kernel].source.kernels]
             for p in gpu.plans]  # fmt: skip
    lines = [[f"{i.name}<{' '.join(map(str, i.grid))}, {' '.join(map(str, i.block))}, "
              f"{i.shared_bytes}>" for i in of_plan] for of_plan in infos]  # fmt: skip
    first, second = ([*own, f"run of {len(own)} kernels"] for own in lines)
    kept = [line for line in told.splitlines() if line.startswith(("run", *lines[0], *lines[1]))]
    assert kept == [*lines[0], *first, *second, first[-1]]  # two networks, each with its graphs
    np.testing.assert_array_equal(tilewright.open(tmp_path / "net.so").library.constants[0],
                                  gpu.constants[0])  # fmt: skip


@pytest.mark.slow
def test_tensor_maps_are_those_that_python_encodes(gpu: Library, tmp_path: Path) -> None:
    views = (
        TensorMap(0, "float32", (4, 64), (64, 1), (4, 32), (1, 1), 128, True),
        TensorMap(1, "float16", (8,), (1,), (8,), (2,)),
    )
    kernels = [
        replace(k, source=replace(k.source, kernels=tuple(
            replace(i, maps=views) for i in k.source.kernels))) for k in gpu.kernels
    ]  # fmt: skip
    told = run_on_fake(Library(gpu.plans, kernels, gpu.constants, gpu.report), tmp_path)
    assert "map 11 of 64/32/1 4/4/1 strides 256 swizzle 3\n" in told
    assert "map 6 of 8/8/2 strides swizzle 0\n" in told


def test_numbers_of_tensor_maps_are_those_of_cuda() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    from tilewright.runtime.drivers import tensor_maps

    kinds, swizzles = driver.CUtensorMapDataType, driver.CUtensorMapSwizzle
    for name, word in tensor_maps._TYPES.items():
        kind = getattr(kinds, f"CU_TENSOR_MAP_DATA_TYPE_{word}")
        assert c_interface.MAP_TYPES[name] == int(kind)
    assert int(kinds.CU_TENSOR_MAP_DATA_TYPE_TFLOAT32) == c_interface.MAP_ROUNDED
    for size, word in tensor_maps._SWIZZLES.items():
        named = getattr(swizzles, f"CU_TENSOR_MAP_SWIZZLE_{word}")
        assert c_interface.MAP_SWIZZLES[size] == int(named)
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    text = (Path(c_interface.__file__).with_name("native") / "cuda.c").read_text()
    for name, value in (
        ("MAX_DYNAMIC_SHARED", attribute),
        ("MEMORY_TYPE", driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE),
        ("MEMORY_OF_DEVICE", driver.CUmemorytype.CU_MEMORYTYPE_DEVICE),
        ("NO_TIMING", driver.CUevent_flags.CU_EVENT_DISABLE_TIMING),
        ("NON_BLOCKING", driver.CUstream_flags.CU_STREAM_NON_BLOCKING),
        ("RELAXED", driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED),
        ("OUT_OF_MEMORY", driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY),
        ("PROMOTION_128B", driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
    ):
        assert f"{name} = {int(value)}" in text, name


@pytest.mark.slow
def test_a_gpu_without_a_driver(gpu: Library, tmp_path: Path) -> None:
    gpu.export_library(tmp_path / "net.so")
    api = Interface(tmp_path / "net.so")
    if api.open() == OK:
        pytest.skip("there is a GPU")
    assert "NVIDIA" in api.error and not api.net.value


def test_a_gpus_file_needs_no_compiler(gpu: Library, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(c_interface.linking, "has_toolchain", lambda triple: False)
    gpu.export_library(tmp_path / "net.so")
    again = tilewright.open(tmp_path / "net.so").library
    assert [k.binary for k in again.kernels] == [k.binary for k in gpu.kernels]
    again.export_library(tmp_path / "net.tar")  # its code is no shared object's


@pytest.mark.slow
def test_compile_writes_the_header(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*args: str) -> str:
        with suppress(SystemExit):
            main(["compile", "mlp", "--header", *args])
        return "".join(capsys.readouterr())

    assert "an archive has no functions for C" in run("-o", "net.tar")
    assert "libraries for opencl have no functions" in run("--target", "opencl")
    assert list(tmp_path.iterdir()) == []
    assert "Done" in run("-o", "net.so")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.so", "tilewright.h"]
