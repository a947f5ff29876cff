"""Where memory is touched: addresses of reads and writes at chosen iterations, for a population.

In: a `LoopTree` and its `Bounds`.  Out: `Touch`es of every stage, and their flat addresses as
float arrays, one row per candidate, optionally one column per lane of a warp.
Read next: `nest.py` (loops around the touches), `gpu_facts.py`, `cpu_facts.py`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.space.decision import Number
from tilewright.schedule.state import FuseRelation, SplitRelation
from tilewright.schedule.tree.loop_tree import Base, Bounds, Node, Quotient
from tilewright.schedule.tree.structure import Structure
from tilewright.te.tensor import IterVar, Tensor

Array = npt.NDArray[Any]
WARP = 32
SECTOR_BYTES = 32
BANK_BYTES = 4


@dataclass(frozen=True, eq=False)
class Touch:
    """`node` reads `tensor` (or writes its own result) at `index`, over its root axes.

    producer: the stage that stores the tensor; None for an input
    axes:     root axes of the node that the index depends on
    """

    node: Node
    tensor: Tensor
    producer: Node | None
    index: tuple[Expr, ...]
    write: bool
    axes: frozenset[IterVar]

    @property
    def scope(self) -> str:
        return self.producer.scope if self.producer is not None else "global"

    @property
    def bytes(self) -> int:
        return self.tensor.dtype.bytes


class Anatomy:
    """What a loop tree says about memory, whatever its numbers.  `anatomy(tree)` makes one a tree.

    splits: relation that makes an axis out of others (split), or takes it from one (fuse)
    """

    def __init__(self, tree: Structure) -> None:
        self.relation: dict[IterVar, SplitRelation | FuseRelation] = {}
        self.reads: dict[Node, list[Touch]] = {}
        self.write: dict[Node, Touch] = {}
        self.axis_of: dict[Expr, IterVar] = {}
        for node in tree.nodes:
            for r in node.stage.relations:
                if isinstance(r, SplitRelation):
                    self.relation[r.parent] = r
                else:
                    self.relation[r.outer] = self.relation[r.inner] = r
            self.axis_of |= {ax.var: ax for ax in (*node.op.axis, *node.op.reduce_axis)}
        for node in tree.nodes:
            self.reads[node] = [
                self._touch(tree, node, e.attr, e.args, write=False)
                for e in dict.fromkeys(n for n in E.walk(node.body) if n.op == "read")
            ]
            index = tuple(ax.var for ax in node.op.axis)
            self.write[node] = self._touch(tree, node, node.stage.tensor, index, write=True)

    def _touch(
        self, tree: Structure, node: Node, tensor: Tensor, index: tuple[Expr, ...], *, write: bool
    ) -> Touch:
        producer = node if write else tree.of_stage.get(tree.schedule[tensor])
        used = {v for v in E.free_variables(*index) if v in self.axis_of}
        axes = frozenset(self.axis_of[v] for v in used)
        return Touch(node, tensor, producer, tuple(index), write, axes)


_known: weakref.WeakKeyDictionary[Structure, Anatomy] = weakref.WeakKeyDictionary()


def anatomy(tree: Structure) -> Anatomy:
    found = _known.get(tree)
    if found is None:
        found = _known[tree] = Anatomy(tree)
    return found


def whole_work(node: Node) -> int:
    """Iterations of the node's computation, each element once."""
    work = 1
    for ax in (*node.op.axis, *node.op.reduce_axis):
        work *= int(ax.extent or 1)
    return work


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
        if axis.kind != "spatial" or node.parent is None:
            return value
        return value + self.base(self.bounds.base[node][node.op.axis.index(axis)])

    def index(self, touch: Touch, dim: int) -> Any:
        """Position in one dimension, counted from the start of the stored region."""
        value = self._evaluate(touch.index[dim], touch.node)
        if touch.producer is not None and touch.producer.parent is not None:
            start = self.base(self.bounds.base[touch.producer][dim])
            return value if _nothing(start) else value - start
        return value

    def address(self, touch: Touch) -> Any:
        """Flat position in the buffer, in elements."""
        total: Any = 0
        for dim, stride in enumerate(strides(self.bounds, touch)):
            value = self.index(touch, dim)
            if not _nothing(value):
                total = total + value * self.convert(stride)
        return total

    def _evaluate(self, e: Expr, node: Node) -> Any:
        if e.op == "var":
            axis = self.anatomy.axis_of.get(e)
            return 0 if axis is None else self.coordinate(node, axis)
        if e.op == "const":
            return e.attr
        if e.op == "cast":
            return self._evaluate(e.args[0], node)
        rule = _INDEX_RULES.get(e.op)
        if rule is None:  # a computed index: where it points is not known
            return 0
        return rule(self._evaluate(e.args[0], node), self._evaluate(e.args[1], node))


class Steps(Point):
    """The same as if nothing lay around the stage: enough to tell how far its own loops go."""

    def coordinate(self, node: Node, axis: IterVar) -> Any:
        return self.axis(axis)

    def index(self, touch: Touch, dim: int) -> Any:
        return self._evaluate(touch.index[dim], touch.node)


_INDEX_RULES: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": floor_div,
    "floormod": floor_mod,
    "min": np.minimum,
    "max": np.maximum,
}


def strides(bounds: Bounds, touch: Touch) -> list[Number]:
    """Strides of the buffer that is touched, in elements."""
    if touch.producer is not None:
        return bounds.strides(touch.producer)
    result: list[Number] = []
    step = 1
    for size in reversed(touch.tensor.shape):
        result.append(step)
        step *= size
    return result[::-1]


