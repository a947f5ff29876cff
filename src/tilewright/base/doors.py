"""One check at each public door: arguments are of the kinds that a function's annotations say.

In: functions and classes that users call.  Out: the same, which refuse an argument of another kind
with an error that names it.  Behind the doors nothing is checked twice.
Read next: `errors.py`.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import numbers
import operator
import os
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np

from tilewright.base import plugins
from tilewright.base.errors import TilewrightError

F = TypeVar("F", bound=Callable[..., Any])
_OURS = __name__.partition(".")[0]  # begins the names of packages that stand on this one, too

# What users call a kind, and how they get one.  Classes of ours say it themselves: `door_words`.
_WORDS: dict[Any, tuple[str, str]] = {
    int: ("an integer", "Give one, such as 1."),
    float: ("a number", "Give one, such as 0.5."),
    bool: ("True or False", "Give one of the two."),
    str: ("a string", "Give its name in quotation marks."),
    type(None): ("None", ""),
    Callable: ("a function", "Give one, such as lambda x: x."),
    os.PathLike: ("a path", 'Give one, such as "log.json".'),
    typing.IO: ("an open file", ""),
}


def check_arguments(
    function: Callable[..., Any], args: Sequence[Any], place: str, error: type[TilewrightError]
) -> None:
    """Refuse arguments, by their number, for a function of the user's."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # of a function in C nothing is known
        return
    try:
        signature.bind(*args)
    except TypeError as mismatch:
        raise error(
            place, f"{mismatch} ({len(args)} given)", f"It is declared with {signature}."
        ) from None


def named(name: str, meaning: str) -> Callable[[F], F]:
    """Decorates a function that one of several users' functions is made of: its name and docstring
    are what they see."""

    def renamed(function: F) -> F:
        for attribute in ("__name__", "__qualname__"):
            setattr(function, attribute, name)
        function.__doc__ = meaning
        return function

    return renamed


def is_integer(value: Any) -> bool:
    """Whether it is an int, or what numpy and constant expressions have for one; no bool."""
    if isinstance(value, np.ndarray):
        return not value.ndim and value.dtype.kind in "iu"
    return hasattr(value, "__index__") and not isinstance(value, (bool, np.bool_))


class Mismatch(Exception):
    """A value is not of the kind that is asked for."""


class _NoPath(Mismatch):
    """It is text where a path may be, and holds what no path can."""


class _ElementType:
    """The kind of arguments called dtype, which `DType` checks; to compare an array is an error of
    numpy's."""

    door_words = ("an element type", 'Give its name, such as "float32".')


class _Count:
    """The integers of strict doors."""


_WORDS[_Count] = _WORDS[int]


class _Names(dict[str, Any]):
    """The names in a function's annotations; those that only type checkers import are Any."""

    def __init__(self, function: Callable[..., Any], strict: bool) -> None:
        super().__init__(vars(builtins) | inspect.unwrap(function).__globals__)
        if strict:
            self["int"] = _Count

    def __missing__(self, name: str) -> Any:
        return Any


