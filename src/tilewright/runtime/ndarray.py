"""`NDArray`: a dense row-major array on a device.  `array(x)`, `empty(shape)`, `from_dlpack(x)`.

In: numpy arrays, DLPack tensors.  Out: numpy arrays (copies), DLPack tensors (no copy), arguments
of `Module`.  Read next: `dlpack.py`, `module.py`.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError, ExpressionError
from tilewright.runtime import dlpack
from tilewright.runtime.device import Device, cpu
from tilewright.runtime.drivers import ALIGNMENT, Memory, read_all, write_all
from tilewright.targets.kind import kinds

_MOST_ELEMENTS = 1 << 45  # of eight bytes: all that addresses of 48 bits reach


@door(DeviceError, "nd.array")
def array(
    source: Any, device: Device | None = None, dtype: str | np.dtype | None = None
) -> NDArray:
    """A copy of `source` (numpy array, NDArray, nested list, number) on `device`, or the CPU.

    Of a numpy array it has the values, whatever its byte order and strides.
    dtype: converted to it, as numpy does; default: that of `source`
    """
    device = device or cpu()
    wanted = None if dtype is None else _checked(dtype, f"array(dtype={dtype!r})")
    if isinstance(source, NDArray):
        if wanted in (None, source.dtype):
            return source.copyto(device)
        source = source.numpy()
    value = _as_array(source, "nd.array")
    if wanted is not None:
        value = value.astype(wanted.storage)
    made = empty(value.shape, _checked(value.dtype, "array"), device)
    return made.copyfrom(value)


@door(DeviceError, "nd.empty")
def empty(
    shape: Sequence[int] | int, dtype: str | np.dtype = "float32", device: Device | None = None
) -> NDArray:
    """An array with unspecified contents.  Memory is 64-byte aligned on the CPU."""
    device = device or cpu()
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    if any(d < 0 for d in dims):
        raise DeviceError(f"empty({dims})", "a dimension is negative", "Use at least 0.")
    if math.prod(dims) > _MOST_ELEMENTS:
        raise DeviceError(f"empty({dims})", "no memory is that large", "Use smaller dimensions.")
    kind = _checked(dtype, f"empty({dims})")
    memory = device.driver.allocate(max(math.prod(dims) * kind.bytes, 1))
    return NDArray(dims, kind, device, memory)


def from_dlpack(tensor: Any, copy: bool | None = None) -> NDArray:
    """An array over the memory of a DLPack tensor on the CPU or a CUDA device.

    copy: None: only where the memory cannot be used, which is where it is not aligned to 64 bytes,
          and on the CPU also where it is strided, read-only or of another byte order; then writing
          to the one array does not change the other.  False: DeviceError instead.  True: always
    """
    if not hasattr(tensor, "__dlpack_device__") or not hasattr(tensor, "__dlpack__"):
        raise DeviceError(
            f"from_dlpack({type(tensor).__name__})", "it has no __dlpack__", "Use nd.array(x)."
        )
    code, index = tensor.__dlpack_device__()
    if code in dlpack.HOST_CODES:
        return _from_host(tensor, copy)
    kind = next((k for k in kinds() if k.dlpack == code), None)
    if kind is None:
        raise DeviceError(
            "from_dlpack", f"DLPack device type {int(code)} is not supported",
            "Move the tensor to the CPU or to CUDA first.",
        )  # fmt: skip
    device = Device(kind.device, int(index))
    driver = device.driver
    # 1 is the legacy default stream, which Tilewright's own streams wait for.
    view = dlpack.import_capsule(tensor.__dlpack__(stream=1))
    dtype = _checked(view.dtype, "from_dlpack")
    if not view.contiguous:
        raise DeviceError(
            "from_dlpack", f"the tensor is strided (shape {view.shape})",
            "Make it contiguous first, for example with .contiguous().",
        )  # fmt: skip
    nbytes = math.prod(view.shape) * dtype.bytes
    made = NDArray(view.shape, dtype, device, driver.borrow(view.pointer, nbytes, view))
    reason = f"it is not aligned to {ALIGNMENT} bytes" if view.pointer % ALIGNMENT else ""
    if not _needs_copy(reason, copy):
        return made
    copied = made.copyto(device)
    device.sync()  # `view` may die now
    return copied


def _from_host(tensor: Any, copy: bool | None) -> NDArray:
    value = tensor if isinstance(tensor, np.ndarray) else _host_view(tensor)
    dtype = _checked(value.dtype, "from_dlpack")
    flaws = {
        "it is strided": not value.flags.c_contiguous,
        "it is read-only": not value.flags.writeable,
        "its byte order is not this machine's": not value.dtype.isnative,
        f"it is not aligned to {ALIGNMENT} bytes": value.ctypes.data % ALIGNMENT,
    }
    if _needs_copy(next((what for what, found in flaws.items() if found), ""), copy):
        return array(value)
    if not value.size:
        return empty(value.shape, dtype)
    memory = cpu().driver.borrow(value.ctypes.data, value.nbytes, value)
    return NDArray(value.shape, dtype, cpu(), memory)


def _needs_copy(reason: str, copy: bool | None) -> bool:
    """Raises DeviceError where a copy is needed, for `reason`, and none may be made."""
    if reason and copy is False:
        raise DeviceError(
            "from_dlpack(copy=False)", f"the tensor's memory cannot be used: {reason}",
            "Leave out copy=False, or take the memory from empty(...) and share that.",
        )  # fmt: skip
    return bool(reason) or copy is True


def _host_view(tensor: Any) -> np.ndarray:
    """A tensor as a numpy array over its memory; numpy's own reader does not know bfloat16."""
    view = dlpack.import_capsule(tensor.__dlpack__())
    dtype = _checked(view.dtype, "from_dlpack")
    if 0 in view.shape:
        return np.empty(view.shape, dtype.storage)
    last = sum((n - 1) * s for n, s in zip(view.shape, view.strides, strict=True))
    raw: Any = (ctypes.c_uint8 * ((last + 1) * dtype.bytes)).from_address(view.pointer)
    raw.owner = view  # lives as long as what refers to the memory
    strides = [s * dtype.bytes for s in view.strides]
    return np.ndarray(view.shape, dtype.storage, raw, strides=strides)


