"""Products of matrices, and distances of rows."""

from __future__ import annotations

import math

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.indexing import take
from tilewright.graph.functions.linear import einsum, product
from tilewright.graph.leaves import const
from tilewright.models.torch.node import Converter, Node
from tilewright.models.torch.ops.elementwise import scaled
from tilewright.models.torch.ops.movement import reshaped
from tilewright.models.torch.ops.reduction import vector_norm


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


def _addmv(n: Node) -> Expr:
    return _plus(n, scaled(product(n["mat"], n["vec"]), n.get("alpha", 1)))


def _addbmm(n: Node) -> Expr:
    made = tensor.sum(batched(n["batch1"], n["batch2"]), (0,))
    return _plus(n, scaled(made, n.get("alpha", 1)))


def _trilinear(n: Node) -> Expr:
    """The product of three tensors, each without the axes that it is stretched along, summed."""
    rank = len(n["i1"].shape) + len(n.ints("expand1"))
    letters = "abcdefghijklmnopqrstuvwxyz"[:rank]

    def left(axes: tuple[int, ...]) -> str:
        return "".join(c for k, c in enumerate(letters) if k not in {a % rank for a in axes})

    given = ",".join(left(n.ints(f"expand{k}")) for k in (1, 2, 3))
    return einsum([n["i1"], n["i2"], n["i3"]], f"{given}->{left(n.ints('sumdim'))}")


def _distances(n: Node) -> Expr:
    """Of each row of x1 to each row of x2, under their leading axes."""
    a, b = n["x1"], n["x2"]
    away = tensor.subtract(
        tensor.expand_dims(a, len(a.shape) - 1), tensor.expand_dims(b, len(b.shape) - 2)
    )
    return vector_norm(away, float(n.get("p", 2)), (len(away.shape) - 1,))


def _distances_inside(n: Node) -> Expr:
    """Of each row to each later one."""
    rows, later = (const(k) for k in np.triu_indices(n["self"].shape[0], 1))
    away = tensor.subtract(take(n["self"], rows, 0), take(n["self"], later, 0))
    return vector_norm(away, float(n.get("p", 2)), (1,))


def _distance(n: Node) -> Expr:
    return vector_norm(tensor.subtract(n["self"], n["other"]), float(n.get("p", 2)))


CONVERTERS: dict[str, Converter] = {
    "mm.default": _mm,
    "addmm.default": _addmm,
    "linear.default": _linear,
    "bmm.default": _bmm,
    "baddbmm.default": _baddbmm,
    "matmul.default": lambda n: product(n["self"], n["other"]),
    "mv.default": lambda n: product(n["self"], n["vec"]),
    "dot.default": lambda n: product(n["self"], n["tensor"]),
    "einsum.default": lambda n: einsum(n.args["tensors"], n.args["equation"]),
    "addmv.default": _addmv,
    "addbmm.default": _addbmm,
    "_trilinear.default": _trilinear,
    "_cdist_forward.default": _distances,
    "cdist.default": _distances,
    "_pdist_forward.default": _distances_inside,
    "dist.default": _distance,
}
