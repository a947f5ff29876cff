"""Random scalar expressions, drawn as a recipe, with the value Python gives the same recipe.

A recipe is a nested tuple.  `build` makes the node through the folding builders; `calculate`
evaluates the recipe without them; `value_of` evaluates a node.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.base.dtype import BOOL, TYPES, DType
from tilewright.ir import expr as E
from tilewright.ir.expr import BINARY, COMPARE, Expr

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


# -- every element type ----------------------------------------------------------------------------

TYPED = {f"{name}_{t}": E.var(f"{name}_{t}", t) for t in map(DType, TYPES) for name in "pq"}
WRAP = {
    "int8": ctypes.c_int8, "uint8": ctypes.c_uint8, "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16, "uint64": ctypes.c_uint64,
    "int32": ctypes.c_int32, "uint32": ctypes.c_uint32, "int64": ctypes.c_int64,
}  # fmt: skip
_ROUND = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "abs": np.abs, "sqrt": np.sqrt}


def numbers(dtype: DType) -> st.SearchStrategy[Any]:
    """Numbers that `dtype` holds, edges among them."""
    if dtype == "bool":
        return st.booleans()
    if dtype.is_int:
        wide = [] if dtype.is_index else [dtype.least, dtype.greatest]  # an index may not overflow
        edges = [n for n in (-2, -1, 0, 1, 2, *wide) if dtype.holds(n)]
        bound = min(100, int(dtype.greatest))
        return st.one_of(st.sampled_from(edges), st.integers(max(-bound, int(dtype.least)), bound))
    edges = [0.0, -0.0, 1.0, 1 + dtype.eps, dtype.smallest, dtype.greatest, dtype.least]
    special = [float("inf"), float("-inf"), float("nan")]
    some = st.floats(-1000, 1000).map(dtype.nearest)
    return st.one_of(some, st.sampled_from(edges + special))


def typed(dtype: DType, depth: int = 3) -> st.SearchStrategy[Any]:
    """Recipes of that type, from every operation that has it, over `TYPED` variables."""
    leaf = st.one_of(
        st.sampled_from(["p", "q"]).map(lambda n: ("typed", f"{n}_{dtype}")),
        numbers(dtype).map(lambda n: ("number", dtype, n)),
    )
    if depth == 0:
        return leaf
    other = st.sampled_from(TYPES).flatmap(lambda t: typed(DType(t), depth - 1))
    casts = st.tuples(st.just("cast"), st.just(dtype), other)
    below, yes = st.deferred(lambda: typed(dtype, depth - 1)), typed_conditions(depth - 1)
    choices = st.tuples(st.sampled_from(["select", "if_then_else"]), yes, below, below)
    if dtype == "bool":
        return st.one_of(leaf, yes, casts, choices)
    both = ["add", "sub", "mul", "min", "max"] + (["div"] if dtype.is_float else [])
    kinds = [leaf, casts, choices, st.tuples(st.sampled_from(both), below, below)]
    if dtype.is_float:
        kinds.append(st.tuples(st.just("call"), st.sampled_from(sorted(_ROUND)), below))
    else:
        divisor = numbers(dtype).filter(bool).map(lambda n: ("number", dtype, n))
        kinds.append(st.tuples(st.sampled_from(["floordiv", "floormod"]), below, divisor))
    return st.one_of(*kinds)


def typed_conditions(depth: int) -> st.SearchStrategy[Any]:
    def compared(name: str) -> st.SearchStrategy[Any]:
        side = typed(DType(name), max(depth, 0))
        return st.tuples(st.sampled_from(["eq", "ne", "lt", "le", "gt", "ge"]), side, side)

    return st.sampled_from(TYPES).flatmap(compared)


def build_typed(recipe: Any) -> Expr:
    op, *rest = recipe
    if op == "typed":
        return TYPED[rest[0]]
    if op == "number":
        return E.const(rest[1], rest[0])
    if op == "cast":
        return E.cast(rest[0], build_typed(rest[1]))
    if op == "call":
        return E.call(rest[0], build_typed(rest[1]))
    args = [build_typed(r) for r in rest]
    return getattr(E, op)(*args) if op in ("select", "if_then_else") else E.binary(op, *args)


def calculate_typed(recipe: Any, values: Mapping[str, Any]) -> tuple[DType, Any]:
    """The type and the value: numpy's own scalars for floats, C's integers for what wraps."""
    op, *rest = recipe
    if op == "typed":
        return DType(rest[0].partition("_")[2]), values[rest[0]]
    if op == "number":
        return rest[0], _in_type(rest[0], rest[1])
    if op == "cast":
        source, value = calculate_typed(rest[1], values)
        dtype = rest[0]
        if dtype == "bool" or dtype.is_float:
            return dtype, _in_type(dtype, value)
        exact = dtype.is_index and (source.is_index or source.is_float)
        whole = int(float(value) if source.is_float else value)
        return dtype, whole if exact else WRAP[dtype](whole).value
    if op == "call":
        dtype, value = calculate_typed(rest[1], values)
        return dtype, _in_type(dtype, _ROUND[rest[0]](np.float64(value)))
    (dtype, a), *others = (calculate_typed(r, values) for r in rest)
    if op in ("select", "if_then_else"):
        return others[0] if a else others[1]
    b = others[0][1]
    if op in ("min", "max"):
        return dtype, a if (a < b if op == "min" else a > b) or a != a else b
    if op in COMPARE:
        return BOOL, bool(BINARY[op][1](a, b))
    return dtype, _in_type(dtype, BINARY[op][1](a, b))


def _in_type(dtype: DType, value: Any) -> Any:
    if dtype.is_float:
        return dtype.storage.type(float(value))
    if dtype == "bool":
        return bool(value != 0)
    return int(value) if dtype.is_index else WRAP[dtype](int(value)).value
