"""Operators that choose elements by data: masks of sequences, diagonals, sparse values.

In: graph values.  Out: comparisons, gathers and scatters; nothing is read outside of its tensor.
Read next: `graph/functions/indexing.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import NotYet
from tilewright.graph.expr import Constant, Expr, static_shape
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import (
    gather_nd,
    number,
    scatter_elements,
    scatter_nd,
    slice_of,
    stack,
    strided_slice,
    take,
)
from tilewright.graph.leaves import const
from tilewright.graph.op import call


def sequence_mask(
    data: Expr, valid_length: Expr, mask_value: float | Constant = 0.0, axis: int = 0
) -> Expr:
    """`data` with `mask_value` behind the first valid_length[b] elements along `axis`.

    axis: 0 or 1; the other one of these is that of the batch
    """
    place = f"sequence_mask(data={data.shape}, valid_length={valid_length.shape}, axis={axis})"
    if axis not in (0, 1) or len(data.shape) < 2 or valid_length.shape != (data.shape[1 - axis],):
        raise ModelError(
            place, "there is no length for each sequence",
            "Give data [length, batch, ...] with axis=0, or [batch, length, ...] with axis=1.",
        )  # fmt: skip
    rank, kind = len(data.shape), valid_length.dtype
    places = _along(axis, rank, np.arange(data.shape[axis]), kind)
    lengths = tensor.as_shape(valid_length, [-1 if k == 1 - axis else 1 for k in range(rank)])
    return tensor.where(places < lengths, data, const(number(mask_value), data.dtype))


_ALIGNMENTS = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")


def matrix_set_diag(
    data: Expr, diagonal: Expr, k: int | Sequence[int] = 0, align: str = "RIGHT_LEFT"
) -> Expr:
    """`data` [..., M, N] with diagonals of its matrices replaced.

    diagonal: [..., elements]; of several, [..., diagonals, elements of the longest], the highest
        first
    k: 0 is the main one, positive numbers are above it; (lowest, highest) of several
    align: where in their rows shorter diagonals stand, those above the main one and those below:
        "RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT" or "RIGHT_RIGHT"
    """
    place = f"matrix_set_diag(data={data.shape}, diagonal={diagonal.shape}, k={k})"
    ends = [int(n) for n in (k if isinstance(k, (tuple, list)) else (k,))]
    if not 1 <= len(ends) <= 2 or ends[0] > ends[-1] or len(data.shape) < 2:
        raise ModelError(
            place, "these are no diagonals of matrices", "Give k=number or k=(lowest, highest)."
        )
    if align not in _ALIGNMENTS:
        raise ModelError(
            place, f"align={align!r} is not known", f"Use one of {', '.join(_ALIGNMENTS)}."
        )
    lengths = [_diagonal_length(data, at) for at in range(ends[-1], ends[0] - 1, -1)]
    several = (len(lengths),) if len(lengths) > 1 else ()
    wanted = (*data.shape[:-2], *several, max(lengths))
    if diagonal.shape != wanted or min(lengths) < 1:
        raise ModelError(
            place, f"diagonals of {lengths} elements are asked for",
            f"Give a diagonal of shape {wanted}." if min(lengths) > 0 else "Name those there are.",
        )  # fmt: skip
    if not several:
        return _with_diagonal(data, diagonal, ends[0])
    for row, (at, length) in enumerate(zip(range(ends[-1], ends[0] - 1, -1), lengths, strict=True)):
        right = align.split("_")[0 if at >= 0 else 1] == "RIGHT"
        first = max(lengths) - length if right else 0
        ranges = [range(n) for n in wanted[:-2]] + [range(row, row + 1)]
        line = slice_of(diagonal, [*ranges, range(first, first + length)])
        data = _with_diagonal(data, tensor.squeeze(line, len(wanted) - 2), at)
    return data


def _diagonal_length(data: Expr, at: int) -> int:
    rows, columns = data.shape[-2:]
    return max(min(rows + min(at, 0), columns - max(at, 0)), 0)


def _with_diagonal(data: Expr, diagonal: Expr, at: int) -> Expr:
    """One diagonal replaced by `diagonal` [..., elements]."""
    (rows, columns), first = data.shape[-2:], (max(-at, 0), max(at, 0))
    row, column = np.arange(rows, dtype="int32")[:, None], np.arange(columns, dtype="int32")[None]
    chosen = call("equal", const(column), const(row + at))
    # Element [i, j] of the diagonal is its element i - first row.
    order = np.arange(rows, dtype="int32") - first[0]
    spread = tensor.expand_dims(call("take", diagonal, const(order), axis=-1, batch_dims=0,
                                            mode="clip"), -1)  # fmt: skip
    return tensor.where(chosen, spread, data)


def sparse_to_dense(
    sparse_indices: Expr,
    output_shape: Sequence[int] | Constant,
    sparse_values: Expr,
    default_value: float | Expr = 0.0,
) -> Expr:
    """A tensor of `default_value`, a number or one element, with sparse_values[n] at the place
    sparse_indices[n].

    sparse_indices: one number, [N], or [N, rank]; the last value wins where a place is named twice
    """
    given = output_shape.data.tolist() if isinstance(output_shape, Constant) else output_shape
    shape = static_shape(given, "relay.sparse_to_dense")
    indices = sparse_indices
    if len(indices.shape) < 2:
        indices = tensor.as_shape(indices, (-1, 1))
    count = indices.shape[0]
    if indices.shape[1] != len(shape) or math.prod(sparse_values.shape) not in (1, count):
        raise ModelError(
            f"sparse_to_dense(sparse_indices={sparse_indices.shape}, output_shape={shape}, "
            f"sparse_values={sparse_values.shape})", "they do not belong together",
            f"Give indices [N, {len(shape)}] and N values.",
        )  # fmt: skip
    if isinstance(default_value, Expr) and not isinstance(default_value, Constant):
        base: Expr = tensor.broadcast_to(tensor.as_shape(default_value, ()), shape)
    else:
        base = tensor.filled(number(default_value), shape, sparse_values.dtype)
    values = tensor.broadcast_to(tensor.as_shape(sparse_values, (-1,)), (count,))
    return scatter_nd(base, tensor.transpose(indices), values)


def scatter_add(data: Expr, indices: Expr, updates: Expr, axis: int = 0) -> Expr:
    """`scatter_elements` that adds."""
    return scatter_elements(data, indices, updates, axis, "add")


def segment_sum(data: Expr, segment_ids: Expr, num_segments: int | None = None) -> Expr:
    """The sums of the slices of `data` [N, ...] that have the same number in segment_ids [N]:
    [num_segments, ...].

    segment_ids: may be shorter: slices behind the last are in no segment
    num_segments: None is one more than the greatest of `segment_ids`
    """
    place = f"segment_sum(data={data.shape}, segment_ids={segment_ids.shape})"
    if not data.shape or len(segment_ids.shape) != 1 or segment_ids.shape[0] > data.shape[0]:
        raise ModelError(place, "there is no slice for a segment", "Give [N, ...] and [N].")
    if segment_ids.shape != data.shape[:1]:
        data = strided_slice(data, [0], [segment_ids.shape[0]])
    if num_segments is None:
        if not isinstance(segment_ids, Constant):
            raise NotYet(
                segment_ids, by_value=True, place=place,
                reason="how many segments there are depends on the data",
            )  # fmt: skip
        num_segments = int(segment_ids.data.max(initial=-1)) + 1
    if num_segments < 1:
        raise ModelError(place, f"there are {num_segments} segments", "Give 1 or more.")
    zeros = tensor.zeros((num_segments, *data.shape[1:]), data.dtype)
    return scatter_nd(zeros, tensor.expand_dims(segment_ids, 0), data, "add")


def unravel_index(indices: Expr, shape: Sequence[int] | Expr) -> Expr:
    """The places [rank, ...] of elements that are numbered row by row in a tensor of `shape`, which
    may be a vector of the data."""
    sizes = _extents(indices, shape)
    parts, rest = [], indices
    for size in reversed(sizes):
        parts.append(tensor.floor_mod(rest, size))
        rest = tensor.floor_divide(rest, size)
    return stack(parts[::-1], 0)


def _extents(indices: Expr, shape: Sequence[int] | Expr) -> list[Expr]:
    """The extents of `shape` as values of the graph."""
    if isinstance(shape, Expr) and not isinstance(shape, Constant):
        if len(shape.shape) != 1 or shape.dtype != indices.dtype:
            raise ModelError(
                f"unravel_index(indices={indices.dtype}, shape={shape.shape} {shape.dtype})",
                "it is no vector of the indices' type", "Convert with relay.cast.",
            )  # fmt: skip
        each = (const(np.array(k, "int32")) for k in range(shape.shape[0]))
        return [take(shape, k, axis=0) for k in each]
    given = shape.data.tolist() if isinstance(shape, Constant) else shape
    extents = static_shape(given, "relay.unravel_index")
    if not extents or 0 in extents:
        raise ModelError(f"unravel_index(shape={extents})", "it has no elements", "Try (3, 4).")
    return [const(extent, indices.dtype) for extent in extents]


def adv_index(inputs: Sequence[Expr] | Expr) -> Expr:
    """inputs[0][inputs[1], inputs[2], ...] as numpy has it: the indices broadcast."""
    data, *indices = [*inputs] or [None]
    if data is None or not indices or len(indices) > len(data.shape):
        raise ModelError(
            f"adv_index({len(indices)} indices)", "there are no indices, or more than axes",
            "Give a value and at most one index for each of its axes.",
        )  # fmt: skip
    try:
        shape = np.broadcast_shapes(*(i.shape for i in indices))
    except ValueError as error:
        raise ModelError("adv_index", str(error), "Give indices that broadcast.") from None
    kind = indices[0].dtype
    same = [tensor.broadcast_to(tensor.cast(i, kind), shape) for i in indices]
    return gather_nd(data, stack(same, 0))


def invert_permutation(data: Expr) -> Expr:
    """out[data[k]] = k, of a vector that has each of its places once."""
    if len(data.shape) != 1:
        raise ModelError(f"invert_permutation(data={data.shape})", "it is no vector", "Flatten it.")
    places = const(np.arange(data.shape[0]).astype(data.dtype.storage))
    return scatter_elements(data, data, places, axis=0)


def fixed_point_multiply(data: Expr, multiplier: int, shift: int) -> Expr:
    """data * multiplier * 2**(shift - 31), rounded, halves up: what quantised layers scale by.

    data: int32; multiplier: of 32 bits
    """
    if data.dtype != "int32" or not -(2**31) <= multiplier < 2**31 or not -31 <= shift <= 30:
        raise ModelError(
            f"fixed_point_multiply(data={data.dtype}, multiplier={multiplier}, shift={shift})",
            "it is of int32, with a multiplier of 32 bits and a shift from -31 to 30",
            "Convert with relay.cast.",
        )  # fmt: skip
    wide, by = tensor.cast(data, "int64"), 31 - shift
    product = wide * const(np.int64(multiplier)) + const(np.int64(1 << (by - 1)))
    return tensor.cast(tensor.right_shift(product, const(np.int64(by))), "int32")


def _along(axis: int, rank: int, values: np.ndarray, dtype: str) -> Expr:
    shape = [-1 if k == axis else 1 for k in range(rank)]
    return const(values.reshape(shape), dtype)


__all__ = [
    "adv_index", "fixed_point_multiply", "invert_permutation", "matrix_set_diag", "scatter_add",
    "segment_sum", "sequence_mask", "sparse_to_dense", "unravel_index",
]  # fmt: skip
