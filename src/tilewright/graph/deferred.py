"""Nodes whose types values decide: a loop that ends when the data say so, the places of what is
not zero.

In: parts, and a function that makes the rest of them once some are known.  Out: a node that stands
for the result, whose type waits (`Expr.waits`), as does that of all behind it.
Read next: `stages.py`, which runs such networks; `evaluate.py`, which does it one operator at a
time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Constant,
    Expr,
    Function,
    TensorType,
    Tuple,
    Var,
    children,
    free_vars,
    post_order,
)
from tilewright.graph.extension import extension
from tilewright.graph.types import WAITING

HOW_TO_TYPE = "Give the shapes of the inputs, or call the function with values that have types."
WAY_OUT = (
    "Make what decides it a constant, or run it with tilewright_tvm, whose relay.vm.compile and "
    'relay.create_executor("vm", mod) build it for the values of each call.'
)
_DEEPEST = 10_000  # makings of one node in a row: trips of a loop


class NotYet(ModelError):
    """The numbers of `node`, or its type, are asked for while the graph is made.

    by_value: whether it is the numbers
    state:    what the one who asks goes on with, a loop of a model
    names:    of the variables without a type that are why
    """

    def __init__(
        self, node: Expr, by_value: bool = False, place: str = "", reason: str = "",
        state: Any = None,
    ) -> None:  # fmt: skip
        self.node, self.by_value, self.state = node, by_value, state
        told = _nearest(node)
        self.names = [] if told else untyped(node)
        if names := self.names:
            whose = "its shape is" if isinstance(node, Var) else f"shapes of {', '.join(names)} are"
            place = place or ("relay" if len(names) > 1 else f"%{names[0]}")
            super().__init__(place, reason or f"{whose} not known", HOW_TO_TYPE)
            return
        if not told:
            reason = reason or extension().reason(node)
        super().__init__(
            place or (told.error.place if told else "relay"),
            reason
            or (told.error.reason if told else f"values decide a shape: those of {_name(node)}"),
            WAY_OUT,
        )

    def among(self, parts: Sequence[Expr]) -> tuple[int, ...]:
        """Say which of `parts` have to be known, or have types, before it can be tried again.

        Raises itself where that would not help.
        """
        if not self.by_value and any(p.waits for p in parts):
            return ()
        asked = [self.node] if self.by_value else _asked_for(self.node)
        found = [k for k, p in enumerate(parts) if p in asked]
        if not found:
            inside = {node for a in asked for node in post_order(a)}
            found = [k for k, p in enumerate(parts) if p in inside]
        found = [k for k in found if not isinstance(parts[k], Constant)]
        if not found:
            raise self
        return tuple(found)


class Deferred(Expr):
    """What `make` gives once it is known what it needs.

    parts: the graph values that it is made of
    needs: the numbers of those whose values have to be known; the others need types only
    make:  of the parts, some of them constants by then: a value, perhaps again a `Deferred`
    error: what is raised where it has to be known at once
    lazy:  it can be made before the types of its other parts are known
    trip:  whether it is one of a loop: its other parts are computed before it is made, so that what
           trips compute does not pile up
    """

    __slots__ = ("error", "lazy", "make", "needs", "parts", "trip")

    def __init__(
        self,
        parts: Sequence[Expr],
        needs: Iterable[int],
        make: Callable[[Sequence[Expr]], Expr],
        error: ModelError,
        lazy: bool = False,
        trip: bool = False,
    ) -> None:
        self.parts, self.needs, self.make = tuple(parts), tuple(needs), make
        self.error, self.lazy, self.trip = error, lazy, trip
        self._type = WAITING

    def with_parts(self, parts: Sequence[Expr]) -> Deferred:
        return Deferred(parts, self.needs, self.make, self.error, self.lazy, self.trip)

    def with_numbers(self, parts: Sequence[Expr], number: Callable[[int], int]) -> Deferred:
        """Put other parts and numbers in, which stood for open extents."""
        return self.with_parts(parts)

    def failed(self, error: ModelError) -> Deferred:
        """Make what stands for this node where it cannot be made."""
        return Deferred(self.parts, (), self.make, error, lazy=True)

    @property
    def first(self) -> tuple[Expr, ...]:
        """The parts that count before it is made."""
        return tuple(self.parts[k] for k in self.needs) if self.lazy else self.parts

    @property
    def asks(self) -> tuple[Expr, ...]:
        """The parts whose values have to be known and are not."""
        return tuple(p for k in self.needs if not isinstance(p := self.parts[k], Constant))

    def text(self, names: Mapping[Expr, str], attribute: Callable[[Any], str]) -> str:
        """Write it as a line; names: of its parts; attribute: writes one."""
        return self._text(names, attribute, {})

    def _text(
        self, names: Mapping[Expr, str], attribute: Callable[[Any], str], said: Mapping[str, Any]
    ) -> str:
        args = [*(names[p] for p in self.parts), *(f"{k}={attribute(v)}" for k, v in said.items())]
        return f"{self.error.place.removeprefix('relay.')}({', '.join(args)})"


class Branch(Deferred):
    """One of two values, of which the other is not computed: (condition, if so, if not)."""

    __slots__ = ()

    @property
    def cond(self) -> Expr:
        return self.parts[0]

    @property
    def true_branch(self) -> Expr:
        return self.parts[1]

    @property
    def false_branch(self) -> Expr:
        return self.parts[2]

    def with_parts(self, parts: Sequence[Expr]) -> Deferred:
        return Branch(parts, self.needs, self.make, self.error, lazy=True)

    def text(self, names: Mapping[Expr, str], attribute: Callable[[Any], str]) -> str:
        condition, one, other = (names[p] for p in self.parts)
        return f"if ({condition}) {{\n  {one}\n}} else {{\n  {other}\n}}"


class Computed(Deferred):
    """What a function of arrays gives, of shapes that depend on the arrays' elements.

    compute: of arrays: an array, or a tuple of them where there are `several`
    said:    what the function that made it was given besides values
    """

    __slots__ = ("compute", "said", "several")

    def __init__(
        self, parts: Sequence[Expr], compute: Callable[..., Any], several: bool, error: ModelError,
        said: Mapping[str, Any],
    ) -> None:  # fmt: skip
        super().__init__(parts, range(len(parts)), self._of_constants, error)
        self.compute, self.several, self.said = compute, several, said

    def with_parts(self, parts: Sequence[Expr]) -> Deferred:
        return Computed(parts, self.compute, self.several, self.error, self.said)

    def text(self, names: Mapping[Expr, str], attribute: Callable[[Any], str]) -> str:
        return self._text(names, attribute, self.said)

    def arrays(self, values: Sequence[Array]) -> tuple[Array, ...]:
        """Compute it of the values of the parts."""
        found = self.compute(*values)
        return tuple(np.array(f, order="C") for f in (found if self.several else (found,)))

    def _of_constants(self, parts: Sequence[Expr]) -> Expr:
        made = [
            Constant(a) for a in self.arrays([p.data for p in parts if isinstance(p, Constant)])
        ]
        return Tuple(made) if self.several else made[0]


def advanced(node: Expr) -> Expr:
    """Make `node` as far as what it needs is known."""
    for _ in range(_DEEPEST):
        if not isinstance(node, Deferred) or node.asks or any(p.waits for p in node.first):
            return node
        node = node.make(node.parts)
    assert isinstance(node, Deferred)
    raise ModelError(
        node.error.place, f"it has not ended after {_DEEPEST} steps", "Let its condition end it."
    )


def computed(
    place: str, compute: Callable[..., Any], *parts: Expr, several: bool = False, **said: Any
) -> Expr:
    """Make a node for `compute` of the arrays of `parts`; a constant where they are constants.

    said: attributes by which nodes of this place differ
    """
    reason = "how many results there are depends on the data"
    return advanced(Computed(parts, compute, several, ModelError(place, reason, WAY_OUT), said))


def branch(condition: Expr, one: Expr, other: Expr) -> Expr:
    """Choose `one` where `condition`, one element, holds, else `other`; only one is computed."""

    def chosen(parts: Sequence[Expr]) -> Expr:
        return parts[1] if holds(parts[0], "relay.If") else parts[2]

    error = ModelError("relay.If", "values decide which branch is taken", WAY_OUT)
    return advanced(Branch([condition, one, other], (0,), chosen, error, lazy=True))


def holds(condition: Expr, place: str) -> bool:
    """Say whether a condition of one element holds.  Raises ModelError for more of them."""
    known = np.asarray(condition.as_numbers())
    if known.size != 1:
        raise ModelError(place, f"its condition has {known.size} elements", "Give one.")
    return bool(known.reshape(-1)[0])


def made_again(node: Expr) -> Deferred | None:
    """Give how a value whose extents are open is made for numbers, where that is known."""
    return getattr(node, "origin", None)


def untyped(node: Expr) -> list[str]:
    """Name the variables without a type that `node` is made of."""
    if not node.waits:
        return []
    root = node.body if isinstance(node, Function) else node
    params = node.params if isinstance(node, Function) else ()
    found = [*params, *(v for v in free_vars(root) if v not in params)]
    return [v.name_hint for v in found if not v.is_typed]


def like(node: Expr) -> list[Any]:
    """Give numbers as they may be in `node`: zeros of its type; none where no input decides it."""
    if not any(isinstance(n, Var) for n in post_order(node)) or isinstance(node, Function):
        return []
    if node.waits:
        return [[0], 0]
    kind = node.checked_type
    if not isinstance(kind, TensorType) or kind.size > 1 << 16:
        return []
    zeros = np.zeros(kind.shape, int if kind.dtype.is_float else kind.dtype.storage)
    kinds = [zeros, zeros.astype(float)] if kind.dtype.is_float else [zeros]
    return [z.tolist() for z in kinds] + [z.item() for z in kinds if z.size == 1]


def _nearest(node: Expr) -> Deferred | None:
    """A `Deferred` that `node` is, or waits for."""
    stack, done = [node], set[Expr]()
    while stack:
        found = stack.pop()
        if isinstance(found, Deferred):
            return found
        done.add(found)
        stack += [c for c in children(found) if c.waits and c not in done]
    return None


def _asked_for(node: Expr) -> list[Expr]:
    return [a for n in post_order(node) if isinstance(n, Deferred) for a in n.asks]


def _name(node: Expr) -> str:
    names = [n.name_hint for n in post_order(node) if isinstance(n, Var)]
    return ", ".join(names[:3]) or "what it computes"
