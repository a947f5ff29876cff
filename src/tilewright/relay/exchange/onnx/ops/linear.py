"""Matrix products."""

from __future__ import annotations

import math

import numpy as np

from tilewright.relay import nn, tensor
from tilewright.relay.exchange.onnx.node import Converter, Node
from tilewright.relay.graph.expr import Expr


def _gemm(n: Node) -> Expr:
    a, b = n[0], n[1]
    left = tensor.transpose(a) if n.flag("transA") else a
    right = b if n.flag("transB") else tensor.transpose(b)
    alpha, beta = float(n.attr("alpha", 1.0)), float(n.attr("beta", 1.0))
    made: Expr = nn.dense(left, right)
    made = made if alpha == 1 else made * alpha
    if not n.has(2) or beta == 0:
        return made
    total = tensor.add(made, n[2] if beta == 1 else n[2] * beta)
    n.require(total.shape == made.shape, f"C has shape {n[2].shape}", f"{made.shape} takes it in.")
    return total


def _matmul(n: Node) -> Expr:
    a, b = n[0], n[1]
    n.require(
        len(a.shape) >= 2 and len(b.shape) >= 2, f"it multiplies {a.shape} by {b.shape}",
        "Both sides must be matrices, or batches of them.",
    )  # fmt: skip
    if len(b.shape) > 2:
        return _batched_matmul(n, a, b)
    rows = a if len(a.shape) == 2 else tensor.reshape(a, (-1, a.shape[-1]))
    made = nn.dense(rows, tensor.transpose(b))
    return made if len(a.shape) == 2 else tensor.reshape(made, (*a.shape[:-1], b.shape[1]))


def _batched_matmul(n: Node, a: Expr, b: Expr) -> Expr:
    batch_a, batch_b = a.shape[:-2], b.shape[:-2]
    n.require(
        batch_a == batch_b or 1 in (math.prod(batch_a), math.prod(batch_b)),
        f"it multiplies batches of {batch_a} by batches of {batch_b}",
        "They must be equal, or one side a single matrix.",
    )  # fmt: skip
    left, right = (tensor.reshape(x, (-1, *x.shape[-2:])) for x in (a, b))
    made = nn.batch_matmul(left, right, transpose_b=False)
    return tensor.reshape(made, (*np.broadcast_shapes(batch_a, batch_b), *made.shape[1:]))


CONVERTERS: dict[str, Converter] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
}
