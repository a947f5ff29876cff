"""Copies of constant arrays, kept on their device: the trials of a task are all given the same.

In: an array, memory of a device.  Out: the memory filled, from the copy if there is one: weights of
a gigabyte then take a millisecond, where they take a tenth of a second from this side.
Whoever fails may have written anywhere, so a failed trial ends all copies (`forget`).
Read next: `guarded.py`, `trial.py`.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import Driver, KnowsRoom, Memory

_LEAST = 1 << 20  # bytes that are worth a copy
_SHARE = 16  # copies take one part in so many of the memory that is free

_copies: OrderedDict[int, tuple[np.ndarray, Driver, Memory]] = (
    OrderedDict()
)  # with what they are of


def fill(driver: Driver, memory: Memory, array: np.ndarray) -> None:
    """Write a dense array of `memory`'s size to it.  One that nobody may change is kept."""
    array_, owner, copy = _copies.pop(id(array), (None, None, None))
    if copy is None or array_ is not array or owner is not driver:
        driver.write(memory, array.reshape(-1).view(np.uint8))
        copy = _copy(driver, memory, array)
    else:
        driver.copy(copy, memory, array.nbytes)
    if copy is not None:
        _copies[id(array)] = array, driver, copy


def forget() -> bool:
    """Drop all copies; whether there were any."""
    some = bool(_copies)
    _copies.clear()
    return some


def _copy(driver: Driver, memory: Memory, array: np.ndarray) -> Memory | None:
    if array.flags.writeable or array.nbytes < _LEAST or not isinstance(driver, KnowsRoom):
        return None
    held = sum(copy.nbytes for _, _, copy in _copies.values())
    room = (driver.free_bytes() + held) // _SHARE
    while _copies and held + array.nbytes > room:
        held -= _copies.popitem(last=False)[1][2].nbytes
    if array.nbytes > room:
        return None
    try:
        made = driver.allocate(array.nbytes)
    except DeviceError:
        return None
    driver.copy(memory, made, array.nbytes)
    return made
