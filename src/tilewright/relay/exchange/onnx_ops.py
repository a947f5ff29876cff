"""What each ONNX operator becomes.

In: one node with its inputs and attributes.  Out: graph values, or arrays that are known at once.
Read next: `relay/exchange/onnx_export.py`, the way back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.relay import nn, tensor
from tilewright.relay.exchange.onnx_checks import element_type
from tilewright.relay.graph.expr import Array, Expr, const
from tilewright.relay.op import ROWS, call


@dataclass
class Node:
    """One node as a converter sees it.

    names: of its inputs, None where one is left out
    expr_of: the graph value of a name, for a reader; static_of: its array, if known at import
    room: asks for bytes of a constant that is about to be made
    used: attributes that were read
    """

    op: str
    place: str
    opset: int
    attrs: dict[str, Any]
    names: list[str | None]
    expr_of: Callable[[str, str], Expr]
    static_of: Callable[[str], Array | None]
    outputs: list[str]
    room: Callable[[int], None]
    used: set[str] = field(default_factory=set)

    def has(self, index: int) -> bool:
        return index < len(self.names) and self.names[index] is not None

    def __getitem__(self, index: int) -> Expr:
        """Input `index` as a graph value."""
        if not self.has(index):
            raise self.refuse(f"input {index} is missing", "The model is damaged; export it again.")
        return self.expr_of(str(self.names[index]), self.place.removeprefix("from_onnx: "))

    def all(self) -> list[Expr]:
        return [self[k] for k in range(len(self.names))]

    def static(self, index: int, what: str) -> Array | None:
        """Input `index` as an array; None if it is left out."""
        if not self.has(index):
            return None
        found = self.static_of(str(self.names[index]))
        if found is None:
            raise self.refuse(
                f"{what} is computed by the network", f"{what} must be a constant of the model."
            )
        return found

    def attr(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        value = self.attrs.get(name, default)
        if isinstance(value, float):
            return float(str(np.float32(value)))  # ONNX stores 1e-5 as the nearest float32
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """The attribute `name`, 0 or 1."""
        value = self.attr(name, int(default))
        self.require(value in (0, 1), f"{name}={value} is neither 0 nor 1", "Use 0 or 1.")
        return bool(value)

    def ints(self, name: str, index: int | None = None) -> list[int] | None:
        """Integers from the attribute `name`, in newer versions from input `index`."""
        given = self.attr(name)
        if given is None and index is not None and (array := self.static(index, name)) is not None:
            given = array.reshape(-1)
        return None if given is None else [int(v) for v in given]

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front."""
        self.require(
            -rank <= axis < rank, f"axis {axis} is out of range", f"Use {-rank} to {rank - 1}."
        )
        return axis % rank

    def refuse(self, reason: str, way_out: str = "") -> ModelError:
        return ModelError(self.place, reason, way_out)

    def require(self, holds: bool, reason: str, way_out: str = "") -> None:
        if not holds:
            raise self.refuse(reason, way_out)


Converter = Callable[[Node], Any]


