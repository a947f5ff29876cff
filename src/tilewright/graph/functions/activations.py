"""Activations that are compositions: `relay.nn.gelu`, `relay.nn.elu`, `relay.nn.softplus`, ...

In: a floating-point graph value.  Out: a chain of elementwise operators, which fuses into one
kernel.  `nn.py` gives them to users.  Read next: `tensor.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.sizes import settle

# of a SELU, so that its outputs keep mean 0 and variance 1
SELU_ALPHA, SELU_SCALE = 1.6732632423543772, 1.0507009873554805


F = TypeVar("F", bound=Callable[..., Expr])


def _in_floats(function: F) -> F:
    """`function` of a float tensor, which rounds to a narrow type once, at its end."""

    @wraps(function)
    def activation(data: Expr, *args: Any, **kwargs: Any) -> Expr:
        kind = data.tensor_type.dtype
        if not kind.is_float:
            raise ModelError(
                f"nn.{function.__name__}(data={data.shape} {data.dtype})",
                "it is of floating-point tensors", 'Cast it to float32.',
            )  # fmt: skip
        if kind.compute is kind:
            return function(data, *args, **kwargs)
        wide = tensor.cast(data, kind.compute)
        return tensor.cast(function(wide, *args, **kwargs), kind)

    return cast(F, activation)


def expm1_below_zero(data: Expr) -> Expr:
    """e to the power data, less 1, where that is negative, else 0; exact also near 0.

    By the tangent of half of it, as 1 less an exponential near 1 has lost its digits.
    """
    half = tensor.tanh(tensor.minimum(data, 0.0) * 0.5)
    return (half + half) / tensor.subtract(1.0, half)


def prelu(data: Expr, alpha: Expr, axis: int = 1) -> Expr:
    """data where it is positive, elsewhere alpha * data; alpha: a vector along `axis`."""
    rank = len(data.shape)
    if -rank <= axis < rank:
        settle(alpha, (data.shape[axis],), data)
    if not -rank <= axis < rank or alpha.shape not in ((data.shape[axis],), (1,)):
        raise ModelError(
            f"nn.prelu(data={data.shape}, alpha={alpha.shape}, axis={axis})",
            "alpha is no vector along that axis", "Use as many elements as the axis has, or one.",
        )  # fmt: skip
    behind = rank - 1 - axis % rank
    return sloped(data, tensor.expand_dims(alpha, 1, behind) if behind else alpha)


def sloped(data: Expr, slope: Expr) -> Expr:
    """data where it is not negative, elsewhere slope * data; shapes broadcast."""
    return tensor.where(tensor.less(data, 0), tensor.multiply(data, slope), data)


@_in_floats
def elu(data: Expr, alpha: float = 1.0) -> Expr:
    """data where it is positive, elsewhere alpha * (exp(data) - 1)."""
    return tensor.where(tensor.greater(data, 0.0), data, expm1_below_zero(data) * alpha)


@_in_floats
def selu(data: Expr, alpha: float = SELU_ALPHA, gamma: float = SELU_SCALE) -> Expr:
    """gamma times elu with `alpha`."""
    return elu(data, alpha) * gamma


@_in_floats
def celu(data: Expr, alpha: float = 1.0) -> Expr:
    """max(data, 0) + min(alpha * (exp(data / alpha) - 1), 0)."""
    if alpha == 0:
        raise ModelError("nn.celu(alpha=0)", "data is divided by alpha", "Use another alpha.")
    inner = data / alpha  # of a negative alpha above 0 where data is below
    bent = expm1_below_zero(inner) if alpha > 0 else tensor.exp(tensor.maximum(inner, 0.0)) - 1.0
    below = tensor.minimum(bent * alpha, 0.0)
    return tensor.maximum(data, 0.0) + below


@_in_floats
def gelu(data: Expr, approximate: str = "none") -> Expr:
    """data times the share of a standard normal distribution below it.

    approximate: "none", or "tanh" for the usual approximation
    """
    if approximate not in ("none", "tanh"):
        raise ModelError(
            f"nn.gelu(approximate={approximate!r})", "it is not known", 'Use "none" or "tanh".'
        )
    if approximate == "none":
        return data * 0.5 * (tensor.erf(data * math.sqrt(0.5)) + 1.0)
    inner = (data + data * data * data * 0.044715) * math.sqrt(2 / math.pi)
    return data * 0.5 * (tensor.tanh(inner) + 1.0)


@_in_floats
def hard_sigmoid(data: Expr, alpha: float = 1 / 6, beta: float = 0.5) -> Expr:
    """alpha * data + beta, limited to [0, 1]."""
    return tensor.clip(data * alpha + beta, 0.0, 1.0)


@_in_floats
def hard_swish(data: Expr) -> Expr:
    """data times its hard sigmoid."""
    return data * hard_sigmoid(data)


@_in_floats
def silu(data: Expr, alpha: float = 1.0) -> Expr:
    """data times the sigmoid of alpha * data: SiLU, or Swish."""
    return data * tensor.sigmoid(data if alpha == 1 else data * alpha)


swish = silu


@_in_floats
def softplus(data: Expr) -> Expr:
    """log(1 + exp(data)), which cannot overflow."""
    rest = tensor.log(tensor.exp(tensor.negative(tensor.abs(data))) + 1.0)
    return tensor.maximum(data, 0.0) + rest


@_in_floats
def mish(data: Expr) -> Expr:
    """data * tanh(softplus(data))."""
    return data * tensor.tanh(softplus(data))


@_in_floats
def softsign(data: Expr) -> Expr:
    """data / (1 + |data|)."""
    return data / (tensor.abs(data) + 1.0)


@_in_floats
def shrink(data: Expr, lambd: float = 0.5, bias: float = 0.0) -> Expr:
    """data moved towards zero by `bias` where it is farther than `lambd` from it, elsewhere 0."""
    inside = tensor.where(tensor.greater(data, lambd), data - bias, 0.0)
    return tensor.where(tensor.less(data, -lambd), data + bias, inside)


@_in_floats
def thresholded_relu(data: Expr, alpha: float = 1.0) -> Expr:
    """data where it is greater than alpha, elsewhere 0."""
    return tensor.where(tensor.greater(data, alpha), data, 0.0)


__all__ = [
    "celu", "elu", "gelu", "hard_sigmoid", "hard_swish", "mish", "prelu", "selu", "shrink", "silu",
    "softplus", "softsign", "swish", "thresholded_relu",
]  # fmt: skip
