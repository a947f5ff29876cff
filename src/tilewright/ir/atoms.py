"""Matrix instructions as data: what they compute, and which lane holds which element.

In: the elements that the lanes of a unit hold: a thread, a warp or a group of four.  Out: those
that they hold afterwards.  A group reads its operands in shared memory, where they lie as a `Tile`
says, and goes on while it multiplies.  How a device spells them is known to printers, by name, or
told by the atom's own texts.
Read next: `stmt.py`, whose `Mma` is one.

A fragment is told by the bits of its elements' indices, the lowest first.  "k1 k2 m0 m1 m2" for
lanes: bits 0 and 1 of the lane are bits 1 and 2 of the k index, the other three are m's lowest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.concurrency import cached_property
from tilewright.base.dtype import TYPES, DType

WARP = 32
GROUP = 128
PAIR = 2  # columns, see `of_pairs`
ROUNDED = "tf32"  # the function of operands whose lowest bits an atom does not look at
ROWS_OF_EIGHT = 8  # of a tile: they lie below each other, and the next eight behind them


@dataclass(frozen=True)
class Fragment:
    """A matrix that the lanes of a unit hold, each element by one of them.

    axes:     letters of its row and its column, as in `lane` and `element`
    lane:     the index bits that are bits of the lane
    element:  those that are bits of the place among the elements of one lane
    times:    of so many such matrices, side by side; a lane has its elements of one behind those of
              the one before
    """

    dtype: DType
    axes: str
    lane: str
    element: str
    times: int = 1

    @property
    def _each(self) -> int:
        """Elements of a lane in one of the matrices."""
        return int(1 << len(self.element.split()))

    @property
    def _width(self) -> int:
        """Columns of one of the matrices."""
        bits = [*self.lane.split(), *self.element.split()]
        return int(1 << sum(bit[0] == self.axes[1] for bit in bits))

    @property
    def elements(self) -> int:
        """Of one lane."""
        return self._each * self.times

    @property
    def lanes(self) -> int:
        return int(1 << len(self.lane.split()))

    def place(self, lane: Any, element: Any) -> tuple[Any, Any]:
        """The row and column of what `lane` holds as its `element`: ints, or expressions."""
        if self.times > 1:
            row, column = replace(self, times=1).place(lane, element % self._each)
            return row, column + element // self._each * self._width
        at = dict.fromkeys(self.axes, 0)
        for bits, number in ((self.lane, lane), (self.element, element)):
            for first, axis, to, count in runs(bits.split()):
                at[axis] = at[axis] + number // (1 << first) % (1 << count) * (1 << to)
        row, column = (at[axis] for axis in self.axes)
        return row, column

    def holder(self, row: Any, column: Any) -> tuple[Any, Any]:
        """The lane that holds what is at `row` and `column`, and its place there: see `place`."""
        if self.times > 1:
            lane, element = replace(self, times=1).holder(row, column % self._width)
            which = column // self._width % self.times
            return lane, which * self._each + element
        index = dict(zip(self.axes, (row, column), strict=True))
        lane, element = (
            sum(
                index[axis] // (1 << to) % (1 << count) * (1 << first)
                for first, axis, to, count in runs(bits.split())
            )
            for bits in (self.lane, self.element)
        )
        return lane, element

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """Of its rows and columns, by their letters."""
        bits = [*self.lane.split(), *self.element.split()]
        found = {axis: 1 << sum(bit[0] == axis for bit in bits) for axis in self.axes}
        return found | {self.axes[1]: self._width * self.times}


@dataclass(frozen=True)
class Tile:
    """A matrix in shared memory, K along rows: each row as long as the buffer's swizzle, with the
    next eight rows behind, and the matrix some columns of it.  The first row is the first of eight.

    axes: letters of its row and its column; shape: how many of both
    """

    dtype: DType
    axes: str
    shape: tuple[int, int]

    @property
    def extents(self) -> dict[str, int]:
        return dict(zip(self.axes, self.shape, strict=True))

    def span(self, swizzle: int) -> int:
        """Elements from its first to its last, of a buffer with this swizzle."""
        rows, columns = self.shape
        return (rows - 1) * (swizzle // self.dtype.bytes) + columns

    def offsets(self, swizzle: int, lane: int) -> list[int]:
        """What interpreters have `lane` read, as places behind the first: every element is read by
        two lanes, so that one at least is not who wrote it."""
        rows, columns = self.shape
        row, found = swizzle // self.dtype.bytes, []
        for shift in (0, GROUP // 2):
            first = (lane + shift) % GROUP
            places = range(first, rows * columns, GROUP)
            found += [k // columns * row + k % columns for k in places]
        return found


@cache
def of_rows(sums: Fragment, dtype: DType) -> Fragment:
    """One value for each row of `sums`, held by all lanes that hold elements of the row."""
    bits = [bit for bit in sums.element.split() if bit[0] == sums.axes[0]]
    return Fragment(dtype, sums.axes, sums.lane, " ".join(bits))


def has_pairs(sums: Fragment) -> bool:
    """Whether each lane holds neighbouring columns."""
    return sums.times == 1 and f"{sums.axes[1]}0" in sums.element.split()


@cache
def of_pairs(sums: Fragment) -> Fragment:
    """One value for two neighbouring columns of `sums`, which a lane holds both of."""

    def half(bits: str) -> str:
        known = [(bit[0], int(bit[1:]) - (bit[0] == sums.axes[1])) for bit in bits.split()]
        return " ".join(f"{axis}{number}" for axis, number in known if number >= 0)

    return Fragment(sums.dtype, sums.axes, half(sums.lane), half(sums.element))


def shared_bits(sums: Fragment) -> list[int]:
    """The bits of the lane by which those that hold elements of one row differ."""
    return [k for k, bit in enumerate(sums.lane.split()) if bit[0] == sums.axes[1]]


@cache
def places(fragment: Fragment) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Rows and columns of what the lanes hold, each [lane, element]."""
    elements = range(fragment.elements)
    lanes = range(fragment.lanes)
    both = np.array([[fragment.place(lane, k) for k in elements] for lane in lanes])
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
class Unit:
    """Who runs an atom.

    sums, operands: the scopes in which a schedule has what it adds up, and what it multiplies
    """

    name: str
    lanes: int
    sums: str
    operands: str


