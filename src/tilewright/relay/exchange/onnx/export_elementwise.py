"""Export of elementwise operators that ONNX spells otherwise, or by several of its own.

In: calls.  Out: names of values that the writer wrote.  Read next: `writer.py`; `export.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.relay.exchange.onnx.writer import Exporter, Writer
from tilewright.relay.graph.expr import Call
from tilewright.relay.op import TABLE


def _floor_divide(w: Writer, node: Call) -> str:
    a, b = map(w.name, node.args)
    if node.dtype.is_float:
        return w.op("Floor", w.op("Div", a, b))
    return w.op("Div", w.op("Sub", a, w.op("Mod", a, b)), b)


def _floor_mod(w: Writer, node: Call) -> str:
    a, b = map(w.name, node.args)
    if node.dtype.is_float:
        return w.op("Sub", a, w.op("Mul", b, w.op("Floor", w.op("Div", a, b))))
    return w.op("Mod", a, b)


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
}
