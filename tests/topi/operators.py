"""Every operator of `topi` at one small shape: how to build it, what numpy says, which types it
takes.  In: a row's name and an element type.  Out: a tensor and its numpy value.
Read next: `test_element_types.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.dtype import TYPES, DType
from tilewright.te import ComputeDAG, Tensor
from tilewright.topi import ranking
from tilewright_tvm import topi
from tilewright_tvm.topi import testing

FLOATS = tuple(t for t in TYPES if DType(t).is_float)
INTS = tuple(t for t in TYPES if DType(t).is_int)
NUMBERS = (*INTS, *FLOATS)
nn = topi.nn


@dataclass(frozen=True)
class Row:
    """build: tensors of `shapes` to the result; numpy: the same on arrays.

    types: those that the operator takes; first: the type of the first operand where it is another
    """

    shapes: tuple[tuple[int, ...], ...]
    build: Callable[..., Tensor]
    numpy: Callable[..., Any]
    types: tuple[str, ...] = NUMBERS
    first: str = ""

    def dag(self, dtype: str) -> ComputeDAG:
        inputs = [
            te.placeholder(s, (not n and self.first) or dtype, name=f"p{n}")
            for n, s in enumerate(self.shapes)
        ]
        return ComputeDAG([*inputs, self.build(*inputs)])

    def expected(self, dag: ComputeDAG, arrays: list[Any]) -> Any:
        """Floats are computed in float64 and rounded once; integers in their own type."""
        wide = [a.astype(np.float64) if DType(a.dtype).is_float else a for a in arrays]
        with np.errstate(all="ignore"):
            value = np.asarray(self.numpy(*wide))
            return value.astype(dag.outputs[0].dtype.storage)


def _sums(*tensors: Tensor) -> str | None:
    """The out_dtype of a sum of products: int32 cannot hold two products of int16."""
    return "int64" if tensors[0].dtype in ("int16", "uint16") else None


def _wide(a: Any) -> Any:
    """Numbers whose products and sums numpy neither rounds nor wraps."""
    return a if a.dtype.kind == "f" else a.astype(np.int64)


def _on_wide(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arrays: function(*map(_wide, arrays))


def _depthwise1d(x: Any, w: Any) -> Any:
    kernel = w.transpose(1, 2, 0).reshape(8, 1, 3)
    return testing.conv_python(x.transpose(0, 2, 1), kernel, 1, 1, 4).transpose(0, 2, 1)


def _towards_zero(a: Any, b: Any) -> Any:
    return (a - np.fmod(a, b)) // b


def _gradients(x: Any, w: Any, g: Any) -> tuple[Any, Any]:
    """Of a depthwise convolution of x [N, H, W, C] with w [KH, KW, C, M], by its result's `g`."""
    to_x, to_w = np.zeros(x.shape), np.zeros(w.shape)
    rows, columns = g.shape[1:3]
    parts = g.reshape(*g.shape[:3], *w.shape[2:])
    for i, j in np.ndindex(*w.shape[:2]):
        to_x[:, i : i + rows, j : j + columns] += (parts * w[i, j]).sum(-1)
        read = x[:, i : i + rows, j : j + columns, :, None]
        to_w[i, j] = (read * parts).sum((0, 1, 2))
    return to_x, to_w


