"""Reductions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.expr import Expr
from tilewright.graph.functions import reductions, tensor
from tilewright.models.onnx.node import Converter, Node


def _reduce(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        axes, keepdims = n.ints("axes", 1), n.flag("keepdims", True)
        is_noop = n.flag("noop_with_empty_axes")
        # no axes: none are reduced, but what is done to each element is
        return function(n[0], axis=axes or (() if is_noop else None), keepdims=keepdims)

    return convert


def _wide(function: Callable[..., Expr]) -> Callable[..., Expr]:
    """In the type of the data's arithmetic, rounded to its own at the end."""

    def reduce(data: Expr, axis: object, keepdims: bool) -> Expr:
        kind = data.tensor_type.dtype
        wide = data if kind.compute is kind else tensor.cast(data, kind.compute)
        made = function(wide, axis=axis, keepdims=keepdims)
        return made if made.dtype == kind else tensor.cast(made, kind)

    return reduce


def _extreme(of_bools: Callable[..., Expr], plain: Callable[..., Expr]) -> Converter:
    def reduce(data: Expr, axis: object, keepdims: bool) -> Expr:
        return (of_bools if data.dtype == "bool" else plain)(data, axis=axis, keepdims=keepdims)

    return _reduce(reduce)


def _mean(data: Expr, axis: object, keepdims: bool) -> Expr:
    function = tensor.mean if data.tensor_type.dtype.is_float else reductions.whole_mean
    return function(data, axis=axis, keepdims=keepdims)  # type: ignore[arg-type]


CONVERTERS: dict[str, Converter] = {
    "ReduceL1": _reduce(_wide(reductions.l1_norm)),
    "ReduceL2": _reduce(reductions.l2_norm),
    "ReduceLogSum": _reduce(reductions.log_sum),
    "ReduceLogSumExp": _reduce(_wide(reductions.logsumexp)),
    "ReduceMax": _extreme(reductions.any, tensor.max),
    "ReduceMean": _reduce(_mean),
    "ReduceMin": _extreme(reductions.all, tensor.min),
    "ReduceProd": _reduce(tensor.prod),
    "ReduceSum": _reduce(tensor.sum),
    "ReduceSumSquare": _reduce(_wide(reductions.sum_square)),
}
