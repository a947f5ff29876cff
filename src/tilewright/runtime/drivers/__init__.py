"""What every device driver does, and the one place that opens them.

In: a kind of target and an index.  Out: a `Driver`: memory, copies, loaded kernels, and plans that
run and time a sequence of launches.  Read next: `cpu.py`, then `cuda.py` and `opencl.py`.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from tilewright.base.artifact import Artifact, KernelInfo, Source
from tilewright.base.concurrency import in_forked_child, once
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.targets.kind import kind, resolve
from tilewright.targets.spec import DeviceSpec

ZONE_BYTES = 64 << 10  # on both sides of fenced memory where no page beyond it can be closed
ALIGNMENT = 64  # bytes: of what drivers allocate, and of what kernels may be given


class Memory(Protocol):
    """A block of device memory; it is freed when nothing refers to it any more.

    pointer: its address on the device (0 where the device has none, as in OpenCL)
    whole:   the block that it is a part of, or itself; offset: where in that it begins, in bytes
    """

    nbytes: int
    pointer: int
    offset: int

    @property
    def whole(self) -> Memory: ...


@dataclass(frozen=True, eq=False)
class Fenced:
    """`inner`, in the middle of `whole`, which has `zone` bytes before it and at least that behind.

    zone: a multiple of every alignment in use
    """

    whole: Memory
    inner: Memory
    zone: int


@dataclass(frozen=True, eq=False)
class Kernel:
    """A loaded kernel of `source`.  `handle` is the driver's; `owner` keeps the code loaded."""

    info: KernelInfo
    handle: Any
    owner: Any
    source: Source


@dataclass(frozen=True, eq=False)
class Launch:
    """One launch: `buffers[i]` is the i-th argument of the kernel.

    weights: those of them that nobody writes as long as the plan lives
    """

    kernel: Kernel
    buffers: tuple[Memory, ...]
    weights: tuple[Memory, ...] = ()


class Spot(NamedTuple):
    """An argument of a launch of a plan, and where in given memory it begins, in bytes."""

    launch: int
    position: int
    offset: int


class Plan(Protocol):
    """A sequence of launches bound to memory, each launch after the one before it has finished."""

    def run(self) -> None:
        """Enqueue the sequence once.  Errors may show only at the next `sync`."""

    def run_apart(self, written: Sequence[Memory], seconds: float) -> bool | None:
        """Run once so that iterations of a parallel loop see nothing of each other's writes.

        written: all memory that is written.  Returns None where the device cannot do this, and
        False where it takes longer than `seconds` of one core: memory then means nothing.
        """

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        """Mean seconds of one pass on the device over `number` passes back to back.

        flush_bytes: when not 0, that many bytes of other memory are written before *each* pass,
        which is then timed alone.
        """


class OpenPlan(Plan, Protocol):
    """A plan that takes memory of other libraries by its address, and their streams."""

    def argument(self, places: Sequence[Spot]) -> Callable[[int], None]:
        """A function that puts memory at an address into `places`.

        It counts from the next run on.  The caller keeps the memory alive, and nothing is checked:
        it has the size of what was there and is aligned to `ALIGNMENT`.
        """

    def on(self, stream: Callable[[], int]) -> Callable[[], object]:
        """`run` on whatever stream of another library is its current one then; a CPU has none.

        stream: gives its handle.  What is returned keeps the plan alive.  Runs on different streams
        happen in the order in which they were enqueued
        """

    def record(self, stream: int, moved: Sequence[tuple[Sequence[Spot], int, int]]) -> None:
        """Put the launches into the graph that another library captures on `stream`.

        moved: places of memory, its address, and the address to use this time instead of it
        Nothing is allocated, no other stream or event has a part in it.  The plan lives from now on
        as long as the process, as nobody says when such a graph is gone.  On a CPU it is not there.
        """


