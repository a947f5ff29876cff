"""The CPU: object files loaded by LLVM's MCJIT, aligned memory, replay without Python in the loop.

In: artefacts whose binary is an object file, or a shared object, which needs no LLVM.  Out: kernels
as addresses, plans as one native call.
Read next: `cpu_host.py` (what it is), `cpu_native.py` (what runs kernels), `cpu_shared.py`.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from tilewright.base.artifact import Artifact
from tilewright.base.errors import DeviceError, TargetError
from tilewright.runtime.drivers import (
    ALIGNMENT,
    Fenced,
    Kernel,
    Launch,
    Memory,
    Spot,
    cpu_features,
    cpu_host,
    cpu_race_check,
    cpu_shared,
)
from tilewright.runtime.drivers.cpu_llvm import llvm_library
from tilewright.runtime.drivers.cpu_native import default_threads, engine, native
from tilewright.targets.spec import DeviceSpec

_ZONE = 16 << 10
_FENCE = 4 << 20  # bytes that cannot be touched, beyond the zones; address space only
_NO_ACCESS = 0
_HUGE = 4 << 20  # numpy asks for large pages from this size on: what is timed should have the same


def open_device(index: int) -> CpuDriver:
    if index:
        raise DeviceError(f"cpu({index})", "all cores are one device", "Use cpu(0).")
    return CpuDriver()


def _compiled_for() -> dict[str, str]:
    """What code for this processor is compiled with, as LLVM tells, else as the system does."""
    try:
        llvm = llvm_library()
    except TargetError:
        features = ",".join(f"+{name}" for name in cpu_features.told())
        return {
            "mtriple": cpu_host.triple(), "mcpu": cpu_host.processor(), "mattr": features
        }  # fmt: skip
    return {
        "mtriple": llvm.get_process_triple(),
        "mcpu": llvm.get_host_cpu_name(),
        "mattr": llvm.get_host_cpu_features().flatten(),
    }


class CpuMemory:
    """64-byte aligned host memory; `view` is it as bytes, `base` what keeps it alive: for a part,
    the memory that it is part of."""

    def __init__(self, view: np.ndarray, base: object, offset: int = 0) -> None:
        self.view, self.base, self.offset = view, base, offset
        self.nbytes = int(view.nbytes)
        self.pointer = int(view.ctypes.data)

    @property
    def whole(self) -> CpuMemory:
        return self.base if isinstance(self.base, CpuMemory) else self

    def part(self, offset: int, nbytes: int) -> CpuMemory:
        """See `Driver.part`."""
        inside = self.view[offset : offset + nbytes]
        return CpuMemory(inside, self.whole, self.offset + offset)

    @classmethod
    def empty(cls, nbytes: int) -> CpuMemory:
        raw = np.empty(nbytes + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        return cls(raw[start : start + nbytes], raw)

    @classmethod
    def fenced(cls, nbytes: int) -> Fenced:
        """See `Driver.fenced`: whatever touches the pages beyond the zones dies at once."""
        used = -(-(nbytes + 2 * _ZONE) // mmap.PAGESIZE) * mmap.PAGESIZE
        raw = mmap.mmap(-1, used + 2 * _FENCE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if nbytes >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            raw.madvise(mmap.MADV_HUGEPAGE)
        view = np.frombuffer(raw, np.uint8)
        for start in (0, _FENCE + used):
            _protect(view.ctypes.data + start, _FENCE)
        inside = view[_FENCE : _FENCE + used]
        return Fenced(cls(inside, view), cls(inside[_ZONE : _ZONE + nbytes], view), _ZONE)


@cache
def _mprotect() -> Any:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return function


def _protect(address: int, nbytes: int) -> None:
    """Let nobody read or write these pages."""
    if _mprotect()(address, nbytes, _NO_ACCESS):
        raise DeviceError("cpu(0).fenced", f"mprotect failed ({os.strerror(ctypes.get_errno())})")


class CpuPlan:
    """Launches as a table in memory, walked by `tilewright_replay`."""

    def __init__(self, launches: tuple[Launch, ...]) -> None:
        own = native()
        self._launches = launches  # keeps code and memory alive
        counts = [max(len(launch.buffers), 1) for launch in launches]
        self._begins = [0, *accumulate(counts)]  # of each launch's arguments
        self._args = (ctypes.c_size_t * self._begins[-1])()
        for launch, begin in zip(launches, self._begins, strict=False):
            self._args[begin : begin + len(launch.buffers)] = [m.pointer for m in launch.buffers]
        base, size = ctypes.addressof(self._args), ctypes.sizeof(ctypes.c_size_t)
        rows = [
            (own.thunk(len(launch.buffers)), launch.kernel.handle, base + begin * size)
            for launch, begin in zip(launches, self._begins, strict=False)
        ]
        self._table = np.array(rows, np.uintp).reshape(len(rows), 3)
        self._pointer, self._count = self._table.ctypes.data, len(rows)
        self._replay = own.replay

    def run(self) -> None:
        self._replay(self._pointer, self._count, 1)

    def on(self, stream: Callable[[], int]) -> Callable[[], object]:
        return self.run  # which keeps code and memory alive

    def argument(self, places: Sequence[Spot]) -> Callable[[int], None]:
        args = self._args
        slots = [(self._begins[p.launch] + p.position, p.offset) for p in places]
        if len(slots) == 1 and not slots[0][1]:
            return partial(args.__setitem__, slots[0][0])

        def put(pointer: int) -> None:
            for k, offset in slots:
                args[k] = pointer + offset

        return put

    def run_apart(self, written: Sequence[Memory], seconds: float) -> bool:
        views = [m.view for m in written if isinstance(m, CpuMemory)]
        return cpu_race_check.run_apart(native().instead, self.run, views, seconds)

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        if not flush_bytes:
            nanoseconds = self._replay(self._pointer, self._count, number)
            return float(nanoseconds) * 1e-9 / number
        other = _scratch(flush_bytes)
        total = 0
        for _ in range(number):
            np.add(other, 1, out=other)
            total += self._replay(self._pointer, self._count, 1)
        return total * 1e-9 / number


@cache
def _scratch(nbytes: int) -> np.ndarray:
    return np.zeros(max(nbytes // 8, 1), np.int64)


class CpuDriver:
    """All cores that this process may use, as one device."""

    def __init__(self) -> None:
        self.name = cpu_host.model_name()
        self.arch = ""

    def describe(self) -> DeviceSpec:
        limits = cpu_host.limits() | cpu_host.cache_sizes()
        limits["cores"] = min(default_threads(), cpu_host.cores())
        return DeviceSpec(
            "llvm", self.name, cpu_host.fingerprint(), "", tuple(limits.items()),
            tuple(_compiled_for().items()), shares_host=True,
        )  # fmt: skip

    def sync(self) -> None:
        """Nothing to wait for: launches on the CPU return when they are done."""

    def allocate(self, nbytes: int) -> CpuMemory:
        try:
            return CpuMemory.empty(nbytes)
        except MemoryError as error:
            raise DeviceError(
                f"cpu(0).allocate({nbytes})", str(error), "Free arrays, or use smaller shapes."
            ) from None

    def fenced(self, nbytes: int) -> Fenced:
        try:
            return CpuMemory.fenced(nbytes)
        except (OSError, OverflowError) as error:
            raise DeviceError(
                f"cpu(0).fenced({nbytes})", str(error), "Free arrays, or use smaller shapes."
            ) from None

    def part(self, memory: Memory, offset: int, nbytes: int) -> CpuMemory:
        assert isinstance(memory, CpuMemory)
        return memory.part(offset, nbytes)

    def borrow(self, pointer: int, nbytes: int, owner: object) -> CpuMemory:
        """Raises DeviceError for memory that is not aligned as kernels expect it."""
        if pointer % ALIGNMENT:
            raise DeviceError(
                f"cpu(0).borrow({pointer:#x})", f"it is not aligned to {ALIGNMENT} bytes",
                "Copy it with array(x).",
            )  # fmt: skip
        raw = memoryview((ctypes.c_uint8 * nbytes).from_address(pointer))
        return CpuMemory(np.frombuffer(raw, np.uint8), owner)

    def write(self, memory: Memory, data: np.ndarray, offset: int = 0) -> None:
        assert isinstance(memory, CpuMemory)
        memory.view[offset : offset + data.nbytes] = data

    def read(self, memory: Memory, out: np.ndarray, offset: int = 0) -> None:
        assert isinstance(memory, CpuMemory)
        out[:] = memory.view[offset : offset + out.nbytes]

    def copy(self, source: Memory, target: Memory, nbytes: int) -> None:
        assert isinstance(source, CpuMemory) and isinstance(target, CpuMemory)
        target.view[:nbytes] = source.view[:nbytes]

    def load(self, artifact: Artifact) -> tuple[Kernel, ...]:
        place = f"load({artifact.source.entry_name})"
        if not artifact.binary:
            raise DeviceError(
                place, "the artefact holds no object file", "Compile it with driver.compile_source."
            )
        if cpu_shared.is_shared(artifact.binary):
            return cpu_shared.load_bytes(artifact)
        llvm = llvm_library()
        triple = artifact.meta.get("triple", "")
        if triple and triple.split("-")[0] != llvm.get_process_triple().split("-")[0]:
            raise DeviceError(
                place, f"it was compiled for {triple}, this machine is {llvm.get_process_triple()}",
                "Compile it with -mtriple of this machine, or without -mtriple.",
            )  # fmt: skip
        if lacks := cpu_features.missing(artifact.meta):
            raise DeviceError(
                place, f"it was compiled for a processor with {', '.join(lacks)}, which this one "
                f"({self.name}) lacks", "Compile it on this machine, or with -mcpu of an older one."
            )  # fmt: skip
        llvm.add_symbol("tilewright_parallel", native().parallel)  # it may be a shared object's
        code = engine("")
        code.add_object_file(llvm.ObjectFileRef.from_data(artifact.binary))
        code.finalize_object()
        kernels = []
        for info in artifact.source.kernels:
            address = code.get_function_address(info.name)
            if not address:
                raise DeviceError(
                    place, f"its object file defines no kernel {info.name}",
                    "Compile it again with driver.compile_source.",
                )  # fmt: skip
            kernels.append(Kernel(info, address, code, artifact.source))
        return tuple(kernels)

    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> CpuPlan:
        return CpuPlan(launches)
