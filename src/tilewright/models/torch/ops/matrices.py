"""Determinants, inverses and factors of matrices, of at most 32 rows."""

from __future__ import annotations

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import matrices, tensor
from tilewright.models.torch.node import Converter, Node, as_type
from tilewright.models.torch.ops.movement import swapped


def _broadcast(n: Node, a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Matrices under the same leading axes, in the element type of the result."""
    lead = tuple(map(int, np.broadcast_shapes(a.shape[:-2], b.shape[:-2])))
    shapes = [(*lead, *x.shape[-2:]) for x in (a, b)]
    left, right = (
        as_type(x if x.shape == shape else tensor.broadcast_to(x, shape), n.dtype)
        for x, shape in zip((a, b), shapes, strict=True)
    )
    return left, right


def _turned(x: Expr) -> Expr:
    return swapped(x, -2, -1)


def _inverse(n: Node) -> list[Expr | None]:
    return [matrices.inverse(n["A" if "A" in n.args else "self"]), None]


def _solve(n: Node) -> list[Expr | None]:
    """A vector is a matrix of one column."""
    a, b = n["A"], n["B"]
    is_vector = len(b.shape) == 1 or b.shape == a.shape[:-1]
    left = bool(n.get("left", True))
    if is_vector:
        b = tensor.expand_dims(b, len(b.shape))
    a, b = _broadcast(n, a, b)
    made = matrices.solve(a, b) if left else _turned(matrices.solve(_turned(a), _turned(b)))
    made = tensor.squeeze(made, [len(made.shape) - 1]) if is_vector else made
    return [made, *[None] * (len(n.results) - 1)]


def _solve_triangular(n: Node) -> Expr:
    a, b = _broadcast(n, n["self"], n["B"])
    upper, unit = bool(n.get("upper", False)), bool(n.get("unitriangular", False))
    if n.get("left", True):
        return matrices.solve_triangular(a, b, upper, unit)
    return _turned(matrices.solve_triangular(_turned(a), _turned(b), not upper, unit))


def _triangular_solve(n: Node) -> list[Expr]:
    """Its older form: [solution, the matrix as it is]."""
    b, a = n["self"], n["A"]
    a, b = _broadcast(n, a, b)
    upper = bool(n.get("upper", True))
    matrix = a
    if n.get("transpose", False):
        matrix, upper = _turned(a), not upper
    unit = bool(n.get("unitriangular", False))
    return [matrices.solve_triangular(matrix, b, upper, unit), a]


def _lower(n: Node) -> Expr:
    """Of the triangle that counts; the other one is its mirror."""
    data, upper = n["self"], bool(n.get("upper", False))
    made = matrices.cholesky(_turned(data) if upper else data)
    return _turned(made) if upper else made


def _slogdet(n: Node) -> list[Expr | None]:
    return [*matrices.log_determinant(n["A"]), *[None] * (len(n.results) - 2)]


def _cholesky_solve(n: Node) -> Expr:
    b, factor = n["self"], n["input2"]
    factor, b = _broadcast(n, factor, b)
    lower = _turned(factor) if n.get("upper", False) else factor
    half = matrices.solve_triangular(lower, b, upper=False)
    return matrices.solve_triangular(_turned(lower), half, upper=True)


CONVERTERS: dict[str, Converter] = {
    "linalg_det.default": lambda n: matrices.determinant(n["A"]),
    "_linalg_det.default": lambda n: [matrices.determinant(n["A"]), None, None],
    "_linalg_slogdet.default": _slogdet,
    "linalg_inv_ex.default": _inverse,
    "_linalg_solve_ex.default": _solve,
    "linalg_solve_triangular.default": _solve_triangular,
    "triangular_solve.default": _triangular_solve,
    "linalg_cholesky_ex.default": lambda n: [_lower(n), None],
    "cholesky.default": _lower,
    "cholesky_solve.default": _cholesky_solve,
}
