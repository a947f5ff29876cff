"""Nodes for what cannot be made yet: `tile(x, reps)` where `reps` is an input of the network.

In: a function of graph values that needs to know the number in one of them, or its shape.  Out: a
node that stands for the result, whose type waits (`Expr.waits`), as does that of all behind it.
When the network runs, the function is called again with what is known by then.
Read next: `stages.py`, which does that; `evaluate.py`, which does it one operator at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tilewright.base.doors import Awaiting
from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Constant,
    Expr,
    Function,
    GlobalVar,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    children,
    post_order,
)
from tilewright.graph.functional import is_functional
from tilewright.graph.types import WAITING
from tilewright.graph.untyped import HOW_TO_TYPE, open_call, untyped

WAY_OUT = (
    'Run it with relay.create_executor("vm", mod) or relay.vm.compile, which build it for the '
    "values of each call, or make what decides it a constant."
)
_DEEPEST = 10_000  # makings of one node in a row: trips of a loop


class NotYet(ModelError, Awaiting):
    """The numbers of `node`, or its type, are asked for while the graph is made.

    by_value: whether it is the numbers
    state:    what the one who asks goes on with, a loop of a model
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
        if not told and is_functional(node):
            reason = reason or "what it is made of holds functions, data types or references"
        super().__init__(
            place or (told.error.place if told else "relay"),
            reason
            or (told.error.reason if told else f"values decide a shape: those of {_name(node)}"),
            WAY_OUT,
        )

    def instead(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Expr:
        """A node for the result of `function(*args, **kwargs)`, of which one argument, a list or a
        tuple of them may be what has to be known."""
        parts = list(dict.fromkeys(_values_in([*args, *kwargs.values()])))
        if self.names and (found := open_call(function, args, kwargs)):
            return found
        needs, make = self.among(parts), Again(function, args, kwargs, parts)
        name = getattr(function, "__name__", "values")
        error = NotYet(self.node, self.by_value, f"relay.{name}", self.reason)
        return Later(parts, needs, make, error)

    def among(self, parts: Sequence[Expr]) -> tuple[int, ...]:
        """Which of `parts` have to be known, or have types, before it can be tried again.

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


@dataclass(frozen=True)
class Again:
    """A function on the same arguments with other graph values.

    parts:  the values among its arguments
    number: what each number among its arguments becomes, which may stand for an open extent
    field:  which value of a tuple counts
    """

    function: Callable[..., Any]
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    parts: Sequence[Expr]
    number: Callable[[int], int] | None = None
    field: int | None = None

    def __call__(self, given: Sequence[Expr]) -> Expr:
        there = dict(zip(self.parts, given, strict=True))
        args = [self._put(a, there) for a in self.args]
        made: Expr = self.function(
            *args, **{k: self._put(v, there) for k, v in self.kwargs.items()}
        )
        return made if self.field is None else made[self.field]

    def _put(self, value: Any, there: Mapping[Expr, Expr]) -> Any:
        if isinstance(value, Expr):
            return there.get(value, value)
        if isinstance(value, Mapping):
            return {key: self._put(item, there) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._put(item, there) for item in value)
        return self.number(value) if self.number is not None and type(value) is int else value


class Later(Expr):
    """What `make` gives once it is known what it needs.

    parts: the graph values that it is made of
    needs: the numbers of those whose values have to be known; the others need types only
    make:  of the parts, some of them constants by then: a value, perhaps again a `Later`
    error: what is raised where it has to be known at once
    lazy:  it can be made before the types of its other parts are known
    trip:  whether it is one of a loop: its other parts are computed before it is made, so that what
           trips compute does not pile up
    is_open: whether extents of its parts are open
    """

    __slots__ = ("error", "is_open", "lazy", "make", "needs", "parts", "trip")

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
        self.is_open = any(map(_is_open, self.parts))
        self._type = WAITING

    def with_parts(self, parts: Sequence[Expr]) -> Later:
        return Later(parts, self.needs, self.make, self.error, self.lazy, self.trip)

    def with_numbers(self, parts: Sequence[Expr], number: Callable[[int], int]) -> Later:
        """It with other parts and numbers, which stood for open extents."""
        made = self.with_parts(parts)
        if isinstance(made.make, Again):
            made.make = replace(made.make, number=number)
        return made

    def failed(self, error: ModelError) -> Later:
        """What stands for this node where it cannot be made."""
        return Later(self.parts, (), self.make, error, lazy=True)

    @property
    def tuple_value(self) -> Expr:
        """Itself, as a `Tuple` has it."""
        return self

    @property
    def first(self) -> tuple[Expr, ...]:
        """The parts that count before it is made."""
        return tuple(self.parts[k] for k in self.needs) if self.lazy else self.parts

    @property
    def asks(self) -> tuple[Expr, ...]:
        """The parts whose values have to be known and are not."""
        return tuple(p for k in self.needs if not isinstance(p := self.parts[k], Constant))


class Branch(Later):
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

    def with_parts(self, parts: Sequence[Expr]) -> Later:
        return Branch(parts, self.needs, self.make, self.error, lazy=True)


class CallByName(Later):
    """A call of the function that a module will have under a name; it may call itself."""

    __slots__ = ("name",)

    def __init__(self, name: GlobalVar, args: Sequence[Expr]) -> None:
        self.name, place = name, f"@{name}"
        error = ModelError(place, "it is called before its module has it", WAY_OUT)
        super().__init__(args, range(len(args)), self._body, error)

    def with_parts(self, parts: Sequence[Expr]) -> Later:
        return CallByName(self.name, parts)

    def function(self) -> Function:
        """What is called.  Raises ModelError where no module has it."""
        if self.name.function is None:
            raise ModelError(
                f"@{self.name}", "no module has that function", "Set it: mod[name] = function."
            )
        return self.name.function

    def _body(self, parts: Sequence[Expr]) -> Expr:
        from tilewright.graph.traversal import substitute

        function = self.function()
        function.check(parts)
        return substitute(function.body, dict(zip(function.params, parts, strict=True)))


class Computed(Later):
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

    def with_parts(self, parts: Sequence[Expr]) -> Later:
        return Computed(parts, self.compute, self.several, self.error, self.said)

    def arrays(self, values: Sequence[Array]) -> tuple[Array, ...]:
        """Of the values of the parts."""
        found = self.compute(*values)
        return tuple(np.array(f, order="C") for f in (found if self.several else (found,)))

    def _of_constants(self, parts: Sequence[Expr]) -> Expr:
        made = [
            Constant(a) for a in self.arrays([p.data for p in parts if isinstance(p, Constant)])
        ]
        return Tuple(made) if self.several else made[0]


def type_of(node: Expr) -> Any:
    """The type of a node that waits, where it follows from what functional nodes of it tell.

    Raises NotYet where it does not.
    """
    found = inferred(node)
    if found is None:
        raise NotYet(node)
    return found


def inferred(node: Expr) -> Any:
    """The same; None where it does not follow."""
    if not (is_functional(node) or isinstance(node, Function)):
        return None
    from tilewright.functional.infer import inferred_type

    return inferred_type(node)


def advanced(node: Expr) -> Expr:
    """`node`, made as far as what it needs is known."""
    for _ in range(_DEEPEST):
        if not isinstance(node, Later) or node.asks or any(p.waits for p in node.first):
            return node
        node = node.make(node.parts)
    assert isinstance(node, Later)
    raise ModelError(
        node.error.place, f"it has not ended after {_DEEPEST} steps", "Let its condition end it."
    )


def computed(
    place: str, compute: Callable[..., Any], *parts: Expr, several: bool = False, **said: Any
) -> Expr:
    """A node for `compute` of the arrays of `parts`; a constant where they are constants.

    said: attributes by which nodes of this place differ
    """
    reason = "how many results there are depends on the data"
    return advanced(Computed(parts, compute, several, ModelError(place, reason, WAY_OUT), said))


def remembered(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    call: Callable[[], Any],
) -> Any:
    """`call()`, which is `function(*args, **kwargs)`.

    Where extents are open, its result can be made again for numbers, and what is refused of open
    ones is tried again when they are numbers.
    """
    parts = list(dict.fromkeys(_values_in([*args, *kwargs.values()])))
    if not any(map(_is_open, parts)):
        return call()
    make = Again(function, args, kwargs, parts)
    try:
        made = call()
    except NotYet:
        raise
    except ModelError as error:
        return Later(parts, (), make, error)
    if isinstance(made, Tuple):
        for k, field in enumerate(made.fields):
            _remember(field, parts, replace(make, field=k))
    if isinstance(made, Expr):
        _remember(made, parts, make)
    return made


def made_again(node: Expr) -> Later | None:
    """How a value whose extents are open is made for numbers, where that is known."""
    found: Later | None = getattr(node, "origin", None)
    return found


def _remember(node: Expr, parts: Sequence[Expr], make: Callable[[Sequence[Expr]], Expr]) -> None:
    if node not in parts and not isinstance(node, (Var, Constant, Later)):
        node.origin = Later(parts, (), make, ModelError("relay", "an extent is open", WAY_OUT))


def _is_open(node: Expr) -> bool:
    """Whether an extent of what `node` is made of is open, as far as that is remembered."""
    if isinstance(node, Var):
        return bool(node.open_extents)
    if isinstance(node, Later):
        return node.is_open
    if isinstance(node, (Tuple, TupleGetItem)):
        return any(map(_is_open, children(node)))
    return made_again(node) is not None


def _nearest(node: Expr) -> Later | None:
    """A `Later` that `node` is, or waits for."""
    stack, done = [node], set[Expr]()
    while stack:
        found = stack.pop()
        if isinstance(found, Later):
            return found
        done.add(found)
        stack += [c for c in children(found) if c.waits and c not in done]
    return None


def like(node: Expr) -> list[Any]:
    """Numbers as they may be in `node`: zeros of its type; nothing where it depends on no input."""
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


def _asked_for(node: Expr) -> list[Expr]:
    return [a for n in post_order(node) if isinstance(n, Later) for a in n.asks]


def _values_in(value: Any) -> list[Expr]:
    if isinstance(value, Expr):
        return [] if isinstance(value, Function) else [value]
    if isinstance(value, Mapping):
        return [v for item in value.values() for v in _values_in(item)]
    if isinstance(value, (list, tuple)):
        return [v for item in value for v in _values_in(item)]
    return []


def _name(node: Expr) -> str:
    names = [n.name_hint for n in post_order(node) if isinstance(n, Var)]
    return ", ".join(names[:3]) or "what it computes"
