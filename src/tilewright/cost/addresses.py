"""Where memory is touched: addresses of reads and writes at chosen iterations, for a population.

In: `Touch`es of a loop tree and its `Bounds`.  Out: their flat addresses as float arrays, one row
per candidate, optionally one column per lane of a warp.
Read next: `nest.py` (loops around the touches), `gpu_facts.py`, `cpu_facts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir.expr import Expr
from tilewright.ir.swizzle import LINE, PIECE, turn
from tilewright.schedule.space.decision import Number
from tilewright.schedule.state import SplitRelation
from tilewright.schedule.tree.loop_tree import Base, Bounds, Node, Quotient
from tilewright.schedule.tree.rings import swizzle
from tilewright.schedule.tree.touch import Touch, anatomy, strides
from tilewright.te.tensor import IterVar

Array = npt.NDArray[Any]
# The same on all GPUs of the last fifteen years, whatever they say of themselves.
SECTOR_BYTES = 32
BANK_BYTES = 4
BANKS = 32
WIDEST_BYTES = 16  # of one access of a lane
_GOLDEN = 0.61803399  # its multiples are spread evenly between whole numbers


# -- iterations ------------------------------------------------------------------------------------


def vector(x: Number) -> Any:
    """A number of the population: float64 [n], or a Python number all candidates share."""
    return x.astype(np.float64) if isinstance(x, np.ndarray) else x


def column(x: Number) -> Any:
    """The same for arrays over lanes: float32 [n, 1].  Exact below 2**24."""
    return x.astype(np.float32)[:, None] if isinstance(x, np.ndarray) else x


def floor_div(a: Any, b: Any) -> Any:
    if not isinstance(a, np.ndarray) and not isinstance(b, np.ndarray):
        return a // b
    return np.floor(a / b)


def floor_mod(a: Any, b: Any) -> Any:
    return a - floor_div(a, b) * b


def _nothing(x: Any) -> bool:
    return not isinstance(x, np.ndarray) and x == 0


def swizzled(address: Any, swizzle: Any, size: int) -> Any:
    """Where memory has the elements at flat addresses: float arrays, or one number.

    swizzle: of the buffer, as `address` is shaped; size: bytes of an element
    """
    if _nothing(swizzle):
        return address
    rows, pieces, unit = turn(swizzle, size)
    row = floor_mod(floor_div(address, rows), np.maximum(pieces, 1))
    column = floor_mod(floor_div(address, unit), LINE // PIECE)
    turned = np.bitwise_xor(np.asarray(column).astype(np.int32), np.asarray(row).astype(np.int32))
    return address + (turned - column) * np.float32(unit)


class Point:
    """One iteration: some leaf axes at given values, all others at zero.

    convert: `vector` or `column`, by the shape of the values
    """

    def __init__(
        self, bounds: Bounds, leaves: Mapping[IterVar, Any],
        convert: Callable[[Number], Any] = vector,
    ) -> None:  # fmt: skip
        self.bounds, self.convert = bounds, convert
        self.anatomy = anatomy(bounds.tree)
        self._values: dict[IterVar, Any] = dict(leaves)
        self._bases: dict[int, Any] = {}  # by identity of a base, which the bounds keep
        self._addresses: dict[Touch, Any] = {}

    def axis(self, axis: IterVar) -> Any:
        """The value of an axis of any level; the int 0 where it is surely zero."""
        found = self._values.get(axis)
        if found is None:
            found = self._values[axis] = self._derive(axis)
        return found

    def _derive(self, axis: IterVar) -> Any:
        r = self.anatomy.relation.get(axis)
        if r is None:
            return 0
        if isinstance(r, SplitRelation):
            outer, inner = self.axis(r.outer), self.axis(r.inner)
            if _nothing(outer):
                return inner
            return outer * self.convert(self.bounds.factor[r]) + inner
        fused = self.axis(r.fused)
        if _nothing(fused):
            return 0
        extent = self.convert(self.bounds.extent[r.inner])
        return floor_div(fused, extent) if axis is r.outer else floor_mod(fused, extent)

    def base(self, base: Base) -> Any:
        """Where a region starts at this iteration."""
        found = self._bases.get(id(base))
        if found is None:
            found = self._bases[id(base)] = self._start(base)
        return found

    def _start(self, base: Base) -> Any:
        total: Any = self.convert(base.constant)
        for atom, c in base.terms.items():
            if isinstance(atom, Quotient):
                inner, k = self.base(atom.base), self.convert(atom.k)
                value = floor_div(inner, k) if atom.kind == "div" else floor_mod(inner, k)
            else:
                value = self.axis(atom)
            if not _nothing(value):
                total = total + value * self.convert(c)
        return total

    def coordinate(self, node: Node, axis: IterVar) -> Any:
        """The value of a root axis of `node`, counted from the start of the tensor."""
        value = self.axis(axis)
        if axis in self.bounds.begins:
            return value + self.base(self.bounds.begins[axis])
        if axis.kind != "spatial" or node.parent is None:
            return value
        return value + self.base(self.bounds.base[node][node.op.axis.index(axis)])

    def index(self, touch: Touch, dim: int) -> Any:
        """Position in one dimension, counted from the start of the stored region."""
        value = self.position(touch, dim)
        if touch.producer is not None and touch.producer.parent is not None:
            start = self.base(self.bounds.base[touch.producer][dim])
            return value if _nothing(start) else value - start
        return value

    def address(self, touch: Touch) -> Any:
        """Flat position in the buffer, in elements."""
        found = self._addresses.get(touch)
        if found is None:
            found = self._addresses[touch] = self._flat(touch)
        return found

    def _flat(self, touch: Touch) -> Any:
        total: Any = 0
        for dim, stride in enumerate(strides(self.bounds, touch)):
            value = self.index(touch, dim)
            if not _nothing(value):
                total = total + value * self.convert(stride)
        return total

    def position(self, touch: Touch, dim: int) -> Any:
        """Position in one dimension of the tensor.  Of an index that is data: anywhere in it,
        elsewhere for each element."""
        read = touch.chosen[dim]
        if read is None:
            return self._evaluate(touch.index[dim], touch.node)
        total: Any = 0
        for k, e in enumerate(read.args):
            value = self._evaluate(e, touch.node)
            total = total if _nothing(value) else total + value * (k + 1)
        if _nothing(total):
            return 0
        return floor_div(floor_mod(total * _GOLDEN, 1.0) * touch.tensor.shape[dim], 1.0)

    def _evaluate(self, e: Expr, node: Node) -> Any:
        if e.op == "var":
            axis = self.anatomy.axis_of.get(e)
            return 0 if axis is None else self.coordinate(node, axis)
        if e.op == "const":
            return e.attr
        if e.op == "cast":
            return self._evaluate(e.args[0], node)
        rule = _INDEX_RULES.get(e.op)
        if rule is None:  # a choice between indices: where it points is not known
            return 0
        return rule(self._evaluate(e.args[0], node), self._evaluate(e.args[1], node))


class Steps(Point):
    """The same as if nothing lay around the stage: enough to tell how far its own loops go."""

    def coordinate(self, node: Node, axis: IterVar) -> Any:
        return self.axis(axis)

    def index(self, touch: Touch, dim: int) -> Any:
        return self.position(touch, dim)


_INDEX_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": floor_div,
    "floormod": floor_mod,
    "min": np.minimum,
    "max": np.maximum,
}


# -- lanes of one warp -----------------------------------------------------------------------------


@cache
def _numbers(warp: int) -> tuple[Array, Array]:
    """Of each lane its number, and a group of banks that no other lane is in."""
    return np.arange(warp, dtype=np.int16), np.arange(BANKS, BANKS + warp, dtype=np.int32)


class Lanes:
    """The first warp of a block of a kernel: which lanes run, and what they address.

    launch: extent of each thread tag; warp: threads of a warp
    """

    def __init__(self, bounds: Bounds, launch: Mapping[str, Number], rows: int, warp: int) -> None:
        self.bounds, self.rows, self.warp = bounds, rows, warp
        lane = np.arange(warp, dtype=np.float32)[None, :]
        self.value: dict[str, Any] = {}
        for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            extent = column(launch.get(tag, 1))
            self.value[tag] = 0 if _nothing(extent - 1) else floor_mod(lane, extent)
            lane = floor_div(lane, extent)
        self.running = lane < 1  # lanes beyond the block's threads
        self.tag_of = bounds.tree.tag_of
        leaves = {ax: self.value[t] for ax, t in self.tag_of.items() if t in self.value}
        self._leaves, self._point = leaves, Point(bounds, leaves, column)
        self._addresses: dict[Touch, Any] = {}
        self._own: dict[Node, Point] = {}

    def place(self, node: Node, own: Mapping[IterVar, Any]) -> None:
        """Have the lanes of a stage be at other values of its axes than thread indices tell.

        own: of axes of any level, each [n or 1, warp] or one number
        """
        self._own[node] = Point(self.bounds, {**self._leaves, **own}, column)

    def address(self, touch: Touch) -> Any:
        """Flat positions of all lanes, in elements: [n or 1, warp or 1], or one number."""
        found = self._addresses.get(touch)
        if found is None:
            point = self._own.get(touch.node, self._point)
            found = self._addresses[touch] = point.address(touch)
        return found

    def active(self, node: Node) -> Array:
        """bool [n or 1, warp]: lanes inside the node's own thread extents."""
        mask: Array = self.running
        for ax, tag in node.stage.binds.items():
            if tag in self.value and not _nothing(self.value[tag]):
                mask = mask & (self.value[tag] < column(self.bounds.extent[ax]))
        return mask

    def words(self, touch: Touch, word_bytes: int, rows: Array | None = None) -> Array | None:
        """Sorted numbers of the words of `word_bytes` that the lanes address, float32 [n, warp].

        Idle lanes repeat lane 0.  None where all lanes address one word.
        rows: indices of the candidates that matter; None for all
        """
        address = self.address(touch)
        if not isinstance(address, np.ndarray) or address.shape[1] == 1:
            return None
        address = np.where(self.active(touch.node), address, address[:, :1])
        if address.shape[0] != self.rows:
            address = np.broadcast_to(address, (self.rows, self.warp))
        turned = column(swizzle(touch.producer, self.bounds)) if touch.producer is not None else 0
        address = swizzled(address, turned, touch.bytes)
        if rows is not None:
            address = address[rows]
        if word_bytes != touch.bytes:
            address = np.floor(address * np.float32(touch.bytes / word_bytes))
        return np.sort(address, axis=1)

    def alignment(self, touch: Touch) -> Any:
        """The most elements of one access that divide the addresses of all lanes: 1, 2, 4, ..."""
        most = max(1, WIDEST_BYTES // touch.bytes)
        address = self.address(touch)
        if not isinstance(address, np.ndarray):
            return math.gcd(int(address), most)
        bits = np.bitwise_or.reduce(address.astype(np.int32), axis=1)
        return np.gcd(bits, most)

    def sectors(self, touch: Touch) -> Any:
        """Memory sectors of one request of the warp: 1 (all lanes alike) to one per lane."""
        words = self.words(touch, SECTOR_BYTES)
        if words is None:
            return 1.0
        # A product with ones would be done by BLAS, whose threads then spin on all cores.
        new = np.einsum("ij->i", (words[:, 1:] != words[:, :-1]).astype(np.float32))
        return 1.0 + new.astype(np.float64)

    def wavefronts(self, touch: Touch, width: int, rows: Array | None = None) -> Any:
        """Passes of shared memory that one request takes, for accesses of `width` elements.

        Each pass serves one word as wide as the access from each group of banks, so the greatest
        number of distinct words in a group counts.
        """
        size = max(BANK_BYTES, touch.bytes * width)
        words = self.words(touch, size, rows)
        if words is None:
            return 1.0
        new = np.ones(words.shape, bool)
        np.not_equal(words[:, 1:], words[:, :-1], out=new[:, 1:])
        lane, apart = _numbers(self.warp)
        groups = max(1, BANKS * BANK_BYTES // size)  # a power of two, as accesses are
        group = np.where(new, words.astype(np.int32) & (groups - 1), apart)
        group.sort(axis=1)
        first = np.zeros(group.shape, lane.dtype)  # lane where the run of equal groups began
        np.multiply(group[:, 1:] != group[:, :-1], lane[1:], out=first[:, 1:])
        np.maximum.accumulate(first, axis=1, out=first)
        return 1.0 + (lane - first).max(axis=1).astype(np.float64)
