"""Functions of elements: `te.exp`, `te.power`, `te.sigmoid`, ...

In: expressions and numbers.  Out: expressions.  What they mean and how they round says
`numeric.py`.  Read next: `ir/expr.py` (`FUNCTIONS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from tilewright.base.dtype import FLOAT32, DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, Value
from tilewright.te.tensor import widened


def _float_function(name: str) -> Callable[[Value], Expr]:
    def function(x: Value) -> Expr:
        return E.call(name, x)

    function.__name__ = name
    function.__doc__ = f"Compute {name} of each element."
    return function


exp, log, sqrt, rsqrt, tanh, erf = map(
    _float_function, ("exp", "log", "sqrt", "rsqrt", "tanh", "erf")
)
abs, sin, cos = map(_float_function, ("abs", "sin", "cos"))
tan, asin, acos, atan = map(_float_function, ("tan", "asin", "acos", "atan"))
sinh, cosh, asinh, acosh, atanh = map(_float_function, ("sinh", "cosh", "asinh", "acosh", "atanh"))


def _to_whole(name: str) -> Callable[[Value], Expr]:
    def function(x: Value) -> Expr:
        node = E.convert(x)
        return E.call(name, node) if node.dtype.is_float else node

    function.__name__ = name
    function.__doc__ = f"Compute {name} of each element; integers are whole already."
    return function


floor, ceil, round = map(_to_whole, ("floor", "ceil", "round"))
nearbyint = round  # halves to even


def power(x: Value, y: Value) -> Expr:
    """Compute x to the power y of each element."""
    return E.call("pow", x, y)


def sigmoid(x: Value) -> Expr:
    """Compute 1 / (1 + exp(-x)), in float32 for float16, whose range exp would leave."""
    node = E.convert(x)
    kind = node.dtype if node.dtype.is_float else FLOAT32
    one = E.const(1, kind.compute)
    return E.cast(kind, one / (one + E.call("exp", -widened(kind.compute, node))))


def fmod(x: Value, y: Value) -> Expr:
    """Give the remainder of a division that rounds towards zero, of floats."""
    return E.call("fmod", x, y)


def log2(x: Value) -> Expr:
    """Compute the logarithm to base 2."""
    return log(x) * (1 / math.log(2))


def log10(x: Value) -> Expr:
    """Compute the logarithm to base 10."""
    return log(x) * (1 / math.log(10))


def exp2(x: Value) -> Expr:
    """Compute 2 to the power x."""
    return power(E.const(2.0), x)


def exp10(x: Value) -> Expr:
    """Compute 10 to the power x."""
    return power(E.const(10.0), x)


def log1p(x: Value) -> Expr:
    """Compute log(1 + x), exact also where x is small."""
    node = E.convert(x)
    whole = 1 + node
    part = E.select(whole.equal(1), 1, whole - 1)  # what of x is left in the sum
    share = E.select(whole.equal(node), 1, node / part)  # infinite ones are equal
    return E.select(whole.equal(1), node, log(whole) * share)


def hypot(x: Value, y: Value) -> Expr:
    """Compute sqrt(x * x + y * y), where the squares need not fit."""
    a, b = abs(x), abs(y)
    longer, shorter = E.maximum(a, b), E.minimum(a, b)
    ratio = shorter / E.select(longer.equal(0), 1, longer)
    return longer * sqrt(1 + ratio * ratio)


def copysign(x: Value, y: Value) -> Expr:
    """Give |x| with the sign of y; a zero counts as positive, also -0.0."""
    size = abs(x)
    return E.select(E.convert(y) < 0, -size, size)


def atan2(y: Value, x: Value) -> Expr:
    """Give the angle of the point (x, y), from -pi to pi; a zero counts as positive, also -0.0."""
    up, right = E.convert(y), E.convert(x)
    slope = abs(up) / abs(E.select(right.equal(0), 1, right))
    upright = E.select(up.equal(0), E.const(0.0, slope.dtype), E.const(math.pi / 2, slope.dtype))
    sharp = E.select(right.equal(0), upright, atan(slope))
    return copysign(E.select(right < 0, math.pi - sharp, sharp), up)


def ldexp(x: Value, exponent: Value) -> Expr:
    """Compute x * 2**exponent."""
    node = E.convert(x)
    return node * power(E.const(2.0, node.dtype), exponent)


def div(a: Value, b: Value) -> Expr:
    """Divide: a / b of floats; of integers `truncdiv`, as in C."""
    x = E.convert(a)
    y = E.convert(b, x)
    if x.dtype.is_float or y.dtype.is_float:
        return E.binary("div", x, y)
    return truncdiv(x, y)


def trunc(x: Value) -> Expr:
    """Round towards zero."""
    node = E.convert(x)
    if not node.dtype.is_float:
        return node
    return E.select(node < 0, ceil(node), floor(node))


def isnan(x: Value) -> Expr:
    """Tell whether a number is NaN; no integer is."""
    node = E.convert(x)
    return E.binary("ne", node, node) if node.dtype.is_float else E.const(False)


def isinf(x: Value) -> Expr:
    """Tell whether a number is infinite; no integer is."""
    node = E.convert(x)
    return abs(node).equal(math.inf) if node.dtype.is_float else E.const(False)


def isfinite(x: Value) -> Expr:
    """Tell whether a number is neither infinite nor NaN; all integers are."""
    node = E.convert(x)
    return abs(node) < math.inf if node.dtype.is_float else E.const(True)


def floordiv(a: Value, b: Value) -> Expr:
    """Compute a // b, rounding down; also called indexdiv."""
    return E.binary("floordiv", E.convert(a), b)


