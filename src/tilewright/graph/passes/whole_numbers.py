"""Products of small integers in int32 become products of bytes, which matrix units multiply.

In: a canonical module whose weights are constants.  Out: an equal one.  Quantised operators take
off their zero points in int32 first; here these leave the data, which then need no copy in int32.
Read next: `weights.py`; `../../network/extract.py`, which runs it where a target gains by it.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.dtype import INT32, DType
from tilewright.graph.expr import Array, Attrs, Call, Constant, Expr, IRModule
from tilewright.graph.op import Op, call
from tilewright.graph.op.conv import CONVOLUTIONS
from tilewright.graph.passes.weights import is_contraction
from tilewright.graph.traversal import each_function, is_call, rewrite, with_body

BYTES = tuple(DType(name) for name in ("int8", "uint8"))


def multiply_bytes(mod: IRModule) -> IRModule:
    """conv(int32(x) + s, W) -> conv(x, W) + conv(s, W), where x is of bytes and so is what W holds;
    of every convolution, and of dense.  The second is a constant: what s adds to each sum, less at
    the edges of an image."""
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, lambda _, new: _narrow(new))))


def _narrow(node: Expr) -> Expr:
    if not isinstance(node, Call) or not is_contraction(node) or node.dtype is not INT32:
        return node
    data, weight = node.args
    found = _shifted(data)
    if found is None or not isinstance(weight, Constant):
        return node
    (x, shift), kind = found, _kind_of(weight.data)
    if kind is None:
        return node
    factor = Constant(weight.data.astype(kind.storage))
    narrow = Call(node.op, (x, factor), {**node.attrs, "out_dtype": "int32"})
    return call("add", narrow, Constant(shift * _sums(node, weight.data))) if shift else narrow


def _shifted(data: Expr) -> tuple[Expr, int] | None:
    """x and s of `int32(x) + s`, x of bytes; None for anything else."""
    shift = 0
    if isinstance(data, Call) and is_call(data, "add"):
        data, added = data.args
        if not isinstance(added, Constant) or added.data.size != 1:
            return None
        shift = int(added.data.reshape(-1)[0])
    if not isinstance(data, Call) or not is_call(data, "cast") or data.dtype is not INT32:
        return None
    (x,) = data.args
    return (x, shift) if x.dtype in BYTES else None


def _kind_of(values: Array) -> DType | None:
    """The type of bytes that holds all of them."""
    low, high = int(values.min(initial=0)), int(values.max(initial=0))
    return next((kind for kind in BYTES if kind.least <= low and high <= kind.greatest), None)


def _sums(node: Call, weight: Array) -> Array:
    """What ones as data add up to, in int32: of a shape that stretches to the result's."""
    if not is_call(node, *CONVOLUTIONS) or not isinstance(node.op, Op):
        return np.asarray(weight.sum(axis=1, dtype=np.int64)[None], np.int32)
    data, kernel = str(node.attrs.data_layout), str(node.attrs.kernel_layout)
    shape = [1 if letter in "NC" else n for letter, n in zip(data, node.args[0].shape, strict=True)]
    one = weight.sum(axis=kernel.index("I"), keepdims=True, dtype=np.float64)
    ones = [np.ones(shape), one]
    sums = np.asarray(node.op.numpy(ones, Attrs({**node.attrs, "groups": 1, "out_dtype": ""})))
    if not any(node.attrs.padding):
        image = tuple(k for k, letter in enumerate(data) if letter not in "NC")
        sums = sums[tuple(slice(0, 1) if k in image else slice(None) for k in range(sums.ndim))]
    return np.asarray(sums.astype(np.int64), np.int32)


__all__ = ["BYTES", "multiply_bytes"]