def door(error: type[TilewrightError], name: str = "", strict: bool = False) -> Callable[[F], F]:
    """Decorates a function, or the `__init__` of a class, that users call.

    error: what is raised for an argument of another kind than its annotation says; numpy's numbers
    become Python's, and so does what knows its `as_numbers()`.
    name: what users call it, by default its own name.
    strict: True is no integer; elsewhere it is 1, as scripts of TVM have it.
    A wrong number of arguments stays Python's TypeError.
    Of arguments by a name that it does not have, plugins of kind "argument names" are asked: called
    with these arguments, the names that it has and those given by position, they rename some.
    """

    def decorate(function: F) -> F:
        known = name or function.__qualname__.removesuffix(".__init__")

        @functools.cache
        def kinds() -> tuple[list[tuple[str, Any]], dict[str, Any], Any, bool]:
            """(of positional parameters, of those by name, of *args, whether there are no others by
            name); read at the first call."""
            hints = typing.get_type_hints(function, None, _Names(function, strict))
            listed, named, rest, closed = [], {}, Any, True
            for p in inspect.signature(function).parameters.values():
                kind = hints.get(p.name, Any)
                if p.name.endswith("dtype"):
                    kind = _ElementType
                if p.default is None:
                    kind = kind | None if kind is not Any else Any
                if p.kind is p.VAR_POSITIONAL:
                    rest = kind
                elif p.kind is p.VAR_KEYWORD:
                    closed = False
                else:
                    named[p.name] = kind
                    if p.kind is not p.KEYWORD_ONLY:
                        listed.append((p.name, kind))
            return listed, named, rest, closed

        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            listed, named, rest, closed = kinds()
            if closed and not kwargs.keys() <= named.keys():
                before = [what for what, _ in listed[: len(args)]]
                for renamed in plugins.every("argument names"):
                    kwargs = renamed(kwargs, named, before)
            over = [(f"argument {k + 1}", rest) for k in range(len(listed), len(args))]
            given = [
                _held(value, kind, what, known, error)
                for value, (what, kind) in zip(args, [*listed, *over], strict=False)
            ]
            by_name = {
                what: _held(value, named.get(what, Any), what, known, error)
                for what, value in kwargs.items()
            }
            return function(*given, **by_name)

        vars(checked)["door_name"] = known
        return typing.cast(F, checked)

    return decorate


def open_doors(
    namespace: MutableMapping[str, Any],
    names: Iterable[str],
    error: type[TilewrightError],
    room: str = "",
) -> None:
    """Make doors of the functions `names` of a package, and of its classes' `__init__`.

    room: what users call the package; default: its name
    """
    room = room or str(namespace["__name__"]).partition(".")[2]
    for name in names:
        known = namespace[name]
        if inspect.isfunction(known):
            namespace[name] = door(error, f"{room}.{name}")(known)
        elif inspect.isclass(known) and inspect.isfunction(known.__init__):
            known.__init__ = door(error, name)(known.__init__)  # type: ignore[method-assign]


def _held(value: Any, kind: Any, what: str, place: str, error: type[TilewrightError]) -> Any:
    """`value` as `kind`.  Raises `error` where it is none."""
    if kind is Any:
        return value
    try:
        return _as(value, kind)
    except _NoPath:
        raise error(
            f"{place}({what}={reprlib.repr(value)})", "no path has a NUL character in it",
            "Check the path.",
        ) from None  # fmt: skip
    except Mismatch:
        known = value.as_numbers() if hasattr(value, "as_numbers") else None
        for form in () if known is None else _forms(known):
            with suppress(Mismatch):
                return _as(form, kind)
        if known is None and hasattr(value, "await_numbers"):
            value.await_numbers(lambda like: _fits(like, kind))
        words, way_out = _described(kind)
        raise error(
            f"{place}({what}={reprlib.repr(value)})",
            f"{what} is {_word_of(value)}, not {words}", way_out,
        ) from None  # fmt: skip


def _forms(numbers: Any) -> list[Any]:
    """How numbers may be meant: as they are, whole ones as integers, one without a list."""
    array = np.asarray(numbers)
    forms = [numbers]
    if array.dtype.kind == "f" and np.all(array == np.rint(array)):
        forms.append(np.rint(array).astype(int).tolist())
    return forms + [np.ravel(form)[0].item() for form in forms if array.size == 1]


def _fits(value: Any, kind: Any) -> bool:
    try:
        _as(value, kind)
    except Mismatch:
        return False
    return True


def _as(value: Any, kind: Any) -> Any:
    """`value` as `kind`, numbers of numpy as those of Python.  Raises Mismatch."""
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return value
    if kind is _ElementType:
        return _require(not isinstance(value, np.ndarray), value)
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain(value)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(value, inner)
    found = origin or kind
    if found in (Sequence, Iterable, list, tuple, set, frozenset):
        return _several(value, found, inner)
    if found is typing.IO:
        return _require(hasattr(value, "write"), value)
    if found is Callable:
        return _require(callable(value), value)
    if found is typing.Literal:
        return _require(value in inner, value)
    if isinstance(found, type):
        return _require(isinstance(value, found), value)
    return value


