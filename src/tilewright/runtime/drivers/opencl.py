"""OpenCL devices through pyopencl: GPUs first, then CPUs, in one numbering over all platforms.

In: artefacts with OpenCL C text and perhaps a binary of this very device.  Out: kernels, plans.
Read next: `opencl_icd.py` (how devices are found), `../module.py`.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import importing, once
from tilewright.base.errors import CompileError, DeviceError, TargetError
from tilewright.base.extras import install
from tilewright.runtime.drivers import (
    ZONE_BYTES,
    Fenced,
    ForkGuard,
    Kernel,
    Launch,
    Memory,
    cpu_host,
    opencl_icd,
)
from tilewright.targets.kind import LimitValue
from tilewright.targets.spec import DeviceSpec

_IN_FLIGHT = 256  # launches enqueued before waiting: queues of thousands exhaust host memory
_INVALID_COMMAND_QUEUE = -36


_fork = ForkGuard("OpenCL")


def _cl() -> Any:
    """pyopencl.  Raises TargetError where it is missing, DeviceError in a forked child."""
    _fork.check()
    return _load()


@once
def _load() -> Any:
    os.environ.setdefault("PYOPENCL_NO_CACHE", "1")  # the kernel cache is the driver room's
    opencl_icd.register()
    try:
        with importing:
            import pyopencl
    except ImportError as error:
        raise TargetError(
            "opencl(0)", f"pyopencl is not installed ({error})",
            f"Try {install('opencl')}.",
        ) from None  # fmt: skip
    _fork.watch()
    return pyopencl


def devices() -> list[Any]:
    """All GPUs, then all CPUs.  Raises TargetError when the system has no OpenCL platform."""
    cl = _cl()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise TargetError(
            "opencl(0)", f"no OpenCL platform is registered ({error})",
            f"Install your GPU's OpenCL driver, or, for a CPU device, {install('opencl-cpu')}; "
            "OCL_ICD_VENDORS names the folder of .icd files.",
        ) from None  # fmt: skip
    found = []
    for kind in (cl.device_type.GPU, cl.device_type.CPU):
        for platform in platforms:
            try:
                found += platform.get_devices(kind)
            except cl.Error:  # this platform has none of the kind
                continue
    return found


def open_device(index: int) -> OpenclDriver:
    known = devices()
    if index >= len(known):
        names = ", ".join(d.name.strip() for d in known) or "none"
        raise TargetError(
            f"opencl({index})", f"there are {len(known)} OpenCL devices: {names}",
            "Use a smaller index, or install the device's OpenCL driver.",
        )  # fmt: skip
    return OpenclDriver(known[index], index)


class OpenclMemory:
    """A `cl.Buffer`; it has no address of its own.

    within: what it is a part of, from `offset` on
    copied: kernels use a copy, since its offset is none that the device allows; the plan brings
            it in front of a launch that reads it, and back behind one that writes it
    """

    pointer = 0

    def __init__(
        self, buffer: Any, nbytes: int, within: OpenclMemory | None = None, offset: int = 0,
        copied: bool = False,
    ) -> None:  # fmt: skip
        self.buffer, self.nbytes = buffer, nbytes
        self.within, self.offset, self.copied = within, offset, copied
        _fork.keep(self)

    @property
    def whole(self) -> OpenclMemory:
        return self.within or self

    @property
    def place(self) -> tuple[Any, int]:
        """The buffer that has its contents between launches, and where in that they begin."""
        return (self.whole.buffer, self.offset) if self.copied else (self.buffer, 0)


class OpenclPlan:
    """Launches with their arguments set, enqueued in order on the device's queue."""

    def __init__(self, driver: OpenclDriver, launches: tuple[Launch, ...]) -> None:
        self._driver = driver
        self._calls = []
        _fork.keep(self)
        for launch in launches:
            info = launch.kernel.info
            with driver.errors(f"launch {info.name}"):
                kernel = _cl().Kernel(launch.kernel.handle, info.name)
                kernel.set_args(*(_buffer(m) for m in launch.buffers))
            size = tuple(g * b for g, b in zip(info.grid, info.block, strict=True))
            pairs = list(zip(launch.kernel.source.arguments(info), launch.buffers, strict=True))
            read = _copies(m for spec, m in pairs if spec.role == "input")
            written = _copies(m for spec, m in pairs if spec.role != "input")
            self._calls.append((kernel, size, info.block, launch, read, written))

    def run(self) -> None:
        self._enqueue()
        with self._driver.errors("flush"):
            self._driver.queue.flush()

    def run_apart(self, written: Sequence[Memory], seconds: float) -> None:
        return None

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        passes = 1 if flush_bytes else max(1, _IN_FLIGHT // max(len(self._calls), 1))
        total, left = 0.0, number
        while left:
            count = min(left, passes)
            if flush_bytes:
                self._driver.flush_caches(flush_bytes)
            total += self._timed(count)
            left -= count
        return total / number

    def _timed(self, count: int) -> float:
        """Seconds of `count` passes by the queue's own clock."""
        self._driver.sync()
        began = time.perf_counter()
        first, last = self._enqueue()
        for _ in range(count - 1):
            _, last = self._enqueue()
        self._driver.sync()
        wall = time.perf_counter() - began
        if first is None or last is None:
            return wall
        try:
            return float(last.profile.end - first.profile.start) * 1e-9
        except _cl().Error:  # a device without profiling information
            return wall

    def _enqueue(self) -> tuple[Any, Any]:
        """Enqueue one pass; the events of its first and last launch."""
        cl, queue = _cl(), self._driver.queue
        first = last = None
        for kernel, size, block, launch, read, written in self._calls:
            try:
                for m in read:
                    first = _copied(queue, m.place, (m.buffer, 0), m.nbytes) or first
                last = cl.enqueue_nd_range_kernel(queue, kernel, size, block)
                for m in written:
                    last = _copied(queue, (m.buffer, 0), m.place, m.nbytes)
            except cl.Error as error:
                raise self._driver.error(f"launch {launch.kernel.info.name}", error) from None
            first = first or last
        return first, last


class OpenclDriver:
    """One OpenCL device with its own context and in-order queue."""

    def __init__(self, device: Any, index: int) -> None:
        cl = _cl()
        _fork.keep(self)
        self.device = device
        self.place = f"opencl({index})"
        self.name = device.name.strip()
        self.arch = ""
        with self.errors("open"):
            self.context = cl.Context([device])
            self.queue = cl.CommandQueue(
                self.context, properties=cl.command_queue_properties.PROFILING_ENABLE
            )
            self._alignment = max(device.mem_base_addr_align // 8, 1)  # of parts; told in bits
        self._scratch: OpenclMemory | None = None

    @property
    def identity(self) -> str:
        """Whose binaries fit: name, driver and version of the device, a CPU's instructions."""
        d = self.device
        parts = [d.platform.name.strip(), self.name, d.driver_version.strip()]
        return " / ".join([*parts, cpu_host.fingerprint()] if self._on_cpu else parts)

    @property
    def _on_cpu(self) -> bool:
        return bool(self.device.type & _cl().device_type.CPU)

    def describe(self) -> DeviceSpec:
        d, on_cpu = self.device, self._on_cpu
        parts = (d.vendor.strip(), self.name, f"{d.max_compute_units} units")
        what = cpu_host.fingerprint() if on_cpu else f"{d.global_mem_size >> 30} GiB"
        lacks = () if "cl_khr_fp64" in d.extensions.split() else ("float64",)
        limits = tuple(self._limits().items())
        fingerprint = " / ".join((*parts, what))
        return DeviceSpec(
            "opencl", self.name, fingerprint, "", limits, lacks=lacks, shares_host=on_cpu
        )

    def _limits(self) -> dict[str, LimitValue]:
        d = self.device
        x, y, z = (*d.max_work_item_sizes, 1, 1)[:3]
        found: dict[str, LimitValue] = {
            "max_threads_per_block": d.max_work_group_size,
            "max_block": (x, y, z),
            "shared_bytes_per_block": d.local_mem_size,
            "shared_bytes_per_core": d.local_mem_size,
            "cores": d.max_compute_units,
        }
        if d.global_mem_cache_size:
            found["l2_bytes"] = d.global_mem_cache_size
        for name, attribute in (
            ("warp_size", "warp_size_nv"), ("registers_per_block", "registers_per_block_nv"),
        ):  # fmt: skip
            try:
                found[name] = getattr(d, attribute)
            except (AttributeError, _cl().Error):  # only NVIDIA's devices tell
                continue
        return found

    def sync(self) -> None:
        with self.errors("sync"):
            self.queue.finish()

    def allocate(self, nbytes: int) -> OpenclMemory:
        cl = _cl()
        with self.errors(f"allocate({nbytes})"):
            return OpenclMemory(cl.Buffer(self.context, cl.mem_flags.READ_WRITE, nbytes), nbytes)

    def fenced(self, nbytes: int) -> Fenced:
        whole = self.allocate(nbytes + 2 * ZONE_BYTES)
        with self.errors(f"fenced({nbytes})"):
            inner = whole.buffer.get_sub_region(ZONE_BYTES, nbytes)
        return Fenced(whole, OpenclMemory(inner, nbytes), ZONE_BYTES)

    def part(self, memory: Memory, offset: int, nbytes: int) -> OpenclMemory:
        assert isinstance(memory, OpenclMemory)
        whole, begin = memory.whole, memory.offset + offset
        if begin % self._alignment:
            return OpenclMemory(self.allocate(nbytes).buffer, nbytes, whole, begin, copied=True)
        with self.errors(f"part({offset}, {nbytes})"):
            inner = whole.buffer.get_sub_region(begin, nbytes)
        return OpenclMemory(inner, nbytes, whole, begin)

    def borrow(self, pointer: int, nbytes: int, owner: object) -> OpenclMemory:
        """Raises DeviceError: memory of OpenCL has no addresses."""
        raise DeviceError(
            f"{self.place}.borrow", "memory of OpenCL has no addresses", "Copy it with array(x)."
        )

    def write(self, memory: Memory, data: np.ndarray, offset: int = 0) -> None:
        buffer, begin = _place(memory)
        with self.errors("write"):
            _cl().enqueue_copy(self.queue, buffer, data, dst_offset=begin + offset)

    def read(self, memory: Memory, out: np.ndarray, offset: int = 0) -> None:
        buffer, begin = _place(memory)
        with self.errors("read"):
            _cl().enqueue_copy(self.queue, out, buffer, src_offset=begin + offset)

    def copy(self, source: Memory, target: Memory, nbytes: int) -> None:
        with self.errors("copy"):
            _copied(self.queue, _place(source), _place(target), nbytes)

    def flush_caches(self, nbytes: int) -> None:
        if self._scratch is None or self._scratch.nbytes < nbytes:
            self._scratch = self.allocate(nbytes)
        with self.errors("flush_caches"):
            _cl().enqueue_fill_buffer(self.queue, self._scratch.buffer, np.uint8(1), 0, nbytes)

    def build(self, text: str, place: str) -> Any:
        """Compile OpenCL C.  Raises CompileError with the log."""
        cl = _cl()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)  # "non-empty compiler output"
                return cl.Program(self.context, text).build()
        except cl.Error as error:
            reason = f"the OpenCL compiler refused the text:\n{error}"
            raise CompileError(place, reason, CompileError.REPORT) from None

    def load(self, artifact: Artifact) -> tuple[Kernel, ...]:
        source = artifact.source
        program = self._from_binary(artifact)
        if program is None:
            program = self.build(source.text, f"load({source.entry_name})")
        _fork.keep(program)
        return tuple(Kernel(info, program, program, source) for info in source.kernels)

    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> OpenclPlan:
        return OpenclPlan(self, launches)

    def _from_binary(self, artifact: Artifact) -> Any:
        """The program of a binary made by this very device, or None: then the text is compiled."""
        if not artifact.binary or artifact.meta.get("device") != self.identity:
            return None
        cl = _cl()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                return cl.Program(self.context, [self.device], [artifact.binary]).build()
        except cl.Error:
            return None

    @contextmanager
    def errors(self, what: str) -> Iterator[None]:
        """Turn pyopencl's errors into DeviceError."""
        cl = _cl()
        try:
            yield
        except cl.Error as error:
            raise self.error(what, error) from None

    def error(self, what: str, error: Any) -> DeviceError:
        made = DeviceError(f"{self.place}.{what}", str(error).strip())
        made.fatal = self._is_lost(error)
        return made

    def _is_lost(self, error: Any) -> bool:
        """Whether the context is gone: nothing works in it any more."""
        cl = _cl()
        if getattr(error, "code", 0) == _INVALID_COMMAND_QUEUE:
            return True
        if not hasattr(self, "queue"):
            return False
        try:
            probe = cl.Buffer(self.context, cl.mem_flags.READ_WRITE, 4)
            cl.enqueue_copy(self.queue, np.zeros(1, np.int32), probe)
        except cl.Error:
            return True
        return False


def _buffer(memory: Memory) -> Any:
    assert isinstance(memory, OpenclMemory)
    return memory.buffer


def _place(memory: Memory) -> tuple[Any, int]:
    assert isinstance(memory, OpenclMemory)
    return memory.place


def _copies(buffers: Iterable[Memory]) -> list[OpenclMemory]:
    return [m for m in buffers if isinstance(m, OpenclMemory) and m.copied]


def _copied(queue: Any, source: tuple[Any, int], target: tuple[Any, int], nbytes: int) -> Any:
    """Enqueue a copy between places; its event."""
    return _cl().enqueue_copy(
        queue, target[0], source[0], byte_count=nbytes, src_offset=source[1], dst_offset=target[1]
    )
