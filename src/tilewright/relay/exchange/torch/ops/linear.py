"""Products of matrices."""

from __future__ import annotations

import math

from tilewright.relay import nn, tensor
from tilewright.relay.exchange.torch.node import Converter, Node
from tilewright.relay.exchange.torch.ops.elementwise import scaled
from tilewright.relay.exchange.torch.ops.movement import reshaped
from tilewright.relay.graph.expr import Expr
from tilewright.relay.linear import einsum, product


def _mm(n: Node) -> Expr:
    return product(n["self"], n["mat2"])


def _addmm(n: Node) -> Expr:
    made = scaled(product(n["mat1"], n["mat2"]), n.get("alpha", 1))
    return _plus(n, made)


def _plus(n: Node, made: Expr) -> Expr:
    beta = n.get("beta", 1)
    return made if not beta else tensor.add(made, scaled(n["self"], beta))


def linear(data: Expr, weight: Expr, bias: Expr | None) -> Expr:
    """data [..., K] times the transpose of weight [N, K], or weight [K], plus the bias [N]."""
    matrix = tensor.expand_dims(weight, 0) if len(weight.shape) == 1 else weight
    rows = math.prod(data.shape[:-1])
    made: Expr = nn.dense(reshaped(data, (rows, data.shape[-1])), matrix)
    made = made if bias is None else tensor.add(made, bias)
    return reshaped(made, (*data.shape[:-1], *weight.shape[:-1]))


def _linear(n: Node) -> Expr:
    return linear(n["input"], n["weight"], n.optional("bias"))


def batched(left: Expr, right: Expr) -> Expr:
    """[batch, M, K] times [batch, K, N], for each of the batch."""
    return nn.batch_matmul(left, right, transpose_a=False, transpose_b=False)


def _bmm(n: Node) -> Expr:
    return batched(n["self"], n["mat2"])


def _baddbmm(n: Node) -> Expr:
    return _plus(n, scaled(batched(n["batch1"], n["batch2"]), n.get("alpha", 1)))


def _matmul(n: Node) -> Expr:
    return product(n["self"], n["other"])


def _mv(n: Node) -> Expr:
    return product(n["self"], n["vec"])


def _dot(n: Node) -> Expr:
    return product(n["self"], n["tensor"])


def _einsum(n: Node) -> Expr:
    return einsum(n.args["tensors"], n.args["equation"])


CONVERTERS: dict[str, Converter] = {
    "mm.default": _mm,
    "addmm.default": _addmm,
    "linear.default": _linear,
    "bmm.default": _bmm,
    "baddbmm.default": _baddbmm,
    "matmul.default": _matmul,
    "mv.default": _mv,
    "dot.default": _dot,
    "einsum.default": _einsum,
}
