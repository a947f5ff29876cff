"""What may be passed for the buffers of a kernel: type, shape, device, memory of its own.

In: buffers as the artefact describes them, and arrays.  Out: nothing, or a DeviceError that names
the argument.  Read next: `module.py`, `sequence.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.artifact import BufferSpec
from tilewright.base.errors import DeviceError
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Memory
from tilewright.runtime.ndarray import NDArray


def check(
    place: str, specs: Sequence[BufferSpec], arrays: Sequence[Any], device: Device, packed: bool,
    joint: Sequence[Memory] = (),
) -> None:  # fmt: skip
    """Raises DeviceError for the first array that a kernel with buffers `specs` cannot take.

    packed: constants are given in the layout that kernels read, not as users know them
    joint:  memory that a kernel may read and write: it keeps each element, or does not depend on it
    """
    for index, (spec, value) in enumerate(zip(specs, arrays, strict=True)):
        reason = _misfit(spec, spec.shape if packed else spec.logical_shape, value, device)
        if reason:
            raise DeviceError(f"{place}: argument {index} ({spec.name})", *reason)
    _check_overlaps(place, specs, arrays, joint)


_BITS = {"bfloat16": "uint16"}  # types whose arrays may be given as their bits


def _misfit(
    spec: BufferSpec, shape: tuple[int, ...], value: Any, device: Device
) -> tuple[str, str] | None:
    """Why `value` cannot be passed for `spec`, with a way out; None when it can."""
    if not isinstance(value, NDArray):
        return f"it is a {type(value).__name__}, not an NDArray", f"Try array(x, {device})."
    if value.device != device:
        return f"it lives on {value.device}, not on {device}", f"Try .copyto({device})."
    if value.dtype not in (spec.dtype, _BITS.get(spec.dtype)):
        return f"its dtype is {value.dtype}, not {spec.dtype}", "Convert it first."
    if value.shape != shape:
        return f"its shape is {value.shape}, not {shape}", "Reshape it first."
    return None


def _check_overlaps(
    place: str, specs: Sequence[BufferSpec], arrays: Sequence[NDArray], joint: Sequence[Memory]
) -> None:
    """Generated code may read an input after it has written an output, in any order and twice."""
    for k, (written, y) in enumerate(zip(specs, arrays, strict=True)):
        if written.role == "input" or any(y.memory is m for m in joint):
            continue
        for i, (spec, x) in enumerate(zip(specs, arrays, strict=True)):
            if spec is not written and _overlap(x, y):
                what = "the memory of" if x.memory is y.memory else "memory in common with"
                raise DeviceError(
                    f"{place}: argument {k} ({written.name})",
                    f"the kernel writes it, and it has {what} argument {i} ({spec.name})",
                    "Only inputs may share memory: pass an array of its own.",
                )  # fmt: skip


def _overlap(x: NDArray, y: NDArray) -> bool:
    a, b, m, n = x.memory, y.memory, x.nbytes, y.nbytes
    if not m or not n:
        return False
    if not a.pointer or not b.pointer:  # memory without addresses
        apart = a.offset >= b.offset + n or b.offset >= a.offset + m
        return a.whole is b.whole and not apart
    return a.pointer < b.pointer + n and b.pointer < a.pointer + m
