"""Pinned host memory, through which what is not large goes to a CUDA device and comes back.

In: addresses of the device, bytes of numpy.  Out: copies on the driver's stream.  A copy of memory
that the device cannot reach itself is two copies and a wait: here the first one, on the host, is
ours, and nobody waits for the second one.  Read next: `cuda.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.concurrency import lock
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import ALIGNMENT

SENT = 2 << 20  # bytes of the block to send from; what is sent together has at most half of it
FETCHED = 4 << 20  # bytes that are fetched together, and of the block to which they come
_LEAST = 64 << 10  # of a block


class Block:
    """Pinned memory, and its bytes as an array; freed with this object."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        held: Any = (ctypes.c_uint8 * nbytes).from_address(pointer)
        self.pointer, self.bytes = pointer, np.frombuffer(held, np.uint8)


class Pinned:
    """The two blocks of a driver, each made when it is first of use.

    make:    a block of so many bytes; DeviceError where there is none to have, and then all copies
             go as they did without this
    send:    enqueues a copy: address on the device, address here, bytes
    fetch:   likewise: address here, address on the device, bytes
    wait:    for all that is enqueued
    """

    def __init__(
        self,
        make: Callable[[int], Block],
        send: Callable[[int, int, int], object],
        fetch: Callable[[int, int, int], object],
        wait: Callable[[], object],
    ) -> None:
        self._make, self._send, self._fetch, self._wait = make, send, fetch, wait
        self._sending, self._fetching = lock(), lock()
        self._from: Block | None = None
        self._to: Block | None = None
        self._refused = False
        self._at = 0  # in the block to send from: what lies before may be on its way
        self._sent = 0

    def send(self, wanted: Sequence[tuple[int, np.ndarray]]) -> bool:
        """Enqueue copies of bytes, as they are now, to addresses.

        Returns False, having done nothing, for what is too large.
        """
        size = sum([_aligned(data.nbytes) for _, data in wanted])
        if size > SENT // 2:
            return False
        with self._sending:
            block = self._from = self._from or self._made(SENT)
            if block is None:
                return False
            if self._at + size > SENT:
                self._wait()
                self._at = 0
            begin, self._at = self._at, self._at + size
            self._sent += 1
            for target, data in wanted:
                nbytes = data.nbytes
                block.bytes[begin : begin + nbytes] = data
                self._send(target, block.pointer + begin, nbytes)
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

    def fetched(
        self, sources: Sequence[tuple[int, int]], use: Callable[[list[np.ndarray]], object]
    ) -> bool:
        """Wait for all that is enqueued, and call `use` with the bytes at these addresses.

        sources: addresses and how many bytes
        use: keeps nothing of what it is given, which others come to, and fetches nothing itself
        Returns False, having done nothing, for what is too large.
        """
        begins, size = [], 0
        for _, nbytes in sources:
            begins.append(size)
            size += _aligned(nbytes)
        if size > FETCHED:
            return False
        with self._fetching:
            block = self._to
            if block is None or len(block.bytes) < size:
                block = self._to = self._made(max(1 << (size - 1).bit_length(), _LEAST))
            if block is None:
                return False
            found = []
            for (address, nbytes), begin in zip(sources, begins, strict=True):
                self._fetch(block.pointer + begin, address, nbytes)
                found.append(block.bytes[begin : begin + nbytes])
            self._wait()
            use(found)
        return True

    def _made(self, nbytes: int) -> Block | None:
        if self._refused:
            return None
        try:
            return self._make(nbytes)
        except DeviceError as error:
            if error.fatal:
                raise
            self._refused = True  # a system may let a process pin little or nothing
            return None


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
