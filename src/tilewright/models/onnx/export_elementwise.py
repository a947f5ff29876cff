"""Export of elementwise operators that ONNX spells otherwise, or by several of its own.

In: calls.  Out: names of values that the writer wrote.  Read next: `writer.py`; `export.py`.
"""

from __future__ import annotations

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call
from tilewright.graph.op import TABLE
from tilewright.models.onnx.writer import Exporter, Writer


def _floor_divide(w: Writer, node: Call) -> str:
    """Of floats from the rest: a / b may round up to a whole number that lies above it."""
    a, b = map(w.name, node.args)
    if not node.dtype.is_float:
        return w.op("Div", w.op("Sub", a, w.op("Mod", a, b)), b)
    zero, one = (w.array(np.asarray(n, node.dtype), name) for n, name in enumerate(("zero", "one")))
    rest, plain = w.op("Mod", a, b, fmod=1), w.op("Div", a, b)
    whole = w.op("Div", w.op("Sub", a, rest), b)
    astray = _is_astray(w, rest, b, zero)
    whole = w.op("Round", w.op("Where", astray, w.op("Sub", whole, one), whole))
    signed = w.op("Where", w.op("Equal", whole, zero), w.op("Mul", plain, zero), whole)
    return w.op("Where", w.op("Equal", b, zero), plain, signed)


def _floor_mod(w: Writer, node: Call) -> str:
    a, b = map(w.name, node.args)
    if not node.dtype.is_float:
        return w.op("Mod", a, b)
    rest = w.op("Mod", a, b, fmod=1)
    astray = _is_astray(w, rest, b, w.array(np.asarray(0, node.dtype), "zero"))
    return w.op("Where", astray, w.op("Add", rest, b), rest)


def _is_astray(w: Writer, rest: str, b: str, zero: str) -> str:
    """Where the rest of division towards zero has the other sign than the divisor."""
    apart = w.op("Xor", w.op("Less", b, zero), w.op("Less", rest, zero))
    return w.op("And", apart, w.op("Not", w.op("Equal", rest, zero)))


def _bitwise(logical: str) -> Exporter:
    """Of bools ONNX has the logical operators."""

    def export(w: Writer, node: Call) -> str:
        own = TABLE[node.op.name].onnx[0]  # type: ignore[union-attr]
        return w.op(logical if node.dtype == "bool" else own, *map(w.name, node.args))

    return export


def _shift(direction: str) -> Exporter:
    def export(w: Writer, node: Call) -> str:
        if node.dtype.kind != "uint":
            raise ModelError(
                f"to_onnx: {node.op.name} of {node.dtype}",  # type: ignore[union-attr]
                "ONNX shifts unsigned integers only", "Cast to an unsigned type.",
            )  # fmt: skip
        return w.op("BitShift", *map(w.name, node.args), direction=direction)

    return export


def _isfinite(w: Writer, node: Call) -> str:
    x = w.name(node.args[0])
    return w.op("Not", w.op("Or", w.op("IsNaN", x), w.op("IsInf", x)))


def _where(w: Writer, node: Call) -> str:
    """Of bools by logical operators: onnxruntime has no Where of them."""
    condition, x, y = map(w.name, node.args)
    if node.dtype != "bool":
        return w.op("Where", condition, x, y)
    return w.op("Or", w.op("And", condition, x), w.op("And", w.op("Not", condition), y))


EXPORTERS: dict[str, Exporter] = {
    "bitwise_and": _bitwise("And"),
    "bitwise_not": _bitwise("Not"),
    "bitwise_or": _bitwise("Or"),
    "bitwise_xor": _bitwise("Xor"),
    "floor_divide": _floor_divide,
    "floor_mod": _floor_mod,
    "isfinite": _isfinite,
    "left_shift": _shift("LEFT"),
    "mod": lambda w, n: w.op("Mod", *map(w.name, n.args), fmod=1),
    "not_equal": lambda w, n: w.op("Not", w.op("Equal", *map(w.name, n.args))),
    "right_shift": _shift("RIGHT"),
    "where": _where,
}
