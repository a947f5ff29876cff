"""Type variables of expressions: `relay.analysis.free_type_vars` and its kin.

In: expressions, functions and types of functional Relay.  Out: type variables, each once.
Read next: `functional/data_types.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Expr, Function, Var, post_order
from tilewright_tvm.relay.functional.data_types import TypeVar
from tilewright_tvm.relay.functional.definitions import IRModule
from tilewright_tvm.relay.functional.nodes import GeneralFunction

__all__ = ["all_type_vars", "bound_type_vars", "free_type_vars"]

_LISTS, _PARTS = ("fields", "arg_types", "args", "type_params"), ("ret_type", "func", "value")


def all_type_vars(expr: Any, mod: IRModule | None = None) -> list[TypeVar]:
    """The type variables of an expression or a type, in the order in which they are reached."""
    return list(dict.fromkeys(v for kind in _types(expr) for v in _variables(kind)))


def bound_type_vars(expr: Any, mod: IRModule | None = None) -> list[TypeVar]:
    """Those that a function, or the type of one, lets its callers choose."""
    if not isinstance(expr, Expr):
        return list(dict.fromkeys(_chosen(expr)))
    found = [v for f in _functions(expr) for v in getattr(f, "type_params", ())]
    return list(dict.fromkeys([*found, *(v for kind in _types(expr) for v in _chosen(kind))]))


def free_type_vars(expr: Any, mod: IRModule | None = None) -> list[TypeVar]:
    """Those of `all_type_vars` that are not bound."""
    bound = bound_type_vars(expr)
    return [v for v in all_type_vars(expr) if v not in bound]


def _functions(expr: Expr) -> list[Function]:
    """All functions of an expression, those inside others, too."""
    found: dict[Function, None] = {}
    waiting = [expr]
    while waiting:
        root = waiting.pop()
        inside = [root] if isinstance(root, Function) else []
        for node in post_order(root):
            inside += [f for f in (node, getattr(node, "op", None)) if isinstance(f, Function)]
        for function in inside:
            if function not in found:
                found[function] = None
                waiting.append(function.body)
    return list(found)


def _types(expr: Any) -> Iterator[Any]:
    """A type itself; what is written beside the variables and functions of an expression."""
    if not isinstance(expr, Expr):
        yield expr
        return
    functions = _functions(expr)
    for function in functions:
        yield from getattr(function, "type_params", ())
        yield from (p.type_annotation for p in function.params)
        if isinstance(function, GeneralFunction):
            yield function.told_ret_type
    for root in (expr, *(f.body for f in functions)):
        for node in post_order(root):
            if isinstance(node, Var):
                yield node.type_annotation
            if isinstance(node, Call):
                yield from getattr(node, "type_args", None) or ()


def _variables(kind: Any) -> Iterator[TypeVar]:
    if isinstance(kind, TypeVar):
        yield kind
        return
    for part in _parts(kind):
        yield from _variables(part)


def _chosen(kind: Any) -> Iterator[TypeVar]:
    yield from getattr(kind, "type_params", ())
    for part in _parts(kind):
        yield from _chosen(part)


def _parts(kind: Any) -> Iterator[Any]:
    for name in _LISTS:
        yield from getattr(kind, name, None) or ()
    yield from (part for name in _PARTS if (part := getattr(kind, name, None)) is not None)


open_doors(globals(), __all__, ModelError)