def _window(n: Node, kernel: Sequence[int], data: Expr) -> dict[str, Any]:
    """strides, padding and dilation of a two-dimensional window."""
    strides = n.ints("strides") or [1, 1]
    dilation = n.ints("dilations") or [1, 1]
    pads = n.ints("pads") or [0, 0, 0, 0]
    auto = n.attr("auto_pad", "NOTSET")
    n.require(
        len(data.shape) == 4 and len(kernel) == 2,
        f"its data has shape {data.shape}", "Only two-dimensional images are supported.",
    )  # fmt: skip
    n.require(
        len(strides) == 2 and len(dilation) == 2 and len(pads) == 4,
        f"strides {strides}, dilations {dilation} and pads {pads} are not those of an image",
        "Two, two and four numbers are needed.",
    )
    n.require(
        auto in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"),
        f"auto_pad={auto} is not known",
        "Use NOTSET, VALID, SAME_UPPER or SAME_LOWER.",
    )
    if auto != "NOTSET":
        pads = [0, 0, 0, 0]
    if auto.startswith("SAME"):
        n.require(min(strides) >= 1, f"strides {strides} start at 1", "Use 1 or more.")
        for k in range(2):
            extent, reach = data.shape[2 + k], (kernel[k] - 1) * dilation[k] + 1
            total = max((-(-extent // strides[k]) - 1) * strides[k] + reach - extent, 0)
            small, large = total // 2, total - total // 2
            pads[k], pads[k + 2] = (small, large) if auto == "SAME_UPPER" else (large, small)
    return {"strides": tuple(strides), "padding": tuple(pads), "dilation": tuple(dilation)}


def _conv(n: Node) -> Expr:
    data, weight = n[0], n[1]
    kernel = n.ints("kernel_shape") or list(weight.shape[2:])
    n.require(
        tuple(kernel) == weight.shape[2:],
        f"kernel_shape {kernel} is not that of the weight, {weight.shape[2:]}", "Leave it out.",
    )  # fmt: skip
    made: Expr = nn.conv2d(data, weight, groups=n.attr("group", 1), **_window(n, kernel, data))
    return nn.bias_add(made, n[2]) if n.has(2) else made


def _batch_norm(n: Node) -> Expr:
    n.require(
        not n.flag("training_mode"), "it is in training mode", "Export the model for inference."
    )
    n.require(n.flag("spatial", True), "spatial=0 is not supported", "Export it with spatial=1.")
    n.require(
        len(n.outputs) == 1 or n.opset < 14, "its statistics are read", "Export for inference."
    )
    return nn.batch_norm(n[0], n[1], n[2], n[3], n[4], epsilon=n.attr("epsilon", 1e-5))[0]


def _max_pool(n: Node) -> Expr:
    n.require(
        len(n.outputs) == 1, "its second result, the indices, is read", "Leave the indices out."
    )
    n.require(
        not n.flag("storage_order"), "storage_order=1 is not supported", "Use storage_order=0."
    )
    kernel = n.ints("kernel_shape") or []
    ceil = n.flag("ceil_mode")
    return nn.max_pool2d(n[0], tuple(kernel), ceil_mode=ceil, **_window(n, kernel, n[0]))


def _average_pool(n: Node) -> Expr:
    kernel = n.ints("kernel_shape") or []
    ceil, include = n.flag("ceil_mode"), n.flag("count_include_pad")
    return nn.avg_pool2d(
        n[0], tuple(kernel), ceil_mode=ceil, count_include_pad=include, **_window(n, kernel, n[0])
    )  # fmt: skip


def _gemm(n: Node) -> Expr:
    a, b = n[0], n[1]
    left = tensor.transpose(a) if n.flag("transA") else a
    right = b if n.flag("transB") else tensor.transpose(b)
    alpha, beta = float(n.attr("alpha", 1.0)), float(n.attr("beta", 1.0))
    made: Expr = nn.dense(left, right)
    made = made if alpha == 1 else made * alpha
    if not n.has(2) or beta == 0:
        return made
    total = tensor.add(made, n[2] if beta == 1 else n[2] * beta)
    n.require(total.shape == made.shape, f"C has shape {n[2].shape}", f"{made.shape} takes it in.")
    return total


def _matmul(n: Node) -> Expr:
    a, b = n[0], n[1]
    n.require(
        len(a.shape) >= 2 and len(b.shape) >= 2, f"it multiplies {a.shape} by {b.shape}",
        "Both sides must be matrices, or batches of them.",
    )  # fmt: skip
    if len(b.shape) > 2:
        return _batched_matmul(n, a, b)
    rows = a if len(a.shape) == 2 else tensor.reshape(a, (-1, a.shape[-1]))
    made = nn.dense(rows, tensor.transpose(b))
    return made if len(a.shape) == 2 else tensor.reshape(made, (*a.shape[:-1], b.shape[1]))


def _batched_matmul(n: Node, a: Expr, b: Expr) -> Expr:
    batch_a, batch_b = a.shape[:-2], b.shape[:-2]
    n.require(
        batch_a == batch_b or 1 in (math.prod(batch_a), math.prod(batch_b)),
        f"it multiplies batches of {batch_a} by batches of {batch_b}",
        "They must be equal, or one side a single matrix.",
    )  # fmt: skip
    left, right = (tensor.reshape(x, (-1, *x.shape[-2:])) for x in (a, b))
    made = nn.batch_matmul(left, right, transpose_b=False)
    return tensor.reshape(made, (*np.broadcast_shapes(batch_a, batch_b), *made.shape[1:]))


def _flatten(n: Node) -> Expr:
    data, axis = n[0], n.attr("axis", 1)
    at = axis if axis == len(data.shape) else n.axis(axis, len(data.shape))
    if at == 1:
        return nn.batch_flatten(data)
    return tensor.reshape(data, (math.prod(data.shape[:at]), math.prod(data.shape[at:])))


def _reshape(n: Node) -> Expr:
    shape = n.ints("shape", 1)
    n.require(shape is not None, "no shape is given", "Give it as a constant of the model.")
    n.require(
        not n.flag("allowzero") or 0 not in (shape or ()),
        "the shape has no elements",
        "Use extents of at least 1.",
    )
    return tensor.reshape(n[0], tuple(shape or ()))


def _softmax(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        data = n[0]
        axis = n.attr("axis", -1 if n.opset >= 13 else 1)
        at = n.axis(axis, len(data.shape))
        if n.opset >= 13 or at == len(data.shape) - 1:
            return function(data, axis)
        # older versions normalise over everything from `axis` on
        rows = tensor.reshape(data, (math.prod(data.shape[:at]), math.prod(data.shape[at:])))
        return tensor.reshape(function(rows, -1), data.shape)

    return convert


def _number(n: Node, name: str, index: int, default: float) -> float:
    given = n.attr(name)
    if given is None and (array := n.static(index, name)) is not None:
        n.require(array.size == 1, f"{name} has {array.size} elements", "One number is needed.")
        given = array.item()
    return default if given is None else float(given)


def _clip(n: Node) -> Expr:
    return tensor.clip(n[0], _number(n, "min", 1, -math.inf), _number(n, "max", 2, math.inf))


def _dropout(n: Node) -> Expr:
    n.require(len(n.outputs) == 1, "its mask is read", "Export the model for inference.")
    training = n.static(2, "training_mode")
    n.require(
        training is None or not training.any(), "it is in training mode", "Export for inference."
    )
    return nn.dropout(n[0], _number(n, "ratio", 1, 0.5))


def _pad(n: Node) -> Expr:
    data, mode = n[0], n.attr("mode", "constant")
    n.require(mode == "constant", f"mode={mode} is not supported", "Only constant padding is.")
    pads = n.ints("pads", 1) or []
    rank = len(data.shape)
    axes = [n.axis(a, rank) for a in n.ints("axes", 3) or range(rank)]
    n.require(len(set(axes)) == len(axes), "an axis is named twice", "Name each axis once.")
    n.require(
        len(pads) == 2 * len(axes),
        f"pads {pads} does not fit the shape {data.shape}",
        "Give one count before and one after each axis.",
    )
    width = [(0, 0)] * len(data.shape)
    for k, axis in enumerate(axes):
        width[axis] = (pads[k], pads[k + len(axes)])
    return nn.pad(data, width, _number(n, "value", 2, 0.0))


def _squeeze(n: Node) -> Expr:
    return tensor.squeeze(n[0], n.ints("axes", 1))


def _unsqueeze(n: Node) -> Expr:
    data, axes = n[0], n.ints("axes", 1) or []
    rank = len(data.shape) + len(axes)
    places = sorted(n.axis(a, rank) for a in axes)
    n.require(len(set(places)) == len(places), "an axis is named twice", "Name each axis once.")
    for axis in places:
        data = tensor.expand_dims(data, axis)
    return data


def _reduce(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        axes, keepdims = n.ints("axes", 1), n.flag("keepdims", True)
        if not axes and n.flag("noop_with_empty_axes"):
            return n[0]
        return function(n[0], axis=axes or None, keepdims=keepdims)

    return convert


def _fold(function: Callable[..., Expr]) -> Converter:
    """An operator of any number of tensors, as a chain of the binary one."""

    def convert(n: Node) -> Expr:
        parts = n.all()
        n.require(bool(parts), "it has no inputs", "Give it at least one.")
        result = parts[0]
        for part in parts[1:]:
            result = function(result, part)
        return result

    return convert


def _binary(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        old = n.flag("broadcast") and n.attr("axis") is not None
        n.require(
            not old,
            "it broadcasts by axis, as before opset 7",
            "Convert the model to a newer opset.",
        )
        return function(n[0], n[1])

    return convert


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
    shape, value = _shape_input(n, 0), n.attr("value", np.zeros(1, "float32"))
    n.require(value.size == 1, f"its value has {value.size} elements", "One is needed.")
    n.room(math.prod(shape) * value.itemsize)
    return np.full(shape, value.reshape(()), value.dtype)


def _shape_input(n: Node, index: int) -> tuple[int, ...]:
    """Extents from a constant input."""
    array = n.static(index, "its shape")
    if array is None:
        raise n.refuse("no shape is given", "Give it as a constant of the model.")
    shape = tuple(int(extent) for extent in array.reshape(-1))
    n.require(min(shape, default=0) >= 0, f"its shape is {shape}", "Use extents of at least 0.")
    return shape


def _cast(n: Node) -> Expr:
    n.attr("saturate")
    to = n.attr("to")
    n.require(n.opset >= 6, "its type is text, as before opset 6", "Convert to a newer opset.")
    return tensor.cast(n[0], element_type(to))


def _shape(n: Node) -> Array:
    shape = n[0].shape
    end = n.attr("end")
    return np.asarray(shape[n.attr("start", 0) : len(shape) if end is None else end], "int64")


def _expand(n: Node) -> Expr:
    data, shape = n[0].shape, _shape_input(n, 1)
    rank = max(len(data), len(shape))
    given = zip((1,) * (rank - len(data)) + data, (1,) * (rank - len(shape)) + shape, strict=True)
    return tensor.broadcast_to(n[0], tuple(a if b == 1 else b for a, b in given))


def _unary(row_name: str) -> Converter:
    return lambda n: call(row_name, n[0])


CONVERTERS: dict[str, Converter] = {
    **{r.onnx[0]: _unary(r.name) for r in ROWS if r.onnx and not r.attrs and len(r.inputs) == 1},
    "Add": _binary(tensor.add),
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_norm,
    "Cast": _cast,
    "Clip": _clip,
    "Concat": lambda n: tensor.concatenate(n.all(), n.attr("axis", 1)),
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "Div": _binary(tensor.divide),
    "Dropout": _dropout,
    "Equal": _binary(tensor.equal),
    "Expand": _expand,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "GlobalAveragePool": lambda n: nn.global_avg_pool2d(n[0]),
    "GlobalMaxPool": lambda n: nn.global_max_pool2d(n[0]),
    "Greater": _binary(tensor.greater),
    "LeakyRelu": lambda n: nn.leaky_relu(n[0], n.attr("alpha", 0.01)),
    "Less": _binary(tensor.less),
    "LogSoftmax": _softmax(nn.log_softmax),
    "MatMul": _matmul,
    "Max": _fold(tensor.maximum),
    "MaxPool": _max_pool,
    "Mean": lambda n: _fold(tensor.add)(n) * (1.0 / len(n.names)),
    "Min": _fold(tensor.minimum),
    "Mul": _binary(tensor.multiply),
    "Pad": _pad,
    "Pow": lambda n: tensor.power(n[0], tensor.cast(n[1], n[0].dtype)),
    "Reciprocal": lambda n: tensor.divide(const(1, n[0].dtype), n[0]),
    "ReduceMax": _reduce(tensor.max),
    "ReduceMean": _reduce(tensor.mean),
    "ReduceMin": _reduce(tensor.min),
    "ReduceProd": _reduce(tensor.prod),
    "ReduceSum": _reduce(tensor.sum),
    "Reshape": _reshape,
    "Shape": _shape,
    "Softmax": _softmax(nn.softmax),
    "Squeeze": _squeeze,
    "Sub": _binary(tensor.subtract),
    "Sum": _fold(tensor.add),
    "Transpose": lambda n: tensor.transpose(n[0], n.attr("perm")),
    "Unsqueeze": _unsqueeze,
    "Where": lambda n: tensor.where(n[0], n[1], n[2]),
}