def shape(bounds: Bounds, touch: Touch) -> list[Number]:
    """Extents of the buffer that is touched."""
    return bounds.region(touch.producer) if touch.producer is not None else list(touch.tensor.shape)


def moves(bounds: Bounds, touch: Touch) -> frozenset[IterVar]:
    """Leaf axes whose steps change the address, as far as the structure tells."""
    leaves: set[IterVar] = set()
    for atom in atoms(bounds, touch):
        leaves |= bounds.tree.leaves_under[atom]
    if touch.producer is not None and touch.producer.parent is not None:
        leaves -= touch.producer.points
    return frozenset(leaves)


def atoms(bounds: Bounds, touch: Touch) -> set[IterVar]:
    """Axes that the address is computed from: root axes of the node, parts of axes around it."""
    found: set[IterVar] = set(touch.axes)
    for axis in touch.axes:
        if axis.kind == "spatial" and touch.node.parent is not None:
            _collect(bounds.base[touch.node][touch.node.op.axis.index(axis)], found)
    return found


def _collect(base: Base, into: set[IterVar]) -> None:
    for atom in base.terms:
        if isinstance(atom, Quotient):
            _collect(atom.base, into)
        else:
            into.add(atom)


# -- lanes of one warp -----------------------------------------------------------------------------

_LANE = np.arange(WARP, dtype=np.int8)
_NO_BANK = np.arange(2 * WARP, 3 * WARP, dtype=np.int32)  # repeated words: a group of their own
_ONES = np.ones(WARP - 1, np.float32)


class Lanes:
    """The first warp of a block of a kernel: which lanes run, and what they address.

    launch: extent of each thread tag
    """

    def __init__(self, bounds: Bounds, launch: Mapping[str, Number], rows: int) -> None:
        self.bounds, self.rows = bounds, rows
        lane = np.arange(WARP, dtype=np.float32)[None, :]
        self.value: dict[str, Any] = {}
        for tag in ("threadIdx.x", "threadIdx.y", "threadIdx.z"):
            extent = column(launch.get(tag, 1))
            self.value[tag] = 0 if _nothing(extent - 1) else floor_mod(lane, extent)
            lane = floor_div(lane, extent)
        self.running = lane < 1  # lanes beyond the block's threads
        self.tag_of = bounds.tree.tag_of
        leaves = {ax: self.value[t] for ax, t in self.tag_of.items() if t in self.value}
        self._point = Point(bounds, leaves, column)
        self._addresses: dict[Touch, Any] = {}

    def address(self, touch: Touch) -> Any:
        """Flat positions of all lanes, in elements: [n or 1, 32 or 1], or one number."""
        found = self._addresses.get(touch)
        if found is None:
            found = self._addresses[touch] = self._point.address(touch)
        return found

    def active(self, node: Node) -> Array:
        """bool [n or 1, 32]: lanes inside the node's own thread extents."""
        mask: Array = self.running
        for ax, tag in node.stage.binds.items():
            if tag in self.value and not _nothing(self.value[tag]):
                mask = mask & (self.value[tag] < column(self.bounds.extent[ax]))
        return mask

    def words(self, touch: Touch, word_bytes: int, rows: Array | None = None) -> Array | None:
        """Sorted numbers of the words of `word_bytes` that the lanes address, float32 [n, 32].

        Idle lanes repeat lane 0.  None where all lanes address one word.
        rows: indices of the candidates that matter; None for all
        """
        address = self.address(touch)
        if not isinstance(address, np.ndarray) or address.shape[1] == 1:
            return None
        address = np.where(self.active(touch.node), address, address[:, :1])
        if address.shape[0] != self.rows:
            address = np.broadcast_to(address, (self.rows, WARP))
        if rows is not None:
            address = address[rows]
        if word_bytes != touch.bytes:
            address = np.floor(address * np.float32(touch.bytes / word_bytes))
        return np.sort(address, axis=1)

    def alignment(self, touch: Touch) -> Any:
        """The greatest of 4, 2, 1 elements that divides the addresses of all lanes."""
        address = self.address(touch)
        if not isinstance(address, np.ndarray):
            return math.gcd(int(address), 4)
        bits = np.bitwise_or.reduce(address.astype(np.int32), axis=1)
        return np.where(bits & 3 == 0, 4, np.where(bits & 1 == 0, 2, 1))

    def sectors(self, touch: Touch) -> Any:
        """Memory sectors of one request of the warp: 1 (all lanes alike) to 32."""
        words = self.words(touch, SECTOR_BYTES)
        if words is None:
            return 1.0
        return 1.0 + ((words[:, 1:] != words[:, :-1]).astype(np.float32) @ _ONES).astype(np.float64)

    def wavefronts(self, touch: Touch, width: int, rows: Array | None = None) -> Any:
        """Passes of shared memory that one request takes, for accesses of `width` elements.

        Each pass serves one word of `width` banks from each group of banks, so the greatest number
        of distinct words in a group counts.
        """
        words = self.words(touch, max(BANK_BYTES, touch.bytes) * width, rows)
        if words is None:
            return 1.0
        new = np.ones(words.shape, bool)
        np.not_equal(words[:, 1:], words[:, :-1], out=new[:, 1:])
        groups = max(1, WARP // width)  # a power of two, as accesses are
        group = np.where(new, words.astype(np.int32) & (groups - 1), _NO_BANK)
        group.sort(axis=1)
        first = np.zeros(group.shape, np.int8)  # lane where the run of equal groups began
        np.multiply(group[:, 1:] != group[:, :-1], _LANE[1:], out=first[:, 1:])
        np.maximum.accumulate(first, axis=1, out=first)
        return 1.0 + (_LANE - first).max(axis=1).astype(np.float64)
