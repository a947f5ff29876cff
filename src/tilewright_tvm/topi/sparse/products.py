"""Products with a matrix stored by rows, under TVM's names: `topi.sparse.csrmm`, `dense`.

In: a matrix of `contrib.sparse.placeholder`, whose `data`, `indices` and `indptr` are tensors, and
dense ones.  Out: a dense tensor, of the type of its operands.  Read next: `topi/nn/sparse.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.te.tensor import Tensor
from tilewright.topi.broadcast import add
from tilewright.topi.elementwise import cast
from tilewright.topi.stage import call_text, check_tensor, require
from tilewright.topi.transform import expand_dims, transpose
from tilewright_tvm.topi.nn.sparse import sparse_dense

__all__ = ["csrmm", "csrmv", "dense"]


def csrmm(a: Any, b: Tensor, c: Tensor | None = None) -> Tensor:
    """a [M, K], stored by rows, by b [K, N]; c [M]: what is added to each row."""
    place = call_text("csrmm", b=b)
    _check_parts(a, place)
    check_tensor(b, "b", "KN", place)
    return _product(transpose(b), a, True, None if c is None else expand_dims(c, 1), place)


def csrmv(a: Any, x: Tensor, y: Tensor | None = None) -> Tensor:
    """`csrmm` of a column x [K, 1]: [M, 1]; y [M]: what is added."""
    place = call_text("csrmv", x=x)
    check_tensor(x, "x", "K one", place)
    require(x.shape[1] == 1, place, f"x has {x.shape[1]} columns", "Use topi.sparse.csrmm.")
    return csrmm(a, x, y)


def dense(data: Any, weight: Any, bias: Tensor | None = None) -> Tensor:
    """data [M, K] by the transpose of weight [N, K], one of which is stored by rows; bias [N]."""
    place = "topi.sparse.dense"
    if isinstance(data, Tensor):
        _check_parts(weight, place)
        return _product(data, weight, False, bias, place)
    _check_parts(data, place)
    check_tensor(weight, "weight", "NK", place)
    return _product(weight, data, True, bias, place)


def _product(whole: Tensor, rows: Any, left: bool, more: Tensor | None, place: str) -> Tensor:
    kind = whole.dtype
    require(
        rows.data.dtype is kind, place, f"{rows.data.dtype} and {kind} differ", "Cast one of both."
    )
    known = isinstance(whole.shape[1], int)
    require(known, place, "how long a row is is a variable", "Give the dense matrix numbers.")

    def wide(x: Tensor) -> Tensor:
        held: Tensor = cast(x, "int64") if kind.is_int else x  # sums of any length fit
        return held

    made = sparse_dense(
        wide(whole), wide(rows.data), rows.indices, rows.indptr, left, most=whole.shape[1]
    )
    made = made if more is None else add(made, wide(more))
    narrow: Tensor = cast(made, kind) if kind.is_int else made
    return narrow


def _check_parts(matrix: Any, place: str) -> None:
    has = all(isinstance(getattr(matrix, n, None), Tensor) for n in ("data", "indices", "indptr"))
    require(
        has, place, f"a {type(matrix).__name__} is no matrix stored by rows",
        "Make one with contrib.sparse.placeholder.",
    )  # fmt: skip


open_doors(globals(), __all__, ExpressionError)
