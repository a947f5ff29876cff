"""Matrices stored by their elements that are not zero, in three arrays: `contrib.sparse`.

In: a dense matrix, or its parts.  Out: `CSRNDArray`, whose parts are what `topi.nn.sparse_dense`
reads, and `CSRPlaceholderOp`, with a tensor of te for each.  Read next: `topi/nn/sparse.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import te
from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright_tvm import nd

__all__ = ["CSRNDArray", "CSRPlaceholderOp", "array", "placeholder"]

INDEX = "int32"


class CSRNDArray:
    """A matrix by rows: `data`, the column of each in `indices`, where rows begin in `indptr`."""

    stype = "csr"

    def __init__(self, arg1: Any, device: Any = None, shape: Sequence[int] | None = None) -> None:
        if isinstance(arg1, tuple):
            if len(arg1) != 3 or shape is None:
                raise ExpressionError(
                    "contrib.sparse.array(parts)", "they are not three, or the shape is missing",
                    "Give (data, indices, indptr) and shape=.",
                )  # fmt: skip
            self.data, self.indices, self.indptr = (nd.array(part, device) for part in arg1)
            self.shape = tuple(int(n) for n in shape)
            return
        dense = arg1.numpy() if isinstance(arg1, nd.NDArray) else np.asarray(arg1)
        if dense.ndim != 2:
            raise ExpressionError(
                "contrib.sparse.array", f"{dense.ndim} dimensions are no matrix", "Give [n, m]."
            )
        rows, columns = np.nonzero(dense)
        ends = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=len(dense)))])
        parts = dense[rows, columns], columns.astype(INDEX), ends.astype(INDEX)
        self.data, self.indices, self.indptr = (nd.array(part, device) for part in parts)
        self.shape = dense.shape

    @property
    def dtype(self) -> Any:
        return self.data.dtype

    def numpy(self) -> np.ndarray:
        """The matrix with its zeros."""
        made = np.zeros(self.shape, self.data.numpy().dtype)
        ends = self.indptr.numpy()
        rows = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        made[rows, self.indices.numpy()] = self.data.numpy()
        return made

    asnumpy = numpy


class CSRPlaceholderOp:
    """Tensors of te for the parts of a matrix of `shape` with so many elements."""

    stype = "csr"

    def __init__(self, shape: Sequence[Any], nonzeros: Any, dtype: Any, name: str) -> None:
        if len(shape) != 2:
            raise ExpressionError(
                f"contrib.sparse.placeholder(shape={tuple(shape)})", "it is no matrix",
                "Give two extents.",
            )  # fmt: skip
        self.shape, self.dtype, self.name = tuple(shape), dtype, name
        self.data = te.placeholder((nonzeros,), dtype, name=f"{name}_data")
        self.indices = te.placeholder((nonzeros,), INDEX, name=f"{name}_indices")
        self.indptr = te.placeholder((shape[0] + 1,), INDEX, name=f"{name}_indptr")


def array(
    source_array: Any, device: Any = None, shape: Sequence[int] | None = None, stype: str = "csr"
) -> CSRNDArray:
    """`source_array` [n, m], or (data, indices, indptr) with a shape, stored by rows."""
    _check_kind(stype, "array")
    return CSRNDArray(source_array, device, shape)


def placeholder(
    shape: Sequence[Any], nonzeros: Any = None, dtype: str = "float32", name: str = "placeholder",
    stype: str = "csr",
) -> CSRPlaceholderOp:  # fmt: skip
    """Tensors for a matrix of which `nonzeros` elements are stored; None: any number."""
    _check_kind(stype, "placeholder")
    count = te.size_var("nonzeros") if nonzeros is None else nonzeros
    return CSRPlaceholderOp(shape, count, dtype, name)


def _check_kind(stype: str, name: str) -> None:
    if stype != "csr":
        raise ExpressionError(
            f"contrib.sparse.{name}(stype={stype!r})", "it is not stored by rows", 'Use "csr".'
        )


open_doors(globals(), ("array", "placeholder"), ExpressionError)
