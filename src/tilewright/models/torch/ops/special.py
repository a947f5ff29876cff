"""Functions of statistics: of the error function and of gamma."""

from __future__ import annotations

import math

from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.models.torch.node import Converter, as_type, number
from tilewright.models.torch.ops.elementwise import is_negative, reciprocal, scaled, unary

# Of the logarithm of erfc(x) * exp(x^2) / t in t = 1 / (1 + x / 2), least first: fitted to scipy's
# erfcx at Chebyshev's points, right to 1e-8 of the value wherever x is not negative.
_ERFC = (
    -1.26551212, 0.999999928, 0.37502018, 0.0825926593, -0.074735701, -0.233701756, 0.335524185,
    -1.22539767, 2.398703, -2.20508594, 0.991348973, -0.178755744,
)  # fmt: skip
# Of erfinv(x) / x in w - 2.5, and in sqrt(w) - 3 where w = -log(1 - x^2) is 5 or more, greatest
# first (M. Giles, "Approximating the erfinv function").
_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
    -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
    0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _polynomial(x: Expr, factors: tuple[float, ...]) -> Expr:
    """By Horner's rule, the factor of the highest power first."""
    total: Expr = number(factors[0], str(x.dtype))
    for factor in factors[1:]:
        total = tensor.add(tensor.multiply(total, x), number(factor, str(x.dtype)))
    return total


def _erfc(x: Expr) -> Expr:
    """1 - erf(x), without the loss of digits where that is small; in float64 with it."""
    kind = str(x.dtype)
    one = number(1, kind)
    if kind == "float64":
        return tensor.subtract(one, tensor.erf(x))
    size = tensor.abs(x)
    t = reciprocal(tensor.add(one, scaled(size, 0.5)))
    power = tensor.subtract(_polynomial(t, _ERFC[::-1]), tensor.multiply(size, size))
    made = tensor.multiply(t, tensor.exp(power))
    return tensor.where(is_negative(x), tensor.subtract(number(2, kind), made), made)


def _erfinv(x: Expr) -> Expr:
    """The number whose erf is x: right to a few units of float32, in float64 by two steps more."""
    if str(x.dtype) in ("float16", "bfloat16"):
        return as_type(_erfinv(as_type(x, "float32")), str(x.dtype))
    kind = str(x.dtype)
    one = number(1, kind)
    rest = tensor.multiply(tensor.subtract(one, x), tensor.add(one, x))
    w = tensor.negative(tensor.log(rest))
    near = _polynomial(tensor.subtract(w, number(2.5, kind)), _NEAR)
    far = _polynomial(tensor.subtract(tensor.sqrt(w), number(3, kind)), _FAR)
    made = tensor.multiply(tensor.where(tensor.less(w, number(5, kind)), near, far), x)
    if kind == "float64":
        for _ in range(2):  # Newton's
            away = tensor.subtract(tensor.erf(made), x)
            slope = tensor.exp(tensor.multiply(made, made))
            step = scaled(tensor.multiply(away, slope), math.sqrt(math.pi) / 2)
            made = tensor.subtract(made, step)
    end = tensor.multiply(x, number(math.inf, kind))
    return tensor.where(tensor.equal(tensor.abs(x), one), end, made)


def _log_gamma(x: Expr) -> Expr:
    """log |gamma(x)|: Stirling's series from 8 on, below that by steps of 1, below 1/2 mirrored."""
    kind = str(x.dtype)
    one, half = number(1, kind), number(0.5, kind)
    below = tensor.less(x, half)
    y = tensor.where(below, tensor.subtract(one, x), x)
    small = tensor.less(y, number(8, kind))
    z = tensor.where(small, tensor.add(y, number(8, kind)), y)
    steps: Expr = tensor.where(small, y, one)
    for k in range(1, 8):
        factor = tensor.add(y, number(k, kind))
        steps = tensor.multiply(steps, tensor.where(small, factor, one))
    series = tensor.add(_series(z, (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188)),
                        number(0.5 * math.log(2 * math.pi), kind))  # fmt: skip
    log = tensor.subtract(tensor.log(z), one)
    whole = tensor.multiply(tensor.subtract(z, half), log)
    made = tensor.add(tensor.subtract(whole, half), tensor.subtract(series, tensor.log(steps)))
    made = tensor.where(tensor.isinf(y), y, made)
    turn = tensor.abs(tensor.sin(scaled(_fraction(x), math.pi)))
    mirrored = tensor.subtract(number(math.log(math.pi), kind), tensor.add(tensor.log(turn), made))
    mirrored = tensor.where(tensor.isinf(x), tensor.abs(x), mirrored)
    return tensor.where(below, mirrored, made)


def _digamma(x: Expr) -> Expr:
    """The derivative of the logarithm of gamma, computed as that is."""
    kind = str(x.dtype)
    one = number(1, kind)
    below = tensor.less(x, number(0.5, kind))
    y = tensor.where(below, tensor.subtract(one, x), x)
    z, steps = tensor.add(y, number(8, kind)), reciprocal(y)
    for k in range(1, 8):
        steps = tensor.add(steps, reciprocal(tensor.add(y, number(k, kind))))
    rest = tensor.multiply(reciprocal(z), _series(z, (1 / 12, -1 / 120, 1 / 252, -1 / 240)))
    half = tensor.divide(number(0.5, kind), z)
    made = tensor.subtract(tensor.log(z), tensor.add(tensor.add(half, rest), steps))
    part = _fraction(x)
    turn = tensor.divide(number(math.pi, kind), tensor.tan(scaled(part, math.pi)))
    zero = number(0, kind)
    pole = tensor.where(is_negative(x), number(math.inf, kind), number(-math.inf, kind))
    pole = tensor.where(tensor.equal(x, zero), pole, number(math.nan, kind))
    mirrored = tensor.where(tensor.equal(part, zero), pole, tensor.subtract(made, turn))
    return tensor.where(below, mirrored, made)


def _series(z: Expr, factors: tuple[float, ...]) -> Expr:
    """The sum of factors[k] / z^(2k + 1)."""
    inverse = reciprocal(z)
    square = tensor.multiply(inverse, inverse)
    total: Expr = number(factors[-1], str(z.dtype))
    for factor in factors[-2::-1]:
        total = tensor.add(tensor.multiply(total, square), number(factor, str(z.dtype)))
    return tensor.multiply(total, inverse)


def _fraction(x: Expr) -> Expr:
    """x less the nearest integer."""
    return tensor.subtract(x, tensor.round(x))


CONVERTERS: dict[str, Converter] = {
    "erfc.default": unary(_erfc),
    "special_erfc.default": unary(_erfc),
    "erfinv.default": unary(_erfinv),
    "special_erfinv.default": unary(_erfinv),
    "lgamma.default": unary(_log_gamma),
    "digamma.default": unary(_digamma),
}
