"""Products of small integers in int32 become products of bytes, which matrix units multiply.

In: a canonical module whose weights are constants.  Out: an equal one.  Quantised operators take
off their zero points in int32 first; here these leave the data, which then need no copy in int32.
Read next: `weights.py`; `../../network/extract.py`, which runs it where a target gains by it.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.dtype import FLOAT32, INT32, DType
from tilewright.graph.expr import (
    Array,
    Attrs,
    Call,
    Constant,
    Expr,
    IRModule,
    TensorType,
)
from tilewright.graph.op import Op, call
from tilewright.graph.op.conv import CONVOLUTIONS
from tilewright.graph.passes.weights import channel_axis, is_contraction
from tilewright.graph.traversal import each_function, is_call, rewrite, with_body

BYTES = tuple(DType(name) for name in ("int8", "uint8"))
_MOST = INT32.greatest
_OFF = 2.0**-15  # of a multiple: 128 roundings of float32 to either side, and those of folding


def multiply_bytes(mod: IRModule) -> IRModule:
    """conv(int32(x) + s, W) -> conv(x, W) + conv(s, W), where x is of bytes and so is what W holds;
    of every convolution, and of dense.  The second is a constant: what s adds to each sum, less at
    the edges of an image.

    A zero point that is computed (`DynamicQuantizeLinear`) is multiplied with that constant.

    conv(float32(int32(x) + s), c * W) -> c * float32(conv(int32(x) + s, W)), for weights that are
    multiples of a number, one for each channel of the result: those of a network that is quantised
    and written in floats, whose scales have been folded into them.
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, lambda _, new: _narrow(new))))


def _narrow(node: Expr) -> Expr:
    if not isinstance(node, Call) or not is_contraction(node):
        return node
    data, weight = node.args
    if not isinstance(weight, Constant):
        return node
    if node.dtype is INT32:
        return _of_whole(node, data, weight.data)
    whole = _before_cast(data)
    if node.dtype is not FLOAT32 or whole is None or _shifted(whole) is None:
        return node
    axis = _kernel(node).index("O")
    found = multiples(np.moveaxis(weight.data, axis, 0))
    if found is None:
        return node
    scales, counts = found
    sums = _of_whole(node, whole, np.moveaxis(counts, 0, axis))
    if sums is node:
        return node
    shape = [1] * len(node.shape)
    shape[channel_axis(node)] = scales.size
    return call("multiply", call("cast", sums, dtype="float32"), Constant(scales.reshape(shape)))


def _of_whole(node: Call, data: Expr, weight: Array) -> Expr:
    """The contraction of whole numbers in int32, of bytes; `node` where it is none."""
    found, kind = _shifted(data), _kind_of(weight)
    if found is None or kind is None:
        return node
    (x, shift), terms = found, weight.size // weight.shape[_kernel(node).index("O")]
    if terms * max(-kind.least, kind.greatest) * max(-x.dtype.least, x.dtype.greatest) > _MOST:
        return node
    factor = Constant(weight.astype(kind.storage))
    narrow = Call(node.op, (x, factor), {**node.attrs, "out_dtype": "int32"})
    if isinstance(shift, int):
        return call("add", narrow, Constant(shift * _sums(node, weight))) if shift else narrow
    return call("subtract", narrow, call("multiply", shift, Constant(_sums(node, weight))))


def _kernel(node: Call) -> str:
    """A letter for each axis of its weight."""
    return str(node.attrs.kernel_layout) if is_call(node, *CONVOLUTIONS) else "OI"


def _before_cast(data: Expr) -> Expr | None:
    """What is converted from int32 to the data of floats, in the shape that they have."""
    if not isinstance(data, Call):
        return None
    if is_call(data, "reshape"):
        inner = _before_cast(data.args[0])
        return None if inner is None else Call(data.op, (inner,), data.attrs)
    source = data.args[0] if is_call(data, "cast") else data
    return source if isinstance(source.checked_type, TensorType) and source.dtype is INT32 else None


def multiples(weight: Array) -> tuple[Array, Array] | None:
    """A number for each row of a weight, float32, and how often each element has it, int32 up to
    128 either way; None where some row has none, to a few roundings of float32."""
    rows = np.asarray(weight.reshape(len(weight), -1), np.float64)
    if not np.isfinite(rows).all():
        return None
    largest = np.abs(rows).max(axis=1, initial=0.0)
    scales = np.where(largest > 0, largest, 1.0)
    open_ = largest > 0
    for count in range(1, 129):
        own = scales[open_] / count
        off = np.abs(rows[open_] / own[:, None] - np.rint(rows[open_] / own[:, None])).max(axis=1)
        fits = np.flatnonzero(open_)[off <= _OFF]
        scales[fits] /= count
        open_[fits] = False
        if not open_.any():
            counts = np.rint(rows / scales[:, None]).astype(np.int32)
            return scales.astype(np.float32), counts.reshape(weight.shape)
    return None


def _shifted(data: Expr) -> tuple[Expr, int | Expr] | None:
    """x and s of `int32(x) + s`, x of bytes and s a number, or of `int32(x) - s`, s of one element
    that the network computes; under whatever shape.  None for anything else."""
    if not isinstance(data, Call):
        return None
    if is_call(data, "reshape"):
        found = _shifted(data.args[0])
        return None if found is None else (Call(data.op, (found[0],), data.attrs), found[1])
    source: Expr = data
    shift: int | Expr = 0
    if is_call(data, "add"):
        source, added = data.args
        if not isinstance(added, Constant) or added.data.size != 1:
            return None
        shift = int(added.data.reshape(-1)[0])
    elif is_call(data, "subtract"):
        source, shift = data.args
        if shift.tensor_type.size != 1 or len(shift.shape) > len(source.shape):
            return None
    if not isinstance(source, Call) or not is_call(source, "cast") or source.dtype is not INT32:
        return None
    (x,) = source.args
    return (x, shift) if x.dtype in BYTES else None


def _kind_of(values: Array) -> DType | None:
    """The type of bytes that holds all of them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    return next((kind for kind in BYTES if kind.least <= low and high <= kind.greatest), None)


def _sums(node: Call, weight: Array) -> Array:
    """What ones as data add up to, in int32: of a shape that stretches to the result's."""
    if not is_call(node, *CONVOLUTIONS) or not isinstance(node.op, Op):
        return np.asarray(weight.sum(axis=1, dtype=np.int64)[None], np.int32)
    data, kernel = str(node.attrs.data_layout), _kernel(node)
    shape = [1 if letter in "NC" else n for letter, n in zip(data, node.args[0].shape, strict=True)]
    one = weight.sum(axis=kernel.index("I"), keepdims=True, dtype=np.float64)
    ones = [np.ones(shape), one]
    sums = np.asarray(node.op.numpy(ones, Attrs({**node.attrs, "groups": 1, "out_dtype": ""})))
    if not any(node.attrs.padding):
        image = tuple(k for k, letter in enumerate(data) if letter not in "NC")
        sums = sums[tuple(slice(0, 1) if k in image else slice(None) for k in range(sums.ndim))]
    return np.asarray(sums.astype(np.int64), np.int32)


__all__ = ["BYTES", "multiples", "multiply_bytes"]
