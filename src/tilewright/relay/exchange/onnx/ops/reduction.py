"""Reductions."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.relay import tensor
from tilewright.relay.exchange.onnx.node import Converter, Node
from tilewright.relay.graph.expr import Expr


def _reduce(function: Callable[..., Expr]) -> Converter:
    def convert(n: Node) -> Expr:
        axes, keepdims = n.ints("axes", 1), n.flag("keepdims", True)
        is_noop = n.flag("noop_with_empty_axes")
        if not axes and is_noop:
            return n[0]
        return function(n[0], axis=axes or None, keepdims=keepdims)

    return convert


CONVERTERS: dict[str, Converter] = {
    "ReduceMax": _reduce(tensor.max),
    "ReduceMean": _reduce(tensor.mean),
    "ReduceMin": _reduce(tensor.min),
    "ReduceProd": _reduce(tensor.prod),
    "ReduceSum": _reduce(tensor.sum),
}
