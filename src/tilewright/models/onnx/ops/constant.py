"""What is known at import."""

from __future__ import annotations

import math

import numpy as np

from tilewright.base.dtype import TYPES, DType
from tilewright.graph.expr import Array
from tilewright.models.onnx.checks import element_type
from tilewright.models.onnx.node import Converter, Node, shape_input


def _constant(n: Node) -> Array:
    if (value := n.attr("value")) is not None:
        return np.asarray(value)
    types = {
        "value_float": "float32",
        "value_floats": "float32",
        "value_int": "int64",
        "value_ints": "int64",
    }
    for name, dtype in types.items():
        if (value := n.attr(name)) is not None:
            return np.asarray(value, dtype)
    raise n.refuse("it holds no number", "Text and sparse constants are not supported.")


def _constant_of_shape(n: Node) -> Array:
    shape, value = shape_input(n, 0), n.attr("value", np.zeros(1, "float32"))
    n.require(value.size == 1, f"its value has {value.size} elements", "One is needed.")
    n.room(math.prod(shape) * value.itemsize)
    return np.full(shape, value.reshape(()), value.dtype)


def _shape(n: Node) -> Array:
    shape = n[0].shape
    end = n.attr("end")
    return np.asarray(shape[n.attr("start", 0) : len(shape) if end is None else end], "int64")


def _element_type(n: Node, name: str, default: str) -> str:
    """The name of the type whose number in ONNX the attribute holds."""
    value = n.attr(name)
    if value is None:
        return default
    dtype = element_type(value)
    n.require(dtype in TYPES, f"its element type is {dtype}", f"Supported: {', '.join(TYPES)}.")
    return dtype


def _eye_like(n: Node) -> Array:
    data, k = n[0], n.attr("k", 0)
    n.require(len(data.shape) == 2, f"its shape is {data.shape}", "A matrix is needed.")
    dtype = DType(_element_type(n, "dtype", str(data.dtype)))
    n.room(math.prod(data.shape) * dtype.bytes)
    return np.asarray(np.eye(data.shape[0], data.shape[1], k), dtype.storage)


def _range(n: Node) -> Array:
    numbers = [n.static(k, what) for k, what in enumerate(("its start", "its limit", "its delta"))]
    n.require(
        all(v is not None and v.size == 1 for v in numbers), "it is not given by three numbers",
        "Give start, limit and delta.",
    )  # fmt: skip
    start, limit, delta = (np.asarray(v).reshape(())[()] for v in numbers)
    n.require(delta != 0, "its delta is 0", "Use a step that leads from start to limit.")
    steps = (float(limit) - float(start)) / float(delta)
    n.require(math.isfinite(steps), f"it has {steps} steps", "Give finite numbers.")
    count = max(math.ceil(steps), 0)
    n.room(count * start.dtype.itemsize)
    return np.asarray(start + np.arange(count).astype(start.dtype) * delta, start.dtype)


def _size(n: Node) -> Array:
    return np.asarray(math.prod(n[0].shape), "int64")


def _window(*weights: float) -> Converter:
    """A sum of cosines: weights[0] - weights[1] cos x + weights[2] cos 2x."""

    def convert(n: Node) -> Array:
        count, periodic = n.whole(0, "its size") or 0, n.flag("periodic", True)
        n.require(count >= 1, f"its size is {count}", "Use at least 1.")
        n.room(8 * count)
        turn = 2 * np.pi * np.arange(count) / max(count if periodic else count - 1, 1)
        value = sum((-1) ** k * w * np.cos(k * turn) for k, w in enumerate(weights))
        kind = DType(_element_type(n, "output_datatype", "float32"))
        return np.asarray(value).astype(kind.storage)

    return convert


CONVERTERS: dict[str, Converter] = {
    "BlackmanWindow": _window(0.42, 0.5, 0.08),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "EyeLike": _eye_like,
    "HammingWindow": _window(25 / 46, 21 / 46),
    "HannWindow": _window(0.5, 0.5),
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
}
