"""Sparse matrices to test with, and what a product with one is.

In: sizes, a density.  Out: a matrix in blocks; `sparse_dense_python`.  Read next:
`topi/nn/sparse.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.base.errors import ExpressionError
from tilewright.topi.references.windows import Array
from tilewright_tvm.topi.testing.conv2d import in_type, widest


@dataclass(frozen=True)
class BSRMatrix:
    """A matrix in blocks, with the names that scipy's has.

    data: [blocks, rows, columns]; indices: column of each, in blocks; indptr: where rows begin
    """

    data: Array
    indices: Array
    indptr: Array
    shape: tuple[int, int]

    def todense(self) -> Array:
        """All of it; what occurs twice is added."""
        return _dense(self.data, self.indices, self.indptr, self.shape[1])


def random_bsr_matrix(
    M: int, N: int, BS_R: int, BS_C: int, density: float, dtype: str = "float32", *,
    seed: int | None = None,
) -> BSRMatrix:  # fmt: skip
    """M rows and N columns in blocks of BS_R rows and BS_C columns, of which a share `density` is
    there, with standard normal elements.  Raises ExpressionError for blocks that do not divide.
    """
    place = f"random_bsr_matrix({M}, {N}, {BS_R}, {BS_C}, {density})"
    if min(M, N, BS_R, BS_C) < 1 or M % BS_R or N % BS_C:
        raise ExpressionError(place, "the blocks do not divide the matrix", "Give other sizes.")
    if not 0 < density <= 1:
        raise ExpressionError(place, "the density is no share", "Give one above 0, up to 1.")
    rng = np.random.default_rng(seed)
    rows, columns = M // BS_R, N // BS_C
    count = max(1, int(density * rows * columns))
    chosen = np.sort(rng.choice(rows * columns, count, replace=False))
    data = rng.standard_normal((count, BS_R, BS_C)).astype(dtype)
    indptr = np.searchsorted(chosen, np.arange(rows + 1) * columns).astype(np.int32)
    return BSRMatrix(data, (chosen % columns).astype(np.int32), indptr, (M, N))


def sparse_dense_python(
    dense_data: Array, sparse_data: Array, sparse_indices: Array, sparse_indptr: Array,
    sparse_lhs: bool = False,
) -> Array:  # fmt: skip
    """What `topi.nn.sparse_dense` gives."""
    sparse = _dense(sparse_data, sparse_indices, sparse_indptr, dense_data.shape[1])
    left, right = (sparse, dense_data) if sparse_lhs else (dense_data, sparse)
    return in_type(widest(left) @ widest(right).T, dense_data)


def _dense(data: Array, indices: Array, indptr: Array, width: int) -> Array:
    blocks = data if data.ndim == 3 else data.reshape(-1, 1, 1)
    _, height, columns = blocks.shape
    full = np.zeros((len(indptr) - 1, height, width // columns, columns), data.dtype)
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    for row, column, block in zip(rows, indices, blocks, strict=True):
        full[row, :, column] += block
    return full.reshape(-1, width)
