"""Operators of two tensors, or a tensor and a number, with numpy's broadcasting.

In: tensors whose shapes agree from the right, extents of 1 stretching.  Out: one stage `T_<name>`
with tag "broadcast"; a stretched axis reads index 0.  Read next: `operators.py`, `transform.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, binary
from tilewright.te.axis import shape_of
from tilewright.te.tensor import Tensor
from tilewright.topi import integer
from tilewright.topi.elementwise import elementwise, identity
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    normal_axes,
    require,
    stage,
)

Operand = Any  # a Tensor, a Python number or a scalar expression


def broadcast_shape(place: str, *shapes: Sequence[int]) -> tuple[int, ...]:
    """The common shape, as numpy broadcasts; place: what to blame if there is none."""
    ndim = max(map(len, shapes))
    padded = [(1,) * (ndim - len(s)) + tuple(s) for s in shapes]
    result = []
    for axis, extents in enumerate(zip(*padded, strict=True)):
        wide = list(dict.fromkeys(e for e in extents if e != 1))
        if len(wide) > 1:
            raise ExpressionError(
                place, f"extents {wide} at axis {axis - ndim} do not broadcast",
                "Extents must be equal or 1, counted from the last axis.",
            )  # fmt: skip
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def element(tensor: Tensor, indices: Indices, shape: Sequence[int]) -> Expr:
    """The element of `tensor` that meets `indices` of the broadcast `shape`."""
    skip = len(shape) - tensor.ndim
    picked = (
        indices[skip + k] if extent == shape[skip + k] else E.const(0)
        for k, extent in enumerate(tensor.shape)
    )
    return tensor[tuple(picked)]


def broadcast_to(data: Tensor, shape: Sequence[int | Expr]) -> Tensor:
    """`data` stretched to `shape`."""
    place = call_text("broadcast_to", data=data, shape=list(shape))
    check_tensors(place, data=data)
    target = shape_of(shape, place)
    found = broadcast_shape(place, data.shape, target)
    require(
        found == target,
        place,
        "a shape can only be stretched where it has extent 1",
        "Reshape it first.",
    )
    return stage(target, lambda i: element(data, i, target), "T_broadcast_to", "broadcast")


def _binary(name: str, function: Callable[[Any, Any], Any], story: str) -> Callable[..., Any]:
    def operator(lhs: Operand, rhs: Operand) -> Any:
        if isinstance(lhs, Tensor) and isinstance(rhs, Tensor):
            shape = broadcast_shape(call_text(name, lhs=lhs, rhs=rhs), lhs.shape, rhs.shape)
            return stage(
                shape,
                lambda i: function(element(lhs, i, shape), element(rhs, i, shape)),
                f"T_{name}",
                "broadcast",
            )
        if isinstance(lhs, Tensor):
            return elementwise(lhs, lambda v: function(v, E.convert(rhs, v)), f"T_{name}")
        if isinstance(rhs, Tensor):
            return elementwise(rhs, lambda v: function(E.convert(lhs, v), v), f"T_{name}")
        left = E.convert(lhs)
        return function(left, E.convert(rhs, left))

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"{story}.  Tensors broadcast; two scalars give a scalar expression."
    return operator


def _of(op: str) -> Callable[[Any, Any], Expr]:
    return lambda a, b: binary(op, a, b)


def _of_integers(function: Callable[[Expr, Expr], Expr]) -> Callable[[Any, Any], Expr]:
    def apply(a: Expr, b: Expr) -> Expr:
        if a.dtype.is_int and b.dtype.is_int:
            return function(a, b)
        raise ExpressionError(
            f"{function.__name__}({a}, {b})", f"{a.dtype} and {b.dtype} are not both integers",
            "Cast them first.",
        )  # fmt: skip

    return apply


def _either(
    of_integers: Callable[[Expr, Expr], Expr], of_floats: Callable[[Expr, Expr], Expr]
) -> Callable[[Any, Any], Expr]:
    """Of two integers, or of anything with a float."""
    return lambda a, b: (of_integers if a.dtype.is_int and b.dtype.is_int else of_floats)(a, b)


def _bits(op: str, of_bool: Callable[[Any, Any], Expr]) -> Callable[[Any, Any], Expr]:
    def apply(a: Expr, b: Expr) -> Expr:
        return of_bool(a, b) if a.dtype == b.dtype == "bool" else binary(op, a, b)

    return apply


add = _binary("add", _of("add"), "lhs + rhs")
subtract = _binary("subtract", _of("sub"), "lhs - rhs")
multiply = _binary("multiply", _of("mul"), "lhs * rhs")
true_divide = _binary("divide", _of("div"), "lhs / rhs of floating-point operands")
divide = _binary(
    "divide", _either(integer.trunc_divide, _of("div")),
    "lhs / rhs, which is rounded towards zero where both are integers",
)  # fmt: skip
floor_divide = _binary(
    "floor_divide", _either(integer.floor_divide, _of("floordiv")), "lhs // rhs, rounding down"
)
mod = _binary("mod", _either(integer.floor_mod, _of("floormod")), "lhs % rhs, of the sign of rhs")
trunc_divide = _binary(
    "trunc_divide", _of_integers(integer.trunc_divide), "lhs / rhs of integers, towards zero"
)
trunc_mod = _binary(
    "trunc_mod", _either(integer.trunc_mod, lambda a, b: E.call("fmod", a, b)),
    "The rest of division towards zero, of the sign of lhs",
)  # fmt: skip
maximum = _binary("maximum", _of("max"), "The greater of both")
minimum = _binary("minimum", _of("min"), "The smaller of both")
power = _binary("power", _either(integer.power, te.power), "lhs to the power rhs")
equal = _binary("equal", _of("eq"), "lhs == rhs as bool")
not_equal = _binary("not_equal", _of("ne"), "lhs != rhs as bool")
less = _binary("less", _of("lt"), "lhs < rhs as bool")
less_equal = _binary("less_equal", _of("le"), "lhs <= rhs as bool")
greater = _binary("greater", _of("gt"), "lhs > rhs as bool")
greater_equal = _binary("greater_equal", _of("ge"), "lhs >= rhs as bool")
logical_and = _binary("logical_and", _of("and"), "Conjunction of bool operands")
logical_or = _binary("logical_or", _of("or"), "Disjunction of bool operands")
logical_xor = _binary("logical_xor", _of("ne"), "Whether exactly one of two bool operands holds")
bitwise_and = _binary("bitwise_and", _bits("bitand", _of("and")), "lhs & rhs of integers")
bitwise_or = _binary("bitwise_or", _bits("bitor", _of("or")), "lhs | rhs of integers")
bitwise_xor = _binary("bitwise_xor", _bits("bitxor", _of("ne")), "lhs ^ rhs of integers")
left_shift = _binary(
    "left_shift", _of_integers(integer.left_shift), "lhs times 2**rhs of integers, wrapped around"
)
right_shift = _binary("right_shift", _of_integers(integer.right_shift), "lhs // 2**rhs of integers")


def where(condition: Tensor, x: Operand, y: Operand) -> Tensor:
    """`x` where `condition` holds (is not 0), else `y`; tensors broadcast, numbers serve too."""
    place = call_text("where", condition=condition, x=x, y=y)
    check_tensors(place, condition=condition)
    operands = (condition, x, y)
    shape = broadcast_shape(place, *(t.shape for t in operands if isinstance(t, Tensor)))

    def body(i: Indices) -> Expr:
        test, then, other = (element(t, i, shape) if isinstance(t, Tensor) else t for t in operands)
        if test.dtype != "bool":
            test = binary("ne", test, 0)
        return te.select(test, then, other)

    return stage(shape, body, "T_where", "broadcast")


def full(shape: Sequence[int], dtype: str, fill_value: float | Expr) -> Tensor:
    """A tensor of `shape` filled with one number, or with the value of an expression."""
    place = call_text("full", shape=list(shape), dtype=dtype, fill_value=fill_value)
    kind = DType(dtype, place)
    value: Any = fill_value
    if isinstance(value, Expr) and value.op == "const":
        value = value.attr
    if isinstance(value, Expr):
        return stage(tuple(shape), lambda i: te.cast(dtype, value), "T_full", "elemwise")
    whole = kind.is_float or kind == "bool" or float(value).is_integer()
    require(whole, place, "the value is not whole", "Use a floating-point dtype.")
    return stage(tuple(shape), lambda i: te.const(value, dtype), "T_full", "elemwise")


def full_like(x: Tensor, fill_value: float | Expr) -> Tensor:
    """A tensor like `x` filled with one number, or with the value of an expression."""
    return full(x.shape, x.dtype, fill_value)


def arange(
    start: float, stop: float | None = None, step: float = 1, dtype: str = "float32"
) -> Tensor:
    """start, start + step, ... below (above, if it falls) `stop`; one number: from 0 up to it."""
    place = call_text("arange", start=start, stop=stop, step=step, dtype=dtype)
    first, last = (0, start) if stop is None else (start, stop)
    ends = step != 0 and all(map(math.isfinite, (first, last, step)))
    require(ends, place, "it has no end", "Use finite numbers, and a step that is not 0.")
    count = math.ceil((last - first) / step)
    require(count >= 1, place, "it has no elements", "Use a step towards stop.")
    whole = all(float(v).is_integer() for v in (first, step))
    wide = "int64" if whole else "float32" if DType(dtype, place) == "float32" else "float64"
    begin, by = (te.const(int(v) if whole else float(v), wide) for v in (first, step))

    def body(i: Indices) -> Expr:
        return te.cast(dtype, begin + te.cast(wide, i[0]) * by)

    return stage((count,), body, "T_arange", "injective")


def expand_like(a: Tensor, shape_like: Tensor, axis: int | Sequence[int]) -> Tensor:
    """`a` stretched to the shape of another; axis: those of `shape_like` that `a` does not have."""
    place = call_text("expand_like", a=a, shape_like=shape_like, axis=axis)
    check_tensors(place, a=a, shape_like=shape_like)
    new = normal_axes(axis, shape_like.ndim, place)
    kept = [k for k in range(shape_like.ndim) if k not in new]
    require(
        a.shape == tuple(shape_like.shape[k] for k in kept), place,
        f"without the axes {list(new)} it has another shape", "Name the axes that a does not have.",
    )  # fmt: skip
    return stage(
        shape_like.shape, lambda i: a[tuple(i[k] for k in kept)], "T_expand_like", "broadcast"
    )


def elemwise_sum(xs: Sequence[Tensor]) -> Any:
    """The sum of several tensors, with numpy's broadcasting."""
    require(bool(xs), "elemwise_sum([])", "nothing is added up", "Give at least one tensor.")
    return reduce(add, xs) if len(xs) > 1 else identity(xs[0])
