"""What a name of an ONNX model may stand for while it is imported.

In: nothing.  Out: the kinds of `Value`.  Read next: `importer.py`, `control.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.graph.expr import Array, Expr, TensorType, Tuple


@dataclass(frozen=True)
class Items:
    """A sequence: it is known which values it has, and in what order."""

    parts: tuple[Value, ...]


@dataclass(frozen=True)
class Absent:
    """An optional that holds nothing."""


@dataclass(frozen=True)
class Unknown:
    """A result of what cannot be imported, of a type that is not known."""


# Element types that networks do not have, and the least that hold their numbers.
WIDER = {
    **dict.fromkeys(("int2", "int4"), "int8"),
    **dict.fromkeys(("uint2", "uint4"), "uint8"),
    **dict.fromkeys(
        ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        "float16",
    ),
    "float8_e8m0fnu": "float32",
}


@dataclass(frozen=True)
class Narrow:
    """A tensor of such an element type.

    value: its numbers, in `WIDER[kind]`
    """

    value: Expr
    kind: str


Value = Expr | Array | Narrow | Items | Absent | Unknown


def kind_of(value: Value | None) -> tuple[str, tuple[int, ...]] | None:
    """(element type in numpy's words, shape) of a tensor; None where that is not known."""
    if isinstance(value, Narrow):
        return value.kind, value.value.shape
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape
    if not isinstance(value, Expr) or value.waits or not isinstance(value.checked_type, TensorType):
        return None
    return str(value.dtype.storage), value.shape


def items(value: Value) -> list[Value]:
    """The values in a sequence, in sequences in it, too; any other value alone."""
    if isinstance(value, Items):
        return [v for part in value.parts for v in items(part)]
    return [value]


def tensors(value: Value) -> list[Expr]:
    """The graph values in `value`."""
    wide = [v.value if isinstance(v, Narrow) else v for v in items(value)]
    return [v for v in wide if isinstance(v, Expr)]


def waits(values: Sequence[Value]) -> bool:
    """Whether the type of one of them is not known yet."""
    return any(e.waits for value in values for e in tensors(value))


def replaced(value: Value, there: Mapping[Expr, Expr]) -> Value:
    """`value` with other graph values; a tuple among them is a sequence."""
    if isinstance(value, Items):
        return Items(tuple(replaced(part, there) for part in value.parts))
    if isinstance(value, Narrow):
        return Narrow(there[value.value], value.kind)
    if not isinstance(value, Expr):
        return value
    found = there[value]
    return (
        Items(tuple(replaced(f, {f: f}) for f in found.fields))
        if isinstance(found, Tuple)
        else found
    )
