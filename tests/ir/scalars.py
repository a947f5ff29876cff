"""Random scalar expressions, drawn as a recipe, with the value Python gives the same recipe.

A recipe is a nested tuple.  `build` makes the node through the folding builders; `calculate`
evaluates the recipe without them; `value_of` evaluates a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.ir import expr as E
from tilewright.ir.expr import BINARY, Expr

VARIABLES = {"i": E.var("i"), "j": E.var("j"), "k": E.var("k", "int64")}
FLOATS = {"x": E.var("x", "float32"), "y": E.var("y", "float32")}

small = st.integers(-6, 6)
ints = st.deferred(
    lambda: st.one_of(
        small.map(lambda n: ("int", n)),
        st.sampled_from(sorted(VARIABLES)).map(lambda n: ("var", n)),
        st.tuples(st.sampled_from(["add", "sub", "mul", "min", "max"]), ints, ints),
        st.tuples(
            st.sampled_from(["floordiv", "floormod"]),
            ints,
            st.integers(-5, 5).filter(bool).map(lambda n: ("int", n)),
        ),
        st.tuples(st.sampled_from(["select", "if_then_else"]), conditions, ints, ints),
    )
)
conditions = st.deferred(
    lambda: st.one_of(
        st.booleans().map(lambda b: ("bool", b)),
        st.tuples(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), ints, ints),
        st.tuples(st.sampled_from(["and", "or"]), conditions, conditions),
        st.tuples(st.just("not"), conditions),
    )
)
quarters = st.integers(-40, 40).map(lambda n: ("float", n / 4))
floats = st.deferred(
    lambda: st.one_of(
        quarters,
        st.sampled_from(sorted(FLOATS)).map(lambda n: ("var", n)),
        st.tuples(st.sampled_from(["add", "sub", "mul", "div", "min", "max"]), floats, floats),
        st.tuples(st.just("select"), conditions, floats, floats),
        st.tuples(st.just("to_float"), ints),
    )
)


def build(recipe: Any) -> Expr:
    op, *rest = recipe
    if op == "var":
        return {**VARIABLES, **FLOATS}[rest[0]]
    if op in ("int", "bool"):
        return E.const(rest[0])
    if op == "float":
        return E.const(rest[0], "float32")
    args = [build(r) for r in rest]
    if op == "to_float":
        return E.cast("float32", args[0])
    if op == "not":
        return ~args[0]
    if op in ("select", "if_then_else"):
        return getattr(E, op)(*args)
    return E.binary(op, *args)


def calculate(recipe: Any, values: Mapping[str, Any]) -> Any:
    op, *rest = recipe
    if op == "var":
        return values[rest[0]]
    if op in ("int", "bool"):
        return rest[0]
    if op == "float":
        return np.float32(rest[0])
    args = [calculate(r, values) for r in rest]
    if op == "to_float":
        return np.float32(args[0])
    if op == "not":
        return not args[0]
    if op in ("select", "if_then_else"):
        return args[1] if args[0] else args[2]
    return BINARY[op][1](*args)


def value_of(node: Expr, values: Mapping[str, Any]) -> Any:
    if node.op == "var":
        return values[node.name]
    if node.op == "const":
        return np.float32(node.attr) if node.dtype == "float32" else node.attr
    args = [value_of(a, values) for a in node.args]
    if node.op == "cast":
        return np.float32(args[0]) if node.dtype == "float32" else int(args[0])
    if node.op == "not":
        return not args[0]
    if node.op in ("select", "if_then_else"):
        return args[1] if args[0] else args[2]
    return BINARY[node.op][1](*args)
