"""Arrays by name as bytes, in the format that TVM's `save_param_dict` has.

In: arrays by name.  Out: bytes, and arrays again; files of TVM can be read and those written here
are read by it.  Bytes may come from anyone: nothing larger than they are is made of them.
Read next: `graph_executor.py` (`load_params`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.base import output
from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError, ExpressionError
from tilewright.runtime import dlpack
from tilewright.runtime.network.plan import Array

_LIST_MAGIC, _ARRAY_MAGIC = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F
_CPU = (1, 0)  # the device that arrays are written for
_ONE_BIT = (1, 1)  # TVM's code of a bool; DLPack has one of its own by now
_MOST_AXES = 32
_PARAMS = output.FileKind("a file of parameters", output.beginning(struct.pack("<Q", _LIST_MAGIC)))
_WAY_OUT = "Give what runtime.save_param_dict, or that of TVM, has written."


@door(DeviceError)
def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """`params`, numpy arrays or NDArrays by name, as bytes."""
    arrays = {name: _array(name, value) for name, value in params.items()}
    parts = [struct.pack("<QQQ", _LIST_MAGIC, 0, len(arrays))]
    for name in arrays:
        text = name.encode()
        parts.append(struct.pack("<Q", len(text)) + text)
    parts.append(struct.pack("<Q", len(arrays)))
    for value in arrays.values():
        parts.append(bytes_of_array(value))
    return b"".join(parts)


def bytes_of_array(value: Array) -> bytes:
    """One array, in TVM's form."""
    dtype = DType(value.dtype)
    code, bits = _ONE_BIT if dtype == "bool" else dlpack.CODES[dtype]
    parts = [
        struct.pack("<QQiii", _ARRAY_MAGIC, 0, *_CPU, value.ndim),
        struct.pack("<BBH", code, bits, 1),
        struct.pack(f"<{value.ndim}qq", *value.shape, value.nbytes),
        value.astype(value.dtype.newbyteorder("<"), copy=False).tobytes(),
    ]
    return b"".join(parts)


def array_of_bytes(data: bytes) -> Array:
    """Make an array of what `bytes_of_array` gave.  Raises DeviceError for anything else."""
    return _Reader(data).array()


@door(DeviceError)
def load_param_dict(param_bytes: bytes | bytearray) -> dict[str, Array]:
    """Read what `save_param_dict` gave.  Raises DeviceError for anything else."""
    read = _Reader(bytes(param_bytes))
    if read.numbers("<QQ")[0] != _LIST_MAGIC:
        raise read.damaged("it does not begin as a list of arrays does")
    names = [read.text() for _ in range(read.count(8))]
    if read.count(24) != len(names):
        raise read.damaged("it has not as many arrays as names")
    return {name: read.array() for name in names}


@door(DeviceError)
def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `save_param_dict(params)` to a file.

    Raises DeviceError where it cannot be written, or a file of another kind is there.
    """
    place = f"save_param_dict_to_file({os.fspath(path)!r})"
    output.write(path, save_param_dict(params), _PARAMS, place, DeviceError)


@door(DeviceError)
def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, Array]:
    """`load_param_dict` of what a file holds."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _unusable("load_param_dict_from_file", path, error) from None
    return load_param_dict(data)


class _Reader:
    """Bytes from the front; every number is checked against what is left."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def damaged(self, reason: str) -> DeviceError:
        return DeviceError("load_param_dict", f"{reason} (at byte {self.at})", _WAY_OUT)

    def take(self, nbytes: int) -> bytes:
        if not 0 <= nbytes <= len(self.data) - self.at:
            raise self.damaged(f"it ends {nbytes - len(self.data) + self.at} bytes too early")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def numbers(self, form: str) -> tuple[int, ...]:
        return struct.unpack(form, self.take(struct.calcsize(form)))

    def count(self, least: int) -> int:
        """How many items of at least so many bytes follow."""
        (number,) = self.numbers("<Q")
        if number * least > len(self.data) - self.at:
            raise self.damaged(f"it says that {number} items follow")
        return number

    def text(self) -> str:
        try:
            return self.take(self.count(1)).decode()
        except UnicodeDecodeError:
            raise self.damaged("a name is no UTF-8") from None

    def array(self) -> Array:
        magic, _, _, _, rank = self.numbers("<QQiii")
        if magic != _ARRAY_MAGIC or not 0 <= rank <= _MOST_AXES:
            raise self.damaged("there is no array")
        code, bits, lanes = self.numbers("<BBH")
        name = dlpack.NAMES.get((code, bits)) or ("bool" if (code, bits) == _ONE_BIT else None)
        if name is None or lanes != 1:
            raise self.damaged(f"an element type of kind {code} with {bits} bits is not known")
        dtype = DType(name)
        *shape, nbytes = self.numbers(f"<{rank}qq")
        raw = np.frombuffer(self.take(nbytes), np.uint8)
        size = dtype.bytes
        for extent in shape:
            size = size * extent if extent >= 0 else -1
        if size != nbytes:
            raise self.damaged(f"an array of {dtype}{shape} has {nbytes} bytes")
        little = np.dtype(dtype.storage).newbyteorder("<")
        return raw.view(little).astype(dtype.storage).reshape(shape)


def _array(name: object, value: Any) -> Array:
    if not isinstance(name, str):
        raise DeviceError(f"save_param_dict({name!r})", "a name is no string", "Give names.")
    made = np.ascontiguousarray(value.numpy() if hasattr(value, "numpy") else value)
    try:
        DType(made.dtype)
    except ExpressionError as error:
        raise DeviceError(f"save_param_dict({name!r})", error.reason, error.way_out) from None
    return made.reshape(np.shape(value.numpy() if hasattr(value, "numpy") else value))


def _unusable(place: str, path: object, error: OSError) -> DeviceError:
    return DeviceError(
        f"{place}({os.fspath(path)!r})" if isinstance(path, (str, os.PathLike)) else place,
        f"the file cannot be used ({error.strerror})", "Name another file.",
    )  # fmt: skip
