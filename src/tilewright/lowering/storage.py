"""Where tensors live: the buffer of each, and the strides of what is kept of it.

In: a `LoopTree` and its `Bounds` (ints).  Out: `Storage`, immutable; a changed one is another one.
Read next: `placement.py`.

What the lanes of a warp hold together is a local buffer of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilewright.base.dtype import DType
from tilewright.ir.stmt import Buffer
from tilewright.ir.swizzle import period
from tilewright.ir.symbols import number, plain
from tilewright.schedule.scopes import SCOPES
from tilewright.schedule.space.decision import ceil_div
from tilewright.schedule.tree import joins
from tilewright.schedule.tree.layout import Layout, Strided
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree, Node
from tilewright.schedule.tree.rings import slot_elements, slots, swizzle
from tilewright.te.tensor import Tensor


@dataclass(frozen=True, eq=False)
class Storage:
    """buffers: of every tensor that is stored; layouts: of the buffer of a stage, of one tile of it
    where it is joined; counters: of the blocks that compute one; second: of the smaller parts of
    numbers of two"""

    buffers: Mapping[Tensor, Buffer]
    layouts: Mapping[Node, Layout]
    counters: Mapping[Node, Buffer] = field(default_factory=dict)
    second: Mapping[Node, Buffer] = field(default_factory=dict)

    def of(self, node: Node) -> tuple[Buffer, ...]:
        """Of each tensor of a stage."""
        return tuple(self.buffers[tensor] for tensor in node.stage.tensors)

    def strides_of(self, tensor: Tensor, producer: Node | None) -> tuple[Any, ...]:
        """Of `tensor`, which the nest `producer` stores; None for an input, and for what statements
        made."""
        if producer is None:
            return row_major(tensor.shape)
        layout = self.layouts[producer]
        assert isinstance(layout, Strided)  # of a fragment, readers ask for lanes and tiles
        return layout.strides

    def grown(self, sizes: Mapping[Tensor, int]) -> Storage:
        """The same with other numbers of elements."""
        new = {t: replace(self.buffers[t], size=size, swizzle=0) for t, size in sizes.items()}
        return replace(self, buffers={**self.buffers, **new})

    def with_room(self, node: Node, tree: LoopTree, bounds: Bounds) -> Storage:
        """The same with an element for every iteration of `node`, also those beyond its extents."""
        shape = tuple(int(bounds.reach[ax]) for ax in node.op.axis)
        grown = {
            tensor: replace(self.buffers[tensor], size=math.prod(shape), shape=shape, swizzle=0)
            for tensor in node.stage.tensors
        }
        layout = Strided(row_major(shape, tree.storage_order(node)), math.prod(shape))
        layouts = {**self.layouts, node: layout}
        return replace(self, buffers={**self.buffers, **grown}, layouts=layouts)


def store_tensors(tree: LoopTree, bounds: Bounds) -> Storage:
    """A buffer for every input and every stage that is not inlined."""
    buffers: dict[Tensor, Buffer] = {}
    whole = [(op.output_tensor, op.name) for op in tree.schedule.dag.placeholders]
    for stage in tree.opaque:
        whole += zip(stage.tensors, stage.buffer_names, strict=True)
    for tensor, own in whole:
        size = number(math.prod(tensor.shape), bounds.symbols)
        buffers[tensor] = Buffer(own, tensor.dtype, size, "global", tensor.shape)
    for node in tree.nodes:
        shape = tuple(plain(e) for e in bounds.region(node))
        size, packing = plain(bounds.elements(node)), None
        source = tree.prepacked.get(node)
        if source is not None:
            packing = node.op.attrs["packing"]
        held = slots(node, bounds)
        if held > 1:
            size, shape = slot_elements(node, bounds) * held, (held, *shape)
        if node.joined:
            count = plain(joins.tiles(node, bounds))
            size, shape = number(size * count, bounds.symbols), (count, *shape)
        if node.parent is None and 0 in node.op.shape:  # of which bounds count one element
            size, shape = 0, node.op.shape
        stage = node.stage
        for tensor, own, dtype in zip(
            stage.tensors, stage.buffer_names, stage.op.dtypes, strict=True
        ):
            kind = dtype if node.product is None else node.op.accumulator
            scope, turned = SCOPES[node.scope].memory, swizzle(node, bounds)
            room = ceil_div(size * kind.bytes, period(turned)) * period(turned) if turned else 0
            count = room // kind.bytes if turned else size
            ring = max(held, 1)
            buffers[tensor] = Buffer(own, kind, count, scope, shape, packing, ring, turned)
        if source is not None:
            buffers[source] = buffers[stage.tensor]  # the argument is the packed constant
    second = {
        node: replace(buffers[node.stage.tensor], name=f"{node.name}.small")
        for node in tree.nodes if node.parts > 1
    }  # fmt: skip
    counts = {node: _counters(node, bounds) for node in tree.nodes if node.joined}
    return Storage(buffers, {node: _layout(node, bounds) for node in tree.nodes}, counts, second)


def _counters(node: Node, bounds: Bounds) -> Buffer:
    """What counts the blocks of each tile of a joined stage."""
    count = number(joins.tiles(node, bounds), bounds.symbols)
    return Buffer(f"{node.name}.come", DType("int32"), count, "global", (count,))


def _layout(node: Node, bounds: Bounds) -> Layout:
    layout = bounds.layout(node)
    if isinstance(layout, Strided):
        return Strided(tuple(map(plain, layout.strides)), plain(layout.size))
    return replace(layout, shape=tuple(map(plain, layout.shape)))


def row_major(shape: Sequence[int], order: Sequence[int] | None = None) -> tuple[int, ...]:
    """Strides of a dense array; order: its dimensions, outermost first."""
    strides, step = [1] * len(shape), 1
    for d in reversed(range(len(shape)) if order is None else order):
        strides[d] = step
        step *= shape[d]
    return tuple(strides)
