"""One step of an optimiser: new weights, and new moments, of weights and their gradients."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.leaves import const
from tilewright.models.onnx.node import Converter, Node

Rule = Callable[[Node, Expr, Expr, list[Expr]], list[Expr]]  # rate, count, (weight, gradient, ..)


def _stepped(parts: int, rule: Rule) -> Converter:
    """Inputs come by kind: all weights, then all gradients, then all moments; so do results.

    parts: tensors that belong to one weight, itself and its gradient included
    """

    def convert(n: Node) -> list[Expr]:
        count, rest = divmod(len(n.names) - 2, parts)
        n.require(
            count >= 1 and rest == 0, f"it has {len(n.names)} inputs",
            f"A rate, a count and {parts} tensors for each weight are needed.",
        )  # fmt: skip
        rows = []
        for k in range(count):
            held = [n[2 + part * count + k] for part in range(parts)]
            n.require(
                len({v.shape for v in held}) == 1, "a weight, its gradient and moments differ",
                "They have one shape.",
            )  # fmt: skip
            rate, trips = (tensor.cast(n[j], held[0].dtype) for j in range(2))
            rows.append(rule(n, rate, trips, held))
        return [row[part] for part in range(parts - 1) for row in rows]

    return convert


def _regularized(n: Node, weight: Expr, gradient: Expr) -> Expr:
    factor = float(n.attr("norm_coefficient", 0.0))
    return tensor.add(weight * factor, gradient) if factor else gradient


def _adagrad(n: Node, rate: Expr, trips: Expr, held: list[Expr]) -> list[Expr]:
    weight, gradient, squares = held
    gradient = _regularized(n, weight, gradient)
    squares = tensor.add(squares, tensor.multiply(gradient, gradient))
    decayed = tensor.divide(rate, trips * float(n.attr("decay_factor", 0.0)) + 1.0)
    apart = tensor.sqrt(squares) + float(n.attr("epsilon", 1e-6))
    step = tensor.divide(tensor.multiply(decayed, gradient), apart)
    return [tensor.subtract(weight, step), squares]


def _adam(n: Node, rate: Expr, trips: Expr, held: list[Expr]) -> list[Expr]:
    weight, gradient, mean, squares = held
    alpha, beta = float(n.attr("alpha", 0.9)), float(n.attr("beta", 0.999))
    gradient = _regularized(n, weight, gradient)
    mean = tensor.add(mean * alpha, gradient * (1 - alpha))
    squares = tensor.add(squares * beta, tensor.multiply(gradient, gradient) * (1 - beta))
    bases = (tensor.power(const(b, weight.dtype), trips) for b in (alpha, beta))
    first, second = (tensor.subtract(const(1.0, weight.dtype), b) for b in bases)
    started = tensor.greater(trips, const(0.0, weight.dtype))
    safe = tensor.where(started, first, const(1.0, weight.dtype))
    adjusted = tensor.divide(tensor.multiply(rate, tensor.sqrt(second)), safe)
    adjusted = tensor.where(started, adjusted, rate)
    apart = tensor.sqrt(squares) + float(n.attr("epsilon", 1e-6))
    made = tensor.subtract(weight, tensor.divide(tensor.multiply(adjusted, mean), apart))
    return [made * (1 - float(n.attr("norm_coefficient_post", 0.0))), mean, squares]


def _momentum(n: Node, rate: Expr, trips: Expr, held: list[Expr]) -> list[Expr]:
    weight, gradient, moment = held
    alpha, mode = float(n.attr("alpha")), n.attr("mode")
    n.require(mode in ("standard", "nesterov"), f"mode={mode}", "Use standard or nesterov.")
    gradient = _regularized(n, weight, gradient)
    one, zero = const(1.0, weight.dtype), const(0.0, weight.dtype)
    beta = const(float(n.attr("beta")), weight.dtype)
    share = tensor.where(tensor.greater(trips, zero), beta, one)
    moment = tensor.add(moment * alpha, tensor.multiply(share, gradient))
    step = moment if mode == "standard" else tensor.add(gradient, moment * alpha)
    return [tensor.subtract(weight, tensor.multiply(rate, step)), moment]


CONVERTERS: dict[str, Converter] = {
    "Adagrad": _stepped(3, _adagrad),
    "Adam": _stepped(4, _adam),
    "Momentum": _stepped(3, _momentum),
}
