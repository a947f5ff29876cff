"""Matrix instructions of a warp as data: what they compute, and which lane holds which element.

In: the elements that 32 lanes hold.  Out: those that they hold afterwards.  Nothing here knows how
a device spells them: printers do, by name.  Read next: `stmt.py`, whose `Mma` is one.

A fragment is told by the bits of its elements' indices, the lowest first.  "k1 k2 m0 m1 m2" for
lanes: bits 0 and 1 of the lane are bits 1 and 2 of the k index, the other three are m's lowest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.dtype import TYPES, DType

WARP = 32


@dataclass(frozen=True)
class Fragment:
    """A matrix that the lanes of a warp hold, each element by one of them.

    axes:     letters of its row and its column, as in `lane` and `element`
    lane:     the index bits that are bits of the lane
    element:  those that are bits of the place among the elements of one lane
    """

    dtype: DType
    axes: str
    lane: str
    element: str

    @property
    def elements(self) -> int:
        """Of one lane."""
        return int(1 << len(self.element.split()))

    def place(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The row and column of what `lane` holds as its `element`: ints, or expressions."""
        at = dict.fromkeys(self.axes, 0)
        for bits, number in ((self.lane, lane), (self.element, element)):
            for first, axis, to, count in runs(bits.split()):
                at[axis] = at[axis] + number // (1 << first) % (1 << count) * (1 << to)
        row, column = (at[axis] for axis in self.axes)
        return row, column

    def holder(self, row: Any, column: Any) -> tuple[Any, Any]:
        """The lane that holds what is at `row` and `column`, and its place there: see `place`."""
        index = dict(zip(self.axes, (row, column), strict=True))
        lane, element = (
            sum(
                index[axis] // (1 << to) % (1 << count) * (1 << first)
                for first, axis, to, count in runs(bits.split())
            )
            for bits in (self.lane, self.element)
        )
        return lane, element

    @property
    def extents(self) -> dict[str, int]:
        """Of its rows and columns, by their letters."""
        bits = [*self.lane.split(), *self.element.split()]
        return {axis: 1 << sum(bit[0] == axis for bit in bits) for axis in self.axes}


@cache
def of_rows(sums: Fragment, dtype: DType) -> Fragment:
    """One value for each row of `sums`, held by all lanes that hold elements of the row."""
    bits = [bit for bit in sums.element.split() if bit[0] == sums.axes[0]]
    return Fragment(dtype, sums.axes, sums.lane, " ".join(bits))


def shared_bits(sums: Fragment) -> list[int]:
    """The bits of the lane by which those that hold elements of one row differ."""
    return [k for k, bit in enumerate(sums.lane.split()) if bit[0] == sums.axes[1]]


@cache
def places(fragment: Fragment) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows and columns of what the lanes hold, each [lane, element]."""
    elements = range(fragment.elements)
    both = np.array([[fragment.place(lane, k) for k in elements] for lane in range(WARP)])
    return both[..., 0], both[..., 1]


def runs(bits: Sequence[str]) -> list[tuple[int, str, int, int]]:
    """Neighbouring bits of a number that are neighbouring bits of one index: the first of them, the
    axis, its first bit there, how many."""
    runs: list[tuple[int, str, int, int]] = []
    for k, bit in enumerate(bits):
        axis, to = bit[0], int(bit[1:])
        if runs and (axis, to) == (runs[-1][1], runs[-1][2] + runs[-1][3]):
            runs[-1] = (*runs[-1][:3], runs[-1][3] + 1)
        else:
            runs.append((k, axis, to, 1))
    return runs


@dataclass(frozen=True)
class Atom:
    """sum[m, n] += a[m, k] * b[k, n], by the 32 lanes of a warp together.

    Products are exact.  In which order they are added, and how each sum is rounded, is not said:
    `multiplied` adds them as double precision does and rounds once.

    cut: so many of the lowest bits of operands in float32 are not looked at
    """

    name: str
    a: Fragment
    b: Fragment
    sum: Fragment
    cut: int = 0

    def __repr__(self) -> str:
        return self.name

    @property
    def extents(self) -> dict[str, int]:
        """Of m, n and k, in this order."""
        return {axis: (self.a.extents | self.b.extents)[axis] for axis in "mnk"}


def _atom(name: str, dtype: str, a: str, b: str, cut: int = 0) -> Atom:
    """a, b: lane / element of the operands; sums lie alike in all."""
    left, right = (
        Fragment(DType(dtype), axes, *map(str.strip, bits.split("/")))
        for axes, bits in (("mk", a), ("kn", b))
    )
    total = Fragment(DType("float32"), "mn", "n1 n2 m0 m1 m2", "n0 m3")
    return Atom(name, left, right, total, cut)


_HALVES = ("k1 k2 m0 m1 m2 / k0 m3 k3", "k1 k2 n0 n1 n2 / k0 k3")
_ROWS = (
    ("m16n8k16.float16", "float16", *_HALVES),
    ("m16n8k16.bfloat16", "bfloat16", *_HALVES),
    ("m16n8k8.tf32", "float32", "k0 k1 m0 m1 m2 / m3 k2", "k0 k1 n0 n1 n2 / k2", 13),
)
# A machine without ml_dtypes, which only runs kernels, has no bfloat16.
ATOMS = {row[0]: _atom(*row) for row in _ROWS if row[1] in TYPES}


def multiplied(
    atom: Atom, a: Sequence[Any], b: Sequence[Any], sums: Sequence[Any]
) -> list[list[float]]:
    """The sums that each lane holds afterwards; a, b, sums: for each lane its elements."""
    left, right = _matrix(atom.a, a, atom.cut), _matrix(atom.b, b, atom.cut)
    with np.errstate(all="ignore"):
        total = (left @ right + _matrix(atom.sum, sums)).astype(np.float32)
    result: list[list[float]] = total[places(atom.sum)].tolist()
    return result


def _matrix(of: Fragment, held: Sequence[Any], cut: int = 0) -> npt.NDArray[Any]:
    rows, columns = places(of)
    values = np.array([[float(x) for x in lane] for lane in held])
    if cut:
        bits = values.astype(np.float32).view(np.uint32)
        values = (bits >> cut << cut).view(np.float32).astype(np.float64)
    matrix = np.empty((rows.max() + 1, columns.max() + 1))
    matrix[rows, columns] = values
    return matrix
