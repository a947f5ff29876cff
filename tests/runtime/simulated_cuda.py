"""A simulated CUDA driver API, so that the driver's paths run where there is no GPU.

It keeps memory in host bytes, runs elementwise kernels written as JSON steps, captures launches,
and fails on demand.  With `late`, what is enqueued happens when somebody waits for it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.runtime import Device, drivers
from tilewright.runtime.drivers import cuda, cuda_api
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.plan import Launch, Operand, Plan, TensorSpec
from tilewright.runtime.network.report import BuildReport, KernelReport

SIZE = 40
ADD = (2, 0, "+", 1)


class Status(int):
    name = property(lambda self: {0: "CUDA_SUCCESS", 1: "CUDA_ERROR_INVALID_VALUE"}.get(
        int(self), "CUDA_ERROR_ILLEGAL_ADDRESS"))  # fmt: skip


OK = Status(0)


class Stream(str):
    """Called by name; a number to who asks for its address, as `CUstream`."""

    def __int__(self) -> int:
        return 1 + len(self)


class Simulation:
    """What `cuda.bindings.driver` offers, over host memory."""

    def __init__(self) -> None:
        self.memory: dict[int, np.ndarray] = {}
        self.pinned: dict[int, np.ndarray] = {}
        self.pins = OK  # of asking for memory that is pinned
        self.late = False
        self.queue: deque[Callable[[], object]] = deque()  # what is enqueued, where it is late
        self.waits = 0
        self._turn = threading.Lock()
        self.modules: dict[int, list] = {}
        self.capturing: list | None = None
        self.graphs: dict[int, list] = {}
        self.log: list[str] = []
        self.broken = OK
        self.clock = 0.0
        self.shared: dict[str, int] = {}
        self.user: int | None = None  # the stream that a user captures, in global mode
        self.recorded: list[tuple] = []  # what that took up
        self.mode = 0  # of the thread's captures
        self.spoilt: list[str] = []  # calls that end the user's capture
        self.version = 13000
        self.asker = OK  # of loading the kernel that asks for weights
        self.asked: list[tuple[int, ...]] = []  # launches before, address, bytes, threads
        self.beside = False  # whether the second stream of captures was given out
        self.early: list[tuple[str, str]] = []  # kernels that may begin early, and their streams
        serialization = "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"
        self.CUlaunchAttributeID = SimpleNamespace(**{serialization: 6})
        self.CUlaunchConfig = SimpleNamespace
        self.CUlaunchAttribute = lambda: SimpleNamespace(value=SimpleNamespace())
        flags = {"CU_STREAM_DEFAULT": 0, "CU_STREAM_NON_BLOCKING": 1}
        self.CUstream_flags = SimpleNamespace(**flags)
        self.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
        name = "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"
        self.CUfunction_attribute = SimpleNamespace(**{name: 8})
        self.CUdevice_attribute = SimpleNamespace(**{
            f"CU_DEVICE_ATTRIBUTE_{n}": n for n in (
                *cuda._LIMITS.values(), "COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR",
                *(f"MAX_{what}_DIM_{axis}" for what in ("BLOCK", "GRID") for axis in "XYZ"),
            )
        })  # fmt: skip

    def __getattr__(self, name: str) -> object:
        """Calls that only succeed: sync, graph upload, destroy, ..."""
        assert name.startswith("cu"), name

        def call(*_: object) -> tuple:
            self.log.append(name)
            return (self.broken,)

        return call

    def cuDeviceGet(self, index: int) -> tuple:
        return OK, index

    def cuCtxSetCurrent(self, context: str) -> tuple:
        return (OK,)

    def cuDevicePrimaryCtxRetain(self, device: int) -> tuple:
        return OK, "context"

    def cuDeviceGetName(self, size: int, device: int) -> tuple:
        return OK, b"Simulated\0\0\0"

    def cuDeviceTotalMem(self, device: int) -> tuple:
        return OK, 3 << 30

    def cuDeviceGetAttribute(self, code: str, device: int) -> tuple:
        return OK, {"COMPUTE_CAPABILITY_MAJOR": 9, "COMPUTE_CAPABILITY_MINOR": 0}.get(code, 1024)

    def cuStreamCreate(self, flags: int) -> tuple:
        name = ("work", "beside" if self.beside else "capture")[flags]
        self.beside = bool(flags)
        return OK, Stream(name)

    def cuGetErrorString(self, status: int) -> tuple:
        return OK, b"simulated"

    def cuThreadExchangeStreamCaptureMode(self, mode: int) -> tuple:
        before, self.mode = self.mode, mode
        return OK, before

    def _unsafe(self, name: str) -> None:
        if self.user is not None and self.mode != 2:
            self.spoilt.append(name)

    def cuStreamIsCapturing(self, stream: Any) -> tuple:
        assert stream  # of the default one it may be an error
        return OK, int(stream == self.user)

    def _enqueue(self, action: Callable[[], object]) -> None:
        self.queue.append(action)
        if not self.late:
            self._catch_up()

    def _catch_up(self) -> None:
        with self._turn:
            while self.queue:
                self.queue.popleft()()

    def cuStreamSynchronize(self, stream: Any) -> tuple:
        self._unsafe("cuStreamSynchronize")
        self.waits += 1
        self._catch_up()
        return (self.broken,)

    def cuStreamWaitEvent(self, stream: Any, event: list, flags: int) -> tuple:
        if stream == self.user:
            self.spoilt.append("cuStreamWaitEvent")
        return (self.broken,)

    def replay(self) -> None:
        for function, pointers in self.recorded:
            self._run(function, pointers)

    def cuMemAlloc(self, nbytes: int) -> tuple:
        self._unsafe("cuMemAlloc")
        block = np.zeros(nbytes + 256, np.uint8)
        pointer = block.ctypes.data + -block.ctypes.data % 256  # as CUDA aligns it
        self.memory[pointer] = block
        return OK, pointer

    def cuMemFree(self, pointer: int) -> tuple:
        self._unsafe("cuMemFree")
        del self.memory[pointer]
        return (OK,)

    def cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple:
        self._unsafe("cuMemHostAlloc")
        if self.pins != OK:
            return (self.pins,)
        block = np.zeros(nbytes, np.uint8)
        self.pinned[block.ctypes.data] = block
        return OK, block.ctypes.data

    def cuMemFreeHost(self, pointer: int) -> tuple:
        del self.pinned[pointer]
        return (OK,)

    def _copy(self, target: int, source: int, nbytes: int, stream: Any) -> tuple:
        if stream == self.user:
            self.recorded.append((None, [target, source, nbytes]))
            return (OK,)
        self._enqueue(lambda: ctypes.memmove(target, source, nbytes))
        return (OK,)

    cuMemcpyHtoDAsync = cuMemcpyDtoHAsync = cuMemcpyDtoDAsync = _copy

    def cuMemsetD8Async(self, pointer: int, value: int, nbytes: int, stream: str) -> tuple:
        ctypes.memset(pointer, value, nbytes)
        return (OK,)

    def cuModuleLoadData(self, image: bytes) -> tuple:
        if b".entry tw_ask" in image:
            return (self.asker, "tw_ask") if self.asker == OK else (self.asker,)
        return OK, json.loads(image)

    def cuModuleGetFunction(self, module: Any, name: bytes) -> tuple:
        if module == "tw_ask":
            return OK, module
        return OK, (name.decode(), module[int(name[1:])])

    def cuFuncSetAttribute(self, function: tuple, attribute: int, value: int) -> tuple:
        self.shared[function[0]] = value
        return (OK,)

    def cuLaunchKernel(self, function: Any, *rest: Any) -> tuple:
        if function == "tw_ask":
            blocks, threads, stream, params = rest[0], rest[3], rest[7], rest[8]
            slots = ctypes.cast(params, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
            assert self.capturing is not None and stream == "beside"
            self.asked.append((len(self.capturing), slots[0][0], slots[1][0], blocks * threads))
            return (OK,)
        gx, _, _, bx, by, bz, _, stream, params, extra = rest
        assert (gx, bx, by, bz, extra) == (5, 8, 1, 1, 0)
        if self.capturing is not None and stream == "capture":
            self.capturing.append((function, rest))
            return (OK,)
        count = len(function[1][4])
        slots = ctypes.cast(params, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
        pointers = [slots[i][0] for i in range(count)]
        if self.user is not None and stream == self.user:
            self.recorded.append((function, pointers))
            return (OK,)
        self.clock += 1e-3
        self.log.append(function[0])
        self._enqueue(lambda: self._run(function, pointers))
        return (self.broken,)

    def cuDriverGetVersion(self) -> tuple:
        return OK, self.version

    def cuLaunchKernelEx(self, config: Any, function: tuple, params: int, extra: int) -> tuple:
        (attribute,) = config.attrs
        assert (attribute.id, config.numAttrs) == (6, 1)
        assert attribute.value.programmaticStreamSerializationAllowed == 1
        self.early.append((function[0], config.hStream))
        grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
        block = (config.blockDimX, config.blockDimY, config.blockDimZ)
        sizes = (*grid, *block, config.sharedMemBytes)
        return self.cuLaunchKernel(function, *sizes, config.hStream, params, extra)

    def _run(self, function: tuple | None, pointers: list[int]) -> None:
        if function is None:
            ctypes.memmove(*pointers)
            return
        views = [_floats(pointer, SIZE) for pointer in pointers]
        to, x, op, y, _ = function[1]
        views[to][:] = views[x] + views[y] if op == "+" else views[x] * y

    def cuStreamBeginCapture(self, stream: str, mode: int) -> tuple:
        assert stream == "capture"
        self.capturing = []
        return (OK,)

    def cuStreamEndCapture(self, stream: str) -> tuple:
        captured, self.capturing = self.capturing, None
        return OK, captured

    def cuGraphInstantiate(self, graph: list, flags: int) -> tuple:
        return OK, list(graph)

    def cuGraphLaunch(self, graph: list, stream: str) -> tuple:
        if self.user is not None and stream == self.user:
            self.spoilt.append("cuGraphLaunch")
        self.log.append(f"graph{len(graph)}")
        for function, rest in graph:
            self.cuLaunchKernel(function, *rest[:7], stream, *rest[8:])
        return (self.broken,)

    def cuEventCreate(self, flags: int) -> tuple:
        return OK, [0.0, False]

    def cuEventRecord(self, event: list, stream: str) -> tuple:
        event[:] = [self.clock, False]
        self._enqueue(lambda: event.__setitem__(1, True))
        return (OK,)

    def cuEventSynchronize(self, event: list) -> tuple:
        with self._turn:
            while self.queue and not event[1]:
                self.queue.popleft()()
        return (self.broken,)

    def cuEventElapsedTime(self, begin: list, end: list) -> tuple:
        return OK, (end[0] - begin[0]) * 1e3


def _floats(pointer: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float)), (count,))


@pytest.fixture
def simulation(monkeypatch: pytest.MonkeyPatch) -> Iterator[Simulation]:
    made = Simulation()
    monkeypatch.setattr(cuda, "_cu", lambda: made)
    monkeypatch.setattr(cuda_api, "cu", lambda: made)
    driver = cuda.CudaDriver(0)
    monkeypatch.setattr(drivers, "driver", lambda kind, index: driver)
    yield made
    gc.collect()


def artifact(steps: list[tuple], roles: str = "iio", shared: int = 0, text: str = "") -> Artifact:
    names = {"i": "input", "o": "output", "w": "workspace"}
    specs = tuple(BufferSpec(f"b{n}", "float32", (SIZE,), names[r]) for n, r in enumerate(roles))
    everything = tuple(range(len(specs)))
    kernels = tuple(
        KernelInfo(f"k{n}", everything, (5, 1, 1), (8, 1, 1), shared) for n in range(len(steps))
    )
    binary = json.dumps([(*step, everything) for step in steps]).encode()
    return Artifact(Source("cuda", text, "simulated", specs, kernels), binary)


X, Y = np.random.default_rng(0).normal(size=(2, SIZE)).astype(np.float32)
GPU = Device("cuda")


def a_network(results: int = 1) -> Any:
    """(a + b) * 2, and a + b if asked for, by two kernels with one block of memory between them."""
    specs = [TensorSpec(n, (SIZE,), "float32") for n in "aby"]
    kernels = (artifact([ADD]), artifact([(1, 0, "*", 2.0)], "io"))
    places = [Operand("input", 0), Operand("input", 1), Operand("slot", 0), Operand("slot", 1)]
    launches = (Launch(0, tuple(places[:3])), Launch(1, tuple(places[2:])))
    outputs = ((specs[2], places[3]), (TensorSpec("z", (SIZE,), "float32"), places[2]))[:results]
    plan = Plan("cuda", tuple(specs[:2]), outputs, launches, (4 * SIZE, 4 * SIZE))
    told = tuple(KernelReport("k", "k", 1, "default", 0.0) for _ in kernels)
    return Library(plan, kernels, (), BuildReport("cuda", told, 0.0, 0, 0, 0)).load_on(GPU)
