"""Layouts that hold the same elements: shapes and indices of one in the other.

In: two layouts.  Out: `BijectiveLayout`.  Read next: `topi/layout.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import Expr, convert
from tilewright.topi.layout import Layout, extents, parse, shape_in, source_indices


@dataclass(frozen=True)
class BijectiveLayout:
    """Between two layouts of the same outer axes: shapes and indices of one as those of the other.

    src, dst: the layouts; forward goes from src to dst. Indices are ints or integer expressions.
    Methods raise ExpressionError for another rank, a block of another size, a block that does not
    divide its axis.
    """

    src: Layout
    dst: Layout

    def forward_shape(self, shape: Sequence[int]) -> list[int]:
        """The shape in `dst` of a tensor that has `shape` in `src`."""
        return _moved_shape(self.src, self.dst, shape, "forward_shape")

    def backward_shape(self, shape: Sequence[int]) -> list[int]:
        """The shape in `src` of a tensor that has `shape` in `dst`."""
        return _moved_shape(self.dst, self.src, shape, "backward_shape")

    def forward_index(self, indices: Sequence[Expr | int]) -> list[Expr]:
        """Find where in `dst` the element lies that has `indices` in `src`."""
        return _moved_index(self.src, self.dst, indices, "forward_index")

    def backward_index(self, indices: Sequence[Expr | int]) -> list[Expr]:
        """Find where in `src` the element lies that has `indices` in `dst`."""
        return _moved_index(self.dst, self.src, indices, "backward_index")


def bijection(src: str, dst: str) -> BijectiveLayout | None:
    """Return what leads from `src` to `dst`; None if one is undefined or their outer axes differ.

    Raises ExpressionError for what is no layout.
    """
    if {src, dst} & {"", "__undef__"}:
        return None
    here, there = (parse(text, f"bijective_layout({src!r}, {dst!r})") for text in (src, dst))
    return BijectiveLayout(here, there) if set(here.outer) == set(there.outer) else None


def _moved_shape(here: Layout, there: Layout, shape: Sequence[int], name: str) -> list[int]:
    place = f"BijectiveLayout.{name}({shape!r})"
    if not isinstance(shape, Sequence) or not all(type(n) is int and n >= 1 for n in shape):
        raise ExpressionError(place, "not a shape", "Give a tuple of ints of at least 1.")
    return shape_in(there, extents(here, shape, place), place)


def _moved_index(
    here: Layout, there: Layout, indices: Sequence[Expr | int], name: str
) -> list[Expr]:
    place = f"BijectiveLayout.{name}({indices!r})"
    if not isinstance(indices, Sequence) or len(indices) != len(here):
        raise ExpressionError(place, f"layout {here} has {len(here)} axes", "Give an index each.")
    at = [convert(i) for i in indices]
    if any(i.dtype.kind not in ("int", "uint") for i in at):
        raise ExpressionError(place, "not indices", "Give ints or integer expressions.")
    return source_indices(there, here, at)
