"""Reductions: sums, products, extrema and reducers of one's own, and what they accumulate in.

In: an element, reduction axes, perhaps the type of partial results.  Out: the `reduce` node that is
the body of a stage, under a cast where the result is narrower than what it is accumulated in.
Read next: `tensor.py`, `dag.py`.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
from collections.abc import Callable
from functools import cache
from typing import Any

from tilewright.base.doors import is_integer
from tilewright.base.dtype import BOOL, INT32, DType, join
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Value
from tilewright.ir.tuples import together
from tilewright.te.tensor import Combiner, IterVar, widened


@cache
def builtin_combiner(name: str, dtype: DType) -> Combiner:
    """sum, prod, max or min for `dtype`."""
    lhs, rhs = E.var("lhs", dtype), E.var("rhs", dtype)
    table = {
        "sum": ("add", 0),
        "prod": ("mul", 1),
        "max": ("max", dtype.identity_of_max),
        "min": ("min", dtype.identity_of_min),
    }
    op, identity = table[name]
    return Combiner(name, lhs, rhs, E.make(op, (lhs, rhs), None, dtype), E.const(identity, dtype))


def _is_empty(axes: tuple[IterVar, ...]) -> bool:
    """Whether nothing is reduced."""
    return any(isinstance(ax.extent, int) and ax.extent == 0 for ax in axes)


def reduction(combiner: Combiner, value: Expr, axis: Any, where: Expr | None = None) -> Expr:
    """The `reduce` node: `value` over `axis` (one or several), where the condition holds; the
    identity where there is nothing to reduce."""
    axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    for ax in axes:
        if not isinstance(ax, IterVar) or ax.kind != "reduce":
            raise ExpressionError(
                f"{combiner.name}(axis={ax})",
                "not a reduction axis",
                "Make it with te.reduce_axis; of two values there are te.maximum and te.minimum.",
            )
    if not axes:
        raise ExpressionError(f"{combiner.name}(axis=[])", "no axis to reduce over")
    if len(set(axes)) != len(axes):
        raise ExpressionError(f"{combiner.name}(axis={list(axes)})", "an axis is listed twice")
    if _is_empty(axes):
        return combiner.identity
    tests = [test for test in (where, *(ax.when for ax in axes)) if test is not None]
    if tests:
        value = combiner.only(E.all_of(*tests), value)
    return E.make("reduce", (value,), (combiner, axes), value.dtype)


def _is_value(axis: Any) -> bool:
    """Whether an operand stands where axes do: `te.max(a, b)` combines two values, as in TVM.  An
    integer is no such operand: it is meant as the number of a dimension by those who know numpy."""
    return isinstance(axis, (Expr, float))


_OPERATORS = {"sum": "add", "prod": "mul"}


def _begun(value: Expr, axis: Any, init: Value, op: str, where: Expr | None) -> Expr:
    """`value` where the first step of the reduction begins with `init`."""
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    if _is_empty(tuple(ax for ax in axes if isinstance(ax, IterVar))):
        raise ExpressionError(
            "te.sum(init=)", "there is nothing to reduce, so that no step begins with it",
            "Use it itself.",
        )  # fmt: skip
    if where is not None or any(isinstance(ax, IterVar) and ax.when is not None for ax in axes):
        raise ExpressionError(
            "te.sum(init=, where=)", "a step that `where` leaves out would lose the beginning",
            "Use te.if_then_else in the expression instead of where=, and add init later where "
            "the range depends on an axis.",
        )  # fmt: skip
    first = E.all_of(*(ax.var.equal(0) for ax in axes if isinstance(ax, IterVar)))
    return E.select(first, E.binary(op, E.convert(init, value), value), value)


def _accumulated(name: str) -> Callable[..., Expr]:
    def reduce(
        expr: Value,
        axis: Any,
        where: Expr | None = None,
        acc_dtype: str | None = None,
        init: Value | None = None,
    ) -> Expr:
        if _is_value(axis):
            return E.binary(_OPERATORS[name], expr, axis)
        value, place = E.convert(expr), f"te.{name}"
        value = value if init is None else _begun(value, axis, init, _OPERATORS[name], where)
        kind = value.dtype.accumulator if acc_dtype is None else DType(acc_dtype, place)
        own = INT32 if value.dtype is BOOL else value.dtype
        if join(kind, own, place) is not kind:
            raise ExpressionError(
                f"{place}(acc_dtype={str(kind)!r})",
                f"an accumulator of {kind} is narrower than the {value.dtype} it adds up",
                f"Use acc_dtype={str(own.accumulator)!r}, or cast the values first.",
            )
        node = reduction(builtin_combiner(name, kind), widened(kind, value), axis, where)
        if name == "sum" and node.op == "reduce":
            _check_range(node, value, place)
        # Integers keep the accumulator's type: nothing narrower holds their sum.
        return E.cast(own, node) if own.is_float else node

    reduce.__name__ = name
    reduce.__doc__ = f"""Take the {name} of `expr` over reduction axes, `axis`, where `where` holds.

    axis:      one or several, or another value: then it is of these two
    init:      what it begins with, an expression of the spatial axes; default: the identity
    acc_dtype: the type of partial results.  Left out: float32 for float16 and bfloat16 (the result
    has the type of `expr` again), int32 for narrower integers (so has the result), else the type of
    `expr`.
    """
    return reduce


def _check_range(node: Expr, value: Expr, place: str) -> None:
    """Refuse a sum of narrow integers that its accumulator cannot hold at this shape."""
    kind = node.dtype
    if not kind.is_int or value.dtype.bits >= kind.bits:
        return
    low, high = _range_of(node.args[0])
    count = math.prod(ax.size for ax in node.attr[1])
    if isinstance(count, Expr):
        return  # each call says how many
    if count * low < kind.least or count * high > kind.greatest:
        raise ExpressionError(
            place, f"{count} terms of {low} to {high} may exceed what {kind} holds",
            'Use acc_dtype="int64" (out_dtype="int64" of an operator in topi).',
        )  # fmt: skip


def _range_of(node: Expr) -> tuple[float, float]:
    """The least and greatest value by the types of what is read."""
    if node.op == "const":
        return node.attr, node.attr
    if node.op == "cast" and node.args[0].dtype.bits < node.dtype.bits:
        return _range_of(node.args[0])
    if node.op in ("add", "sub", "mul"):
        (a, b), (c, d) = map(_range_of, node.args)
        if node.op == "add":
            return a + c, b + d
        if node.op == "sub":
            return a - d, b - c
        corners = (a * c, a * d, b * c, b * d)
        return builtins.min(corners), builtins.max(corners)
    if node.op in ("select", "if_then_else"):
        (a, b), (c, d) = map(_range_of, node.args[1:])
        return builtins.min(a, c), builtins.max(b, d)
    return node.dtype.least, node.dtype.greatest


def _selected(name: str) -> Callable[..., Expr]:
    def reduce(
        expr: Value, axis: Any, where: Expr | None = None, init: Value | None = None
    ) -> Expr:
        if _is_value(axis):
            return E.binary(name, expr, axis)
        value = E.convert(expr)
        value = value if init is None else _begun(value, axis, init, name, where)
        if value.dtype is BOOL:
            value = E.cast(INT32, value)
        return reduction(builtin_combiner(name, value.dtype), value, axis, where)

    reduce.__name__ = name
    reduce.__doc__ = f"""Take the {name} of `expr` over reduction axes, `axis`, where `where` holds.

    axis: one or several, or another value: then it is of these two
    init: what it begins with, an expression of the spatial axes; default: the identity
    """
    return reduce


def _of_two(reduce: Callable[..., Expr]) -> Callable[..., Expr]:
    """A whole number in the place of axes is a value, too: `te.min(i, 9)`; by the name `axis` it
    is the number of a dimension, which numpy takes."""

    @functools.wraps(reduce)
    def called(expr: Value, *args: Any, **named: Any) -> Expr:
        if len(args) == 1 and is_integer(args[0]) and not named:
            args = (E.convert(args[0], E.convert(expr)),)
        return reduce(expr, *args, **named)

    return called


sum, prod = (_of_two(_accumulated(name)) for name in ("sum", "prod"))
max, min = (_of_two(_selected(name)) for name in ("max", "min"))


def comm_reducer(
    fcombine: Callable[[Any, Any], Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Expr]:
    """Make a reducer of your own: `fcombine(x, y)` must be associative and commutative.

    What it returns takes an element and axes, or two values, which it combines.  Where it takes a
    tuple of elements, which are reduced together, so do `fcombine(x, y)`, whose `x` and `y` are
    tuples, too, and `fidentity(type, type, ...)`; `te.compute` then makes a tensor of each.
    """

    place = f"comm_reducer({name!r})"

    def reduce(expr: Value | tuple[Value, ...], axis: Any, where: Expr | None = None) -> Expr:
        if isinstance(axis, (Expr, int, float)):
            return E.convert(fcombine(E.convert(expr), E.convert(axis)))
        several = isinstance(expr, (tuple, list))
        listed = expr if isinstance(expr, (tuple, list)) else (expr,)
        values = [E.convert(v) for v in listed]
        kinds = [v.dtype for v in values]
        lhs, rhs = ([E.var(side, kind) for kind in kinds] for side in ("lhs", "rhs"))
        joined = fcombine(tuple(lhs), tuple(rhs)) if several else fcombine(lhs[0], rhs[0])
        begun = _identity(fidentity, kinds, place)
        results = _for_each(joined, len(values), several, f"{place}: fcombine")
        identities = _for_each(begun, len(values), several, f"{place}: fidentity")
        results = [E.convert(r, v) for r, v in zip(results, values, strict=True)]
        for result, kind in zip(results, kinds, strict=True):
            if result.dtype != kind:
                raise ExpressionError(place, f"fcombine turns {kind} into {result.dtype}")
        first = [E.cast(kind, E.convert(i)) for kind, i in zip(kinds, identities, strict=True)]
        combiner = Combiner(name, *map(together, (lhs, rhs, results, first)))
        return reduction(combiner, together(values), axis, where)

    return reduce


def _identity(fidentity: Callable[..., Any], kinds: list[DType], place: str) -> Any:
    try:
        inspect.signature(fidentity).bind(*kinds)
    except ValueError:  # of a function in C nothing is known
        pass
    except TypeError as error:
        raise ExpressionError(
            f"{place}: fidentity", f"it is called with {len(kinds)} types: {error}",
            "Take a type for each of the values.",
        ) from None  # fmt: skip
    return fidentity(*kinds)


def _for_each(given: Any, count: int, several: bool, place: str) -> list[Any]:
    """What a function of a reducer gives for each of the values."""
    if not several:
        return [given]
    if not isinstance(given, (tuple, list)) or len(given) != count:
        raise ExpressionError(
            place, f"{given!r:.80} for {count} values", "Return a tuple with one for each of them."
        )
    return list(given)
