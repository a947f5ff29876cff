"""What every device driver does, and the one place that opens them.

In: a device kind and index.  Out: a `Driver`: memory, copies, loaded kernels, and plans that run
and time a sequence of launches.  Read next: `cpu.py`, then `cuda.py` and `opencl.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from tilewright.base.artifact import Artifact, KernelInfo
from tilewright.base.errors import TilewrightError

LimitValue = int | tuple[int, int, int]


class Memory(Protocol):
    """A block of device memory; it is freed when nothing refers to it any more.

    pointer: its address on the device (0 where the device has none, as in OpenCL)
    """

    nbytes: int
    pointer: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """A kernel loaded on a device.  `handle` is the driver's; `owner` keeps the code loaded."""

    info: KernelInfo
    handle: Any
    owner: Any


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch: `buffers[i]` is the i-th argument of the kernel."""

    kernel: Kernel
    buffers: tuple[Memory, ...]


class Plan(Protocol):
    """A sequence of launches bound to memory, each launch after the one before it has finished."""

    def run(self) -> None:
        """Enqueue the sequence once.  Errors may show only at the next `sync`."""

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        """Mean seconds of one pass on the device over `number` passes back to back.

        flush_bytes: when not 0, that many bytes of other memory are written before *each* pass,
        which is then timed alone.
        """


class Driver(Protocol):
    """One device.  Methods raise `DeviceError`, with `fatal` true when the process is lost."""

    name: str
    arch: str

    def limits(self) -> dict[str, LimitValue]: ...
    def sync(self) -> None: ...
    def allocate(self, nbytes: int) -> Memory: ...
    def write(self, memory: Memory, data: np.ndarray, offset: int = 0) -> None: ...
    def read(self, memory: Memory, out: np.ndarray, offset: int = 0) -> None: ...
    def copy(self, source: Memory, target: Memory, nbytes: int) -> None: ...
    def load(self, artifact: Artifact) -> tuple[Kernel, ...]: ...
    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> Plan: ...


def why_not(kind: str, index: int) -> TilewrightError | None:
    """None when the device can be used; otherwise the reason and the way out."""
    try:
        driver(kind, index)
    except TilewrightError as error:
        return error
    return None


@cache
def driver(kind: str, index: int) -> Driver:
    """The driver of one device, opened once a process.  Raises TargetError or DeviceError."""
    module = import_module(f"{__name__}.{kind}")  # not at the top: each needs its own library
    opened: Driver = module.open_device(index)
    return opened
