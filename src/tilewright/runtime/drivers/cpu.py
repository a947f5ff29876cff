"""The CPU: object files loaded by LLVM's MCJIT, aligned memory, replay without Python in the loop.

In: artefacts whose binary is an object file.  Out: kernels as addresses, plans as one native call.
Read next: `cpu_host.py` (what it is), `cpu_pool.py` (the thread pool), `cpu_calls.py` (the replay).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import accumulate
from typing import Any

import numpy as np

from tilewright.base import environment
from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import in_forked_child, once
from tilewright.base.errors import DeviceError, TargetError
from tilewright.runtime.drivers import (
    ALIGNMENT,
    Fenced,
    Kernel,
    Launch,
    Memory,
    Spot,
    cpu_apart,
    cpu_calls,
    cpu_features,
    cpu_host,
    cpu_pool,
)
from tilewright.runtime.drivers.cpu_llvm import llvm_library
from tilewright.targets import processors
from tilewright.targets.spec import DeviceSpec

_ZONE = 16 << 10
_FENCE = 4 << 20  # bytes that cannot be touched, beyond the zones; address space only
_NO_ACCESS = 0
_HUGE = 4 << 20  # numpy asks for large pages from this size on: what is timed should have the same
COMMON_ARITY = 8


def default_threads() -> int:
    """TILEWRIGHT_NUM_THREADS, or else the number of cores this process may run on."""
    text = environment.num_threads()
    if text and (not text.isdigit() or int(text) < 1):
        raise DeviceError(
            f"{environment.NUM_THREADS}={text}",
            "it must be a positive integer",
            f"Try {environment.NUM_THREADS}=1, or unset it.",
        )
    threads = int(text) if text else cpu_host.cores()
    return min(threads, cpu_pool.MAX_THREADS)


def set_num_threads(threads: int, spin_ns: int = cpu_pool.SPIN_NS) -> None:
    """Use `threads` threads in the parallel loops of this process from now on.

    spin_ns: that an idle worker polls for work before it sleeps, less on a busy machine; a sleeping
    one takes some 50 us to wake
    """
    if not 1 <= threads <= cpu_pool.MAX_THREADS:
        raise DeviceError(
            f"set_num_threads({threads})", f"it must be in 1..{cpu_pool.MAX_THREADS}",
            f"Try set_num_threads({cpu_host.cores()}).",
        )  # fmt: skip
    _native().limit(threads)
    _native().spin(spin_ns)


def open_device(index: int) -> CpuDriver:
    if index:
        raise DeviceError(f"cpu({index})", "all cores are one device", "Use cpu(0).")
    return CpuDriver()


def code_model(machine: str) -> str:
    """LLVM's code model for code that MCJIT loads, by the architecture's name in a triple.

    x86-64's small model has 2 GiB offsets between sections and to what they call, and MCJIT does
    not promise to put them that near; elsewhere MCJIT reserves one block for them.
    """
    return "large" if processors.architecture(machine) == "x86_64" else "small"


def _engine(text: str) -> Any:
    """An MCJIT engine holding the code of `text`, ready to be asked for addresses."""
    llvm = llvm_library()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc="pic", codemodel=code_model(platform.machine()), jit=True
    )
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    return engine


def native_ir(arity: int, triple: str) -> str:
    """LLVM IR of what kernels and plans need of the process; thunks for up to `arity` arguments."""
    bits = 32 if processors.architecture(triple) == "arm" else 64
    parts = [cpu_pool.pool_ir(triple), cpu_apart.DISPATCH_IR, cpu_calls.replay_ir(bits)]
    return "\n".join([*parts, *(cpu_calls.thunk_ir(n) for n in range(1, arity + 1))])


def _compiled() -> Callable[[str], int]:
    """The addresses of `native_ir`, compiled here."""
    engine = _engine(native_ir(COMMON_ARITY, llvm_library().get_process_triple()))
    names = ("parallel", "replay", "pool_limit", "pool_spin", "pool_reset")
    found = {"tilewright_instead": engine.get_global_value_address("tilewright_instead")}
    for name in (*names, *(f"call_{n}" for n in range(1, COMMON_ARITY + 1))):
        found[f"tilewright_{name}"] = engine.get_function_address(f"tilewright_{name}")
    engine.detach()  # workers run in this code until the process ends: never free it
    llvm_library().add_symbol("tilewright_parallel", found["tilewright_parallel"])
    return found.__getitem__


class _Native:
    """The process's own native code: the pool, the replay loop, the call thunks.

    address: of a name in `native_ir`
    """

    def __init__(self, address: Callable[[str], int]) -> None:
        self.parallel, self.instead = address("tilewright_parallel"), address("tilewright_instead")
        self.replay = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        )(address("tilewright_replay"))
        self.limit = ctypes.CFUNCTYPE(None, ctypes.c_int32)(address("tilewright_pool_limit"))
        self.spin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(address("tilewright_pool_spin"))
        self.reset = ctypes.CFUNCTYPE(None)(address("tilewright_pool_reset"))
        self._thunks = {n: address(f"tilewright_call_{n}") for n in range(1, COMMON_ARITY + 1)}
        self._engines: list[Any] = []
        self.reset()
        self.limit(default_threads())
        in_forked_child(self.reset)

    def thunk(self, arity: int) -> int:
        """The address of the code that calls a kernel of `arity` arguments."""
        if arity not in self._thunks:
            engine = _engine(cpu_calls.thunk_ir(arity))
            self._engines.append(engine)
            self._thunks[arity] = engine.get_function_address(f"tilewright_call_{arity}")
        return int(self._thunks[arity])


_BROUGHT: list[Callable[[str], int]] = []  # the first shared object's, before anything else


@once
def _native() -> _Native:
    return _Native(_BROUGHT[0] if _BROUGHT else _compiled())


def join_pool(address: Callable[[str], int]) -> None:
    """Loops of a shared object that brings `native_ir` run on the one pool of this process, which
    is its own where there was none.

    address: of a name in it
    """
    if not _BROUGHT:
        _BROUGHT.append(address)
    native = _native()
    if address("tilewright_parallel") != native.parallel:
        ctypes.c_void_p.from_address(address("tilewright_instead")).value = native.parallel


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
        native = _native()
        self._launches = launches  # keeps code and memory alive
        counts = [max(len(launch.buffers), 1) for launch in launches]
        self._begins = [0, *accumulate(counts)]  # of each launch's arguments
        self._args = (ctypes.c_size_t * self._begins[-1])()
        for launch, begin in zip(launches, self._begins, strict=False):
            self._args[begin : begin + len(launch.buffers)] = [m.pointer for m in launch.buffers]
        base, size = ctypes.addressof(self._args), ctypes.sizeof(ctypes.c_size_t)
        rows = [
            (native.thunk(len(launch.buffers)), launch.kernel.handle, base + begin * size)
            for launch, begin in zip(launches, self._begins, strict=False)
        ]
        self._table = np.array(rows, np.uintp).reshape(len(rows), 3)
        self._pointer, self._count = self._table.ctypes.data, len(rows)
        self._replay = native.replay

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
        return cpu_apart.run_apart(_native().instead, self.run, views, seconds)

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
        llvm.add_symbol("tilewright_parallel", _native().parallel)  # it may be a shared object's
        engine = _engine("")
        engine.add_object_file(llvm.ObjectFileRef.from_data(artifact.binary))
        engine.finalize_object()
        kernels = []
        for info in artifact.source.kernels:
            address = engine.get_function_address(info.name)
            if not address:
                raise DeviceError(
                    place, f"its object file defines no kernel {info.name}",
                    "Compile it again with driver.compile_source.",
                )  # fmt: skip
            kernels.append(Kernel(info, address, engine, artifact.source))
        return tuple(kernels)

    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> CpuPlan:
        return CpuPlan(launches)
