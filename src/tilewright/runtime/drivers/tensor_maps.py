"""Tensor maps of CUDA kernels: parameters that say how a copy engine sees an argument.

In: what is to be encoded (`TensorMap`), the addresses that a launch has for its arguments.  Out:
memory that launches read these parameters from, encoded again when an address changes.
Read next: `cuda.py`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.artifact import TENSOR_MAP_BYTES, TensorMap
from tilewright.base.errors import DeviceError

_KEPT = 16  # encodings of one parameter, each for another address
_TYPES = {
    "float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT32", "float64": "FLOAT64",
    "int32": "INT32", "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64",
    "int16": "UINT16", "uint16": "UINT16", "int8": "UINT8", "uint8": "UINT8", "bool": "UINT8",
}  # fmt: skip
_ROUNDED = "TFLOAT32"  # of float32: to nearest, as the instruction for a register does
_SWIZZLES = {0: "NONE", 32: "32B", 64: "64B", 128: "128B"}


class TensorMaps:
    """The tensor maps of one launch.

    ask: (what for, result of a call of the driver) -> its value; raises DeviceError
    """

    def __init__(self, cu: Any, views: Sequence[TensorMap], ask: Callable[[str, Any], Any]) -> None:
        self._cu, self._ask = cu, ask
        self._views = [(view, _Place(), dict[int, bytes]()) for view in views]

    @property
    def pointers(self) -> list[int]:
        """Where each parameter lies, as long as this object lives."""
        return [place.address for _, place, _ in self._views]

    def put(self, argument: int, pointer: int) -> None:
        """The argument at this position has another address from the next launch on."""
        for view, place, known in self._views:
            if view.argument != argument:
                continue
            if pointer not in known:
                if len(known) == _KEPT:
                    known.pop(next(iter(known)))
                known[pointer] = self._encoded(view, pointer)
            ctypes.memmove(place.address, known[pointer], TENSOR_MAP_BYTES)

    def _encoded(self, view: TensorMap, pointer: int) -> bytes:
        cu = self._cu
        what = f"tensor map of argument {view.argument}"
        if view.dtype not in _TYPES:
            raise DeviceError(
                what, f"copy engines know no {view.dtype}", "Copy it without bulk_copy."
            )
        word = _ROUNDED if view.rounded else _TYPES[view.dtype]
        kind = getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{word}")
        swizzle = getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[view.swizzle]}")
        strides = [n * view.dtype.bytes for n in view.strides[:-1]]
        made = self._ask(
            what,
            cu.cuTensorMapEncodeTiled(
                kind, len(view.shape), pointer,
                [cu.cuuint64_t(n) for n in reversed(view.shape)],
                [cu.cuuint64_t(n) for n in reversed(strides)],
                [cu.cuuint32_t(n) for n in reversed(view.box)],
                [cu.cuuint32_t(n) for n in reversed(view.steps)],
                cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            ),
        )  # fmt: skip
        return ctypes.string_at(made.getPtr(), TENSOR_MAP_BYTES)


class _Place:
    """Memory for one parameter, aligned as that is."""

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(TENSOR_MAP_BYTES + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