def overwrite(pairs: Sequence[tuple[NDArray, np.ndarray]]) -> None:
    """Have arrays of one device hold what those of numpy do, which are alike in shape and type.

    They hold it for whatever is run there from now on; other streams wait by `sync`.
    """
    wanted = [(a.memory, _raw(value, a.dtype)) for a, value in pairs if value.size]
    if wanted:
        write_all(pairs[0][0].device.driver, wanted)


def _raw(value: np.ndarray, dtype: DType) -> np.ndarray:
    return np.ascontiguousarray(value, dtype.storage).reshape(-1).view(np.uint8)


def to_numpy(arrays: Sequence[NDArray]) -> list[np.ndarray]:
    """Copies of the contents of arrays of one device, which is waited for once."""
    copies = [np.empty(a.shape, a.dtype.storage) for a in arrays]
    wanted = [
        (a.memory, copy.reshape(-1).view(np.uint8))
        for a, copy in zip(arrays, copies, strict=True) if copy.size
    ]  # fmt: skip
    if wanted:
        read_all(arrays[0].device.driver, wanted)
    return copies


def converted(value: np.ndarray, dtype: DType, place: str) -> np.ndarray:
    """`value` in the element type `dtype`, where that is what its writer meant.

    Floats round to other floats, integers and bools become floats, and integers other integers
    that hold them.  Raises DeviceError for all else: what is cut off is asked for, by `.astype`.
    """
    if value.dtype == dtype.storage:
        return value
    given = _checked(value.dtype, place)
    if dtype.is_float or given.is_float or dtype == "bool":
        means_it = dtype.is_float
    else:
        means_it = not value.size or bool(
            dtype.least <= int(value.min()) and int(value.max()) <= dtype.greatest
        )
    if not means_it:
        raise DeviceError(
            place, f"the value is {given}{list(value.shape)}: {dtype} does not hold its numbers",
            f'Convert it with .astype("{dtype}").',
        )  # fmt: skip
    with np.errstate(over="ignore"):
        return value.astype(dtype.storage)


def _as_array(source: Any, place: str) -> np.ndarray:
    try:
        made = np.asarray(source)
        reason = "it holds no numbers" if made.dtype.hasobject or made.dtype.kind in "SU" else ""
    except ValueError as error:  # lists of several lengths
        reason = str(error)
    if reason:
        raise DeviceError(
            f"{place}({type(source).__name__})", f"it is no array ({reason})",
            "Give numbers, or lists of one length.",
        )  # fmt: skip
    return made


def _checked(dtype: str | np.dtype | type, place: str) -> DType:
    try:
        return DType(dtype)
    except ExpressionError as error:
        raise DeviceError(
            place, error.reason, f"{error.way_out} For example with .astype('float32')."
        ) from None


