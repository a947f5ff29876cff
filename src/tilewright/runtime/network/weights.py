"""Weights on a device, each once in a process: libraries with equal ones share its memory.

In: arrays of a library.  Out: the same on a device.  A CPU uses an array where it is, if kernels
can read it there.  Read next: `library.py`.
"""

from __future__ import annotations

import hashlib
import weakref

import numpy as np

from tilewright.base.dtype import DType
from tilewright.runtime.device import Device, cpu
from tilewright.runtime.drivers import ALIGNMENT, Memory
from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.network.plan import Array

_Key = tuple[Device, str, int, bytes]
_held: weakref.WeakValueDictionary[_Key, Memory] = weakref.WeakValueDictionary()


def on_device(value: Array, dev: Device) -> NDArray:
    """`value` on `dev`, which nobody may change there.

    The memory is that of `value` itself on the CPU, where it is dense and aligned, or that of an
    equal array that another library brought, compared by what it was then.
    """
    dtype = DType(value.dtype)
    if dev == cpu() and _is_ready(value):
        here = dev.driver.borrow(value.ctypes.data, value.nbytes, value)
        return NDArray(value.shape, dtype, dev, here)
    data = np.ascontiguousarray(value, dtype.storage).reshape(-1).view(np.uint8)
    key = dev, str(dtype), value.nbytes, hashlib.sha256(data.data).digest()
    memory = _held.get(key)
    if memory is None:
        memory = _held[key] = array(value, dev).memory
    return NDArray(value.shape, dtype, dev, memory)


def _is_ready(value: Array) -> bool:
    """Whether kernels of a CPU can read it where it is."""
    dense = value.flags.c_contiguous and value.dtype.isnative
    return dense and value.nbytes > 0 and value.ctypes.data % ALIGNMENT == 0


def host_view(held: NDArray, value: Array) -> Array:
    """`value` as the memory that a device has of it, where the host can read that; else `value`."""
    if held.device != cpu() or not value.nbytes:
        return value
    view = held._view()
    view.flags.writeable = False
    return view
