"""Element types of ONNX that networks do not have: floats of 4 and 8 bits, integers of 2 and 4.

In: tensors in a wider type.  Out: their numbers as one of these would hold them, in the wider type
still.  A network computes with such numbers and stores none, so results are those of the model, and
memory is that of the wider type.  Read next: `values.py`, `ops/quantize.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.graph.expr import Array, Expr
from tilewright.graph.functions import tensor
from tilewright.graph.leaves import const
from tilewright.models.onnx.node import Converter, Node
from tilewright.models.onnx.values import WIDER, Narrow


@dataclass(frozen=True)
class _Float:
    """A float type.

    digits:   of its significand, the hidden one included
    lowest:   the exponent of its least normal number; greatest: its greatest number
    beyond:   what is beyond that, where casts do not saturate
    no_number: what NaN becomes; minus_zero: whether it has one
    """

    digits: int
    lowest: int
    greatest: float
    beyond: float = math.nan
    no_number: float = math.nan
    minus_zero: bool = True


_FLOATS = {
    "float4_e2m1fn": _Float(2, 0, 6.0, 6.0, -0.0),
    "float8_e4m3fn": _Float(4, -6, 448.0),
    "float8_e4m3fnuz": _Float(4, -7, 240.0, minus_zero=False),
    "float8_e5m2": _Float(3, -14, 57344.0, math.inf),
    "float8_e5m2fnuz": _Float(3, -15, 57344.0, minus_zero=False),
}
_INTEGERS = {"int2": (-2, 1), "uint2": (0, 3), "int4": (-8, 7), "uint4": (0, 15)}
# what moves elements, where ONNX allows these types
MOVES = ("Flatten", "Reshape", "Shape", "Size", "Squeeze", "Transpose", "Unsqueeze")


def is_float(kind: str) -> bool:
    return kind in WIDER and kind not in _INTEGERS


def converted(n: Node, data: Expr, kind: str, saturate: bool = True) -> Narrow:
    """`data` as `kind` holds it: floats to the nearest, halves to even; integers towards zero, and
    modulo their size.

    saturate: a float beyond the greatest becomes that, not infinity or NaN
    """
    if kind in _INTEGERS:
        low, high = _INTEGERS[kind]
        wide = tensor.cast(data, "int32") if data.dtype != "int64" else data
        return Narrow(tensor.cast(tensor.floor_mod(wide - low, high - low + 1) + low,
                                  WIDER[kind]), kind)  # fmt: skip
    row = _FLOATS.get(kind)
    if row is None:
        raise n.refuse(f"it converts to {kind}", "Do it outside the network.")
    return Narrow(tensor.cast(_rounded(tensor.cast(data, "float32"), row, saturate),
                              WIDER[kind]), kind)  # fmt: skip


def _rounded(data: Expr, row: _Float, saturate: bool) -> Expr:
    """In float32.  The step between neighbours is a power of two, made by a shift, so it is exact.
    Where the logarithm is off by one, the number is so near a power of two that it becomes it."""
    top = math.frexp(row.greatest)[1] - 1
    size = tensor.clip(tensor.abs(data), 2.0**row.lowest, row.greatest)
    exponent = tensor.cast(tensor.floor(tensor.log2(size)), "int32") - row.lowest
    shift = tensor.clip(exponent, 0, top - row.lowest)
    unit = tensor.cast(tensor.left_shift(const(1, "int32"), shift), "float32")
    step = unit * 2.0 ** (row.lowest - row.digits + 1)
    near = tensor.round(data / step) * step
    if saturate:
        made = tensor.clip(near, -row.greatest, row.greatest)
    else:
        signed = tensor.where(tensor.less(near, 0.0), -row.beyond, row.beyond)
        made = tensor.where(tensor.greater(tensor.abs(near), row.greatest), signed, near)
    if not row.minus_zero:
        made = tensor.where(tensor.equal(made, 0.0), 0.0, made)
    return tensor.where(tensor.isnan(data), row.no_number, made)


def limited(data: Expr, kind: str) -> Narrow:
    """Integers of the wider type, limited to what `kind` holds."""
    return Narrow(tensor.clip(data, *_INTEGERS[kind]), kind)


def moving(converter: Converter) -> Converter:
    """A converter of what only moves elements, which may be of a type that networks do not have."""

    def convert(n: Node) -> Any:
        kind = n.element(0) if n.has(0) else ""
        if kind not in WIDER:
            return converter(n)
        places = {name: k for k, name in reversed([*enumerate(n.names)])}
        made = converter(replace(n, expr_of=lambda name, _: n.widened(places[name])))
        results = made if isinstance(made, (list, tuple)) else [made]
        return [Narrow(r, kind) if isinstance(r, Expr) else _again(r, kind) for r in results]

    return convert


def _again(result: Array | np.generic, kind: str) -> Array:
    """A known result: a shape as it is, elements as their own type has them."""
    found = np.asarray(result)
    return found.astype(kind) if found.dtype == WIDER[kind] else found