def floormod(a: Value, b: Value) -> Expr:
    """Compute a % b, with the sign of b; also called indexmod."""
    return E.binary("floormod", E.convert(a), b)


indexdiv, indexmod = floordiv, floormod


def truncdiv(a: Value, b: Value) -> Expr:
    """Divide integers, rounded towards zero."""
    x = E.convert(a)
    y = E.convert(b, x)
    size = E.binary("floordiv", E.call("abs", x), E.call("abs", y))
    return E.select((x < 0).equal(y < 0), size, -size)


def truncmod(a: Value, b: Value) -> Expr:
    """Return what `truncdiv` leaves, with the sign of a."""
    return E.convert(a) - truncdiv(a, b) * b


def popcount(x: Value) -> Expr:
    """Count the bits of an integer that are 1; a negative one counts in two's complement."""
    node = E.convert(x)
    bits = node.dtype.bits
    below = (1 << (bits - 1)) - 1  # all but the sign, so that no sum leaves the type
    shift, both = partial(E.binary, "shr"), partial(E.binary, "bitand")
    count, width = both(node, below), 1
    while width < bits:
        mask = sum(((1 << width) - 1) << at for at in range(0, bits, 2 * width)) & below
        count = both(count, mask) + both(shift(count, width), mask)
        width *= 2
    return count + both(shift(node, bits - 1), 1)


def clz(x: Value) -> Expr:
    """Count the bits of an integer that are 0 before its highest 1, as int32."""
    node = E.convert(x)
    bits, step = node.dtype.bits, 1
    while step < bits:  # all bits below the highest become 1
        node = E.binary("bitor", node, E.binary("shr", node, step))
        step *= 2
    return bits - E.cast("int32", popcount(node))


def min_value(dtype: str) -> Expr:
    """Give the least finite number of a type."""
    kind = DType(dtype, f"min_value({dtype!r})")
    return E.const(kind.least, kind)


def max_value(dtype: str) -> Expr:
    """Give the greatest finite number of a type."""
    kind = DType(dtype, f"max_value({dtype!r})")
    return E.const(kind.greatest, kind)


def infinity(dtype: str) -> Expr:
    """Give infinity of a float type.  Raises ExpressionError for others."""
    kind = DType(dtype, f"infinity({dtype!r})")
    if not kind.is_float:
        raise ExpressionError(f"infinity({dtype!r})", "it has none", "Use te.max_value.")
    return E.const(math.inf, kind)
