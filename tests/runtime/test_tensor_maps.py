"""Tensor maps as parameters of launches, against a driver that writes down what it is asked."""

from __future__ import annotations

import ctypes
import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from tests.ir import boxes
from tilewright.base.artifact import Artifact, KernelInfo, Source, TensorMap
from tilewright.base.errors import DeviceError
from tilewright.codegen import generate
from tilewright.runtime import artifact_file
from tilewright.runtime.drivers import Kernel, Launch, cuda
from tilewright.runtime.drivers.tensor_maps import TensorMaps
from tilewright.targets.target import Target

VIEW = TensorMap(1, "float16", (40, 80), (80, 1), (24, 64), (1, 1), 128)


class Numbers:
    """An enumeration whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


class Recorder:
    """`cuda.bindings.driver`, as far as launches go."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.launched: list[tuple[list[int], list[bytes]]] = []
        self.status = 0
        for name in ("DataType", "Swizzle", "Interleave", "L2promotion", "FloatOOBfill"):
            setattr(self, f"CUtensorMap{name}", Numbers())
        self.cuuint64_t = self.cuuint32_t = int

    def cuTensorMapEncodeTiled(self, *asked: Any) -> tuple[Any, ...]:
        self.asked.append(asked)
        place = ctypes.create_string_buffer(bytes([len(self.asked)]) * 128, 128)
        return self.status, SimpleNamespace(getPtr=lambda: ctypes.addressof(place), place=place)

    def cuLaunchKernel(self, function: str, *rest: Any) -> tuple[int]:
        slots = ctypes.cast(rest[-2], ctypes.POINTER(ctypes.c_void_p))
        pointers = [ctypes.cast(slots[k], ctypes.POINTER(ctypes.c_uint64))[0] for k in range(2)]
        assert slots[2] % 64 == 0
        self.launched.append((pointers, [ctypes.string_at(slots[2], 128)]))
        return (0,)


def ask(place: str, result: tuple[Any, ...]) -> Any:
    if result[0]:
        raise DeviceError(place, "it failed", "")
    return result[1]


def call(cu: Recorder, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(cuda, "_cu", lambda: cu)
    info = KernelInfo("k", (0, 1), maps=(VIEW,))
    source = Source("cuda", "", "k", (), (info,))
    memory = tuple(SimpleNamespace(pointer=p) for p in (4096, 8192))
    return cuda._Call(Launch(Kernel(info, "k", None, source), memory))  # type: ignore[arg-type]


def test_what_is_encoded_has_the_innermost_dimension_first() -> None:
    cu = Recorder()
    TensorMaps(cu, [VIEW], ask).put(1, 256)
    kind, rank, address, shape, strides, box, steps, *rest = cu.asked[0]
    assert (rank, address, shape, strides) == (2, 256, [80, 40], [160])
    assert (box, steps) == ([64, 24], [1, 1])
    assert [kind, rest[1]] == ["CU_TENSOR_MAP_DATA_TYPE_FLOAT16", "CU_TENSOR_MAP_SWIZZLE_128B"]


def test_a_launch_has_the_map_of_the_address_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    cu = Recorder()
    made = call(cu, monkeypatch)
    made.enqueue("stream")
    made.put(1, 12288)
    made.enqueue("stream")
    made.put(0, 64)  # of another argument: nothing is encoded
    made.put(1, 8192)  # encoded before
    made.enqueue("stream")
    assert [asked[2] for asked in cu.asked] == [8192, 12288]
    assert [pointers for pointers, _ in cu.launched] == [[4096, 8192], [4096, 12288], [64, 8192]]
    assert [maps[0][0] for _, maps in cu.launched] == [1, 2, 1]


def test_addresses_that_do_not_come_back_are_forgotten() -> None:
    cu = Recorder()
    maps = TensorMaps(cu, [VIEW], ask)
    for k in range(1, 100):
        maps.put(1, 256 * k)
    maps.put(1, 256)
    assert len(cu.asked) == 100 and len(maps._views[0][2]) <= 16


def test_what_cannot_be_encoded_says_so() -> None:
    cu = Recorder()
    cu.status = 1
    with pytest.raises(DeviceError, match="tensor map of argument 1: it failed"):
        TensorMaps(cu, [VIEW], ask).put(1, 256)


def test_they_travel_with_the_artefact() -> None:
    source = generate(boxes.program(boxes.CASES["swizzled"]), Target("cuda -arch=sm_90"))
    assert source.kernels[0].maps[0].swizzle == 128
    there = artifact_file.to_bytes(Artifact(source, b"binary"))
    assert artifact_file.from_bytes(there).source == source
    plain = json.loads(json.dumps(asdict(source)))["kernels"][0]["maps"][0]
    assert plain["box"] == [24, 64] and plain["dtype"] == "float16"
