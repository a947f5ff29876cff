"""What is known at import."""

from __future__ import annotations

import math

import numpy as np

from tilewright.relay.exchange.onnx.node import Converter, Node, shape_input
from tilewright.relay.graph.expr import Array


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


CONVERTERS: dict[str, Converter] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Shape": _shape,
}
