"""Types with unknown parts, and what follows from two of them being one.

In: types.  Out: what unknown parts are.  Read next: `infer.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.types import AnyType, FuncType, OtherType, TupleType, same_type
from tilewright_tvm.relay.functional.data_types import RefType, TypeCall, TypeVar


class Unknown(OtherType):
    """A type that is not known yet; `known` is it, since something tells."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known: AnyType | None = None

    def is_same(self, other: Any, there: Mapping[Any, Any]) -> bool:
        return self is other

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return "?" if self.known is None else str(self.known)

    __repr__ = __str__


class Mismatch(Exception):
    """Two types are not one; the args are they, or their parts that differ."""


def unify(a: AnyType, b: AnyType) -> None:
    """Let them be one type.  Raises Mismatch."""
    stack = [(a, b)]
    while stack:
        a, b = map(found, stack.pop())
        if a is b:
            continue
        if isinstance(a, Unknown) or isinstance(b, Unknown):
            unknown, other = (a, b) if isinstance(a, Unknown) else (b, a)
            if unknown in unknowns(other):
                raise Mismatch(a, b)
            unknown.known = other
            continue
        if isinstance(a, FuncType) and isinstance(b, FuncType):
            if bool(a.type_params) != bool(b.type_params):
                a, b = instance(a), instance(b)
            elif a.type_params and len(a.type_params) == len(b.type_params):
                b = substituted(b, dict(zip(b.type_params, a.type_params, strict=True)))
        mine, theirs = parts(a), parts(b)
        if type(a) is not type(b) or len(mine) != len(theirs):
            raise Mismatch(a, b)
        if isinstance(a, TypeCall) and a.func != b.func:
            raise Mismatch(a, b)
        if not mine and not same_type(a, b):
            raise Mismatch(a, b)
        stack.extend(zip(mine, theirs, strict=True))


def found(kind: AnyType) -> AnyType:
    """What is known of it, at the top."""
    while isinstance(kind, Unknown) and kind.known is not None:
        kind = kind.known
    return kind


def parts(kind: AnyType) -> Sequence[AnyType]:
    """The types that it is made of."""
    if isinstance(kind, TupleType):
        return kind.fields
    if isinstance(kind, FuncType):
        return (*kind.arg_types, kind.ret_type)
    if isinstance(kind, TypeCall):
        return kind.args
    return (kind.value,) if isinstance(kind, RefType) else ()


def resolved(kind: AnyType) -> AnyType:
    """It, with all that is known in the place of unknown parts."""
    return _rebuilt(kind, {})


def substituted(kind: AnyType, there: Mapping[TypeVar, AnyType]) -> AnyType:
    """It, with types in the place of variables."""
    return _rebuilt(kind, there)


def instance(kind: FuncType) -> FuncType:
    """It, with unknown types in the place of the variables that it binds."""
    there = {v: Unknown() for v in kind.type_params}
    args = [substituted(t, there) for t in kind.arg_types]
    return FuncType(args, substituted(kind.ret_type, there))


def unknowns(kind: AnyType) -> set[Unknown]:
    """Those in it."""
    kind = found(kind)
    if isinstance(kind, Unknown):
        return {kind}
    inside: set[Unknown] = set()
    return inside.union(*map(unknowns, parts(kind)))


def _rebuilt(kind: AnyType, there: Mapping[Any, AnyType]) -> AnyType:
    kind = found(kind)
    if isinstance(kind, TypeVar):
        return there.get(kind, kind)
    new = [_rebuilt(t, there) for t in parts(kind)]
    if all(a is b for a, b in zip(new, parts(kind), strict=True)):
        return kind
    if isinstance(kind, TupleType):
        return TupleType(tuple(new))
    if isinstance(kind, FuncType):
        return FuncType(new[:-1], new[-1], kind.type_params)
    return TypeCall(kind.func, new) if isinstance(kind, TypeCall) else RefType(new[0])


def checked(a: AnyType, b: AnyType, place: str) -> None:
    """`unify`.  Raises ModelError, which says what was given at `place`, and what was asked for."""
    try:
        unify(a, b)
    except Mismatch:
        raise ModelError(
            place, f"it has type {resolved(b)}, and {resolved(a)} is asked for",
            "Give a value of that type.",
        ) from None  # fmt: skip
