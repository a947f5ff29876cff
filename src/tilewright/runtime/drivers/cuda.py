"""CUDA devices through the driver API of cuda-bindings: cubins, one stream, graphs, events.

In: artefacts whose binary is a cubin.  Out: kernels, plans that replay as one CUDA graph.
Read next: `../module.py`, `../sequence.py`.

Everything runs on one stream of the primary context.  It is a blocking stream, so work that other
libraries put on the legacy default stream is ordered before and after it.  Graphs are captured on a
second stream: what Python's garbage collector frees meanwhile cannot disturb a capture.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tilewright.base import environment
from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import cached_property, lock
from tilewright.base.errors import DeviceError, TargetError
from tilewright.runtime.drivers import (
    ZONE_BYTES,
    Fenced,
    Kernel,
    Launch,
    Memory,
    Spot,
    cuda_ahead,
)
from tilewright.runtime.drivers.cuda_api import call as _call
from tilewright.runtime.drivers.cuda_api import cu as _cu
from tilewright.runtime.drivers.cuda_api import fork as _fork
from tilewright.runtime.drivers.cuda_pinned import Block, Passage
from tilewright.runtime.drivers.tensor_maps import TensorMaps
from tilewright.targets.kind import LimitValue
from tilewright.targets.spec import DeviceSpec

_GRAPH_LAUNCHES = 64  # kernels in a timing graph: the 1.5 us between two replays hardly count
_COLD_IN_FLIGHT = 64
_GRAPHS = 16  # of one plan, each for other addresses
_STATIC_LIMIT = 48 << 10  # dynamic shared memory beyond this must be asked for

_EARLY_CAPABILITY = 9  # the first whose kernels can wait for the kernel before them
_EARLY_VERSION = 12030  # of the driver: the first whose graphs keep that
_SIZES = (
    "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes",
)  # fmt: skip

# Field of Limits -> attribute of the device, without its common prefix.
_LIMITS = {
    "max_threads_per_block": "MAX_THREADS_PER_BLOCK",
    "shared_bytes_per_block": "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "shared_bytes_per_core": "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "registers_per_block": "MAX_REGISTERS_PER_BLOCK",
    "warp_size": "WARP_SIZE",
    "max_threads_per_core": "MAX_THREADS_PER_MULTIPROCESSOR",
    "max_blocks_per_core": "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "cores": "MULTIPROCESSOR_COUNT",
    "l2_bytes": "L2_CACHE_SIZE",
}


def open_device(index: int) -> CudaDriver:
    cu = _cu()
    count = _call(f"cuda({index})", cu.cuDeviceGetCount())
    if index >= count:
        raise TargetError(
            f"cuda({index})", f"there are {count} CUDA devices",
            "Use a smaller index, or check CUDA_VISIBLE_DEVICES.",
        )  # fmt: skip
    return CudaDriver(index)


class CudaMemory:
    """Device memory.  `owner` keeps borrowed memory alive, or the memory that this is a part of;
    own memory is freed with this object."""

    def __init__(self, pointer: int, nbytes: int, owner: object, offset: int = 0) -> None:
        self.pointer, self.nbytes, self.owner, self.offset = pointer, nbytes, owner, offset

    @property
    def whole(self) -> CudaMemory:
        return self.owner if isinstance(self.owner, CudaMemory) else self


class CudaPlan:
    """Launches with their argument arrays built; graphs of some passes, made when needed."""

    def __init__(self, driver: CudaDriver, launches: tuple[Launch, ...], capture: bool) -> None:
        self._driver = driver
        self._launches = launches  # keeps code and memory alive
        # The first waits for all that others have enqueued, whatever it is, as launches always do.
        self._calls = [
            _Call(launch, k > 0 and _waits(launch) and driver.launches_early)
            for k, launch in enumerate(launches)
        ]
        self._asked = driver.asked(launches)
        self._open: list[int] = []  # addresses of what `argument` opened
        self._graphs: dict[tuple[int, ...], Any] = {}  # by passes and those addresses
        self._met: dict[tuple[int, ...], None] = {}  # addresses that one run had, the latest last
        self._stream = int(driver.stream)  # of the last run
        self._capture = capture
        if capture and launches:
            driver.enter()
            self._graph(1)

    def run(self) -> None:
        self._driver.enter()
        self._change(int(self._driver.stream))
        self._pass()

    def argument(self, places: Sequence[Spot]) -> Callable[[int], None]:
        at = len(self._open)
        self._open.append(0)

        def put(pointer: int) -> None:
            if self._open[at] != pointer:
                self._open[at] = pointer
                self._move([(places, pointer)])

        return put

    def on(self, stream: Callable[[], int]) -> Callable[[], object]:
        return lambda: self._run_on(stream())

    def _run_on(self, stream: int) -> None:
        """A graph holds addresses: addresses that come back get one, others are launched singly."""
        driver = self._driver
        driver.enter()
        self._change(stream)
        key = (1, *self._open)
        if key not in self._graphs and (key not in self._met or len(self._graphs) >= _GRAPHS):
            self._met[key] = None
            if len(self._met) > _GRAPHS:
                self._met.pop(next(iter(self._met)))
            for call in self._calls:
                call.enqueue(stream)
        elif self._calls:
            driver.launch_graph(self._graph(1), stream)

    def record(self, stream: int, moved: Sequence[tuple[Sequence[Spot], int, int]]) -> None:
        """A launch copies its arguments, so they are as before when the next run comes."""
        driver = self._driver
        driver.enter()
        driver.recorded[id(self)] = self
        try:
            self._move((places, to) for places, _, to in moved)
            for call in self._calls:
                call.enqueue(stream)
        finally:
            self._move((places, own) for places, own, _ in moved)

    def _move(self, places: Iterable[tuple[Sequence[Spot], int]]) -> None:
        for spots, pointer in places:
            for launch, position, offset in spots:
                self._calls[launch].put(position, pointer + offset)

    def _change(self, stream: int) -> None:
        """The next run is on `stream`, after the last one."""
        if stream != self._stream:
            self._driver.order(self._stream, stream)
            self._stream = stream

    def run_apart(self, written: Sequence[Memory], seconds: float) -> None:
        return None

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        self._driver.enter()
        if not self._calls:
            return 0.0
        if flush_bytes:
            return self._cold(number, flush_bytes)
        passes = min(number, max(1, _GRAPH_LAUNCHES // len(self._calls)))
        replays = -(-number // passes)
        graph = self._graph(passes)
        driver = self._driver
        # The device is busy with this pass while the host enqueues what is timed.
        self._pass()
        begin = driver.record()
        for _ in range(replays):
            driver.launch_graph(graph)
        return driver.elapsed([(begin, driver.record())]) / (replays * passes)

    def _cold(self, number: int, flush_bytes: int) -> float:
        """The flush before each pass hides what the host needs to enqueue it."""
        driver, total, left = self._driver, 0.0, number
        while left:
            pairs = []
            for _ in range(min(left, _COLD_IN_FLIGHT)):
                driver.flush_caches(flush_bytes)
                begin = driver.record()
                self._pass()
                pairs.append((begin, driver.record()))
            total += driver.elapsed(pairs)
            left -= len(pairs)
        return total / number

    def _pass(self) -> None:
        if self._capture and self._calls:
            self._driver.launch_graph(self._graph(1))
            return
        for call in self._calls:
            call.enqueue(self._driver.stream)

    def _graph(self, passes: int) -> Any:
        key = (passes, *self._open)
        if key not in self._graphs:
            graph = self._driver.capture(self._calls, passes, self._asked)
            self._graphs[key] = graph
            _on_death(self, self._driver, "cuGraphExecDestroy", graph)
        return self._graphs[key]


class _Call:
    """One launch with its parameters in C arrays that live as long as this object.

    early: its blocks may begin before the kernel before has ended, for which it waits itself
    """

    def __init__(self, launch: Launch, early: bool = False) -> None:
        info = launch.kernel.info
        self._place = f"launch {info.name}"
        self._values = (ctypes.c_uint64 * max(len(launch.buffers), 1))(
            *(m.pointer for m in launch.buffers)
        )
        base = ctypes.addressof(self._values)
        size = ctypes.sizeof(ctypes.c_uint64)
        self._maps = TensorMaps(_cu(), info.maps, _call)
        self._pointers = (ctypes.c_void_p * (len(self._values) + len(info.maps)))(
            *(base + i * size for i in range(len(launch.buffers))), *self._maps.pointers
        )
        for k, memory in enumerate(launch.buffers if info.maps else ()):
            self._maps.put(k, memory.pointer)
        self._front = (launch.kernel.handle, *info.grid, *info.block, info.shared_bytes)
        self._back = (ctypes.addressof(self._pointers), 0)
        self._launch = _cu().cuLaunchKernel
        self._config = _early(*self._front[1:]) if early else None

    def put(self, position: int, pointer: int) -> None:
        """Pass other memory from the next launch or capture on."""
        self._values[position] = pointer
        self._maps.put(position, pointer)

    def enqueue(self, stream: Any) -> None:
        if self._config is None:
            (status,) = self._launch(*self._front, stream, *self._back)
        else:
            self._config.hStream = stream
            (status,) = _cu().cuLaunchKernelEx(self._config, self._front[0], *self._back)
        if status:
            _call(self._place, (status,))


def _waits(launch: Launch) -> bool:
    """Whether a kernel waits itself for the one before, which of a program is one of its own."""
    source = launch.kernel.source
    first = launch.kernel.info == source.kernels[0]
    return source.waits or (source.waits_inside and not first)


def _early(*sizes: int) -> Any:
    """How a kernel is launched that may begin before the one before it has ended.

    sizes: the grid, the block, bytes of shared memory
    """
    cu = _cu()
    config, attribute = cu.CUlaunchConfig(), cu.CUlaunchAttribute()
    for name, value in zip(_SIZES, sizes, strict=True):
        setattr(config, name, value)
    attribute.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    attribute.value.programmaticStreamSerializationAllowed = 1
    config.attrs, config.numAttrs = [attribute], 1
    return config


class CudaDriver:
    """One GPU: its primary context, one stream for all work, one for captures."""

    def __init__(self, index: int) -> None:
        # For what follows `enter`, which has asked whether the process was forked.
        self._api = cu = _cu()
        self.place = f"cuda({index})"
        self._device = self._ask("open", cu.cuDeviceGet(index))
        self.context = self._ask("open", cu.cuDevicePrimaryCtxRetain(self._device))
        self.enter()
        name = self._ask("name", cu.cuDeviceGetName(256, self._device))
        self.name = name.split(b"\0")[0].decode(errors="replace").strip()
        major, minor = (self._attribute(f"COMPUTE_CAPABILITY_{n}") for n in ("MAJOR", "MINOR"))
        self.arch = f"sm_{major}{minor}"
        self._major = major
        flags = cu.CUstream_flags
        self.stream = self._ask("stream", cu.cuStreamCreate(int(flags.CU_STREAM_DEFAULT)))
        self._capture_stream, self._stream_beside = (
            self._ask("stream", cu.cuStreamCreate(int(flags.CU_STREAM_NON_BLOCKING)))
            for _ in range(2)
        )
        self._capturing = lock()
        self._events: list[Any] = []  # free events
        self.recorded: dict[int, CudaPlan] = {}  # graphs of others hold their addresses
        self._scratch: CudaMemory | None = None

    def describe(self) -> DeviceSpec:
        self.enter()
        total = int(self._ask("memory", _cu().cuDeviceTotalMem(self._device)))
        limits = self._limits()
        fingerprint = f"{self.name} / {self.arch} / {limits['cores']} cores / {total >> 30} GiB"
        return DeviceSpec("cuda", self.name, fingerprint, self.arch, tuple(limits.items()))

    def _limits(self) -> dict[str, LimitValue]:
        found: dict[str, LimitValue] = {
            name: self._attribute(attribute) for name, attribute in _LIMITS.items()
        }
        for field, prefix in (("max_block", "MAX_BLOCK_DIM"), ("max_grid", "MAX_GRID_DIM")):
            x, y, z = (self._attribute(f"{prefix}_{axis}") for axis in "XYZ")
            found[field] = (x, y, z)
        return found

    @property
    def launches_early(self) -> bool:
        """Whether a kernel that waits itself may begin before the one before it has ended."""
        return self._can_launch_early and bool(environment.dependent_launch())

    @cached_property
    def _can_launch_early(self) -> bool:
        if self._major < _EARLY_CAPABILITY:
            return False
        return int(self._ask("version", _cu().cuDriverGetVersion())) >= _EARLY_VERSION

    def enter(self) -> None:
        """Make the context current in the calling thread."""
        self._check("enter", _cu().cuCtxSetCurrent(self.context))

    def sync(self) -> None:
        self.enter()
        self.wait()

    def wait(self) -> None:
        sent = self._passage.sent
        self._check("sync", self._api.cuStreamSynchronize(self.stream))
        self._passage.arrived(sent)

    def allocate(self, nbytes: int) -> CudaMemory:
        self.enter()
        pointer = int(self._ask(f"allocate({nbytes})", _cu().cuMemAlloc(nbytes)))
        memory = CudaMemory(pointer, nbytes, None)
        _on_death(memory, self, "cuMemFree", pointer)
        return memory

    def free_bytes(self) -> int:
        self.enter()
        return int(self._ask("memory", _cu().cuMemGetInfo())[0])

    def fenced(self, nbytes: int) -> Fenced:
        whole = self.allocate(nbytes + 2 * ZONE_BYTES)
        return Fenced(whole, self.part(whole, ZONE_BYTES, nbytes), ZONE_BYTES)

    def part(self, memory: Memory, offset: int, nbytes: int) -> CudaMemory:
        assert isinstance(memory, CudaMemory)
        begin = memory.offset + offset
        return CudaMemory(memory.pointer + offset, nbytes, memory.whole, begin)

    def borrow(self, pointer: int, nbytes: int, owner: object) -> CudaMemory:
        """Memory that somebody else allocated and that lives as long as `owner`."""
        return CudaMemory(pointer, nbytes, owner)

    def write(self, memory: Memory, data: np.ndarray, offset: int = 0) -> None:
        self.enter()
        self.send(memory.pointer + offset, data.ctypes.data, data.nbytes)
        self.wait()  # `data` may change or die after this call, and others may read on any stream

    def write_all(self, wanted: Sequence[tuple[Memory, np.ndarray]]) -> None:
        self.enter()
        if not self._passage.send([(m.pointer, data) for m, data in wanted]):
            for memory, data in wanted:
                self.send(memory.pointer, data.ctypes.data, data.nbytes)
            self.wait()

    def read(self, memory: Memory, out: np.ndarray, offset: int = 0) -> None:
        self.read_all([(self.part(memory, offset, out.nbytes) if offset else memory, out)])

    def read_all(self, wanted: Sequence[tuple[Memory, np.ndarray]]) -> None:
        self.enter()
        if not self._passage.fetched([(m.pointer, out) for m, out in wanted]):
            for memory, out in wanted:
                self.fetch(out.ctypes.data, memory.pointer, out.nbytes)
            self.wait()

    @cached_property
    def _passage(self) -> Passage:
        return Passage(self)

    def pin(self, nbytes: int) -> Block:
        pointer = int(self._ask(f"pin({nbytes})", _cu().cuMemHostAlloc(nbytes, 0)))
        block = Block(pointer, nbytes)
        _on_death(block, self, "cuMemFreeHost", pointer)
        return block

    def send(self, target: int, source: int, nbytes: int) -> None:
        self._check("write", self._api.cuMemcpyHtoDAsync(target, source, nbytes, self.stream))

    def fetch(self, target: int, source: int, nbytes: int) -> None:
        self._check("read", self._api.cuMemcpyDtoHAsync(target, source, nbytes, self.stream))

    def reached(self, event: Any) -> None:
        """Wait for an event, which is taken back."""
        self._check("read", self._api.cuEventSynchronize(event))
        self._events.append(event)

    def copy(self, source: Memory, target: Memory, nbytes: int) -> None:
        self.enter()
        self._ask(
            "copy", _cu().cuMemcpyDtoDAsync(target.pointer, source.pointer, nbytes, self.stream)
        )

    def copy_between(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """Copy between addresses, on a stream of another library."""
        self.enter()
        self._ask("copy", _cu().cuMemcpyDtoDAsync(target, source, nbytes, stream))

    def captures(self, stream: int) -> bool:
        """Tell whether somebody captures a stream of another library; the default one cannot be."""
        return bool(stream) and self._ask("stream", _cu().cuStreamIsCapturing(stream)) != 0

    def load(self, artifact: Artifact) -> tuple[Kernel, ...]:
        cu, place = _cu(), f"load({artifact.source.entry_name})"
        if not artifact.binary:
            raise DeviceError(
                f"{self.place}.{place}", "the artefact holds no cubin",
                "Compile it with driver.compile_source.",
            )  # fmt: skip
        built_for = str(artifact.meta.get("arch", self.arch))
        if not _runs(built_for, self.arch):
            raise DeviceError(
                f"{self.place}.{place}", f"it was compiled for {built_for}, this device "
                f"({self.name}) is {self.arch}", "Compile it for this device (Device.target).",
            )  # fmt: skip
        self.enter()
        module = self._ask(place, cu.cuModuleLoadData(artifact.binary))
        owner = _Loaded()
        _on_death(owner, self, "cuModuleUnload", module)
        kernels = []
        attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        for info in artifact.source.kernels:
            name = info.name.encode()
            function = self._ask(f"{place}: {info.name}", cu.cuModuleGetFunction(module, name))
            if info.shared_bytes > _STATIC_LIMIT:
                self._ask(
                    f"{place}: {info.shared_bytes} bytes of shared memory for {info.name}",
                    cu.cuFuncSetAttribute(function, attribute, info.shared_bytes),
                )
            kernels.append(Kernel(info, function, owner, artifact.source))
        return tuple(kernels)

    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> CudaPlan:
        return CudaPlan(self, launches, capture)

    def asked(self, launches: Sequence[Launch]) -> cuda_ahead.Asked:
        """Weights that a graph of them asks for ahead; none where the driver cannot load that."""
        if self._major < cuda_ahead.CAPABILITY or not environment.ask_ahead():
            return {}
        found = cuda_ahead.asked(launches, self._attribute("L2_CACHE_SIZE"))
        return found if found and self._asker is not None else {}

    @cached_property
    def _asker(self) -> cuda_ahead.Asker | None:
        self.enter()
        try:
            return cuda_ahead.Asker(_cu(), self._ask)
        except DeviceError as error:
            if error.fatal:
                raise
            return None  # it is PTX, and there may be no compiler for it

    def capture(self, calls: list[_Call], passes: int, asked: cuda_ahead.Asked) -> Any:
        """An executable graph of `passes` times the calls, each after the one before it.

        asked: for, beside each call
        """
        cu = _cu()
        with self._capturing:  # there are streams for one
            graph = self._captured(calls, passes, asked)
        try:
            executable = self._ask("instantiate graph", cu.cuGraphInstantiate(graph, 0))
        finally:
            cu.cuGraphDestroy(graph)
        try:
            self._ask("upload graph", cu.cuGraphUpload(executable, self.stream))
        except DeviceError:
            cu.cuGraphExecDestroy(executable)
            raise
        return executable

    def _captured(self, calls: list[_Call], passes: int, asked: cuda_ahead.Asked) -> Any:
        cu, stream, beside = _cu(), self._capture_stream, self._stream_beside
        mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._ask("capture", cu.cuStreamBeginCapture(stream, mode))
        try:
            for k, call in [*enumerate(calls)] * passes:
                if k in asked:
                    self.order(stream, beside)
                    for region in asked[k]:
                        assert self._asker is not None
                        self._asker.enqueue(region, beside)
                call.enqueue(stream)
            if asked:
                self.order(beside, stream)
        except DeviceError:
            _, graph = cu.cuStreamEndCapture(stream)
            if graph:
                cu.cuGraphDestroy(graph)
            raise
        return self._ask("capture", cu.cuStreamEndCapture(stream))

    def order(self, first: Any, then: Any) -> None:
        """Let what is enqueued on stream `then` from now on wait for what is on `first`."""
        event = self._event()
        self._ask("order streams", _cu().cuEventRecord(event, first))
        self._ask("order streams", _cu().cuStreamWaitEvent(then, event, 0))
        self._events.append(event)

    def launch_graph(self, graph: Any, stream: Any = None) -> None:
        where = self.stream if stream is None else stream
        self._check("launch graph", self._api.cuGraphLaunch(graph, where))

    def record(self) -> Any:
        """An event recorded now; `elapsed` takes it back."""
        event = self._event()
        self._ask("event", _cu().cuEventRecord(event, self.stream))
        return event

    def _event(self) -> Any:
        try:
            return self._events.pop()
        except IndexError:
            return self._ask("event", _cu().cuEventCreate(0))

    def elapsed(self, pairs: list[tuple[Any, Any]]) -> float:
        """Wait, then the sum of the seconds between the two events of each pair."""
        cu = _cu()
        self._ask("run", cu.cuEventSynchronize(pairs[-1][1]))
        total = sum(self._ask("event", cu.cuEventElapsedTime(a, b)) for a, b in pairs)
        self._events += [event for pair in pairs for event in pair]
        return float(total) * 1e-3

    def flush_caches(self, nbytes: int) -> None:
        if self._scratch is None or self._scratch.nbytes < nbytes:
            self._scratch = self.allocate(nbytes)
        self._ask("flush", _cu().cuMemsetD8Async(self._scratch.pointer, 1, nbytes, self.stream))

    def _ask(self, what: str, result: tuple[Any, ...]) -> Any:
        return _call(f"{self.place}.{what}", result)

    def _check(self, what: str, result: tuple[Any, ...]) -> None:
        """`_ask` of what gives nothing, in less time: every call of a network has some."""
        if result[0]:
            self._ask(what, result)

    def _attribute(self, name: str) -> int:
        cu = _cu()
        code = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._ask(name.lower(), cu.cuDeviceGetAttribute(code, self._device)))


def _runs(built_for: str, arch: str) -> bool:
    """Whether a device of `arch` runs a cubin: of its own architecture, or of the same generation
    (the number but for its last digit) and older; one with a suffix only where it was made for."""
    ours, theirs = arch.removeprefix("sm_"), built_for.removeprefix("sm_")
    if not theirs.isdigit():
        return ours == theirs.rstrip("af")
    return ours[:-1] == theirs[:-1] and int(ours) >= int(theirs)


class _Loaded:
    """Keeps a module loaded."""


def _on_death(owner: object, driver: CudaDriver, function: str, handle: Any) -> None:
    """Give `handle` back once `owner` is gone; at exit the process frees everything anyway."""
    context, stream = driver.context, driver.stream
    weakref.finalize(owner, _release, _cu(), context, stream, function, handle).atexit = False


def _release(cu: Any, context: Any, stream: Any, function: str, handle: Any) -> None:
    """Wait for the stream, then release.  In a poisoned context this fails, which harms nobody.

    A graph that somebody captures meanwhile has no part in it, so that must not end its capture.
    """
    if _fork.broken:  # it is the parent's
        return
    cu.cuCtxSetCurrent(context)
    relaxed = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    status, mode = cu.cuThreadExchangeStreamCaptureMode(relaxed)
    cu.cuStreamSynchronize(stream)
    getattr(cu, function)(handle)
    if status == 0:
        cu.cuThreadExchangeStreamCaptureMode(mode)