class Driver(Protocol):
    """One device.  Methods raise `DeviceError`, with `fatal` true when the process is lost.

    name, arch: as `DeviceSpec` has them
    describe:   what the device is
    fenced:     memory between zones that belong to it; beyond them lies, where the device can have
                that, what nobody may touch
    part:       some bytes of memory, from a multiple of `ALIGNMENT` on.  Parts see each other's
                writes, launch by launch
    borrow:     memory at an address that somebody else gave, which lives as long as `owner`
    plan:       capture: prepare for many runs, at some cost
    """

    name: str
    arch: str

    def describe(self) -> DeviceSpec: ...
    def sync(self) -> None: ...
    def allocate(self, nbytes: int) -> Memory: ...
    def fenced(self, nbytes: int) -> Fenced: ...
    def part(self, memory: Memory, offset: int, nbytes: int) -> Memory: ...
    def borrow(self, pointer: int, nbytes: int, owner: object) -> Memory: ...
    def write(self, memory: Memory, data: np.ndarray, offset: int = 0) -> None: ...
    def read(self, memory: Memory, out: np.ndarray, offset: int = 0) -> None: ...
    def copy(self, source: Memory, target: Memory, nbytes: int) -> None: ...
    def load(self, artifact: Artifact) -> tuple[Kernel, ...]: ...
    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> Plan: ...


class Together(Protocol):
    """What a driver may have whose every copy is waited for by itself: many copies, few waits.

    write_all: data may change behind it, as behind `write`; it is there for all that the driver is
               asked for then, and for others behind `sync`
    read_all:  waits once
    """

    def write_all(self, wanted: Sequence[tuple[Memory, np.ndarray]]) -> None: ...
    def read_all(self, wanted: Sequence[tuple[Memory, np.ndarray]]) -> None: ...


def write_all(driver: Driver, wanted: Sequence[tuple[Memory, np.ndarray]]) -> None:
    """Write bytes to several blocks of memory of their size, see `Together`."""
    _all(getattr(driver, "write_all", None), driver.write, wanted)


def read_all(driver: Driver, wanted: Sequence[tuple[Memory, np.ndarray]]) -> None:
    """Read several blocks of memory, each to bytes of its size."""
    _all(getattr(driver, "read_all", None), driver.read, wanted)


def _all(
    together: Callable[..., None] | None, single: Callable[..., None],
    wanted: Sequence[tuple[Memory, np.ndarray]],
) -> None:  # fmt: skip
    if together is not None:
        together(wanted)
        return
    for memory, array in wanted:
        single(memory, array)


@runtime_checkable
class KnowsRoom(Protocol):
    """A driver that knows how much memory its device has left."""

    def free_bytes(self) -> int:
        """Bytes that nobody has allocated."""


def why_not(name: str, index: int) -> TilewrightError | None:
    """None when the device can be used; otherwise the reason and the way out."""
    try:
        driver(name, index)
    except TilewrightError as error:
        return error
    return None


@once
def driver(name: str, index: int) -> Driver:
    """The driver of one device, opened once a process; name: of the kind of target.

    Raises TargetError or DeviceError.
    """
    opened: Driver = resolve(kind(name).driver)(index)  # only now: each needs its own library
    return opened


in_forked_child(driver.forget)  # where a device cannot be opened again, the error says so


class ForkGuard:
    """Refuses a device library in children of the process that loaded it: its threads and its
    connection to the device are not theirs, and calls would fail or wait for ever.

    place: of the error
    """

    def __init__(self, place: str) -> None:
        self.place, self.broken = place, False
        self._owners: dict[int, weakref.ref[Any]] = {}

    def keep(self, owner: Any) -> None:
        """In a child, never take down what `owner` holds of the library: that is a call, too."""
        key = id(owner)
        self._owners[key] = weakref.ref(owner, lambda _: self._owners.pop(key, None))

    def watch(self) -> None:
        """The library is loaded."""
        in_forked_child(self._break)

    def check(self) -> None:
        if self.broken:
            error = DeviceError(
                self.place, "it was in use when this process was forked, and does not survive that",
                "Start processes with multiprocessing's spawn, or fork before the first use.",
            )  # fmt: skip
            error.fatal = True
            raise error

    def _break(self) -> None:
        self.broken = True
        for owner in [ref() for ref in self._owners.values()]:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))
