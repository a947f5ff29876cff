"""Matrix products by numpy's library, as stages beside others: `contrib.cblas`.

In: matrices.  Out: a tensor of te.extern, whose function runs in the process of the caller.
Read next: `te/extern.py`, `functions.py`.
"""

from __future__ import annotations

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.te.tensor import Tensor
from tilewright_tvm import tir
from tilewright_tvm.te.extern import extern


@door(ExpressionError, "contrib.cblas.matmul")
def matmul(lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False) -> Tensor:
    """lhs [n, k] by rhs [k, m], each with its dimensions in the other order where asked: [n, m].

    Raises ExpressionError for other shapes.  For CPUs of this machine; it is not tuned.
    """
    return _called("matmul", lhs, rhs, transa, transb, 2)


@door(ExpressionError, "contrib.cblas.batch_matmul")
def batch_matmul(lhs: Tensor, rhs: Tensor, transa: bool = False, transb: bool = False) -> Tensor:
    """`matmul` of each matrix of a batch: [b, n, k] by [b, k, m] is [b, n, m]."""
    return _called("batch_matmul", lhs, rhs, transa, transb, 3)


def _called(name: str, lhs: Tensor, rhs: Tensor, transa: bool, transb: bool, rank: int) -> Tensor:
    *batch, n, k = lhs.shape if lhs.ndim == rank else (0,) * 3
    *other, inner, m = rhs.shape if rhs.ndim == rank else (-1,) * 3
    (n, k), (inner, m) = ((k, n) if transa else (n, k)), ((m, inner) if transb else (inner, m))
    if k != inner or batch != other or lhs.ndim != rank or rhs.ndim != rank:
        raise ExpressionError(
            f"contrib.cblas.{name}", f"{list(lhs.shape)} and {list(rhs.shape)} have no product",
            f"Give tensors of {rank} dimensions, [.., n, k] and [.., k, m].",
        )  # fmt: skip
    return extern(
        (*batch, n, m), [lhs, rhs],
        lambda ins, outs: tir.call_packed(
            f"tvm.contrib.cblas.{name}", ins[0], ins[1], outs[0], transa, transb
        ),
        name="C",
    )  # fmt: skip
