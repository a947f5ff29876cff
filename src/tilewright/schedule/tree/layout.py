"""Where the elements of a buffer lie: a layout as a value.

In: an index into what the buffer holds, relative to where that begins.  Out: the place in the
buffer.  Indices are ints, vectors of them, or expressions; the same lines serve all.

Strided:   sum(index * stride)
Fragments: tiles one after the other; of each, the elements that one lane of a warp holds
A swizzle (`ir/swizzle.py`) is of addresses, not of places: all here counts as if there were none.
Read next: `bounds.py`, which makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import DType
from tilewright.ir.atoms import Atom, Fragment, of_pairs, of_rows

PAIRS = "pairs"  # a part, see `Held`


@dataclass(frozen=True)
class Strided:
    """strides: of each dimension, in elements; size: elements of the buffer"""

    strides: tuple[Any, ...]
    size: Any

    def place(self, index: Sequence[Any]) -> Any:
        flat: Any = 0
        for i, stride in zip(index, self.strides, strict=True):
            flat = flat + i * stride
        return flat


@dataclass(frozen=True)
class Held:
    """The part that a tensor has in a matrix instruction.

    part:    "a", "b" or "sum"; "pairs": one value for two neighbouring columns of the sums, held by
             the lane that holds both; "rows": one for each row of the sums, held by every lane that
             holds elements of the row
    letters: the dimensions that lie in the atom, with its names of them: two, of rows one
    dtype:   of rows
    """

    atom: Atom
    part: str
    letters: tuple[tuple[int, str], ...]
    dtype: DType | None = None

    @property
    def fragment(self) -> Fragment:
        if self.dtype is not None:
            return of_rows(self.atom.sum, self.dtype)
        if self.part == PAIRS:
            return of_pairs(self.atom.sum)
        found: Fragment = getattr(self.atom, self.part)
        return found

    @property
    def dims(self) -> Mapping[int, str]:
        return dict(self.letters)

    def tile(self, dim: int) -> int:
        """Extent of a tile in a dimension."""
        letter = self.dims.get(dim)
        return 1 if letter is None else self.fragment.extents[letter]

    def inside(self, index: Sequence[Any]) -> tuple[Any, Any]:
        """Row and column in the atom of an index relative to a tile."""
        at = {letter: index[dim] for dim, letter in self.letters}
        row, column = (at.get(letter, 0) for letter in self.fragment.axes)
        return row, column


@dataclass(frozen=True)
class Fragments:
    """shape: of what the warp holds, whole tiles in each dimension; size: elements of one lane"""

    held: Held
    shape: tuple[Any, ...]

    @property
    def tiles(self) -> tuple[Any, ...]:
        return tuple(n // self.held.tile(d) for d, n in enumerate(self.shape))

    @property
    def size(self) -> Any:
        total: Any = self.held.fragment.elements
        for n in self.tiles:
            total = total * n
        return total

    def place(self, index: Sequence[Any]) -> Any:
        """The place among the elements of the lane that holds it."""
        flat: Any = 0
        for d, (i, count) in enumerate(zip(index, self.tiles, strict=True)):
            flat = flat * count + i // self.held.tile(d)
        _, element = self.held.fragment.holder(*self.held.inside(index))
        return flat * self.held.fragment.elements + element

    def lane(self, index: Sequence[Any], own: Any) -> Any:
        """The lane that holds it; of several, the one that differs least from `own`."""
        row, column = self.held.inside(index)
        if self.held.dtype is not None:
            _, column = self.held.fragment.place(own, 0)
        lane, _ = self.held.fragment.holder(row, column)
        return lane


Layout = Strided | Fragments
