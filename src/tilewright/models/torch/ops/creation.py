"""Tensors that are made of nothing: constants of the network."""

from __future__ import annotations

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Constant, Expr
from tilewright.graph.functions import tensor
from tilewright.models.torch.node import Converter, Node


def _filled(value: float | bool, n: Node) -> Expr:
    """One number, stretched: the graph holds it once."""
    kind = DType(n.dtype).storage
    with np.errstate(all="ignore"):
        one = Constant(np.asarray(value).astype(kind))
    return tensor.broadcast_to(one, n.shape) if n.shape else one


def _full(n: Node) -> Expr:
    value = n.args.get("fill_value", n.args.get("s"))
    n.require(isinstance(value, (bool, int, float)), "its value is computed by the network")
    return _filled(value, n)


def _arange(n: Node) -> Expr:
    start, step = n.get("start", 0), n.get("step", 1)
    n.room(8 * n.shape[0])
    return Constant((start + step * np.arange(n.shape[0])).astype(DType(n.dtype).storage))


def _eye(n: Node) -> Expr:
    n.room(8 * n.shape[0] * n.shape[1])
    return Constant(np.eye(n.shape[0], n.shape[1]).astype(DType(n.dtype).storage))


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(("full.default", "full_like.default", "new_full.default",
                     "scalar_tensor.default", "fill.Scalar"), _full),
    **dict.fromkeys(("zeros.default", "zeros_like.default", "new_zeros.default",
                     "empty.memory_format", "empty_like.default", "new_empty.default",
                     "empty_permuted.default"), lambda n: _filled(0, n)),
    **dict.fromkeys(("ones.default", "ones_like.default", "new_ones.default"),
                    lambda n: _filled(1, n)),
    **dict.fromkeys(("arange.default", "arange.start", "arange.start_step"), _arange),
    **dict.fromkeys(("eye.default", "eye.m"), _eye),
}  # fmt: skip
