"""Gradients of operators that work element by element.

In: calls and the gradient of their results.  Out: that of each operand, summed over the axes along
which it was stretched.  At a corner (abs and maximum at 0) it is one of the slopes beside it, or
their mean.  Read next: `reduction.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.graph.expr import Call, Expr
from tilewright.graph.functions import tensor as T
from tilewright_tvm.relay.gradients.shared import Rule, in_type, masked, summed

# Of one operand: the derivative times g, by the operand x and the result y.
Slope = Callable[[Expr, Expr, Expr], Expr]
_SLOPES: dict[str, Slope] = {
    "exp": lambda x, y, g: g * y,
    "log": lambda x, y, g: g / x,
    "sqrt": lambda x, y, g: g * 0.5 / y,
    "rsqrt": lambda x, y, g: g * -0.5 * y / x,
    "tanh": lambda x, y, g: g * (1.0 - y * y),
    "sigmoid": lambda x, y, g: g * y * (1.0 - y),
    "erf": lambda x, y, g: g * (2 / math.sqrt(math.pi)) * T.exp(-(x * x)),
    "sin": lambda x, y, g: g * T.cos(x),
    "cos": lambda x, y, g: -(g * T.sin(x)),
    "tan": lambda x, y, g: g * (1.0 + y * y),
    "asin": lambda x, y, g: g * T.rsqrt(1.0 - x * x),
    "acos": lambda x, y, g: -(g * T.rsqrt(1.0 - x * x)),
    "atan": lambda x, y, g: g / (1.0 + x * x),
    "sinh": lambda x, y, g: g * T.cosh(x),
    "cosh": lambda x, y, g: g * T.sinh(x),
    "asinh": lambda x, y, g: g * T.rsqrt(x * x + 1.0),
    "acosh": lambda x, y, g: g * T.rsqrt(x * x - 1.0),
    "atanh": lambda x, y, g: g / (1.0 - x * x),
    "abs": lambda x, y, g: g * T.sign(x),
    "negative": lambda x, y, g: -g,
    "copy": lambda x, y, g: g,
    "nn.relu": lambda x, y, g: masked(T.greater(x, 0.0), g),
    "nn.dropout": lambda x, y, g: g,  # as it is here: nothing is dropped
    "annotation.checkpoint": lambda x, y, g: g,
    "annotation.stop_fusion": lambda x, y, g: g,
    "cast": lambda x, y, g: in_type(g, x),
}


def _sloped(slope: Slope) -> Rule:
    return lambda node, g: [slope(node.args[0], node, g)]


def _clip(node: Call, g: Expr) -> list[Expr]:
    x, a = node.args[0], node.attrs
    low, high = T.greater_equal(x, a.a_min), T.less_equal(x, a.a_max)
    return [masked(T.logical_and(low, high), g)]


def _leaky_relu(node: Call, g: Expr) -> list[Expr]:
    return [T.where(T.greater(node.args[0], 0.0), g, g * node.attrs.alpha)]


# Of two operands: both derivatives times g.
Slopes = Callable[[Expr, Expr, Expr, Expr], tuple[Expr, Expr]]


def _greater_has(wins: Callable[[Any, Any], Expr]) -> Slopes:
    """Of maximum and minimum; of equal operands each has half."""

    def slopes(x: Expr, y: Expr, z: Expr, g: Expr) -> tuple[Expr, Expr]:
        half = masked(T.equal(x, y), g * 0.5)
        return T.where(wins(x, y), g, half), T.where(wins(y, x), g, half)

    return slopes


def _power(x: Expr, y: Expr, z: Expr, g: Expr) -> tuple[Expr, Expr]:
    by_base = masked(T.not_equal(y, 0.0), y * T.power(x, y - 1.0))
    by_exponent = masked(T.not_equal(x, 0.0), z * T.log(x))
    return g * by_base, g * by_exponent


_PAIRS: dict[str, Slopes] = {
    "add": lambda x, y, z, g: (g, g),
    "subtract": lambda x, y, z, g: (g, -g),
    "multiply": lambda x, y, z, g: (g * y, g * x),
    "divide": lambda x, y, z, g: (g / y, -(g * z / y)),
    "maximum": _greater_has(T.greater),
    "minimum": _greater_has(T.less),
    "floor_mod": lambda x, y, z, g: (g, -(g * T.floor(x / y))),
    "mod": lambda x, y, z, g: (g, -(g * T.trunc(x / y))),
    "power": _power,
}


def _paired(slopes: Slopes) -> Rule:
    def rule(node: Call, g: Expr) -> list[Expr]:
        lhs, rhs = node.args
        by_lhs, by_rhs = slopes(lhs, rhs, node, g)
        return [summed(by_lhs, lhs), summed(by_rhs, rhs)]

    return rule


def _where(node: Call, g: Expr) -> list[Expr | None]:
    condition, x, y = node.args
    return [None, summed(masked(condition, g), x), summed(T.where(condition, 0.0, g), y)]


def _flat(node: Call, g: Expr) -> list[None]:
    """Steps, of which the slope is 0 wherever there is one."""
    return [None] * len(node.args)


RULES: dict[str, Rule] = {
    **{name: _sloped(slope) for name, slope in _SLOPES.items()},
    **{name: _paired(slopes) for name, slopes in _PAIRS.items()},
    **dict.fromkeys(("floor", "ceil", "round", "sign", "floor_divide"), _flat),
    "clip": _clip,
    "nn.leaky_relu": _leaky_relu,
    "where": _where,
}
