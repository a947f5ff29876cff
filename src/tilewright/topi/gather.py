"""Operators that read where data says: take, gather.

In: tensors, of which one holds integers.  Out: stages that read inside their operands whatever
those integers are: "wrap" counts past the ends round about, so that -1 is the last element, "clip"
stops at the ends.  Read next: `scatter.py`, `ranking.py`.
"""

from __future__ import annotations

from tilewright import te
from tilewright.base.dtype import INT32
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import cast
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    normal_axis,
    require,
    stage,
)
from tilewright.topi.transform import reshape

MODES = ("clip", "wrap", "fast")
_SOME = "Use one of {}."


def _position(index: Expr, extent: int, mode: str = "wrap") -> Expr:
    """`index` as int32 within [0, extent)."""
    wide = index if index.dtype.bits >= 32 else index.astype(INT32)
    if mode == "wrap":
        return (wide % E.convert(extent, wide)).astype(INT32)
    first, last = te.const(0, wide.dtype), E.convert(extent - 1, wide)
    return te.maximum(te.minimum(wide, last), first).astype(INT32)


def check_indices(indices: Tensor, place: str) -> None:
    require(
        indices.dtype.is_int, place, f"indices of type {indices.dtype} are no integers",
        'Cast them first: topi.cast(indices, "int32").',
    )  # fmt: skip


def take(
    a: Tensor,
    indices: Tensor,
    axis: int | None = None,
    batch_dims: int = 0,
    mode: str = "clip",
) -> Tensor:
    """The slices of `a` at `indices` along `axis`: the axis becomes the axes of `indices`.

    axis: None takes from `a` as a vector; batch_dims: so many first axes are common to both
    mode: "clip" (or "fast") limits indices to the ends, "wrap" counts on round about
    """
    place = call_text("take", a=a, indices=indices, axis=axis, batch_dims=batch_dims, mode=mode)
    check_tensors(place, a=a, indices=indices)
    check_indices(indices, place)
    require(mode in MODES, place, f"the mode {mode!r}", _SOME.format(", ".join(MODES)))
    if axis is None:
        a, axis = reshape(a, [-1]), 0
    k = normal_axis(axis, a.ndim, place)
    batch = batch_dims + (indices.ndim if batch_dims < 0 else 0)
    require(
        0 <= batch <= min(k, indices.ndim) and a.shape[:batch] == indices.shape[:batch], place,
        f"the first {batch} axes are not common to both, before the axis",
        "Use batch_dims=0, or equal leading extents.",
    )  # fmt: skip
    inner = indices.ndim - batch
    shape = [*a.shape[:k], *indices.shape[batch:], *a.shape[k + 1 :]]

    def body(i: Indices) -> Expr:
        at = indices[(*i[:batch], *i[k : k + inner])]
        return a[(*i[:k], _position(at, a.shape[k], mode), *i[k + inner :])]

    return stage(shape, body, "T_take", "injective")


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """out[.., i, ..] = data[.., indices[.., i, ..], ..] along `axis`; negative indices count from
    the end.

    The result has the shape of `indices`, which is nowhere larger than `data` but along `axis`.
    """
    place = call_text("gather", data=data, axis=axis, indices=indices)
    check_tensors(place, data=data, indices=indices)
    check_indices(indices, place)
    k = normal_axis(axis, data.ndim, place)
    check_inside(data, indices, k, place)

    def body(i: Indices) -> Expr:
        return data[(*i[:k], _position(indices[i], data.shape[k]), *i[k + 1 :])]

    return stage(indices.shape, body, "T_gather", "injective")


def check_inside(data: Tensor, indices: Tensor, axis: int, place: str) -> None:
    fits = data.ndim == indices.ndim and all(
        n <= m for d, (n, m) in enumerate(zip(indices.shape, data.shape, strict=True)) if d != axis
    )
    require(
        fits, place, f"indices of shape {list(indices.shape)} do not fit {list(data.shape)}",
        f"They have as many axes, and no larger ones but axis {axis}.",
    )  # fmt: skip


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """out[y.., x..] = a[indices[0, y..], indices[1, y..], .., x..], TVM's order of axes.

    indices: [M, Y..], of which M is how many axes of `a` they choose along
    batch_dims: so many first axes are common to `a` and Y..
    """
    place = call_text("gather_nd", a=a, indices=indices, batch_dims=batch_dims)
    check_tensors(place, a=a, indices=indices)
    indices = indices if indices.dtype.is_int else cast(indices, "int32")  # towards zero
    require(indices.ndim >= 1, place, "the indices have no axes", "Give [M, ..].")
    chosen, points = indices.shape[0], indices.shape[1:]
    require(
        0 <= batch_dims <= len(points) and batch_dims + chosen <= a.ndim, place,
        f"{chosen} indices behind {batch_dims} common axes do not fit {list(a.shape)}",
        "The first axis of indices is as long as the axes of a that they choose along.",
    )  # fmt: skip
    require(
        points[:batch_dims] == a.shape[:batch_dims], place,
        "the common axes differ", "Give equal leading extents.",
    )  # fmt: skip
    rest = a.shape[batch_dims + chosen :]

    def body(i: Indices) -> Expr:
        y, x = i[: len(points)], i[len(points) :]
        extents = a.shape[batch_dims : batch_dims + chosen]
        at = [_position(indices[(te.const(m), *y)], n) for m, n in enumerate(extents)]
        return a[(*y[:batch_dims], *at, *x)]

    return stage([*points, *rest], body, "T_gather_nd", "injective")
