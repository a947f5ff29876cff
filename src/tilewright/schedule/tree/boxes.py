"""Boxes of tensors that bulk copies bring: which part of which tensor a stage copies.

In: a stage that copies.  Out: its `View`, which holds no number of a decision, or why it has none;
of the extents of its loops, ints or int64 vectors, the box.  Masks and lowering both ask here.
Read next: `ir/bulk.py` (what a copy engine takes), `lowering/bulk.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.bulk import MOST_BOX, MOST_DIMENSIONS, MOST_STEP, UNIT
from tilewright.ir.expr import Expr
from tilewright.schedule.copies import source_of
from tilewright.schedule.space.decision import ceil_div, logical_and, logical_or, maximum
from tilewright.te.tensor import IterVar, Tensor


@dataclass(frozen=True)
class Dimension:
    """One of a tensor: index = axis * step + offset, of a tensor that ends at `size`.

    axis: of the stage; None where the index is `offset` alone
    """

    axis: IterVar | None
    step: int
    offset: int
    size: int
    stride: int


@dataclass(frozen=True)
class View:
    """What a stage copies: dimensions of `tensor`, in the order of its buffer, outermost first."""

    tensor: Tensor
    dimensions: tuple[Dimension, ...]


def view_of(
    body: Expr, axes: Sequence[IterVar], order: Sequence[int], simple: Simplifier
) -> View | str:
    """The view of a stage that copies, or why it is none that a copy engine has.

    axes: of the stage; order: those of its buffer, outermost first; simple: knows their ranges
    What lies outside the tensor is zero: that must be all that a condition says.
    """
    found = source_of(body)
    if found is None:
        return "it computes"
    condition, read = found
    tensor, by_var = read.attr, {ax.var: ax for ax in axes}
    if any(not isinstance(n, int) for n in (*tensor.shape, *(ax.size for ax in axes))):
        return "the extents of its tensor are no numbers when it is built"
    dimensions: list[Dimension] = []
    for d, index in enumerate(read.args):
        form = simple.linear(index)
        terms = list(form.terms.items())
        if len(terms) > 1 or (terms and terms[0][0] not in by_var):
            return f"the index {index} is no loop of the stage, and a box goes along dimensions"
        axis, step = (by_var[terms[0][0]], int(terms[0][1])) if terms else (None, 1)
        if not 1 <= step <= MOST_STEP:
            return f"the index {index} has steps of {step}, and a box those of 1 to {MOST_STEP}"
        last = int(form.constant) + (step * (axis.size - 1) if axis is not None else 0)
        stride = prod(tensor.shape[d + 1 :])
        size = min(tensor.shape[d], last + 1)
        dimensions.append(Dimension(axis, step, int(form.constant), size, stride))
    if why := _hides(condition, dimensions, tensor, simple):
        return why
    return _arranged(tensor, dimensions, [axes[d] for d in order])


def _hides(
    condition: Expr, dimensions: Sequence[Dimension], tensor: Tensor, simple: Simplifier
) -> str:
    """Why zeros are not just what lies outside; "" where they are."""
    inside = dict(simple.ranges)
    for dim, size in zip(dimensions, tensor.shape, strict=True):
        if dim.axis is not None:
            first, end = -(dim.offset // dim.step), -((dim.offset - size) // dim.step)
            least, most = inside[dim.axis.var]
            inside[dim.axis.var] = max(least, first), min(most, end - 1)
    within = Simplifier(inside)
    rest = within(E.all_of(*(within(part) for part in E.conjuncts(condition))))
    if rest.op == "const" and rest.attr:
        return ""
    return f"it is zero where {rest} does not hold, not only outside of {tensor.name}"


def _arranged(tensor: Tensor, dimensions: list[Dimension], axes: Sequence[IterVar]) -> View | str:
    used = [dim.axis for dim in dimensions if dim.axis is not None]
    if len(set(used)) < len(used):
        return "two dimensions of its tensor follow one loop"
    missing = [ax for ax in axes if ax.size > 1 and ax not in used]
    if missing:
        return f"it repeats its tensor along {missing[0].name}"
    fixed = [dim for dim in dimensions if dim.axis is None and (dim.offset or dim.size > 1)]
    of = {dim.axis: dim for dim in dimensions}
    placed = [of[ax] for ax in axes if ax in of]
    while len(fixed) + len(placed) > 1 and any(_is_one(dim) for dim in placed):
        placed.remove(next(dim for dim in placed if _is_one(dim)))
    ordered = (*fixed, *placed)
    if len(ordered) == 1:  # a row, of one that there is
        whole = ceil_div(ordered[0].size * tensor.dtype.bytes, UNIT) * UNIT // tensor.dtype.bytes
        ordered = (Dimension(None, 1, 0, 1, whole), *ordered)
    if not ordered or len(ordered) > MOST_DIMENSIONS:
        return f"its tensor has {len(ordered)} dimensions, and a box 1 to {MOST_DIMENSIONS}"
    inner, size = ordered[-1], tensor.dtype.bytes
    if inner.stride != 1 or inner.step != 1 or inner.axis is None:
        return "neighbours in its buffer are no neighbours in its tensor"
    for dim in ordered[:-1]:
        if dim.stride * size % UNIT:
            return f"rows of its tensor are {dim.stride * size} bytes apart, no multiple of {UNIT}"
    return View(tensor, ordered)


def _is_one(dim: Dimension) -> bool:
    """Whether it is a dimension of one element at index 0, and no more."""
    return dim.axis is not None and dim.axis.size == 1 and dim.offset == 0 and dim.size == 1


def extents(view: View, extent: Mapping[IterVar, Any]) -> list[Any]:
    """Of the box along each dimension."""
    return [1 if dim.axis is None else extent[dim.axis] for dim in view.dimensions]


def begins_between(view: View, terms: Sequence[Any], constant: Any) -> Any:
    """Whether a box may begin elsewhere than at a multiple of UNIT bytes.

    terms, constant: coefficients of what its place along the innermost axis is made of, which are
    0 where that does not vary
    """
    unit = UNIT // view.tensor.dtype.bytes
    bad: Any = (constant + view.dimensions[-1].offset) % unit != 0
    for c in terms:
        bad = logical_or(bad, c % unit != 0)
    return bad


def does_not_fit(view: View, extent: Mapping[IterVar, Any], swizzle: Any) -> Any:
    """Whether an engine does not take the box: it is too large, or its rows are no such rows."""
    box = extents(view, extent)
    row = box[-1] * view.tensor.dtype.bytes
    bad: Any = logical_or(row % UNIT != 0, logical_and(swizzle != 0, row != swizzle))
    for dim, count in zip(view.dimensions, box, strict=True):
        bad = logical_or(bad, maximum(count - 1, 0) * dim.step + 1 > MOST_BOX)
    return bad
