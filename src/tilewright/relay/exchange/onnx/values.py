"""What a name of an ONNX model may stand for while it is imported.

In: nothing.  Out: the kinds of `Value`.  Read next: `importer.py`, `control.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.relay.graph.expr import Array, Expr


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


def tensors(value: Value) -> list[Expr]:
    """The graph values in `value`."""
    if isinstance(value, Items):
        return [e for part in value.parts for e in tensors(part)]
    return [value] if isinstance(value, Expr) else []
