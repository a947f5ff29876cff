"""Reductions over axes."""

from __future__ import annotations

import math
from typing import Any

from tilewright.base.dtype import DType
from tilewright.graph.expr import Expr
from tilewright.graph.functions import indexing as relay_indexing
from tilewright.graph.functions import tensor
from tilewright.models.torch.node import Converter, Node, as_type, number
from tilewright.models.torch.ops.elementwise import truth
from tilewright.models.torch.ops.movement import reshaped, with_axis


def _reduced(made: Any) -> Converter:
    """In the element type of the result."""

    def convert(n: Node) -> Expr:
        data = as_type(n["self"], n.dtype)
        found: Expr = made(data, n.axes(), bool(n.get("keepdim", False)))
        return found

    return convert


def _logical(reduced: Any) -> Converter:
    """Whether any element, or every one, differs from zero: the greatest or smallest truth."""

    def convert(n: Node) -> Expr:
        held = as_type(truth(n["self"]), "int32")
        return truth(reduced(held, n.axes(), bool(n.get("keepdim", False))))

    return convert


def _count(n: Node, data: Expr) -> int:
    return math.prod(data.shape[a] for a in n.axes() or range(len(data.shape)))


def _squared_deviation(n: Node) -> tuple[Expr, Expr]:
    """(mean, mean squared deviation times count / (count - correction)), both with kept axes."""
    data = n["self"]
    correction = n.get("correction", 1 if n.get("unbiased", True) else 0)
    count = _count(n, data)
    n.require(count > correction, f"{count} elements with correction={correction}",
              "Give it more elements.")  # fmt: skip
    mean = tensor.mean(data, n.axes(), True)
    away = tensor.subtract(data, mean)
    total = tensor.sum(tensor.multiply(away, away), n.axes(), True)
    return mean, tensor.multiply(total, number(1 / (count - correction), str(data.dtype)))


def _variance(n: Node) -> Expr:
    return reshaped(_squared_deviation(n)[1], n.shape)


def _deviation(n: Node) -> Expr:
    return reshaped(tensor.sqrt(_squared_deviation(n)[1]), n.shape)


def _variance_and_mean(n: Node) -> list[Expr]:
    mean, variance = _squared_deviation(n)
    return [reshaped(v, n.shape) for v in (variance, mean)]


def _vector_norm(n: Node) -> Expr:
    data, order = as_type(n["self"], n.dtype), n.get("ord", n.get("p", 2))
    return vector_norm(data, order, n.axes(), bool(n.get("keepdim", False)))


def vector_norm(
    data: Expr, order: float, axes: tuple[int, ...] | None = None, keep: bool = False
) -> Expr:
    """(sum |data|^order)^(1 / order); of order 0 the number of elements that are not zero."""
    kind = str(data.dtype)
    if order == 2:
        return tensor.sqrt(tensor.sum(tensor.multiply(data, data), axes, keep))
    size = tensor.abs(data)
    if order == 1:
        return tensor.sum(size, axes, keep)
    if order in (math.inf, -math.inf):
        return (tensor.max if order > 0 else tensor.min)(size, axes, keep)
    if order == 0:
        return tensor.sum(as_type(truth(data), kind), axes, keep)
    powers = tensor.sum(tensor.power(size, number(order, kind)), axes, keep)
    return tensor.power(powers, number(1 / order, kind))


def _logsumexp(n: Node) -> Expr:
    data = as_type(n["self"], n.dtype)
    axes, keep = n.axes(), bool(n.get("keepdim", False))
    most = tensor.max(data, axes, True)
    total = tensor.sum(tensor.exp(tensor.subtract(data, most)), axes, True)
    found = tensor.add(tensor.log(total), most)
    return found if keep else reshaped(found, n.shape)


def _extreme_along(name: str) -> Converter:
    """The greatest or smallest along one axis, and where it is."""

    def convert(n: Node) -> list[Expr]:
        keep, axis, data = bool(n.get("keepdim", False)), n.axis(), with_axis(n["self"])
        value: Expr = getattr(tensor, name)(data, (axis,), keep)
        where: Expr = getattr(relay_indexing, f"arg{name}")(data, axis, keep)
        return [reshaped(v, n.shape) for v in (value, where)]

    return convert


def _where_extreme(name: str) -> Converter:
    def convert(n: Node) -> Expr:
        data, keep = n["self"], bool(n.get("keepdim", False))
        if n.args.get("dim") is None:
            flat = getattr(relay_indexing, name)(tensor.as_shape(data, (-1,)), 0, False)
            return flat if not n.shape else tensor.as_shape(flat, n.shape)
        found: Expr = getattr(relay_indexing, name)(with_axis(data), n.axis(), keep)
        return reshaped(found, n.shape)

    return convert


def _total(n: Node) -> Expr:
    data = n["self"]
    kind = n.dtype if DType(n.dtype).is_float or n.dtype == "int64" else "int64"
    return tensor.sum(as_type(data, kind), n.axes(), bool(n.get("keepdim", False)))


_BY_DIM = ("default", "dim")
CONVERTERS: dict[str, Converter] = {
    **{f"mean.{k}": _reduced(tensor.mean) for k in _BY_DIM},
    **{f"sum.{k}": _total for k in ("default", "dim_IntList")},
    **{f"prod.{k}": _reduced(tensor.prod) for k in ("default", "dim_int")},
    **{f"any.{k}": _logical(tensor.max) for k in ("default", "dim", "dims")},
    **{f"all.{k}": _logical(tensor.min) for k in ("default", "dim", "dims")},
    "amax.default": _reduced(tensor.max),
    "amin.default": _reduced(tensor.min),
    "max.default": _reduced(tensor.max),
    "min.default": _reduced(tensor.min),
    "max.dim": _extreme_along("max"),
    "min.dim": _extreme_along("min"),
    "argmax.default": _where_extreme("argmax"),
    "argmin.default": _where_extreme("argmin"),
    **{f"var.{k}": _variance for k in ("default", "dim", "correction")},
    **{f"std.{k}": _deviation for k in ("default", "dim", "correction")},
    "var_mean.correction": _variance_and_mean,
    "var_mean.dim": _variance_and_mean,
    "linalg_vector_norm.default": _vector_norm,
    "norm.ScalarOpt_dim": _vector_norm,
    "logsumexp.default": _logsumexp,
}
