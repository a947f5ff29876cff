"""`GuardedBuffer`: a buffer of an artefact between two zones of known content.

In: a `BufferSpec`, a device.  Out: memory to run kernels on, and in words what was written outside.
What lies around a buffer, and in one that a kernel has yet to write, would show in any result.
Read next: `trial.py`.
"""

from __future__ import annotations

from enum import Enum
from functools import lru_cache

import numpy as np

from tilewright.base.artifact import BufferSpec
from tilewright.base.dtype import DType
from tilewright.runtime import device_copies
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Memory
from tilewright.runtime.ndarray import NDArray


class Filling(Enum):
    """What is in memory that nobody may touch: three kinds, as each hides something.

    The least and the greatest numbers in turn: a minimum drops the ones, a maximum the others, and
    to none of them is much added.  The same with signs exchanged, of floats smaller ones, which are
    changed by what is added to them.  NaN, which minimum and maximum drop on a GPU, but not on a
    CPU; of integers the first again.
    """

    EXTREMES = 0
    EXCHANGED = 1
    NAN = 2


_AT_ONCE = 1 << 20  # bytes with zones: what is smaller is written and read in one piece
_KEPT = 8 << 20  # bytes of garbage
_PIECE = 4 << 20  # bytes of an input that are compared at once
_MARKS = 31  # so many fillings of one kind differ, so that a copy of one zone in another shows


def garbage(dtype: DType, count: int, filling: Filling, mark: int) -> np.ndarray:
    """`count` elements that no right result is made of; another `mark` gives other ones."""
    mark %= _MARKS
    if dtype.is_float and filling is Filling.NAN:
        bits = np.array([np.nan], dtype.storage).view(f"u{dtype.bytes}") | mark
        return np.full(count, bits.view(dtype.storage)[0], dtype.storage)
    if dtype.kind == "bool":
        pair: tuple[float, float] = (True, False)
    elif dtype.is_float:
        large = dtype.greatest if filling is Filling.EXTREMES else 2.0 ** min(10, dtype.digits - 4)
        size = large * (1 - mark / 64)
        pair = (size, -0.75 * size)  # the sum of neighbours is not zero
    else:
        pair = (dtype.greatest - 1 - mark, dtype.least + 1 + mark)
    made = np.empty(count, dtype.storage)
    first = int(filling is Filling.EXCHANGED)
    made[first::2], made[1 - first :: 2] = pair
    return made


def _content(dtype: DType, count: int, filling: Filling, mark: int) -> np.ndarray:
    """`garbage`; where it is not large the same array each time, which nobody changes."""
    small = count * dtype.bytes <= _KEPT
    return (_small_content if small else garbage)(dtype, count, filling, mark)


@lru_cache(maxsize=32)
def _small_content(dtype: DType, count: int, filling: Filling, mark: int) -> np.ndarray:
    made = garbage(dtype, count, filling, mark)
    made.flags.writeable = False
    return made