UNITS = {
    unit.lanes: unit
    for unit in (
        Unit("thread", 1, "local", "local"),
        Unit("warp", WARP, "fragment", "fragment"),
        Unit("group", GROUP, "fragment", "shared"),
    )
}


@dataclass(frozen=True)
class Atom:
    """sum[m, n] += a[m, k] * b[k, n], by the lanes of a unit together.

    Products are exact.  In which order they are added, and how each sum is rounded, is not said:
    `multiplied` adds them as double precision does and rounds once.  Sums of integers are exact,
    modulo the size of their type.

    cut:   so many of the lowest bits of operands in float32 are not looked at
    split: so many of them are rounded away, and what that takes off is a number of its own, of
           which they are cut; all products of two parts count but that of the smaller ones
    texts: by the name of a language, the body of a function of `d`, `a` and `b`, where they begin:
           of an atom whose printer does not know it by its name
    """

    name: str
    a: Fragment | Tile
    b: Fragment | Tile
    sum: Fragment
    cut: int = 0
    split: int = 0
    texts: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __repr__(self) -> str:
        return self.name

    @property
    def lanes(self) -> int:
        """Of the unit."""
        return self.sum.lanes

    @property
    def unit(self) -> Unit:
        return UNITS[self.lanes]

    @property
    def by_thread(self) -> bool:
        """Whether a thread runs it alone."""
        return self.lanes == 1

    @property
    def by_group(self) -> bool:
        """Whether a group of warps runs it, and goes on meanwhile: see `Mma`."""
        return self.lanes > WARP

    @cached_property
    def extents(self) -> Mapping[str, int]:
        """Of m, n and k, in this order."""
        both = {**self.a.extents, **self.b.extents}
        return {axis: both[axis] for axis in "mnk"}

    @property
    def parts(self) -> int:
        """Numbers that a lane holds for each element of its operands."""
        return 2 if self.split else 1


def _atom(name: str, types: str, a: str, b: str, cut: int = 0, split: int = 0) -> Atom:
    """types: of both operands, or of each; a, b: their lane / element; sums lie alike in all."""
    kinds = types.split()
    left, right = (
        Fragment(DType(kind), axes, lane.strip(), element.strip())
        for kind, axes, bits in ((kinds[0], "mk", a), (kinds[-1], "kn", b))
        for lane, element in (bits.split("/"),)
    )
    kind = DType("float32" if left.dtype.is_float else "int32")
    total = Fragment(kind, "mn", "n1 n2 m0 m1 m2", "n0 m3")
    return Atom(name, left, right, total, cut, split)


