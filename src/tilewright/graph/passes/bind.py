"""Weights become constants.

In: a module and arrays by parameter name.  Out: a module without those parameters.
Read next: `simplify.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Var,
    as_array,
)
from tilewright.graph.traversal import substitute


def bind_params(mod: IRModule, params: Mapping[str, Any]) -> IRModule:
    """Give `mod` whose main has the parameters named in `params` replaced by constants.

    params: numpy arrays, or anything with `.numpy()`, in the parameter's shape and element type; a
        number of Python for a parameter without axes whose type has it.
    Raises ModelError naming the first parameter that does not fit, or does not exist.
    """
    function = mod["main"]
    known = {p.name_hint: p for p in function.params}
    if unknown := [name for name in params if name not in known]:
        raise ModelError(
            f"bind_params({', '.join(unknown[:3])})",
            "main has no such parameter"
            + ("" if len(unknown) < 4 else f" ({len(unknown)} like it)"),
            f"It has {', '.join(list(known)[:8])}{', ...' if len(known) > 8 else ''}.",
        )
    constants: dict[Expr, Expr] = {}
    for name, value in params.items():
        wanted = known[name].tensor_type
        array = _number_as(value, wanted) if isinstance(value, (int, float)) else as_array(value)
        if array.shape != wanted.shape or array.dtype.name != wanted.dtype:
            raise ModelError(
                f"bind_params({name})",
                f"the array is {array.shape} {array.dtype}, the parameter {wanted}",
                "Reshape it, or convert it with .astype(...).",
            )
        constants[known[name]] = Constant(array)
    free = [p for p in function.params if p not in constants]
    main = Function(free, substitute(function.body, constants), attrs=function.attrs)
    return mod.with_functions({**mod.functions, "main": main})


def _number_as(value: float, wanted: TensorType) -> Array:
    """A number in the type that is wanted, where it is one of its numbers; else as it is."""
    given = as_array(value)
    if wanted.shape or (isinstance(value, float) and not wanted.dtype.is_float):
        return given
    with np.errstate(over="ignore"):
        made = given.astype(wanted.dtype.storage)
    return made if isinstance(value, float) or made == given else given


def with_weights(
    mod: IRModule, params: Mapping[str, Array], shared: Mapping[str, Array]
) -> IRModule:
    """Give `mod` for the weights `shared` of the same network for other shapes.

    What an importer computes of shapes are weights, too: those of `params` that `shared` has not,
    or with other values, become constants, and a weight that is only in `shared` a parameter that
    nothing reads.
    """
    own = {n: v for n, v in params.items() if n not in shared or not _equal(v, shared[n])}
    bound = bind_params(mod, own) if own else mod
    main = bound["main"]
    known = {p.name_hint for p in main.params}
    if not (absent := [n for n in shared if n not in known]):
        return bound
    unread = [Var(n, TensorType(shared[n].shape, DType(shared[n].dtype))) for n in absent]
    main = Function([*main.params, *unread], main.body, attrs=main.attrs)
    return bound.with_functions({**bound.functions, "main": main})


def _equal(a: Array, b: Array) -> bool:
    return a is b or (a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
