"""How the elements of a value lie: in the order of its axes, in another one, or in blocks.

In: layouts of TVM (NCHW, NHWC, NCHW8c).  Out: an `AxisLayout`, the shape a value has in it, and the
views and the transposition from one to another.  NCHW8c names axes, an `AxisLayout`, the form of a
value, numbers them, so that it also says how what is made of the value lies.
Read next: `layout_propagation.py`, `layouts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tilewright.base.errors import ExpressionError, ModelError
from tilewright.graph.expr import Call, Constant, Expr
from tilewright.graph.op import call
from tilewright.graph.traversal import is_call
from tilewright.topi import layout as L

# Of each axis: (axis, elements of it that follow each other inside, extent), outermost first.
Pieces = list[list[tuple[int, int, int]]]


@dataclass(frozen=True)
class AxisLayout:
    """order: the axes, outermost first; ~k is the inner part of axis k, as long as its block.

    NHWC of a value declared NCHW is (0, 2, 3, 1), NCHW8c is (0, 1, 2, 3, ~1) with blocks ((1, 8),).
    An axis of one element has blocks of one, whatever its block is.
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    @property
    def rank(self) -> int:
        """Axes of the value, not those it has in the form."""
        return sum(k >= 0 for k in self.order)

    @property
    def is_plain(self) -> bool:
        return self.order == tuple(range(len(self.order)))

    def block(self, axis: int) -> int:
        return dict(self.blocks).get(axis, 1)

    def place(self, axis: int) -> int:
        """Say where the axis, or its outer part, lies."""
        return self.order.index(axis)

    def fits(self, shape: Sequence[int]) -> bool:
        """Say whether a value of `shape` has this form: blocks divide their axes."""
        return len(shape) == self.rank and all(
            shape[axis] == 1 or shape[axis] % block == 0 for axis, block in self.blocks
        )

    def spread(self, values: Mapping[int, int], inner: Mapping[int, int]) -> tuple[int, ...]:
        """Give `values` of the axes, `inner` of the inner parts, in the order of the form."""
        return tuple(values[k] if k >= 0 else inner[~k] for k in self.order)

    def shape(self, shape: Sequence[int]) -> tuple[int, ...]:
        """Give the shape that a value of `shape` has in this form."""
        blocks = {axis: min(block, shape[axis]) for axis, block in self.blocks}
        outer = {k: n // blocks.get(k, 1) for k, n in enumerate(shape)}
        return self.spread(outer, blocks)

    def layout(self, letters: str) -> str:
        """Give the form in words, of a value whose axes are `letters`: NCHW8c."""
        return "".join(
            letters[k] if k >= 0 else f"{self.block(~k)}{letters[~k].lower()}" for k in self.order
        )


def plain(rank: int) -> AxisLayout:
    return AxisLayout(tuple(range(rank)))


def axis_layout(source: str, wanted: str, place: str) -> AxisLayout:
    """Give the form in which a value of layout `source` has the layout `wanted`.

    Raises ModelError unless both are layouts of the same axes, and `source` has no blocks.
    """
    try:
        had, has = L.parse(source, place), L.parse(wanted, place)
    except ExpressionError as error:
        raise ModelError(place, error.reason, error.way_out) from None
    if had.blocks or sorted(had.axes) != sorted(has.outer):
        reason = (
            f"{source} is one of blocks" if had.blocks else f"they are not the axes of {source}"
        )
        raise ModelError(
            place, f"layout {wanted}: {reason}",
            "Convert the network that it was made of." if had.blocks
            else f"Use an order of {', '.join(source)}, or blocks of C.",
        )  # fmt: skip
    at = had.axes.index
    order = tuple(at(a) if a.isupper() else ~at(a.upper()) for a in has.axes)
    return AxisLayout(order, tuple(sorted((at(a.upper()), n) for a, n in has.blocks.items())))


def is_same_memory(shape: Sequence[int], source: AxisLayout, wanted: AxisLayout) -> bool:
    """Say whether a value of `shape` lies the same way in both: only extents of 1 change places."""
    found = _pieces(shape, source, wanted)
    return found is not None and _listed(source, found) == _listed(wanted, found)


def convert(value: Expr, shape: Sequence[int], source: AxisLayout, wanted: AxisLayout) -> Expr:
    """Give `value`, of `shape` and stored in the form `source`, in the form `wanted`."""
    if source == wanted:
        return value
    pieces = _pieces(shape, source, wanted)
    if pieces is None:  # blocks of which none is a multiple of the other
        whole = convert(value, shape, source, plain(len(shape)))
        return convert(whole, shape, plain(len(shape)), wanted)
    had, has = _listed(source, pieces), _listed(wanted, pieces)
    apart, order, result = [n for _, _, n in had], [had.index(p) for p in has], wanted.shape(shape)
    if isinstance(value, Constant):
        moved = value.data.reshape(apart).transpose(order).reshape(result)
        return Constant(np.ascontiguousarray(moved))
    if had != has and not (source.blocks or wanted.blocks):
        return _transposed(value, tuple(source.place(k) for k in wanted.order))
    if had != has:
        value = _transposed(_viewed(value, apart), tuple(order))
    return _viewed(value, result)


def _transposed(value: Expr, axes: tuple[int, ...]) -> Expr:
    """Of a transposition only what both move."""
    if is_call(value, "transpose") and isinstance(value, Call):
        inner = value.attrs.axes
        value, axes = value.args[0], tuple(inner[k] % len(inner) for k in axes)
    return value if list(axes) == sorted(axes) else call("transpose", value, axes=axes)


def _viewed(value: Expr, shape: Sequence[int]) -> Expr:
    same = value.shape == tuple(shape)
    return value if same else call("reshape", value, newshape=tuple(shape))


def _pieces(shape: Sequence[int], *forms: AxisLayout) -> Pieces | None:
    """The axes cut wherever one of the forms cuts them, without pieces of one element; None where
    their cuts do not fall together."""
    found: Pieces = []
    for axis, extent in enumerate(shape):
        units = sorted({1, extent, *(min(f.block(axis), extent) for f in forms)}, reverse=True)
        if any(large % small for large, small in pairwise(units) if small):
            return None
        cuts = pairwise(units)
        found.append([(axis, small, large // small) for large, small in cuts])
    return found


def _listed(form: AxisLayout, pieces: Pieces) -> list[tuple[int, int, int]]:
    """The pieces in the order in which they lie in `form`."""
    found = []
    for k in form.order:
        axis = k if k >= 0 else ~k
        block = form.block(axis)
        found += [p for p in pieces[axis] if (p[1] >= block) == (k >= 0)]
    return found
