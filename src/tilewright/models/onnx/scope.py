"""Names while a graph of an ONNX model is run.

In: names and what they stand for.  Out: the same, also of the graphs around.
Read next: `importer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.base.errors import ModelError
from tilewright.graph.expr import TensorType
from tilewright.models.onnx.checks import DAMAGED, shown
from tilewright.models.onnx.values import Value


@dataclass
class Scope:
    """Names of one graph, or of one call of a function.

    parent:   the graph around it
    versions: of operators, by domain
    read:     names that something reads
    declared: types of names, as the model has them
    """

    versions: Mapping[str, int]
    read: frozenset[str]
    parent: Scope | None = None
    depth: int = 0
    values: dict[str, Value] = field(default_factory=dict)
    declared: Mapping[str, TensorType] = field(default_factory=dict)

    def find(self, name: str) -> Value | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None

    def define(self, name: str, value: Value, place: str) -> None:
        if name in self.values:
            raise ModelError(place, f"{shown(name)!r} is there already", DAMAGED)
        if not name.isprintable():
            raise ModelError(place, f"{shown(name)} holds control characters", DAMAGED)
        self.values[name] = value