def _require(holds: bool, value: Any) -> Any:
    if not holds:
        raise Mismatch
    return value


def _one_of(value: Any, kinds: Sequence[Any]) -> Any:
    if isinstance(value, (str, os.PathLike)) and "\0" in str(value) and _is_path(kinds):
        raise _NoPath
    if any(isinstance(kind, type) and type(value) is kind for kind in kinds):
        return value  # as it is, whatever else it could be read as
    for kind in kinds:
        try:
            return _as(value, kind)
        except Mismatch:
            continue
    raise Mismatch


def _is_path(kinds: Sequence[Any]) -> bool:
    return any((typing.get_origin(kind) or kind) is os.PathLike for kind in kinds)


def _several(value: Any, kind: Any, inner: Sequence[Any]) -> Any:
    """A list, a tuple or an array; what can be read only once is not read."""
    if isinstance(value, (str, bytes, Mapping)):
        raise Mismatch
    if not isinstance(value, (list, tuple, np.ndarray)):
        wanted = Iterable if kind is Iterable else Sequence
        return _require(isinstance(value, wanted) and hasattr(type(value), "__iter__"), value)
    if isinstance(value, np.ndarray) and not value.ndim:
        raise Mismatch
    if not inner:
        return value
    if kind is tuple and inner[-1] is not ...:
        _require(len(value) == len(inner), value)
        items = [_as(v, k) for v, k in zip(value, inner, strict=True)]
    else:
        items = [_as(v, inner[0]) for v in value]
    if all(a is b for a, b in zip(items, value, strict=True)):
        return value
    return tuple(items) if isinstance(value, tuple) else items


def _integer(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, int):  # True is 1 to Python, but numpy takes it for no number
        return int(value)
    return operator.index(_require(is_integer(value), value))


def _count(value: Any) -> Any:
    return _integer(_require(not isinstance(value, bool), value))


def _number(value: Any) -> Any:
    if isinstance(value, (float, int)):
        return value
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value[()]
    return float(_require(isinstance(value, numbers.Real), value))


def _truth(value: Any) -> Any:
    return bool(_require(isinstance(value, (bool, np.bool_, int)), value))


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    int: _integer,
    _Count: _count,
    float: _number,
    bool: _truth,
    str: lambda value: _require(isinstance(value, str), value),
    None: lambda value: _require(value is None, value),
    type(None): lambda value: _require(value is None, value),
}


def _described(kind: Any) -> tuple[str, str]:
    """A kind in words, and how to get one."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        parts = [_described(k) for k in inner]
        words = list(dict.fromkeys(word for word, _ in parts))
        return " or ".join(words), next((way for _, way in parts if way), "")
    found = origin or kind
    if found in (Sequence, Iterable, list, tuple):
        if found is tuple and inner and inner[-1] is not ...:
            return f"a tuple of {' and '.join(_described(k)[0] for k in inner)}", ""
        if not inner or inner[0] is Any:
            return "a list", "Give a list or a tuple."
        item, way = _described(inner[0])
        way = "Give a list or a tuple of them." if inner[0] in _WORDS else way
        return f"a list of {item.removeprefix('an ').removeprefix('a ')}s", way
    if found in _WORDS:
        return _WORDS[found]
    told = vars(found).get("door_words") if isinstance(found, type) else None
    return told or (f"a {getattr(found, '__name__', found)}", "")


def _word_of(value: Any) -> str:
    """What a value is, as one says it: with the room of its class where that tells kinds apart."""
    if value is None:
        return "None"
    if isinstance(value, (list, tuple)) and value:
        held = dict.fromkeys(type(item).__name__ for item in value)
        return f"a {type(value).__name__} of {' and '.join(held)}"
    cls = type(value)
    package, _, inside = cls.__module__.partition(".")
    room = inside.partition(".")[0] if package.startswith(_OURS) else ""
    return f"a {room}.{cls.__name__}" if room else f"a {cls.__name__}"
