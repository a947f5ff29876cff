"""One ONNX node as its converter sees it.

In: names, attributes and readers of the import.  Out: graph values, arrays, refusals that name the
node.  Read next: `ops/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import NotYet, computed
from tilewright.graph.expr import Array, Constant, Expr
from tilewright.graph.op.work import nbytes
from tilewright.models.onnx.values import WIDER, Narrow, Value


class NotAllowed(ModelError):
    """ONNX does not allow the node, though its definition as a function may not look at it."""


@dataclass
class Node:
    """One node as a converter sees it.

    names: of its inputs, None where one is left out
    expr_of: the graph value of a name, for a reader; static_of: its array, if known at import
    outputs: names of the results, up to the last that something reads
    room: asks for bytes of a constant that is about to be made
    value_of: what a name stands for, tensor or not; known: the array of a value, if it has one
    inline: the results of a graph inside the node, for the values of its inputs; copies: asks for
            as many more copies of it, which may be beyond the limits; trip: for the copy of that
            number of a loop whose end is not in sight
    as_expr: a value as a graph value
    resume: of a loop: what it goes on with, as it gave it to `not_yet`
    used: attributes that were read
    """

    op: str
    place: str
    opset: int
    attrs: dict[str, Any]
    names: list[str | None]
    expr_of: Callable[[str, str], Expr]
    static_of: Callable[[str], Array | None]
    outputs: list[str]
    room: Callable[[int], None]
    value_of: Callable[[str], Value]
    known: Callable[[Value], Array | None]
    inline: Callable[[Any, Sequence[Value]], list[Value]]
    copies: Callable[[Any, int], None]
    trip: Callable[[Any, int], None]
    as_expr: Callable[[Value], Expr]
    resume: Value | None = None
    used: set[str] = field(default_factory=set)

    def has(self, index: int) -> bool:
        return index < len(self.names) and self.names[index] is not None

    def __getitem__(self, index: int) -> Expr:
        """Input `index` as a graph value."""
        if not self.has(index):
            raise self.refuse(f"input {index} is missing", "The model is damaged; export it again.")
        return self.expr_of(str(self.names[index]), self.place.removeprefix("from_onnx: "))

    def of_rank(self, index: int, *ranks: int) -> Expr:
        """Input `index`, which has one of `ranks` dimensions."""
        found = self[index]
        self.require(
            len(found.shape) in ranks, f"input {index} has shape {found.shape}",
            f"{' or '.join(map(str, ranks))} dimensions are needed.",
        )  # fmt: skip
        return found

    def value(self, index: int) -> Value:
        """Input `index` as it is: a sequence, an optional, an array that is known."""
        if not self.has(index):
            raise self.refuse(f"input {index} is missing", "The model is damaged; export it again.")
        return self.value_of(str(self.names[index]))

    def all(self) -> list[Expr]:
        return [self[k] for k in range(len(self.names))]

    def static(self, index: int, what: str) -> Array | None:
        """Input `index` as an array; None if it is left out."""
        if not self.has(index):
            return None
        found = self.static_of(str(self.names[index]))
        if found is None:
            raise self.not_yet(self.value(index), f"{what} is computed by the network")
        return found

    def computed(self, compute: Callable[..., Any], *parts: Expr, several: bool = False) -> Expr:
        """What a function of arrays gives, of shapes that their elements decide: an array, or a
        tuple of them where there are `several`."""
        known = [self.known(p) for p in parts]
        found = [p if a is None else Constant(a) for p, a in zip(parts, known, strict=True)]
        made = computed(self.place, compute, *found, several=several)
        self.room(0 if made.waits else nbytes(made.checked_type))
        return made

    def whole(self, index: int, what: str) -> int | None:
        """Input `index`, which must be known, as one whole number; None if it is left out."""
        found = self.static(index, what)
        if found is None:
            return None
        self.require(found.size == 1, f"{what} has {found.size} elements", "Give one number.")
        value = found.reshape(-1)[0]
        self.require(bool(np.isfinite(value)), f"{what} is {value}", "Give a whole number.")
        return int(value)

    def element(self, index: int) -> str:
        """The element type of input `index`, which may be one that networks do not have."""
        found = self.value(index)
        if isinstance(found, Narrow):
            return found.kind
        return str(found.dtype) if isinstance(found, np.ndarray) else str(self[index].dtype)

    def widened(self, index: int) -> Expr:
        """Input `index`; one of a type that networks do not have, of 4 bits or the like, in the
        least that holds its numbers."""
        found = self.value(index)
        if isinstance(found, Narrow):
            return found.value
        wanted = WIDER.get(found.dtype.name) if isinstance(found, np.ndarray) else None
        if wanted is None or not isinstance(found, np.ndarray):
            return self[index]
        self.room(found.size * np.dtype(wanted).itemsize)
        return self.as_expr(found.astype(wanted))

    def is_static(self, index: int) -> bool:
        """Whether input `index` is left out, or an array that is known at import."""
        return not self.has(index) or self.static_of(str(self.names[index])) is not None

    def attr(self, name: str, default: Any = None) -> Any:
        self.used.add(name)
        value = self.attrs.get(name, default)
        if isinstance(value, float):
            return float(str(np.float32(value)))  # ONNX stores 1e-5 as the nearest float32
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """The attribute `name`, 0 or 1."""
        value = self.attr(name, int(default))
        self.require(value in (0, 1), f"{name}={value} is neither 0 nor 1", "Use 0 or 1.")
        return bool(value)

    def ints(self, name: str, index: int | None = None) -> list[int] | None:
        """Integers from the attribute `name`, in newer versions from input `index`."""
        given = self.attr(name)
        if given is None and index is not None and (array := self.static(index, name)) is not None:
            given = array.reshape(-1)
        return None if given is None else [int(v) for v in given]

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front.  Raises NotAllowed for one that is outside."""
        if not -rank <= axis < rank:
            reason = f"axis {axis} is out of range"
            raise NotAllowed(self.place, reason, f"Use {-rank} to {rank - 1}.")
        return axis % rank

    def typed(self, value: Value) -> Value:
        """`value`, which may be a sequence.  Raises NotYet where that is not known yet."""
        if isinstance(value, Expr) and value.waits:
            raise NotYet(value)
        return value

    def not_yet(self, value: Value, reason: str, state: Value | None = None) -> ModelError:
        """What a node raises that has to know `value`, which the network computes; it is tried
        again with `state` as `resume`."""
        if not isinstance(value, Expr):
            return self.refuse(reason)
        return NotYet(value, by_value=True, place=self.place, reason=reason, state=state)

    def refuse(self, reason: str, way_out: str = "") -> ModelError:
        return ModelError(self.place, reason, way_out)

    def require(self, holds: bool, reason: str, way_out: str = "") -> None:
        if not holds:
            raise self.refuse(reason, way_out)


Converter = Callable[[Node], Any]


def number(n: Node, name: str, index: int, default: float) -> float:
    given = n.attr(name)
    if given is None and (array := n.static(index, name)) is not None:
        n.require(array.size == 1, f"{name} has {array.size} elements", "One number is needed.")
        given = array.item()
    return default if given is None else float(given)


def shape_input(n: Node, index: int) -> tuple[int, ...]:
    """Extents from a constant input."""
    array = n.static(index, "its shape")
    if array is None:
        raise n.refuse("no shape is given", "Give it as a constant of the model.")
    shape = tuple(int(extent) for extent in array.reshape(-1))
    n.require(min(shape, default=0) >= 0, f"its shape is {shape}", "Use extents of at least 0.")
    return shape
