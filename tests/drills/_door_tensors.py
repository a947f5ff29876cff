"""Right arguments for the doors of tensor expressions: rows of `_door_arguments.py`."""

from __future__ import annotations

import functools
import operator
from typing import Any

from tilewright import te, topi


def image(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name="data")


BITS = {"activation_bits": 2, "weight_bits": 1, "out_dtype": "int32", "padding": 1}
DATA = image(2, 4)

TENSOR_EXPRESSIONS: dict[str, dict[str, Any]] = {
    "topi.nn.dense_narrow": {
        "data": lambda: image(2, 64), "weight": lambda: image(3, 2, 16, dtype="int8"),
        "scale": lambda: image(3, 1), "kind": "int4",
    },
    "topi.nn.unpack_narrow": {
        "weight": lambda: image(3, 2, 16, dtype="int8"), "scale": lambda: image(3, 1),
        "kind": "int4", "dtype": "float32",
    },
    "te.all te.any": {"conditions": lambda: [te.var("n") < 1]},
    "te.comm_reducer": {
        "fcombine": lambda: operator.add, "fidentity": lambda: functools.partial(te.const, 0),
    },
    "te.scan": {
        "init": lambda: image(1, 4), "state_placeholder": lambda: image(4, 4),
        "update": lambda: te.compute((4, 4), lambda t, i: te.const(0.0)),
    },
    "te.extern": {
        "shape": 4, "inputs": lambda: [image(4)], "dtype": "float32", "in_buffers": None,
        "out_buffers": None,
        "fcompute": lambda: (lambda ins, outs: outs[0].vstore(0, 1.0)),
    },
    "te.decl_tensor_intrin": {
        "op": lambda: te.compute((4,), lambda i: image(4)[i] + 1.0).op,
        "fcompute": lambda: (lambda ins, outs: outs[0].vstore(0, 1.0)),
    },
    "tir.call_packed": {"func_name": "f", "args": lambda: [3]},
    "register_func": {"func_name": "drill", "f": lambda: print, "override": True},
    "get_global_func": {"name": "drill", "allow_missing": True},
    "contrib.cblas.matmul": {"lhs": lambda: image(4, 4), "rhs": lambda: image(4, 4)},
    "contrib.cblas.batch_matmul": {"lhs": lambda: image(2, 4, 4), "rhs": lambda: image(2, 4, 4)},
    "contrib.random.normal": {"loc": 0.0, "scale": 1.0, "size": (2,)},
    "contrib.random.randint": {"low": 0, "high": 3, "size": (2,)},
    "contrib.random.uniform": {"low": 0.0, "high": 1.0, "size": (2,)},
    "tir.decl_buffer": {"scope": "global", "strides": None, "elem_offset": 0},
    "te.gradient": {
        "output": lambda: topi.nn.relu(DATA), "inputs": lambda: [DATA], "head": None,
    },
    "topi.argwhere": {"output_shape": lambda: image(5, 2), "condition": lambda: DATA},
    "topi.nn.binarize_pack": {"data": lambda: image(2, 64)},
    "topi.nn.binary_dense": dict.fromkeys(("data", "weight"), lambda: image(2, 4, dtype="uint32")),
    "topi.nn.bitserial_conv2d_nchw": {
        "data": lambda: image(1, 2, 4, 4, dtype="uint8"),
        "kernel": lambda: image(3, 2, 3, 3, dtype="uint8"), **BITS,
    },
    "topi.nn.bitserial_conv2d_nhwc": {
        "data": lambda: image(1, 4, 4, 2, dtype="uint8"),
        "kernel": lambda: image(3, 3, 2, 3, dtype="uint8"), **BITS,
    },
    "topi.nn.bitserial_dense": {
        **dict.fromkeys(("data", "weight"), lambda: image(2, 4, dtype="uint8")),
        "data_bits": 2, "weight_bits": 1,
    },
    "topi.unique": {"data": lambda: image(4)},
    "topi.nn.deformable_conv2d_nhwc": {
        "data": lambda: image(1, 4, 4, 2), "offset": lambda: image(1, 2, 2, 18),
        "kernel": lambda: image(3, 3, 2, 3), "padding": 0, "dilation": 1,
        "deformable_groups": 1, "groups": 1,
    },
    "topi.nn.group_conv1d_nwc": {
        "data": lambda: image(1, 8, 4), "kernel": lambda: image(3, 2, 4), "groups": 2,
    },
    "topi.nn.rms_norm": {"bias": None},
    "topi.nn.scale_shift_nchwc": {
        "data": lambda: image(1, 2, 3, 3, 4),
        **dict.fromkeys(("scale", "shift"), lambda: image(2, 4)),
    },
    "te.compute": {"fcompute": lambda: (lambda i, j: i + j)},
    "te.if_then_else te.select": {"condition": lambda: te.var("n") < 1},
    "te.max te.min te.prod te.sum": {"axis": lambda: te.reduce_axis(4)},
    "te.tag_scope": {"tag": "conv"},
    "te.reduce_axis": {"dom": (0, 4)},
    "te.thread_axis": {"tag": "threadIdx.x"},
}  # fmt: skip