_WORDS = ("k0 k1 m0 m1 m2 / m3 k2", "k0 k1 n0 n1 n2 / k2")
_HALVES = ("k1 k2 m0 m1 m2 / k0 m3 k3", "k1 k2 n0 n1 n2 / k0 k3")
_BYTES = ("k2 k3 m0 m1 m2 / k0 k1 m3 k4", "k2 k3 n0 n1 n2 / k0 k1 k4")
_ROWS = (
    ("m16n8k16.float16", "float16", *_HALVES),
    ("m16n8k16.bfloat16", "bfloat16", *_HALVES),
    ("m16n8k8.tf32", "float32", *_WORDS, 13),
    ("m16n8k8.3xtf32", "float32", *_WORDS, 0, 13),
    ("m16n8k32.int8", "int8", *_BYTES),
    ("m16n8k32.uint8", "uint8", *_BYTES),
    ("m16n8k32.int8.uint8", "int8 uint8", *_BYTES),
    ("m16n8k32.uint8.int8", "uint8 int8", *_BYTES),
)
# A machine without ml_dtypes, which only runs kernels, has no bfloat16.
ATOMS = {row[0]: _atom(*row) for row in _ROWS if row[1].split()[0] in TYPES}

# The same instructions with other names for places along k: a lane has four neighbours in both
# operands, of the left one so that of four elements every other one is in one register.
_CROSSED = ("k2 k3 m0 m1 m2 / m3 k0 k1", "k2 k3 n0 n1 n2 / k0 k1")
CROSSED: dict[str, Atom] = {
    name: _atom(f"m16n8k16.crossed.{name}", name, *_CROSSED)
    for name in ("float16", "bfloat16")
    if name in TYPES
}  # by the type of their operands


