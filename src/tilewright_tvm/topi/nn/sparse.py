"""`sparse_dense`: a product in which one matrix is stored by its non-zero elements or blocks.

In: a dense matrix, and the other one in rows, as CSR or BSR has it.  Out: a dense product.  How
many elements or blocks a row has is data: loops go over as many as a row may have, and what is
beyond its own end is left out.  Read next: `dense.py`, `tilewright_tvm/topi/testing/sparse.py`.
"""

from __future__ import annotations

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    check_tensors,
    product_dtype,
    require,
    stage,
    sum_of_products,
)


def sparse_dense(
    dense_data: Tensor, sparse_data: Tensor, sparse_indices: Tensor, sparse_indptr: Tensor,
    sparse_lhs: bool = False, *, most: int | None = None,
) -> Tensor:  # fmt: skip
    """dense_data [M, K] times the transpose of a sparse matrix [N, K]; result [M, N].

    sparse_data:    [elements] of CSR, or [blocks, rows, columns] of BSR, row after row
    sparse_indices: column of each element, or of each block in blocks
    sparse_indptr:  where each row (of blocks) begins in them, and the end of the last: rows + 1
    sparse_lhs:     the sparse matrix [M, K] is on the left, dense_data [N, K] is transposed
    most: elements or blocks that a row has at most; default: as many as there are columns, so that
          no column may occur twice in a row (what `sum_duplicates` of scipy sees to)
    A row has what its own part of `sparse_indptr` says, but not more than `most`.
    """
    place = call_text(
        "sparse_dense", dense_data=dense_data, sparse_data=sparse_data,
        sparse_indices=sparse_indices, sparse_indptr=sparse_indptr,
    )  # fmt: skip
    check_tensors(place, sparse_data=sparse_data)
    check_tensor(dense_data, "dense_data", "NK" if sparse_lhs else "MK", place)
    for what, tensor in (("sparse_indices", sparse_indices), ("sparse_indptr", sparse_indptr)):
        check_tensor(tensor, what, "L", place)
        require(tensor.dtype.is_int, place, f"{what} is {tensor.dtype}", "Give integers.")
    require(
        sparse_data.ndim in (1, 3), place, f"sparse_data has {sparse_data.ndim} dimensions",
        "Give [elements] of CSR, or [blocks, rows, columns] of BSR.",
    )  # fmt: skip
    require(
        sparse_data.shape[0] == sparse_indices.shape[0], place,
        f"{sparse_data.shape[0]} elements have {sparse_indices.shape[0]} columns",
        "Give an index for each.",
    )  # fmt: skip
    require(sparse_indptr.shape[0] > 1, place, "there is no row", "Give rows + 1 numbers.")
    height, width = sparse_data.shape[1:] or (1, 1)
    inner = dense_data.shape[1]
    require(
        inner % width == 0, place, f"blocks of {width} columns do not divide {inner}",
        "Pad the matrix.",
    )  # fmt: skip
    longest = min(sparse_data.shape[0], inner // width) if most is None else most
    require(longest >= 1, place, f"a row of at most {longest}", "Give most of at least 1.")
    dtype = product_dtype(place, None, dense_data=dense_data, sparse_data=sparse_data)
    rows = sparse_indptr.shape[0] - 1
    elem = te.reduce_axis((0, longest), "elem_idx")
    column = te.reduce_axis((0, width), "c") if sparse_data.ndim == 3 else None

    def product(row: Expr, other: Expr, inside: Expr | None) -> Expr:
        """An element of `row` (of blocks; `inside` it) of the one with row `other` of the other."""
        begin = sparse_indptr[row]
        at = begin + elem
        if column is None:
            value, k = sparse_data[at], sparse_indices[at]
        else:
            value = sparse_data[at, inside, column]
            k = sparse_indices[at] * width + column
        axes = [elem] if column is None else [elem, column]
        own = elem.var < sparse_indptr[row + 1] - begin
        return sum_of_products(value, dense_data[other, k], dtype, axes, own)

    tag = f"sparse_dense_sp_{'lhs' if sparse_lhs else 'rhs'}_{'csr' if column is None else 'bsr'}mm"
    # a row may have fewer than `longest`: the work is that of the elements which there are
    work = {"FLOP": 2 * sparse_data.shape[0] * height * width * dense_data.shape[0]}
    others = dense_data.shape[0]

    def by_row(i: Indices) -> Expr:
        row, other = (i[0], i[1]) if sparse_lhs else (i[1], i[0])
        return product(row, other, None)

    def by_block(i: Indices) -> Expr:
        (row, inside), other = (i[:2], i[2]) if sparse_lhs else (i[1:], i[0])
        return product(row, other, inside)

    def element(i: Indices) -> Expr:
        if sparse_lhs:
            return block[i[0] // height, i[0] % height, i[1]]
        return block[i[0], i[1] // height, i[1] % height]

    if column is None:
        shape = (rows, others) if sparse_lhs else (others, rows)
        return stage(shape, by_row, "sparse_dense", tag, axes=["i", "j"], attrs=work)
    blocks = (rows, height, others) if sparse_lhs else (others, rows, height)
    axes = ["nb_i", "i", "j"] if sparse_lhs else ["i", "nb_j", "j"]
    block = stage(blocks, by_block, "sparse_dense_block", f"{tag}_block", axes=axes, attrs=work)
    whole = (rows * height, others) if sparse_lhs else (others, rows * height)
    return stage(whole, element, "sparse_dense", tag, axes=["m", "n"])
