"""Matrix products."""

from __future__ import annotations

from tilewright.graph.expr import Expr
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.linear import einsum, product
from tilewright.graph.functions.matrices import determinant
from tilewright.models.onnx.node import Converter, Node


def gemm(n: Node) -> Expr:
    """alpha * A B + beta * C, as the attributes say."""
    n.flag("broadcast")  # before opset 7 C was stretched only where this is set
    made: Expr = nn.matmul(n[0], n[1], transpose_a=n.flag("transA"), transpose_b=n.flag("transB"))
    alpha, beta = float(n.attr("alpha", 1.0)), float(n.attr("beta", 1.0))
    made = _scaled(n, tensor.cast(made, n[0].dtype), alpha)
    if not n.has(2) or beta == 0:
        return made
    total = tensor.add(made, _scaled(n, n[2], beta))
    n.require(total.shape == made.shape, f"C has shape {n[2].shape}", f"{made.shape} takes it in.")
    return total


def _scaled(n: Node, value: Expr, factor: float) -> Expr:
    if factor == 1:
        return value
    n.require(
        value.tensor_type.dtype.is_float or factor.is_integer(),
        f"it scales {value.dtype} by {factor}", "Use a whole number, or cast first.",
    )  # fmt: skip
    return value * (factor if value.tensor_type.dtype.is_float else int(factor))


CONVERTERS: dict[str, Converter] = {
    "Det": lambda n: determinant(n[0]),
    "Einsum": lambda n: einsum(n.all(), n.attr("equation", "")),
    "Gemm": gemm,
    "MatMul": lambda n: tensor.cast(product(n[0], n[1]), n[0].dtype),
}
