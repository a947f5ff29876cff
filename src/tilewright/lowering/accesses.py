"""Reads and writes of a kernel: flat indices into buffers.

In: a `Placement` and a `Storage`.  Out: `Accesses`, which turns `te` expressions of a stage into
lowered ones and knows which buffers it met.  Read next: `guards.py`, `products.py`.

An asynchronous copy reads and writes like any other stage, in its slot: what differs is when its
result may be read, which is the matter of `ring.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer, load
from tilewright.ir.symbols import is_symbol, plain
from tilewright.lowering.joins import tile
from tilewright.lowering.placement import Placement
from tilewright.lowering.storage import Storage
from tilewright.schedule.tree.layout import Fragments
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.products import Operand
from tilewright.schedule.tree.rings import slot_elements, slots


class Accesses:
    """What the stages of one kernel read and write.

    products: what some products are computed by, see `products.py`
    used: the buffers met so far, in order; those in global memory are the kernel's parameters
    """

    def __init__(
        self, place: Placement, storage: Storage, products: Mapping[Expr, Expr] | None = None
    ) -> None:
        self.place, self.storage, self.products = place, storage, products or {}
        self.used: dict[Buffer, None] = {}

    def at(self, place: Placement) -> Accesses:
        """The same elsewhere; what is used counts for both."""
        other = Accesses(place, self.storage, self.products)
        other.used = self.used
        return other

    def value(self, node: Node, expression: Expr) -> Expr:
        """An expression of `node` over leaf variables, reads turned into loads, conditions
        simplified."""
        simplify = self.place.simplify

        def rule(e: Expr) -> Expr | None:
            if e.op == "read":
                return self._read(e)
            return simplify(e) if e.dtype == "bool" else None

        rounded = E.substitute(expression, self.products)
        return E.transform(E.substitute(rounded, self.place.coordinates(node)), rule)

    def targets(self, node: Node) -> tuple[Buffer, ...]:
        """The buffers that `node` stores to, one for each of its tensors."""
        buffers = self.storage.of(node)
        self.used |= dict.fromkeys(buffers)
        return buffers

    def counters(self, node: Node) -> Buffer:
        """What counts the blocks of a joined stage."""
        buffer = self.storage.counters[node]
        self.used[buffer] = None
        return buffer

    def store_index(self, node: Node) -> Expr:
        return self._flat(node, [self.place.coordinate(node, ax) for ax in node.op.axis])

    def _read(self, node: Expr) -> Expr:
        buffer = self.storage.buffers[node.attr]
        self.used[buffer] = None
        producer = self.place.producer(node)
        args = [self._inside(i, size) for i, size in zip(node.args, node.attr.shape, strict=True)]
        if producer is not None and producer.parent is not None:
            if producer.held is not None:
                return self._held(producer, buffer, args, node)
            return load(buffer, self._flat(producer, args))
        flat = E.const(0)
        strides = self.storage.strides_of(node.attr, producer)
        for index, stride in zip(reversed(args), reversed(strides), strict=True):
            flat = index * stride + flat
        return load(buffer, self.place.simplify(flat))

    def has_room(self, node: Node, read: Expr) -> list[bool]:
        """Per dimension, whether the buffer of `read`'s producer holds all that `node` reads."""
        producer = self.place.producer(read)
        assert producer is not None
        mapping, simplify = self.place.coordinates(node), self.place.simplify
        index = self._relative(producer, [E.substitute(i, mapping) for i in read.args])
        ends = map(simplify.interval, index)
        region = self.place.bounds.region(producer)
        return [bool(low >= 0 and high < n) for (low, high), n in zip(ends, region, strict=True)]

    def _inside(self, index: Expr, size: Any) -> Expr:
        """`index`, limited to a dimension of `size` elements where it depends on what is loaded.

        Data may hold anything: the reference refuses what leaves a tensor, no kernel reads it.  A
        dimension read so is stored whole (`schedule/tree/access.py`).
        """
        if not any(n.op == "load" or self._is_free(n) for n in E.walk(index)):
            return index
        least, most = self.place.simplify.interval(index)
        if isinstance(size, Expr) or most >= size:
            index = E.minimum(index, E.convert(size - 1, index))
        return index if least >= 0 else E.maximum(index, E.const(0, index.dtype))

    def _is_free(self, node: Expr) -> bool:
        """A scalar argument, which may be any integer."""
        return is_symbol(node) and node not in self.place.simplify.ranges

    def _flat(self, node: Node, index: Sequence[Expr]) -> Expr:
        """Flat position in the node's buffer of an index into its whole tensor: of a ring, in the
        slot of the iteration that it is computed in; of a joined stage, in the block's tile."""
        flat = E.convert(self.storage.layouts[node].place(self._relative(node, index)))
        flat = flat + self.slot_begin(node)
        if node.joined:
            flat = flat + tile(node, self.place) * plain(self.place.bounds.elements(node))
        return self.place.simplify(flat)

    def slot_begin(self, node: Node) -> Expr:
        """Where in a ring the slot of an iteration begins; 0 where the stage has none."""
        held, axis = slots(node, self.place.bounds), node.attach_axis
        if held <= 1 or axis is None:
            return E.const(0)
        each = plain(slot_elements(node, self.place.bounds))
        return E.convert(self.place.leaf[axis] % held * each)

    def _relative(self, node: Node, index: Sequence[Expr]) -> list[Expr]:
        bases = self.place.region_base[node]
        return [i - base for i, base in zip(index, bases, strict=True)]

    # -- what a warp holds -------------------------------------------------------------------------
    def tile(self, node: Node) -> Expr:
        """Where a lane keeps the first element of the tile that an iteration of `node` begins."""
        return self._tile(node, [self.place.coordinate(node, ax) for ax in node.op.axis], node.name)

    def tile_read(self, node: Node, operand: Operand) -> tuple[Buffer, Expr]:
        """The same of the tile of an operand that an atom of `node` multiplies, and its buffer."""
        mapping = self.place.coordinates(node)
        index = [E.substitute(i, mapping) for i in operand.read.args]
        buffer = self.storage.buffers[operand.read.attr]
        self.used[buffer] = None
        if operand.held.atom.by_group:
            return buffer, self._flat(operand.node, index)
        return buffer, self._tile(operand.node, index, node.name)

    def _tile(self, node: Node, index: Sequence[Expr], reader: str) -> Expr:
        simplify, held = self.place.simplify, node.held
        assert held is not None
        relative = [simplify(i) for i in self._relative(node, index)]
        for dim, letter in held.letters:
            rest = simplify(relative[dim] % held.tile(dim))
            if rest.op != "const" or rest.attr:
                raise ScheduleError(
                    f"stage {node.name}",
                    f"an atom of {reader} begins {rest} elements inside a tile, along"
                    f" {node.op.axis[dim].name} ({letter})",
                    "Compute it inside the loops that shift it, or split by multiples of the atom.",
                )  # fmt: skip
        return simplify(E.convert(self.storage.layouts[node].place(relative)))

    def _held(self, node: Node, buffer: Buffer, index: Sequence[Expr], read: Expr) -> Expr:
        """An element that a lane of the warp holds, read by that lane."""
        layout, simplify = self.storage.layouts[node], self.place.simplify
        assert isinstance(layout, Fragments)
        relative = [simplify(i) for i in self._relative(node, index)]
        own = self.place.lane(layout.held.atom)
        lane = own if layout.held.atom.by_thread else simplify(layout.lane(relative, own))
        if lane is not own:
            raise ScheduleError(
                f"read of {node.name}",
                f"lane {lane} of the warp holds the element, but {own} reads it",
                "Split m by 8 and n by 2 and 4, fuse (8, 4) and bind them to threadIdx.x, as"
                " schedule.thread_loops.lanes does.",
            )  # fmt: skip
        place = simplify(E.convert(layout.place(relative)))
        return E.cast(read.dtype, load(buffer, place))
