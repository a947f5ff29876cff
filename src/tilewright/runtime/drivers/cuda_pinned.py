"""What is not large goes to a CUDA device, and comes back, by way of memory that the driver keeps.

In: addresses of the device, bytes of numpy.  Out: copies on the driver's stream.  What is small is
sent from a copy of ours, for which nobody waits.  That is ordinary memory: such copies travel with
the commands, and three in front of a run take half of what they take from pinned memory.  What
comes back does so in pinned memory, from where it is copied while the next piece is on its way.
Read next: `cuda.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.base.concurrency import lock
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import ALIGNMENT

SENT = 256 << 10  # bytes of the block to send from
MOST_SENT = 64 << 10  # of what is sent together: more is no faster so
FETCHED = 1 << 20  # bytes that are fetched together, and of the block to which they come, likewise
PIECE = 256 << 10  # that are copied while others come
_LEAST = 64 << 10  # of a block


class Block:
    """Pinned memory, and its bytes as an array; freed with this object."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        held: Any = (ctypes.c_uint8 * nbytes).from_address(pointer)
        self.pointer, self.bytes = pointer, np.frombuffer(held, np.uint8)


class Stream(Protocol):
    """A driver and its stream.

    pin:     a block of so many bytes.  Raises DeviceError where there is none to have
    send:    enqueue a copy: address on the device, address here, bytes
    fetch:   likewise: address here, address on the device, bytes
    record:  an event; reached: wait for it, and take it back
    wait:    for all that is enqueued
    """

    def pin(self, nbytes: int) -> Block: ...
    def send(self, target: int, source: int, nbytes: int) -> None: ...
    def fetch(self, target: int, source: int, nbytes: int) -> None: ...
    def record(self) -> Any: ...
    def reached(self, event: Any) -> None: ...
    def wait(self) -> None: ...


class Passage:
    """The two blocks of a driver, each made when it is first of use."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._sending, self._fetching = lock(), lock()
        self._from: np.ndarray | None = None
        self._to: Block | None = None
        self._refused = False
        self._at = 0  # in the block to send from: what lies before may be on its way
        self._sent = 0

    def send(self, wanted: Sequence[tuple[int, np.ndarray]]) -> bool:
        """Enqueue copies of bytes, as they are now, to addresses.

        Returns False, having done nothing, for what is too large.
        """
        size = sum([_aligned(data.nbytes) for _, data in wanted])
        if size > MOST_SENT:
            return False
        with self._sending:
            if self._from is None:
                self._from = np.empty(SENT, np.uint8)
                self._address = self._from.ctypes.data
            if self._at + size > SENT:
                self._stream.wait()
                self._at = 0
            begin, self._at = self._at, self._at + size
            self._sent += 1
            for target, data in wanted:
                nbytes = data.nbytes
                self._from[begin : begin + nbytes] = data
                self._stream.send(target, self._address + begin, nbytes)
                begin += _aligned(nbytes)
        return True

    @property
    def sent(self) -> int:
        """How often some were enqueued."""
        with self._sending:
            return self._sent

    def arrived(self, sent: int) -> None:
        """Whoever waits for the device says so: what `sent` was when he began to wait."""
        with self._sending:
            if sent == self._sent:
                self._at = 0

    def fetched(self, wanted: Sequence[tuple[int, np.ndarray]]) -> bool:
        """Wait for all that is enqueued, and copy the bytes at addresses to arrays.

        Returns False, having done nothing, for what is too large, or where nothing can be pinned.
        """
        size = sum([_aligned(out.nbytes) for _, out in wanted])
        if size > FETCHED:
            return False
        with self._fetching:
            block = self._to
            if block is None or len(block.bytes) < size:
                block = self._to = self._pinned(max(1 << (size - 1).bit_length(), _LEAST))
            if block is None:
                return False
            begin, behind = 0, 0  # behind: how many bytes since the last event
            coming: list[tuple[int, np.ndarray, Any]] = []
            for address, out in wanted:
                for at in range(0, out.nbytes, PIECE):
                    part = out[at : at + PIECE]
                    self._stream.fetch(block.pointer + begin, address + at, part.nbytes)
                    behind += part.nbytes
                    event = self._stream.record() if behind >= PIECE else None
                    behind = 0 if event is not None else behind
                    coming.append((begin, part, event))
                    begin += _aligned(part.nbytes)
            there = 0  # how many of them have been copied
            for k, (_, _, event) in enumerate(coming):
                if event is not None:
                    self._stream.reached(event)
                    _copy(block, coming[there : k + 1])
                    there = k + 1
            self._stream.wait()
            _copy(block, coming[there:])
        return True

    def _pinned(self, nbytes: int) -> Block | None:
        if self._refused:
            return None
        try:
            return self._stream.pin(nbytes)
        except DeviceError as error:
            if error.fatal:
                raise
            self._refused = True  # a system may let a process pin little or nothing
            return None


def _copy(block: Block, there: Sequence[tuple[int, np.ndarray, Any]]) -> None:
    for begin, part, _ in there:
        part[:] = block.bytes[begin : begin + part.nbytes]


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