class NDArray:
    """A dense row-major array.  shape in elements; dtype by its numpy name; memory on `device`."""

    door_words = ("an array", "nd.array(x) makes one.")

    __slots__ = ("__weakref__", "device", "dtype", "memory", "shape")

    def __init__(
        self, shape: tuple[int, ...], dtype: DType, device: Device, memory: Memory
    ) -> None:
        if math.prod(shape) * dtype.bytes > memory.nbytes:
            raise DeviceError(
                f"NDArray({dtype}{list(shape)})",
                f"it takes {math.prod(shape) * dtype.bytes} bytes, the memory has {memory.nbytes}",
                "Give it memory of its size, or use empty(...).",
            )  # fmt: skip
        self.shape, self.dtype, self.device, self.memory = shape, dtype, device, memory

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def numpy(self) -> np.ndarray:
        """A copy of the contents.  Waits for the device."""
        return to_numpy([self])[0]

    asnumpy = numpy  # its name before TVM 0.8

    @property
    def ctx(self) -> Device:
        """The device, by its name before TVM 0.8."""
        return self.device

    def same_as(self, other: object) -> bool:
        """Whether it is this very array."""
        return self is other

    def __setitem__(self, index: Any, source: Any) -> None:
        """`a[:] = x` overwrites the contents; parts cannot be set."""
        if not (isinstance(index, slice) and index == slice(None)) and index is not Ellipsis:
            raise DeviceError(
                f"NDArray[{index!r}] = ...", "only all of an array can be set",
                "Use a[:] = x, or change a copy: x = a.numpy().",
            )  # fmt: skip
        if isinstance(source, NDArray):
            source.copyto(self)
            return
        value = _as_array(source, "NDArray[:]")
        self.copyfrom(np.broadcast_to(value, self.shape) if not value.ndim else value)

    def copyfrom(self, source: np.ndarray | NDArray) -> NDArray:
        """Overwrite the contents with `source`, of the same shape.  Returns self.

        Numbers of another element type are converted as `converted` does.  The byte order and
        strides of a numpy array do not matter.
        """
        if isinstance(source, NDArray):
            if source.dtype == self.dtype:
                source.copyto(self)
                return self
            source = source.numpy()
        value = source if isinstance(source, np.ndarray) else _as_array(source, "copyfrom")
        if value.dtype != self.dtype.storage or value.shape != self.shape:
            self._check_like(value.shape, self.dtype, "copyfrom")
            value = converted(value, self.dtype, "NDArray.copyfrom")
        if value.size:
            self.device.driver.write(self.memory, _raw(value, self.dtype))
        return self

    @door(DeviceError)
    def copyto(self, target: NDArray | Device) -> NDArray:
        """Copy the contents into `target`, or into a new array on that device; returns it."""
        if isinstance(target, Device):
            target = empty(self.shape, self.dtype, target)
        target._check_like(self.shape, self.dtype, "copyto")
        if not self.size:
            return target
        if target.device == self.device:
            self.device.driver.copy(self.memory, target.memory, self.nbytes)
            return target
        target.device.driver.write(target.memory, self.numpy().reshape(-1).view(np.uint8))
        return target

    def _check_like(self, shape: tuple[int, ...], dtype: str, what: str) -> None:
        if shape == self.shape and dtype == self.dtype:
            return
        raise DeviceError(
            f"NDArray.{what}",
            f"the source is {dtype}{list(shape)} but the target is {self.dtype}{list(self.shape)}",
            "Reshape or convert the source first.",
        )

    def _view(self) -> np.ndarray:
        """The contents as a numpy array over the same memory; CPU only."""
        from tilewright.runtime.drivers.cpu import CpuMemory

        assert isinstance(self.memory, CpuMemory)
        return self.memory.view[: self.nbytes].view(self.dtype.storage).reshape(self.shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        code = self.device.device_kind.dlpack
        if code is None:
            raise DeviceError(
                f"NDArray on {self.device}", "DLPack consumers cannot use its memory",
                "Copy it with .numpy() first.",
            )  # fmt: skip
        return code, self.device.index

    def __dlpack__(self, **options: Any) -> Any:
        """A DLPack capsule over the same memory; options as the array API standard says."""
        here = self.__dlpack_device__()
        if self.device.kind == "cpu" and self.dtype != "bfloat16":  # numpy does not export it
            options.pop("stream", None)
            return self._view().__dlpack__(**options)
        if options.get("dl_device") not in (None, here):
            raise BufferError(f"an NDArray on {self.device} is exported there only; copy it first")
        if options.get("copy"):
            return self.copyto(self.device).__dlpack__()
        self.device.sync()  # what was enqueued is finished, so any stream may read
        return dlpack.export_capsule(self.memory.pointer, self.shape, self.dtype, here, self.memory)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an NDArray without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.shape)) or "scalar"
        return f"NDArray({shape} {self.dtype} on {self.device})\n{self.numpy()!r}"