V, M = ((3, 5),), ((3, 5), (3, 5))
NEAREST = [
    topi.Resizing(n, Fraction(scale), "nearest", "asymmetric", "floor")
    for n, scale in ((6, 2), (12, 3))
]
CORNERS = topi.Resizing(9, Fraction(9, 5), coordinates="align_corners")
NCHW, OIHW = (2, 4, 6, 5), (6, 4, 3, 3)
ROWS: dict[str, Row] = {
    # elementwise and broadcast
    "add": Row(((3, 5), (5,)), topi.add, np.add),
    "add a number": Row(V, lambda x: x + 3, lambda x: x + 3),
    "subtract": Row(M, topi.subtract, np.subtract),
    "multiply": Row(M, topi.multiply, np.multiply),
    "divide": Row(M, topi.divide, np.divide, FLOATS),
    "floor_divide": Row(M, topi.floor_divide, np.floor_divide, INTS),
    "mod": Row(M, topi.mod, np.mod, INTS),
    "floor_mod": Row(M, topi.floor_mod, np.mod, INTS),
    "elemwise_sum": Row(M, lambda x, y: topi.elemwise_sum([x, y, x]), lambda x, y: x + y + x),
    "trunc_divide": Row(M, topi.trunc_divide, _towards_zero, INTS),
    "trunc_mod": Row(M, topi.trunc_mod, np.fmod, NUMBERS),
    "bitwise_and": Row(M, topi.bitwise_and, np.bitwise_and, (*INTS, "bool")),
    "bitwise_or": Row(M, topi.bitwise_or, np.bitwise_or, (*INTS, "bool")),
    "bitwise_xor": Row(M, topi.bitwise_xor, np.bitwise_xor, (*INTS, "bool")),
    "bitwise_not": Row(V, topi.bitwise_not, np.bitwise_not, (*INTS, "bool")),
    "left_shift": Row(V, lambda x: topi.left_shift(x, 5), lambda x: np.left_shift(x, 5), INTS),
    "right_shift": Row(V, lambda x: topi.right_shift(x, 5), lambda x: np.right_shift(x, 5), INTS),
    "logical_xor": Row(M, topi.logical_xor, np.logical_xor, ("bool",)),
    "sign": Row(V, topi.sign, np.sign),
    "isnan": Row(V, topi.isnan, np.isnan),
    "isinf": Row(V, topi.isinf, np.isinf),
    "isfinite": Row(V, topi.isfinite, np.isfinite),
    **{
        name: Row(V, getattr(topi, name), getattr(np, numpy_name), FLOATS)
        for name, numpy_name in (
            ("tan", "tan"), ("asin", "arcsin"), ("acos", "arccos"), ("atan", "arctan"),
            ("asinh", "arcsinh"), ("acosh", "arccosh"), ("atanh", "arctanh"),
        )
    },
    "sinh": Row(V, lambda x: topi.sinh(topi.clip(x, -5, 5)),
                lambda x: np.sinh(np.clip(x, -5, 5)), FLOATS),
    "cosh": Row(V, lambda x: topi.cosh(topi.clip(x, -5, 5)),
                lambda x: np.cosh(np.clip(x, -5, 5)), FLOATS),
    "maximum": Row(M, topi.maximum, np.maximum, TYPES),
    "minimum": Row(M, topi.minimum, np.minimum, TYPES),
    "power of a fraction": Row(V, lambda x: topi.power(topi.abs(x), 1.5),
                               lambda x: np.abs(x) ** 1.5, FLOATS),
    "power": Row(V, lambda x: topi.power(x, 3), lambda x: np.power(x, 3)),
    "equal": Row(M, topi.equal, np.equal, TYPES),
    "less": Row(M, topi.less, np.less, TYPES),
    "greater_equal": Row(M, topi.greater_equal, np.greater_equal, TYPES),
    "logical_and": Row(M, topi.logical_and, np.logical_and, ("bool",)),
    "logical_or": Row(M, topi.logical_or, np.logical_or, ("bool",)),
    "logical_not": Row(V, topi.logical_not, np.logical_not, ("bool",)),
    "where": Row(((3, 5),) * 3, topi.where, np.where, TYPES, first="bool"),
    "arange": Row(((7,),), lambda x: x + topi.arange(1, 15, 2, x.dtype),
                  lambda x: x + np.arange(1, 15, 2).astype(x.dtype)),
    "expand_like": Row(((5,), (3, 5)), lambda x, y: topi.expand_like(x, y, 0),
                       lambda x, y: np.broadcast_to(x, y.shape), TYPES),
    "full_like": Row(V, lambda x: x - topi.full_like(x, 1), lambda x: x - 1),
    "abs": Row(V, topi.abs, np.abs),
    "negative": Row(V, topi.negative, np.negative),
    "floor": Row(V, topi.floor, np.floor),
    "ceil": Row(V, topi.ceil, np.ceil),
    "round": Row(V, topi.round, np.rint),
    "trunc": Row(V, topi.trunc, np.trunc),
    "identity": Row(V, topi.identity, lambda x: x, TYPES),
    "clip": Row(V, lambda x: topi.clip(x, 1, 6), lambda x: np.clip(x, 1, 6)),
    "exp": Row(V, topi.exp, np.exp, FLOATS),
    "tanh of int": Row(V, topi.tanh, lambda x: np.tanh(x.astype(np.float64)), INTS),
    "log": Row(V, topi.log, np.log, FLOATS),
    "log2": Row(V, topi.log2, np.log2, FLOATS),
    "log10": Row(V, topi.log10, np.log10, FLOATS),
    "sqrt": Row(V, topi.sqrt, np.sqrt, FLOATS),
    "rsqrt": Row(V, topi.rsqrt, lambda x: 1 / np.sqrt(x), FLOATS),
    "tanh": Row(V, topi.tanh, np.tanh, FLOATS),
    "sigmoid": Row(V, topi.sigmoid, lambda x: 1 / (1 + np.exp(-x)), FLOATS),
    "erf": Row(V, topi.erf, np.vectorize(math.erf), FLOATS),
    "fast_exp": Row(V, topi.fast_exp, np.exp, FLOATS),
    "fast_tanh": Row(V, topi.fast_tanh, np.tanh, FLOATS),
    "fast_erf": Row(V, topi.fast_erf, np.vectorize(math.erf), FLOATS),
    "sin": Row(V, topi.sin, np.sin, FLOATS),
    "cos": Row(V, topi.cos, np.cos, FLOATS),
    "relu": Row(V, nn.relu, lambda x: np.maximum(x, 0)),
    "leaky_relu": Row(V, lambda x: nn.leaky_relu(x, 0.25),
                      lambda x: np.where(x > 0, x, x * 0.25), FLOATS),
    "bias_add": Row(((3, 5), (3,)), lambda x, b: nn.bias_add(x, b, 0),
                    lambda x, b: x + b[:, None]),
    "dropout": Row(V, nn.dropout, lambda x: x, TYPES),
    # reductions
    "all": Row(((3, 2),), lambda x: topi.all(x, 1), lambda x: x.astype(bool).all(1), TYPES),
    "any": Row(((3, 2),), lambda x: topi.any(x, 1), lambda x: x.astype(bool).any(1), TYPES),
    "sum": Row(((3, 5, 4),), lambda x: topi.sum(x, (0, 2)),
               _on_wide(lambda x: x.sum((0, 2)))),
    "prod": Row(((2, 3),), lambda x: topi.prod(x, 1), _on_wide(lambda x: x.prod(1)),
                tuple(t for t in NUMBERS if t in FLOATS or DType(t).bits != 16)),
    "max": Row(((3, 5, 4),), lambda x: topi.max(x, 1), lambda x: x.max(1), TYPES),
    "min": Row(((3, 5, 4),), lambda x: topi.min(x, 1, True), lambda x: x.min(1, keepdims=True),
               TYPES),
    "mean": Row(((3, 5, 4),), lambda x: topi.mean(x, (1, 2)), lambda x: x.mean((1, 2)), FLOATS),
    # movement
    "broadcast_to": Row(((3, 1),), lambda x: topi.broadcast_to(x, (2, 3, 4)),
                        lambda x: np.broadcast_to(x, (2, 3, 4)), TYPES),
    "transpose": Row(V, topi.transpose, np.transpose, TYPES),
    "reshape": Row(((4, 6),), lambda x: topi.reshape(x, (3, 8)), lambda x: x.reshape(3, 8), TYPES),
    "flatten": Row(((2, 3, 4),), topi.flatten, lambda x: x.reshape(2, 12), TYPES),
    "squeeze": Row(((3, 1, 2),), topi.squeeze, np.squeeze, TYPES),
    "expand_dims": Row(V, lambda x: topi.expand_dims(x, 1), lambda x: x[:, None], TYPES),
    "concatenate": Row(((3, 5), (2, 5)), lambda x, y: topi.concatenate([x, y]),
                       lambda x, y: np.concatenate([x, y]), TYPES),
    "stack": Row(M, lambda x, y: topi.stack([x, y], 1), lambda x, y: np.stack([x, y], 1), TYPES),
    "split": Row(((6, 2),), lambda x: topi.split(x, 3)[1], lambda x: x[2:4], TYPES),
    "strided_slice": Row(((7, 5),), lambda x: topi.strided_slice(x, [1, 4], [7, 0], [2, -1]),
                         lambda x: x[1:7:2, 4:0:-1], TYPES),
    "layout_transform": Row(((2, 4, 3, 3),), lambda x: topi.layout_transform(x, "NCHW", "NCHW2c"),
                            lambda x: testing.layout_transform_python(x, "NCHW", "NCHW2c"), TYPES),
    "pad": Row(V, lambda x: nn.pad(x, (1, 0), (0, 2), 1),
               lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=1), TYPES),
    "resize": Row(((2, 3, 4),), lambda x: topi.resize(x, (1, 2), NEAREST),
                  lambda x: x.repeat(2, 1).repeat(3, 2), TYPES),
    "resize between elements": Row(((2, 5),), lambda x: topi.resize(x, (1,), [CORNERS]),
                                   lambda x: np.stack([
                                       np.interp(np.linspace(0, 4, 9), np.arange(5), row)
                                       for row in x]), FLOATS),
    "upsampling": Row(((1, 2, 3, 3),), lambda x: nn.upsampling(x, 2, 3),
                      lambda x: testing.upsampling_python(x, (2, 3))),
    # contractions
    "dense": Row(((3, 7), (5, 7)), lambda x, w: nn.dense(x, w, None, _sums(x)),
                 _on_wide(lambda x, w: x @ w.T)),
    "dense with bias": Row(((3, 7), (5, 7), (5,)), lambda x, w, b: nn.dense(x, w, b, _sums(x)),
                           _on_wide(lambda x, w, b: x @ w.T + b)),
    "matmul": Row(((3, 7), (7, 5)), lambda a, b: topi.matmul(a, b, out_dtype=_sums(a)),
                  _on_wide(np.matmul)),
    "batch_matmul": Row(((2, 3, 7), (1, 5, 7)), lambda a, b: nn.batch_matmul(a, b, _sums(a)),
                        _on_wide(lambda a, b: a @ b.transpose(0, 2, 1))),
    "conv2d_nchw": Row((NCHW, OIHW), lambda x, w: nn.conv2d_nchw(x, w, 2, 1, 1, _sums(x)),
                       _on_wide(lambda x, w: testing.conv2d_nchw_python(x, w, 2, 1))),
    "conv2d_nhwc": Row(((1, 6, 5, 4), (3, 3, 4, 2)),
                       lambda x, w: nn.conv2d_nhwc(x, w, 1, 0, 1, _sums(x)),
                       _on_wide(lambda x, w: testing.conv2d_nhwc_python(x, w, 1, 0))),
    "conv2d_hwcn": Row(((6, 5, 4, 1), (3, 3, 4, 2)),
                       lambda x, w: nn.conv2d_hwcn(x, w, 1, 0, 1, _sums(x)),
                       _on_wide(lambda x, w: testing.conv2d_nhwc_python(
                           x.transpose(3, 0, 1, 2), w, 1, 0).transpose(1, 2, 3, 0))),
    "group_conv2d_nchw": Row((NCHW, (6, 2, 3, 3)),
                             lambda x, w: nn.group_conv2d_nchw(x, w, 1, 1, 1, 2, _sums(x)),
                             _on_wide(lambda x, w: testing.conv2d_nchw_python(x, w, 1, 1, 2))),
    "conv2d_NCHWc": Row(((1, 2, 4, 4, 2), (2, 2, 3, 3, 2, 3)),
                        lambda x, w: nn.conv2d_NCHWc(x, w, 1, 1, 1, out_dtype=_sums(x)),
                        _on_wide(lambda x, w: _blocked(x, w))),
    "depthwise_conv2d_nchw": Row((NCHW, (4, 2, 3, 3)),
                                 lambda x, w: nn.depthwise_conv2d_nchw(x, w, 1, 1, 1, _sums(x)),
                                 _on_wide(lambda x, w: testing.depthwise_conv2d_python_nchw(
                                     x, w, 1, 1))),
    "depthwise_conv2d_nhwc": Row(((1, 6, 5, 4), (3, 3, 4, 1)),
                                 lambda x, w: nn.depthwise_conv2d_nhwc(x, w, 2, 1, 1, _sums(x)),
                                 _on_wide(lambda x, w: testing.depthwise_conv2d_python_nhwc(
                                     x, w, 2, 1))),
    "conv": Row(((2, 4, 4, 5, 3), (6, 2, 3, 2, 2)),
                lambda x, w: nn.conv(x, w, (1, 2, 1), 1, 1, 2, "NCDHW", "", _sums(x)),
                _on_wide(lambda x, w: testing.conv_python(x, w, (1, 2, 1), 1, 2))),
    "conv1d": Row(((2, 4, 9), (6, 4, 3)),
                  lambda x, w: nn.conv1d(x, w, 2, 1, 2, out_dtype=_sums(x)),
                  _on_wide(lambda x, w: testing.conv_python(x, w, 2, 1, 1, 2))),
    "group_conv1d_ncw": Row(((2, 4, 9), (6, 2, 3)),
                            lambda x, w: nn.group_conv1d_ncw(x, w, 2, 1, 1, 2, _sums(x)),
                            _on_wide(lambda x, w: testing.group_conv1d_ncw_python(
                                x, w, 2, 1, 1, 2))),
    "group_conv1d_nwc": Row(((2, 9, 4), (3, 2, 6)),
                            lambda x, w: nn.group_conv1d_nwc(x, w, 2, 1, 1, 2, _sums(x)),
                            _on_wide(lambda x, w: testing.group_conv1d_ncw_python(
                                x.transpose(0, 2, 1), w.transpose(2, 1, 0), 2, 1, 1, 2,
                            ).transpose(0, 2, 1))),
    "conv_transpose": Row(((2, 4, 4, 5), (4, 3, 3, 3)),
                          lambda x, w: nn.conv_transpose(x, w, 2, 1, _sums(x), 1, 1, 2),
                          _on_wide(lambda x, w: testing.conv_transpose_python(x, w, 2, 1, 1, 2))),
    "depthwise_conv": Row(((2, 9, 4), (3, 4, 2)),
                          lambda x, w: nn.depthwise_conv(x, w, 1, 1, 1, _sums(x), "NWC"),
                          _on_wide(_depthwise1d)),
    "tensordot": Row(((2, 3, 4), (3, 4, 5)), lambda a, b: topi.tensordot(a, b, 2),
                     _on_wide(lambda a, b: np.tensordot(a, b, 2)),
                     tuple(t for t in NUMBERS if t in FLOATS or DType(t).bits != 16)),
    "group_conv1d_transpose_ncw": Row(
        ((1, 4, 6), (4, 3, 3)),
        lambda x, w: nn.group_conv1d_transpose_ncw(x, w, 2, 1, _sums(x), 1, 2),
        _on_wide(lambda x, w: testing.conv1d_transpose_ncw_python(x, w, 2, 1, 1, 2))),
    "group_conv2d_transpose_nchw": Row(
        ((2, 4, 4, 5), (4, 3, 3, 3)),
        lambda x, w: nn.group_conv2d_transpose_nchw(x, w, 2, 1, _sums(x), 1, 2),
        _on_wide(lambda x, w: testing.conv_transpose_python(x, w, 2, 1, 1, 2))),
    "deformable_conv2d_nchw": Row(
        ((1, 4, 5, 5), (1, 18, 3, 3), (3, 4, 3, 3)),
        lambda x, o, w: nn.deformable_conv2d_nchw(x, o, w, 1, 0, 1, 1, 1),
        lambda x, o, w: testing.deformable_conv2d_nchw_python(x, o, w, 1, 0, 1, 1, 1), FLOATS),
    "deformable_conv2d_nhwc": Row(
        ((1, 5, 5, 4), (1, 5, 5, 2), (1, 1, 4, 3)),
        lambda x, o, w: nn.deformable_conv2d_nhwc(x, o, w, 1, 0, 1, 1, 1),
        lambda x, o, w: testing.deformable_conv2d_nhwc_python(x, o, w, 1, 0, 1, 1, 1), FLOATS),
    "correlation_nchw": Row(
        ((1, 3, 5, 6), (1, 3, 5, 6)),
        lambda a, b: nn.correlation_nchw(a, b, 1, 1, 1, 1, 1, True),
        lambda a, b: testing.correlation_nchw_python(a, b, 1, 1, 1, 1, 1, True), FLOATS),
    "depthwise_conv2d_backward_input_nhwc": Row(
        ((3, 2, 2, 2), (1, 4, 5, 4)),
        lambda w, g: nn.depthwise_conv2d_backward_input_nhwc(
            w, g, (1, 4, 5, 4), (1, 6, 6, 2), 1, 0),
        lambda w, g: _gradients(np.zeros((1, 6, 6, 2)), w, g)[0], FLOATS),
    "depthwise_conv2d_backward_weight_nhwc": Row(
        ((1, 6, 6, 2), (1, 4, 5, 4)),
        lambda x, g: nn.depthwise_conv2d_backward_weight_nhwc(
            x, g, (1, 4, 5, 4), (3, 2, 2, 2), 1, 0),
        lambda x, g: _gradients(x, np.zeros((3, 2, 2, 2)), g)[1], FLOATS),
    "dft": Row(((2, 6), (2, 6)), lambda a, b: topi.dft(a, b)[0],
               lambda a, b: np.fft.fft(a + 1j * b).real, FLOATS),
    "dft, imaginary part": Row(((2, 6), (2, 6)), lambda a, b: topi.dft(a, b, True)[1],
                               lambda a, b: np.fft.ifft(a + 1j * b).imag, FLOATS),
    "lstm": Row(((3, 2, 3), (8, 3), (8, 2)), lambda x, w, h: nn.lstm(x, w, h)[0],
                lambda x, w, h: testing.lstm_python(x, w, h)[0], FLOATS),
    # indices that are data (of int32, for values of any type), order, running sums
    "take": Row(((3, 2), (4, 5)), lambda i, x: topi.take(x, i, 1),
                lambda i, x: np.take(x, i, 1, mode="clip"), TYPES, first="int32"),
    "take round about": Row(((4,), (4, 5)), lambda i, x: topi.take(x, i, mode="wrap"),
                             lambda i, x: np.take(x, i, mode="wrap"), TYPES, first="int64"),
    "gather": Row(((3, 7), (4, 5)), lambda i, x: topi.gather(x, 1, i),
                  lambda i, x: testing.gather_python(x, 1, i), TYPES, first="int32"),
    "gather_nd": Row(((2, 3), (4, 5, 2)), lambda i, x: topi.gather_nd(x, i),
                     lambda i, x: testing.gather_nd_python(x, i), TYPES, first="int32"),
    "scatter_elements": Row(
        ((3, 4), (5, 4), (3, 4)), lambda i, x, u: topi.scatter_elements(x, i, u, 0),
        lambda i, x, u: testing.scatter_elements_python(x, i, u, 0), TYPES, first="int32"),
    **{
        f"scatter_elements by {r}": Row(
            ((2, 3), (2, 5), (2, 3)),
            lambda i, x, u, r=r: topi.scatter_elements(x, i, u, -1, r),
            lambda i, x, u, r=r: testing.scatter_elements_python(x, i, u, -1, r),
            FLOATS if r == "mul" else NUMBERS, first="int32")
        for r in ("add", "mul", "min", "max")
    },
    "scatter_nd": Row(
        ((1, 4), (5, 3), (4, 3)), lambda i, x, u: topi.scatter_nd(x, i, u),
        lambda i, x, u: testing.scatter_nd_python(x, i, u), TYPES, first="int32"),
    "argmax": Row(((3, 9),), topi.argmax, lambda x: np.argmax(x, -1)),
    "argmin": Row(((9, 3),), lambda x: topi.argmin(x, 0, True),
                  lambda x: np.argmin(x, 0)[None]),
    "topk": Row(((3, 9),), lambda x: ranking.topk(x, 4),
                lambda x: testing.topk_python(x, 4), TYPES),
    "topk in blocks": Row(((700,),), lambda x: ranking.topk(x, 3, is_ascend=True),
                          lambda x: testing.topk_python(x, 3, is_ascend=True), TYPES),
    "argsort": Row(((9, 2),), lambda x: ranking.argsort(x, 0),
                   lambda x: np.argsort(x, 0, kind="stable"), TYPES),
    "sort": Row(((2, 9),), topi.sort, np.sort, TYPES),
    "cumsum": Row(((2, 70),), lambda x: topi.cumsum(x, 1),
                  lambda x: testing.cumulative_python(x, 1)),
    "cumprod": Row(((5, 2),), lambda x: topi.cumprod(x, 0, exclusive=True, reverse=True),
                   lambda x: testing.cumulative_python(x, 0, True, True, True), FLOATS),
    "mirror_pad": Row(V, lambda x: topi.mirror_pad(x, ((1, 4), (2, 0)), "reflect"),
                      lambda x: np.pad(x, ((1, 4), (2, 0)), "reflect"), TYPES),
    "strided_set": Row(((7, 4), (3, 4)), lambda x, v: topi.strided_set(
        x, v, (5, 0), (0, 4), (-2, 1)),
                       lambda x, v: _set(x, v), TYPES),
    # images read where data says
    **{
        f"grid_sample{name}": Row(
            ((1, 2, 3, 3), (1, 2, 4, 5)),
            lambda g, x, m=m, p=p: topi.grid_sample(x, g, m, padding_mode=p),
            lambda g, x, m=m, p=p: testing.grid_sample_python(
                x, g, m, padding_mode=p), FLOATS)
        for name, m, p in (
            (" nearest", "nearest", "border"), ("", "bilinear", "zeros"),
            (" bicubic", "bicubic", "reflection"),
        )
    },
    "roi_align": Row(
        ((1, 5), (1, 2, 4, 5)), lambda r, x: topi.roi_align(x, r, 2, 0.5, 2),
        lambda r, x: testing.roi_align_python(x, r * [0, 1, 1, 1, 1], (2, 2), 0.5, 2), FLOATS),
    # pooling, normalisation
    "lp_pool": Row(((2, 4, 9),), lambda x: nn.lp_pool(x, 3, 2, 1, 0, layout="NCW"),
                   lambda x: testing.pool2d_python(x ** 2, 3, 2, 1, 0, "sum", layout="NCW") ** 0.5,
                   FLOATS),
    "max_pool_indices": Row(((2, 3, 5, 4),), lambda x: nn.max_pool_indices(x, 2, 1, 1, 0),
                            lambda x: testing.max_pool_indices_python(x, 2, 1)),
    "pool3d": Row(((1, 2, 4, 5, 3),), lambda x: nn.pool3d(x, 2, 1, 1, 0, "avg"),
                  lambda x: testing.poolnd_python(
                      x, 2, 1, 1, (0, 0, 0), (0, 0, 0), "avg", layout="NCDHW"), FLOATS),
    "max pool": Row((NCHW,), lambda x: nn.pool2d(x, 3, 2, 1, 1, "max"),
                    lambda x: testing.pool2d_python(x, 3, 2, 1, 1, "max")),
    "avg pool": Row((NCHW,), lambda x: nn.pool2d(x, 3, 2, 1, 1, "avg", count_include_pad=False),
                    lambda x: testing.pool2d_python(
                        x, 3, 2, 1, 1, "avg", count_include_pad=False), FLOATS),
    "global max pool": Row((NCHW,), lambda x: nn.global_pool(x, "max"),
                           lambda x: testing.adaptive_pool(x, (1, 1), "max")),
    "pool_grad": Row(((1, 2, 3, 3), (1, 2, 6, 6)),
                     lambda g, x: nn.pool_grad(g, x, 2, 2, 0, "avg"),
                     lambda g, x: testing.pool_grad_nchw(
                         x, g, 2, 2, 0, "avg", False), FLOATS),
    "adaptive_pool1d": Row(((2, 3, 7),), lambda x: nn.adaptive_pool1d(x, 3, "max"),
                           lambda x: testing.adaptive_pool(x, (3,), "max", "NCW")),
    "adaptive_pool3d": Row(((1, 2, 4, 5, 3),), lambda x: nn.adaptive_pool3d(x, (2, 3, 1), "max"),
                           lambda x: testing.adaptive_pool(x, (2, 3, 1), "max", "NCDHW")),
    "adaptive avg pool": Row((NCHW,), lambda x: nn.adaptive_pool(x, (4, 2), "avg"),
                             lambda x: testing.adaptive_pool(x, (4, 2), "avg"), FLOATS),
    "softmax": Row(((3, 9),), nn.softmax, lambda x: testing.softmax_python(x, -1), FLOATS),
    "standardize": Row(((3, 9),), nn.standardize, testing.standardize_python, FLOATS),
    "log_softmax": Row(((3, 9),), nn.log_softmax, lambda x: testing.log_softmax_python(x, -1),
                       FLOATS),
    "batch_norm": Row(((2, 4, 3, 3), (4,), (4,), (4,), (4,)),
                      lambda x, g, b, m, v: nn.batch_norm(x, g, b, m, v)[0],
                      lambda x, g, b, m, v: testing.batch_norm(x, g, b, m, v)[0], FLOATS),
    "scale_shift_nchw": Row(((2, 4, 3, 3), (4,), (4,)), nn.scale_shift_nchw,
                            testing.scale_shift_nchw_python),
    "scale_shift_nhwc": Row(((2, 3, 3, 4), (4,), (4,)), nn.scale_shift_nhwc,
                            testing.scale_shift_nhwc_python),
    "scale_shift_nchwc": Row(
        ((2, 2, 3, 3, 4), (2, 4), (2, 4)), nn.scale_shift_nchwc,
        lambda x, a, b: testing.scale_shift_nhwc_python(
            x, a[:, None, None], b[:, None, None])),
}  # fmt: skip


def _set(x: Any, v: Any) -> Any:
    made = x.copy()
    made[5:0:-2] = v
    return made


def _blocked(x: Any, w: Any) -> Any:
    data = testing.layout_transform_python(x, "NCHW2c", "NCHW")
    kernel = w.transpose(0, 5, 1, 4, 2, 3).reshape(6, 4, 3, 3)
    result = testing.conv2d_nchw_python(data, kernel, 1, 1)
    return testing.layout_transform_python(result, "NCHW", "NCHW3c")
