"""DLPack capsules by ctypes, for what numpy does not exchange: other devices, bfloat16.

In: an address, shape and dtype, or a capsule made by somebody else.  Out: a capsule, or a `View`.
The layout is DLPack's unversioned `DLManagedTensor`.  Read next: `ndarray.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from math import prod
from typing import Any

from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import DeviceError

HOST_CODES = (1, 3)  # CPU, and CUDA's page-locked host memory

_KINDS = {"int": 0, "uint": 1, "float": 2, "bool": 6}
_BFLOAT = 4
CODES = {t: (_BFLOAT if t == "bfloat16" else _KINDS[t.kind], t.bits) for t in map(DType, TYPES)}
NAMES = {code: name for name, code in CODES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]

_Destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def _api(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    return ctypes.PYFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new = _api("PyCapsule_New", ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)
_is_valid_raw = _api("PyCapsule_IsValid", ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)
_pointer = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
_pointer_raw = _api("PyCapsule_GetPointer", ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)
_rename = _api("PyCapsule_SetName", ctypes.c_int, ctypes.py_object, ctypes.c_char_p)

_FRESH, _USED = b"dltensor", b"used_dltensor"  # kept here: a capsule stores only the pointer
_exported: dict[int, tuple[Any, ...]] = {}  # address of a managed tensor -> what it refers to


def _delete(managed: Any) -> None:
    _exported.pop(ctypes.addressof(managed.contents), None)


def _destroy(capsule: int) -> None:
    """Runs when a capsule dies; one that was never consumed still owns its tensor."""
    if _is_valid_raw(capsule, _FRESH):
        _exported.pop(_pointer_raw(capsule, _FRESH), None)


_deleter, _destructor = _Deleter(_delete), _Destructor(_destroy)


def export_capsule(
    pointer: int, shape: tuple[int, ...], dtype: str, device: tuple[int, int], owner: object
) -> Any:
    """A capsule over row-major memory at `pointer`; `owner` lives until the consumer is done."""
    code, bits = CODES[DType(dtype)]
    dims = (ctypes.c_int64 * len(shape))(*shape)
    tensor = _Tensor(pointer, *device, len(shape), code, bits, 1, dims, None, 0)
    managed = _Managed(tensor, None, _deleter)
    address = ctypes.addressof(managed)
    _exported[address] = (managed, dims, owner)
    return _new(address, _FRESH, ctypes.cast(_destructor, ctypes.c_void_p))


class View:
    """A consumed DLPack tensor; it gives the memory back when it dies.  strides: in elements"""

    def __init__(self, managed: Any) -> None:
        self._managed = managed
        tensor = managed.contents.tensor
        self.device = int(tensor.device_type), int(tensor.device_id)
        self.pointer = int(tensor.data or 0) + int(tensor.byte_offset)
        self.shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
        key = (tensor.code, tensor.bits)
        known = tensor.lanes == 1 and key in NAMES
        self.dtype = NAMES[key] if known else f"code {key[0]}, {key[1]} bits, {tensor.lanes} lanes"
        dense = [prod(self.shape[i + 1 :]) for i in range(tensor.ndim)]
        self.strides = [tensor.strides[i] for i in range(tensor.ndim)] if tensor.strides else dense
        self.contiguous = all(
            n == 1 or s == d for n, s, d in zip(self.shape, self.strides, dense, strict=True)
        )

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def import_capsule(capsule: Any) -> View:
    """Take over the tensor of a capsule, which cannot be used again."""
    if not _is_valid(capsule, _FRESH):
        raise DeviceError(
            "from_dlpack", "the capsule was used already or is not a DLPack tensor",
            "Pass the tensor itself, not a capsule.",
        )  # fmt: skip
    managed = ctypes.cast(_pointer(capsule, _FRESH), ctypes.POINTER(_Managed))
    _rename(capsule, _USED)
    view = View(managed)
    if not view.pointer and 0 not in view.shape:  # as of PyTorch's fake tensors
        raise DeviceError("from_dlpack", "the tensor has no memory", "Pass one that has values.")
    return view
