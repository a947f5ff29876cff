"""What a name of an ONNX model may stand for while it is imported.

In: nothing.  Out: the kinds of `Value`.  Read next: `importer.py`, `control.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.relay.graph.expr import Array, Expr, Tuple


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


Value = Expr | Array | Items | Absent | Unknown


def items(value: Value) -> list[Value]:
    """The values in a sequence, in sequences in it, too; any other value alone."""
    if isinstance(value, Items):
        return [v for part in value.parts for v in items(part)]
    return [value]


def tensors(value: Value) -> list[Expr]:
    """The graph values in `value`."""
    return [v for v in items(value) if isinstance(v, Expr)]


def waits(values: Sequence[Value]) -> bool:
    """Whether the type of one of them is not known yet."""
    return any(e.waits for value in values for e in tensors(value))


def replaced(value: Value, there: Mapping[Expr, Expr]) -> Value:
    """`value` with other graph values; a tuple among them is a sequence."""
    if isinstance(value, Items):
        return Items(tuple(replaced(part, there) for part in value.parts))
    if not isinstance(value, Expr):
        return value
    found = there[value]
    return (
        Items(tuple(replaced(f, {f: f}) for f in found.fields))
        if isinstance(found, Tuple)
        else found
    )