@lru_cache(maxsize=128)
def _zone(dtype: DType, nbytes: int, filling: Filling, mark: int) -> np.ndarray:
    """The bytes of a zone, the same array each time."""
    return garbage(dtype, -(-nbytes // dtype.bytes), filling, mark).view(np.uint8)[:nbytes]


class GuardedBuffer:
    """Memory for one buffer, poisoned where nothing else is written.

    number: which of the artefact's buffers; no two have the same content around them
    """

    def __init__(self, spec: BufferSpec, device: Device, number: int) -> None:
        self.spec, self._driver, self._mark = spec, device.driver, 3 * number
        self._nbytes = max(spec.size * spec.dtype.bytes, 1)
        self._fenced = self._driver.fenced(self._nbytes)
        self._filling = Filling.NAN
        self._held: np.ndarray | None = None
        self._seen: np.ndarray | None = None

    @property
    def memory(self) -> Memory:
        return self._fenced.inner

    def fill(self, filling: Filling, value: np.ndarray | None = None) -> None:
        """`value` in the buffer (None: garbage), garbage around it.

        An input that it holds already is not written again: that kernels leave it is checked.
        """
        self._filling, self._seen = filling, None
        held, self._held = self._held, value
        if value is None:
            value = _content(self.spec.dtype, self.spec.size, filling, self._mark + 1)
        (_, before), (_, after) = self._zones()
        if self._fenced.whole.nbytes <= _AT_ONCE:
            empty = np.zeros(self._nbytes - value.nbytes, np.uint8)
            parts = [before, _bytes(value), empty, after]
            self._driver.write(self._fenced.whole, np.concatenate(parts))
            return
        for start, zone in self._zones():
            self._driver.write(self._fenced.whole, zone, start)
        if value.size and (held is None or held is not value):
            device_copies.fill(self._driver, self.memory, np.ascontiguousarray(value))

    def look(self) -> None:
        """Look at memory now: `read` and `damage` tell what is there."""
        self._seen = None
        if self._fenced.whole.nbytes <= _AT_ONCE:
            self._seen = np.empty(self._fenced.whole.nbytes, np.uint8)
            self._driver.read(self._fenced.whole, self._seen)

    def read(self) -> np.ndarray:
        out = np.empty(self.spec.shape, self.spec.dtype.storage)
        if not out.size:
            return out
        to = out.reshape(-1).view(np.uint8)
        if self._seen is None:
            self._driver.read(self.memory, to)
        else:
            to[:] = self._seen[self._fenced.zone :][: to.size]
        return out

    def holds(self, value: np.ndarray) -> bool:
        """Whether these bytes are in it; a large one is read in pieces that stay in caches."""
        wanted = _bytes(value)
        if self._seen is not None:
            return same_bytes(self._seen[self._fenced.zone :][: wanted.size], wanted)
        piece = np.empty(min(_PIECE, wanted.size), np.uint8)
        for start in range(0, wanted.size, _PIECE):
            part = wanted[start : start + _PIECE]
            self._driver.read(self.memory, piece[: part.size], start)
            if not same_bytes(piece[: part.size], part):
                return False
        return True

    def unwritten(self, found: np.ndarray) -> np.ndarray:
        """Tell which elements that were read are garbage that `fill` left, perhaps by chance."""
        before = garbage(self.spec.dtype, found.size, self._filling, self._mark + 1)
        step = self.spec.dtype.bytes
        same = (_bytes(before) == _bytes(found)).reshape(-1, step).all(axis=1)
        return np.asarray(same.reshape(found.shape))

    def damage(self) -> str:
        """Say what was written next to the buffer, or ""."""
        spec, step = self.spec, self.spec.dtype.bytes
        for start, zone in self._zones():
            if self._seen is None:
                found = np.empty_like(zone)
                self._driver.read(self._fenced.whole, found, start)
            else:
                found = self._seen[start : start + zone.size]
            if np.array_equal(found, zone):
                continue
            changed = np.flatnonzero(found != zone)
            if start:
                where = f"{changed[0] // step * step} bytes past the end of"
            else:
                where = f"{(zone.size - changed[-1] + step - 1) // step * step} bytes before"
            return f"wrote {where} {spec.role} {spec.name} ({spec.dtype}{list(spec.shape)})"
        return ""

    def _zones(self) -> list[tuple[int, np.ndarray]]:
        """Where both begin in the whole, and what is in them."""
        front, behind = self._fenced.zone, self._fenced.zone + self._nbytes
        sizes = ((0, front), (behind, self._fenced.whole.nbytes - behind))
        return [
            (start, _zone(self.spec.dtype, size, self._filling, self._mark + 2 * k))
            for k, (start, size) in enumerate(sizes)
        ]


class BorrowedBuffer:
    """An array of the caller, used where it lies: nothing is known of what is around it."""

    def __init__(self, spec: BufferSpec, array: NDArray) -> None:
        self.spec, self.memory, self._array = spec, array.memory, array

    def fill(self, filling: Filling, value: np.ndarray | None = None) -> None:
        """It has its content."""

    def look(self) -> None:
        """It is always looked at."""

    def read(self) -> np.ndarray:
        return self._array.numpy()

    def holds(self, value: np.ndarray) -> bool:
        """It is the caller's, who has no other."""
        return same_bytes(_bytes(self.read()), _bytes(value))

    def unwritten(self, found: np.ndarray) -> np.ndarray:
        return np.zeros(found.shape, bool)

    def damage(self) -> str:
        return ""


def same_bytes(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether dense arrays hold the same bytes, of which they have as many."""
    a, b = _bytes(one), _bytes(other)
    words = a.size // 8 * 8
    return np.array_equal(a[:words].view(np.uint64), b[:words].view(np.uint64)) and np.array_equal(
        a[words:], b[words:]
    )


def _bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
