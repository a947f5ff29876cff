"""Evaluate a DAG one element at a time with Python scalars: slow, obvious, shares nothing.

Reductions run in order, as in a plain kernel.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import PlaceholderOp

BINARY = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b,
    "floormod": lambda a, b: a % b,
    "min": lambda a, b: a if a < b else b,
    "max": lambda a, b: a if a > b else b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}
CALLS = {
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "abs": np.abs, "pow": np.power,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "sin": np.sin, "cos": np.cos,
    "rsqrt": lambda x: 1 / np.sqrt(x), "erf": lambda x: math.erf(x),
    "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "fmod": np.fmod,
}  # fmt: skip


def brute(dag: ComputeDAG, inputs: Sequence[Any], mode: str = "exact") -> list[Any]:
    """mode: how floats round.

    exact    everything in float64
    rounded  every operation rounds to the type of its node
    kept     the same, but float16 and bfloat16 keep float32 until a stage is stored
    """
    given = iter(inputs)
    values: dict[Any, Any] = {}

    def settled(dtype: DType, x: Any) -> Any:
        """`x` as a kernel holds a value of `dtype`."""
        if dtype == "bool":
            return bool(x)
        if not dtype.is_float:
            x = int(x) if math.isfinite(x) else 0  # unspecified
            return x if dtype.is_index else dtype.wrapped(x)
        if mode == "exact":
            return np.float64(x)
        if mode == "rounded":  # bfloat16 of an int by way of float32: its type takes few of them
            x = dtype.storage.type(dtype.compute.storage.type(x) if isinstance(x, int) else x)
        return dtype.compute.storage.type(x)

    def value(node: Expr, env: dict[Any, Any]) -> Any:
        if node.op == "var":
            return env[node]
        if node.op == "const":
            return settled(node.dtype, node.attr)
        if node.op == "if_then_else":
            return value(node.args[1 if value(node.args[0], env) else 2], env)
        args = [value(a, env) for a in node.args]
        if node.op == "read":
            at = tuple(int(a) for a in args)
            assert all(0 <= i < n for i, n in zip(at, node.attr.shape, strict=True))
            return settled(node.dtype, values[node.attr.op][at])
        if node.op == "select":
            return args[1] if args[0] else args[2]
        if node.op == "not":
            return not args[0]
        if node.op == "cast":
            whole = node.dtype.is_int and math.isfinite(args[0])
            return node.dtype.wrapped(int(args[0])) if whole else settled(node.dtype, args[0])
        if node.op == "call":
            return settled(node.dtype, CALLS[node.attr](*args))
        return settled(node.dtype, BINARY[node.op](*args))

    with np.errstate(all="ignore"):
        for tensor in dag.args:
            if isinstance(tensor.op, PlaceholderOp):
                values[tensor.op] = np.asarray(next(given)).astype(tensor.dtype.storage)
        for op in dag.compute_ops:
            out = np.empty(op.shape, _storage(op.dtype, mode))
            for at in np.ndindex(*op.shape):
                env: dict[Any, Any] = {ax.var: k for ax, k in zip(op.axis, at, strict=True)}
                if op.combiner is None:
                    out[at] = value(op.body, env)
                    continue
                c = op.combiner
                total = value(c.identity, env)
                for point in itertools.product(*(range(ax.extent) for ax in op.reduce_axis)):
                    env.update({ax.var: k for ax, k in zip(op.reduce_axis, point, strict=True)})
                    term = value(op.reduced, env)
                    total = value(c.result, {c.lhs: total, c.rhs: term})
                out[at] = settled(op.dtype, total)
            values[op] = out
    return [values[t.op] for t in dag.outputs]


def _storage(dtype: DType, mode: str) -> Any:
    """Of results: the reference's types, or the element's own."""
    if dtype.is_float:
        return np.float64 if mode == "exact" else dtype.storage
    return {"bool": np.bool_, "uint64": np.uint64}.get(dtype, np.int64)
