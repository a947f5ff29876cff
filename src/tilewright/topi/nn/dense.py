"""Matrix products: dense, batch_matmul, matmul, tensordot.

In: matrices, possibly transposed.  Out: one reduction stage over k, for dense with bias a second
one.  Stage names end in the orientation of both operands (N or T), as in TVM.
Read next: `conv2d.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import IterVar, Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    check_tensors,
    check_vector,
    is_integer,
    normal_axis,
    product_dtype,
    require,
    stage,
    sum_of_products,
    workload,
)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None
) -> Tensor:
    """data [M, K] times the transpose of weight [N, K], plus bias [N]; result [M, N]."""
    place = call_text("dense", data=data, weight=weight, bias=bias)
    product = _product("dense", "T_matmul_NT", data, weight, False, True, out_dtype, place)
    if bias is None:
        return product
    check_vector(bias, "bias", product.shape[1], place)
    return stage(
        product.shape,
        lambda i: product[i] + bias[i[1]].astype(product.dtype),
        "T_add",
        "broadcast",
    )


def matmul(
    a: Tensor,
    b: Tensor,
    transp_a: bool = False,
    transp_b: bool = False,
    out_dtype: str | None = None,
) -> Tensor:
    """a [M, K] times b [K, N]; result [M, N].  A transposed operand is stored the other way."""
    place = call_text("matmul", a=a, b=b, transp_a=transp_a, transp_b=transp_b)
    return _product("matmul", "T_matmul", a, b, transp_a, transp_b, out_dtype, place)


def tensordot(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    """Sums of products over axes of `a` and of `b`, as numpy has it.

    axes: how many last axes of `a` and first ones of `b`; or an axis, or several, of each
    """
    place = call_text("tensordot", a=a, b=b, axes=axes)
    check_tensors(place, a=a, b=b)
    over = _paired(axes, a.ndim, b.ndim, place)
    extents = [(a.shape[m], b.shape[n]) for m, n in over]
    require(
        all(m == n for m, n in extents), place, f"the extents {extents} differ",
        "Name axes of the same extents.",
    )  # fmt: skip
    dtype = product_dtype(place, None, a=a, b=b)
    ks = [te.reduce_axis((0, m), f"k{n}") for n, (m, _) in enumerate(extents)]
    free = [m for m in range(a.ndim) if m not in dict(over)]
    others = [n for n in range(b.ndim) if n not in {n for _, n in over}]

    def body(i: Indices) -> Expr:
        left = dict(zip(free, i, strict=False))
        right = dict(zip(others, i[len(free) :], strict=True))
        for k, (m, n) in zip(ks, over, strict=True):
            left[m] = right[n] = k.as_expr()
        x, y = (t[tuple(at[k] for k in range(t.ndim))] for t, at in ((a, left), (b, right)))
        return sum_of_products(x, y, dtype, ks) if ks else x.astype(dtype) * y.astype(dtype)

    shape = [*(a.shape[m] for m in free), *(b.shape[n] for n in others)]
    return stage(shape, body, "T_tensordot", "tensordot" if ks else "injective")


def _paired(axes: Any, rank: int, other: int, place: str) -> list[tuple[int, int]]:
    """Which axis of one tensor goes with which of the other."""
    if is_integer(axes):
        ok = 0 <= int(axes) <= min(rank, other)
        require(ok, place, f"there are not {axes} axes", f"Use 0 to {min(rank, other)}.")
        return [(rank - int(axes) + k, k) for k in range(int(axes))]
    both = isinstance(axes, (tuple, list)) and len(axes) == 2
    require(both, place, "axes are neither a number nor a pair", "Use axes=1 or ((1,), (0,)).")
    first, second = (x if isinstance(x, (tuple, list)) else (x,) for x in axes)
    pairs = (
        [normal_axis(m, rank, place) for m in first],
        [normal_axis(n, other, place) for n in second],
    )
    distinct = len(first) == len(second) == len(set(pairs[0])) == len(set(pairs[1]))
    require(distinct, place, "axes are named twice, or not in pairs", "Name as many of each.")
    return list(zip(*pairs, strict=True))


def _product(
    name: str,
    stage_name: str,
    a: Tensor,
    b: Tensor,
    transp_a: bool,
    transp_b: bool,
    out_dtype: str | None,
    place: str,
) -> Tensor:
    check_tensor(a, "the first operand", "KM" if transp_a else "MK", place)
    check_tensor(b, "the second operand", "NK" if transp_b else "KN", place)
    rows, inner = reversed(a.shape) if transp_a else a.shape
    inner_b, columns = reversed(b.shape) if transp_b else b.shape
    _check_inner(inner, inner_b, place)
    dtype = product_dtype(place, out_dtype, a=a, b=b)
    k = te.reduce_axis((0, inner), "k")

    def body(i: Indices) -> Expr:
        left = a[_ordered(i[0], k, transp_a)]
        right = b[_ordered(k, i[1], transp_b)]
        return sum_of_products(left, right, dtype, k)

    flags = [] if name == "dense" else [bool(transp_a), bool(transp_b)]
    return stage(
        (rows, columns),
        body,
        stage_name,
        name,
        axes=["i", "j"],
        workload=workload(name, a, b, *flags, dtype),
    )


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """tensor_a [B, M, K] times the transpose of tensor_b [B, N, K]; result [B, M, N].

    A batch of 1 serves every element of the other.  The flags say how each operand is stored.
    """
    place = call_text(
        "batch_matmul", a=tensor_a, b=tensor_b, transpose_a=transpose_a, transpose_b=transpose_b
    )
    check_tensor(tensor_a, "tensor_a", "BKM" if transpose_a else "BMK", place)
    check_tensor(tensor_b, "tensor_b", "BNK" if transpose_b else "BKN", place)
    rows, inner = reversed(tensor_a.shape[1:]) if transpose_a else tensor_a.shape[1:]
    inner_b, columns = reversed(tensor_b.shape[1:]) if transpose_b else tensor_b.shape[1:]
    _check_inner(inner, inner_b, place)
    batch_a, batch_b = tensor_a.shape[0], tensor_b.shape[0]
    require(
        batch_a == batch_b or batch_a == 1 or batch_b == 1, place,
        f"batches of {batch_a} and {batch_b}", "They must be equal, or one of them 1.",
    )  # fmt: skip
    dtype = product_dtype(place, out_dtype, tensor_a=tensor_a, tensor_b=tensor_b)
    batch = batch_b if batch_a == 1 else batch_a
    k = te.reduce_axis((0, inner), "k")

    def body(indices: Indices) -> Expr:
        b, i, j = indices
        left = tensor_a[(b if batch_a == batch else 0, *_ordered(i, k, transpose_a))]
        right = tensor_b[(b if batch_b == batch else 0, *_ordered(k, j, transpose_b))]
        return sum_of_products(left, right, dtype, k)

    orientation = f"{'T' if transpose_a else 'N'}{'T' if transpose_b else 'N'}"
    args = (tensor_a, tensor_b, bool(transpose_a), bool(transpose_b), dtype)
    return stage(
        (batch, rows, columns),
        body,
        f"T_batch_matmul_{orientation}",
        "batch_matmul",
        axes=["b", "i", "j"],
        workload=workload("batch_matmul", *args),
    )


def _ordered(
    row: Expr | IterVar, column: Expr | IterVar, transposed: bool
) -> tuple[Expr | IterVar, Expr | IterVar]:
    return (column, row) if transposed else (row, column)


def _check_inner(left: int, right: int, place: str) -> None:
    require(
        left == right, place, f"the reduced extents differ: {left} and {right}",
        "Check which operand is stored transposed.",
    )  # fmt: skip
