"""Operators that move blocks: between batch and space, into gaps.

In: graph values.  Out: reshapes, transpositions, slices and padding.  Read next: `indexing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions.indexing import slice_of
from tilewright.graph.functions.tensor import expand_dims, transpose
from tilewright.graph.op import call


def dilate(data: Expr, strides: Sequence[int], dilation_value: float = 0.0) -> Expr:
    """`data` with strides[k] - 1 elements `dilation_value` between its neighbours along axis k."""
    rank = len(data.shape)
    if len(strides) != rank or min(strides, default=1) < 1:
        raise ModelError(
            f"nn.dilate(data={data.shape}, strides={tuple(strides)})",
            "it is not one number of at least 1 for each axis", f"Example: {(2,) * rank}.",
        )  # fmt: skip
    made = data
    for axis, stride in enumerate(strides):
        extent = made.shape[axis]
        if stride == 1 or not extent:
            continue
        spread = _padded(expand_dims(made, axis + 1), axis + 1, 0, stride - 1, dilation_value)
        shape = (*made.shape[:axis], extent * stride, *made.shape[axis + 1 :])
        flat = call("reshape", spread, newshape=shape)
        ranges = [range(n) for n in shape]
        ranges[axis] = range((extent - 1) * stride + 1)
        made = slice_of(flat, ranges)
    return made


def space_to_batch_nd(
    data: Expr, block_shape: Sequence[int], paddings: Sequence[Any], pad_value: float = 0.0
) -> Expr:
    """Blocks of the axes behind the batch become part of the batch.

    block_shape: of the axes from the second on; paddings: (before, after) for each of them
    """
    place = f"nn.space_to_batch_nd(data={data.shape}, block_shape={tuple(block_shape)})"
    blocks, pairs = _blocks(data, block_shape, paddings, place)
    rank, count = len(data.shape), len(blocks)
    width = ((0, 0), *pairs, *((0, 0),) * (rank - 1 - count))
    padded = call("nn.pad", data, pad_width=width, pad_value=float(pad_value))
    batch, *space = padded.shape
    if any(n % b for n, b in zip(space, blocks, strict=False)):
        raise ModelError(place, f"blocks do not divide {tuple(space[:count])}", "Pad it to that.")
    apart = [n for k, b in enumerate(blocks) for n in (space[k] // b, b)]
    rest = space[count:]
    cut = call("reshape", padded, newshape=(batch, *apart, *rest))
    inner, outer = range(2, 2 * count + 1, 2), range(1, 2 * count + 1, 2)
    moved = transpose(cut, (*inner, 0, *outer, *range(2 * count + 1, 2 * count + 1 + len(rest))))
    shape = moved.shape
    joined = batch
    for b in blocks:
        joined *= b
    return call("reshape", moved, newshape=(joined, *shape[count + 1 :]))


def batch_to_space_nd(data: Expr, block_shape: Sequence[int], crops: Sequence[Any]) -> Expr:
    """`space_to_batch_nd` undone; crops: how much is cut off before and behind each axis."""
    place = f"nn.batch_to_space_nd(data={data.shape}, block_shape={tuple(block_shape)})"
    blocks, pairs = _blocks(data, block_shape, crops, place)
    count, joined = len(blocks), 1
    for b in blocks:
        joined *= b
    batch, *space = data.shape
    if batch % joined:
        raise ModelError(place, f"a batch of {batch} has no blocks of {joined}", "Use divisors.")
    rest = space[count:]
    cut = call("reshape", data, newshape=(*blocks, batch // joined, *space))
    pairs_of_axes = [k for axis in range(count) for k in (count + 1 + axis, axis)]
    last = range(2 * count + 1, 2 * count + 1 + len(rest))
    moved = transpose(cut, (count, *pairs_of_axes, *last))
    whole = [n * b for n, b in zip(space, blocks, strict=False)]
    made = call("reshape", moved, newshape=(batch // joined, *whole, *rest))
    if any(a + b > n for (a, b), n in zip(pairs, whole, strict=True)):
        raise ModelError(place, "the crops are longer than the axes", "Use smaller ones.")
    ranges = [range(a, n - b) for (a, b), n in zip(pairs, whole, strict=True)]
    return slice_of(made, [range(batch // joined), *ranges, *map(range, rest)])


def _padded(data: Expr, axis: int, before: int, after: int, value: float) -> Expr:
    width = tuple((before, after) if k == axis else (0, 0) for k in range(len(data.shape)))
    return call("nn.pad", data, pad_width=width, pad_value=float(value))


def _blocks(
    data: Expr, block_shape: Sequence[int], pairs: Sequence[Any], place: str
) -> tuple[list[int], list[tuple[int, int]]]:
    blocks = [int(b) for b in block_shape]
    sides = [tuple(p) if isinstance(p, (tuple, list)) else () for p in pairs]
    whole = len(blocks) == len(sides) < len(data.shape) and min(blocks, default=1) > 0
    if not whole or any(len(s) != 2 or not all(isinstance(n, int) for n in s) for s in sides):
        raise ModelError(
            place, "blocks and pairs are not one for each axis behind the batch",
            "Example: block_shape=[2, 2], and [[0, 0], [0, 0]].",
        )  # fmt: skip
    return blocks, [(int(a), int(b)) for a, b in sides]


__all__ = ["batch_to_space_nd", "dilate", "space_to_batch_nd"]