def _group_atom(n: int, k: int, code: str, dtype: str, cut: int = 0, split: int = 0) -> Atom:
    kind = DType(dtype)
    left, right = Tile(kind, "mk", (GROUP_ROWS, k)), Tile(kind, "nk", (n, k))
    total = Fragment(DType("float32"), "mn", "n1 n2 m0 m1 m2 m4 m5", "n0 m3", n // 8)
    return Atom(f"m{GROUP_ROWS}n{n}k{k}.{code}", left, right, total, cut, split)


GROUP_ROWS = 64
GROUP_COLUMNS = range(8, 257, 8)
_OF_GROUPS = (
    (16, "float16", "float16"),
    (16, "bfloat16", "bfloat16"),
    (8, "tf32", "float32", 13),
    (8, "3xtf32", "float32", 0, 13),
)
GROUP_ATOMS = {
    atom.name: atom
    for k, code, dtype, *digits in _OF_GROUPS
    if dtype in TYPES
    for atom in (_group_atom(n, k, code, dtype, *digits) for n in GROUP_COLUMNS)
}


def _thread_atom(types: str, a: str, b: str, total: str, texts: Mapping[str, str]) -> Atom:
    """types: of both operands; a, b, total: their elements."""
    kinds = types.split()
    left, right = (
        Fragment(DType(kind), axes, "", bits)
        for kind, axes, bits in ((kinds[0], "mk", a), (kinds[-1], "kn", b))
    )
    kind = DType("float32" if left.dtype.is_float else "int32")
    made = Atom("", left, right, Fragment(kind, "mn", "", total), texts=texts)
    shape = "".join(f"{axis}{size}" for axis, size in made.extents.items())
    return replace(made, name=f"{shape}.{'.'.join(dict.fromkeys(kinds))}")


# Four bytes are a word, the first the lowest.
_DOT4 = """  const unsigned int x = {x}, y = {y};
  asm("dp4a.{left}.{right} %0, %1, %2, %0;" : "+r"(d[0]) : "r"(x), "r"(y));
"""
_SIGNS = {"int8": "s32", "uint8": "u32"}


def _dot4(left: str, right: str) -> str:
    x, y = (
        " | ".join(f"(unsigned int)(unsigned char){name}[{k}] << {8 * k}" for k in range(4))
        for name in "ab"
    )
    return _DOT4.format(x=x, y=y, left=_SIGNS[left], right=_SIGNS[right])


# A row of four numbers, and four columns of as many lanes as a vector has: the row is in each lane.
_DOTS = """declare <{n} x i32> @llvm.x86.avx512.vpdpbusd.{bits}(<{n} x i32>, <{n} x i32>, <{n} x i32>)
  %x = load i32, ptr %a, align 4
  %x0 = insertelement <{n} x i32> poison, i32 %x, i64 0
  %xs = shufflevector <{n} x i32> %x0, <{n} x i32> poison, <{n} x i32> zeroinitializer
  %ys = load <{n} x i32>, ptr %b, align 4
  %s = load <{n} x i32>, ptr %d, align 4
  %t = call <{n} x i32> @llvm.x86.avx512.vpdpbusd.{bits}(<{n} x i32> %s, <{n} x i32> %xs, <{n} x i32> %ys)
  store <{n} x i32> %t, ptr %d, align 4
"""  # noqa: E501
_BYTE_PAIRS = ("int8", "uint8", "int8 uint8", "uint8 int8")
_THREADS = [
    *(
        _thread_atom(pair, "k0 k1", "k0 k1", "", {"cuda": _dot4(pair.split()[0], pair.split()[-1])})
        for pair in _BYTE_PAIRS
    ),
    *(
        _thread_atom(
            "uint8 int8", "k0 k1", f"k0 k1 {bits}", bits,
            {"llvm": _DOTS.format(n=n, bits=32 * n)},
        )
        for n, bits in ((4, "n0 n1"), (8, "n0 n1 n2"), (16, "n0 n1 n2 n3"))
    ),
]  # fmt: skip
THREAD_ATOMS = {atom.name: atom for atom in _THREADS}
ALL_ATOMS = (
    ATOMS | {atom.name: atom for atom in CROSSED.values()} | GROUP_ATOMS | THREAD_ATOMS
)  # and those that users add


def names() -> str:
    """The atoms, as a refusal lists them: those that users added they know."""
    listed = ", ".join((*ATOMS, *THREAD_ATOMS))
    return f"{listed}; m64nNk16 of halves, m64nNk8 of (3x)tf32, N a multiple of 8 up to 256"


def of_parts(atom: Atom) -> Atom:
    """The atom of a group for each product of two parts of operands, which lie in memory."""
    return GROUP_ATOMS[atom.name.replace(".3x", ".")]


def multiplied(
    atom: Atom, a: Sequence[Any], b: Sequence[Any], sums: Sequence[Any]
) -> list[list[Any]]:
    """The sums that each lane holds afterwards; a, b, sums: for each lane its elements."""
    left, right, before = _matrix(atom.a, a), _matrix(atom.b, b), _matrix(atom.sum, sums)
    with np.errstate(all="ignore"):
        if atom.cut:
            left, right = (_cut(x, atom.cut) for x in (left, right))
        if atom.split:
            (left, small), (right, smaller) = (_apart(x, atom.split) for x in (left, right))
            before = small @ right + left @ smaller + before
        total = (left @ right + before).astype(atom.sum.dtype.storage)
    result: list[list[Any]] = total[places(atom.sum)].tolist()
    return result


def multiplied_alone(
    atom: Atom, a: Sequence[Any], b: Sequence[Any], sums: Sequence[Any]
) -> list[Any]:
    """The same of an atom of one thread."""
    kind, found = atom.sum.dtype, []
    number = float if kind.is_float else int
    for before, terms in zip(sums, _terms(atom), strict=True):
        total = number(before) + sum(number(a[i]) * number(b[j]) for i, j in terms)
        if kind.is_float:
            total = float(kind.storage.type(total))
        elif not kind.least <= total <= kind.greatest:
            total = int(np.array(total % (1 << kind.bits)).astype(kind.storage))
        found.append(total)
    return found


@cache
def _terms(atom: Atom) -> list[list[tuple[int, int]]]:
    """For each sum of an atom of one thread, where both factors of each product are."""
    assert isinstance(atom.a, Fragment) and isinstance(atom.b, Fragment)
    found = []
    for element in range(atom.sum.elements):
        m, n = atom.sum.place(0, element)
        depth = range(atom.extents["k"])
        found.append([(atom.a.holder(m, k)[1], atom.b.holder(k, n)[1]) for k in depth])
    return found


def _matrix(of: Fragment | Tile, held: Sequence[Any]) -> npt.NDArray[Any]:
    """The matrix that lanes hold, or have read; m along rows of a, k along rows of b."""
    kind = np.float64 if of.dtype.is_float else np.int64
    if isinstance(of, Tile):
        taken = np.empty(of.shape, kind)
        for lane, own in enumerate(held):
            for k, at in zip(own, of.offsets(of.shape[1] * of.dtype.bytes, lane), strict=True):
                taken[divmod(at, of.shape[1])] = kind(k)
        return taken if of.axes[0] == "m" else taken.T
    rows, columns = places(of)
    matrix = np.empty((rows.max() + 1, columns.max() + 1), kind)
    matrix[rows, columns] = [list(map(kind, lane)) for lane in held]
    return matrix


def _cut(values: npt.NDArray[Any], bits: int) -> npt.NDArray[Any]:
    words = values.astype(np.float32).view(np.uint32)
    return (words >> bits << bits).view(np.float32).astype(np.float64)


def _apart(values: npt.NDArray[Any], bits: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Numbers of float32 rounded to nearest, halves away from zero; what that takes off, cut."""
    words = values.astype(np.float32).view(np.uint32) + np.uint32(1 << (bits - 1))
    large = (words >> bits << bits).view(np.float32).astype(np.float64)
    return large, _cut(values - large, bits)
