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


def items(value: Value) -> list[Value]:
    """The values in a sequence, in sequences in it, too; any other value alone."""
    if isinstance(value, Items):
        return [v for part in value.parts for v in items(part)]
    return [value]


def tensors(value: Value) -> list[Expr]:
    """The graph values in `value`."""
    return [v for v in items(value) if isinstance(v, Expr)]
