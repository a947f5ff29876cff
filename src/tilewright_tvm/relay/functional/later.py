"""Functions of graph values that are called again when it is known what they need: `tile(x, reps)`
where `reps` is an input of the network, or where an extent of `x` is open.

In: functions that users call.  Out: the same, which give nodes for what cannot be made yet.
Read next: `graph/deferred.py`; `untyped.py` (variables without a type).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast
from weakref import WeakSet

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import WAY_OUT, Deferred, NotYet, made_again
from tilewright.graph.expr import Constant, Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from tilewright.graph.traversal import substitute
from tilewright_tvm.relay.functional.untyped import open_call

F = TypeVar("F", bound=Callable[..., Any])
_closed: WeakSet[Expr] = WeakSet()  # nodes that are made of no open extent


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

    def text(
        self, parts: Sequence[Expr], names: Mapping[Expr, str], attribute: Callable[[Any], str]
    ) -> str:
        """The function that is called again: values in front, the rest by name."""
        there = dict(zip(self.parts, parts, strict=True))

        def shown(value: Any) -> str:
            if isinstance(value, Expr):
                known = there.get(value, value)
                return names.get(known, type(known).__name__)
            if isinstance(value, (list, tuple)):
                return f"[{', '.join(map(shown, value))}]"
            return attribute(value)

        given = inspect.signature(self.function).bind(*self.args, **self.kwargs).arguments
        args: list[str] = []
        leading = True
        for key, value in given.items():
            leading = leading and isinstance(value, Expr)
            args.append(shown(value) if leading else f"{key}={shown(value)}")
        name = str(vars(self.function)["door_name"])
        return f"{name.removeprefix('relay.')}({', '.join(args)})"


class CalledAgain(Deferred):
    """What a function gives that is called again."""

    __slots__ = ()
    make: Again

    def with_parts(self, parts: Sequence[Expr]) -> Deferred:
        return CalledAgain(parts, self.needs, self.make, self.error, self.lazy, self.trip)

    def with_numbers(self, parts: Sequence[Expr], number: Callable[[int], int]) -> Deferred:
        made = self.with_parts(parts)
        made.make = replace(self.make, number=number)
        return made

    def text(self, names: Mapping[Expr, str], attribute: Callable[[Any], str]) -> str:
        if hasattr(self.make.function, "door_name"):
            return self.make.text(self.parts, names, attribute)
        return super().text(names, attribute)


class CallByName(Deferred):
    """A call of the function that a module will have under a name; it may call itself."""

    __slots__ = ("name",)

    def __init__(self, name: GlobalVar, args: Sequence[Expr]) -> None:
        self.name, place = name, f"@{name}"
        error = ModelError(place, "it is called before its module has it", WAY_OUT)
        super().__init__(args, range(len(args)), self._body, error)

    def with_parts(self, parts: Sequence[Expr]) -> Deferred:
        return CallByName(self.name, parts)

    def function(self) -> Function:
        """What is called.  Raises ModelError where no module has it."""
        if self.name.function is None:
            raise ModelError(
                f"@{self.name}", "no module has that function", "Set it: mod[name] = function."
            )
        return self.name.function

    def _body(self, parts: Sequence[Expr]) -> Expr:
        function = self.function()
        function.check(parts)
        return substitute(function.body, dict(zip(function.params, parts, strict=True)))


def deferring(function: F) -> F:
    """Decorate a function that users call: where it has to know what is known later only, its
    result is a node that stands for it; where extents are open, it can be made again for numbers.
    """

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        return made_now_or_later(called, args, kwargs, lambda: function(*args, **kwargs))

    return cast(F, called)


def defer(namespace: MutableMapping[str, Any], names: Iterable[str]) -> None:
    """Decorate the functions `names` of a module."""
    for name in names:
        if inspect.isfunction(namespace[name]):
            namespace[name] = deferring(namespace[name])


def made_now_or_later(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    call: Callable[[], Any],
) -> Any:
    """Give `call()`, which is `function(*args, **kwargs)`, or a node for it."""
    try:
        return _remembered(function, args, kwargs, call)
    except NotYet as wait:
        return _instead(wait, function, args, kwargs)


def _instead(
    wait: NotYet, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Expr:
    """A node for the result of `function(*args, **kwargs)`, of which one argument, a list or a
    tuple of them may be what has to be known."""
    parts = list(dict.fromkeys(_values_in([*args, *kwargs.values()])))
    if wait.names and (found := open_call(function, args, kwargs)):
        return found
    needs, make = wait.among(parts), Again(function, args, kwargs, parts)
    name = getattr(function, "__name__", "values")
    error = NotYet(wait.node, wait.by_value, f"relay.{name}", wait.reason)
    return CalledAgain(parts, needs, make, error)


def _remembered(
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
        return CalledAgain(parts, (), make, error)
    if isinstance(made, Tuple):
        for k, field in enumerate(made.fields):
            _remember(field, parts, replace(make, field=k))
    if isinstance(made, Expr):
        _remember(made, parts, make)
    return made


def _remember(node: Expr, parts: Sequence[Expr], make: Callable[[Sequence[Expr]], Expr]) -> None:
    if node not in parts and not isinstance(node, (Var, Constant, Deferred)):
        error = ModelError("relay", "an extent is open", WAY_OUT)
        node.origin = CalledAgain(parts, (), make, error)


def _is_open(node: Expr) -> bool:
    """Whether an extent of what `node` is made of is open, as far as that is remembered."""
    stack, done = [node], set[Expr]()
    while stack:
        found = stack.pop()
        if found in done or found in _closed:
            continue
        done.add(found)
        if isinstance(found, (Tuple, TupleGetItem, Deferred)):
            stack += found.parts
        elif (isinstance(found, Var) and found.open_extents) or made_again(found) is not None:
            return True
    _closed.update(n for n in done if isinstance(n, Deferred))
    return False


def _values_in(value: Any) -> list[Expr]:
    if isinstance(value, Expr):
        return [] if isinstance(value, Function) else [value]
    if isinstance(value, Mapping):
        return [v for item in value.values() for v in _values_in(item)]
    if isinstance(value, (list, tuple)):
        return [v for item in value for v in _values_in(item)]
    return []
