"""What kernels take of their device, inferred once: threads, memory, registers, written-out loops.

In: `Bounds` (ints or vectors) and a `Target`.  Out: `Resources`, one `KernelResources` per kernel;
masks, facts, features and models read it, and lowering takes `pragma_in_force` from here.
Read next: `legality.py` (masks), `cost/nest.py` (facts).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.base.concurrency import cached_property
from tilewright.base.dtype import DType
from tilewright.ir import expr as E
from tilewright.ir.atoms import WARP
from tilewright.ir.stmt import SHARED_ALIGNMENT, Allocate, statements
from tilewright.ir.symbols import number
from tilewright.schedule.scopes import in_registers
from tilewright.schedule.space.decision import (
    Number,
    ceil_div,
    evaluate,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    same,
    where,
)
from tilewright.schedule.tree.accumulators import (
    accumulator_axes,
    accumulator_elements,
    exchanges,
    first_reduction,
    has_accumulator,
    held_axes,
    reduces_across_threads,
)
from tilewright.schedule.tree.chains import Chains, block_elements, chains
from tilewright.schedule.tree.loop_tree import Bounds, Node
from tilewright.schedule.tree.rings import (
    ahead,
    alignment,
    gate_bytes,
    is_asynchronous,
    lag,
    loaders,
    slots,
)
from tilewright.schedule.tree.touch import anatomy, moves
from tilewright.targets.target import Target
from tilewright.te.opaque import Launch, OpaqueOp
from tilewright.te.tensor import IterVar

BASE_REGISTERS = 24  # of a thread beside its arrays: addresses, loop counters, operands in flight
REGISTER_BYTES = 4  # of a GPU


def pragma_in_force(node: Node, axis: IterVar, assignment: Mapping[str, Number]) -> Number:
    """auto_unroll_max_step at the loop `axis` of `node`: of the nearest pragma on it or on a loop
    around it, 0 without one.  A pragma on a loop that was split since holds for the whole stage."""
    entry = node.stage.pragmas.get("auto_unroll_max_step")
    leaves = node.stage.leaf_iter_vars
    if entry is not None and (
        entry[0] not in leaves or leaves.index(entry[0]) <= leaves.index(axis)
    ):
        return evaluate(entry[1], assignment)
    if node.parent is None or node.attach_axis is None:
        return 0
    return pragma_in_force(node.parent, node.attach_axis, assignment)


def _shared_in(launch: Launch) -> int:
    """Bytes of shared memory that statements allocate."""
    made = (s.buffer for s in statements(launch.body) if isinstance(s, Allocate))
    sizes = (b.size * b.dtype.bytes for b in made if b.scope == "shared")
    return sum(int(_aligned(n)) for n in sizes if isinstance(n, int))


@dataclass(frozen=True, eq=False)
class Text:
    """How the loops of one stage appear in the text of its kernel.

    steps:   innermost statements that the stage, with all computed inside it, runs; `within`: those
             of each loop that stays one unless it is written out (a leaf axis without thread or
             vector), as the rules of unrolling count them
    asked:   leaf axis -> whether somebody asked to write the loop out, by an annotation or a pragma
    written: innermost statements in the text when that is done
    """

    steps: Number
    within: dict[IterVar, Number]
    asked: dict[IterVar, Any]
    written: Number


class Resources:
    """Of all kernels of a schedule, under one assignment: compute it once and pass it."""

    def __init__(self, bounds: Bounds, target: Target) -> None:
        self.bounds, self.target = bounds, target
        self.kernels = [KernelResources(bounds, target, root) for root in bounds.tree.roots]
        self.opaque = [OpaqueResources(bounds, op) for op in bounds.tree.opaque.values()]


class OpaqueResources:
    """Of the kernels of one stage of statements, the most that one asks for."""

    def __init__(self, bounds: Bounds, op: OpaqueOp) -> None:
        launches = op.script.launches
        self.launch: dict[str, Number] = {}
        for t in (t for launch in launches for t in launch.threads):
            most = maximum(self.launch.get(t.tag, 1), t.extent)
            self.launch[t.tag] = number(most, bounds.symbols)
        self.threads = _threads(self.launch)
        self.shared_bytes = max(map(_shared_in, launches), default=0)


class KernelResources:
    """Of one kernel: a root stage and everything computed inside it (`nodes`, producers first)."""

    def __init__(self, bounds: Bounds, target: Target, root: Node) -> None:
        self.bounds, self.target, self.root = bounds, target, root
        self.nodes = bounds.tree.subtree(root)
        self._texts: dict[Node, Text] = {}
        self._elements: dict[Node, Number] = {}
        self._chains: dict[Node, Chains] = {}

    # -- threads and memory ------------------------------------------------------------------------
    @cached_property
    def launch(self) -> dict[str, Number]:
        """Extent of each block and thread tag."""
        return self.bounds.launch(self.root)

    @cached_property
    def threads(self) -> Number:
        """Threads of a block."""
        return _threads(self.launch)

    @cached_property
    def loading_threads(self) -> Number:
        """Threads of a block beside `threads` that do nothing but load."""
        tags = [tag for tag in self.launch if tag.startswith("threadIdx")]
        own: Number = 0
        for node in self.nodes:
            own = maximum(own, loaders(node, self.bounds))
        if not tags or (isinstance(own, int) and own == 0):
            return 0
        row = self.threads // self.launch[max(tags)]
        rows: Number = ceil_div(own * WARP, row)
        return rows * row

    @cached_property
    def shared_bytes(self) -> Number:
        """Bytes of a block: buffers, all slots of rings, and the boards on which threads add up a
        shared reduction."""
        total: Number = 0
        alone = not any(reduces_across_threads(node) for node in self.nodes)
        shared = [node for node in self.nodes if node.scope == "shared"]
        alone = alone and all(not same(node.stage.swizzled, 0) for node in shared)
        alone = alone and not any(node.stage.is_bulk for node in shared)  # nor gates
        for node in shared:
            begin = alignment(node, self.bounds)
            own = self._shared(node, self.bounds.elements(node), begin) * node.parts
            total = total + own * maximum(slots(node, self.bounds), 1)
            if not alone:  # behind a buffer that may end anywhere
                total = total + (begin - SHARED_ALIGNMENT)
            if node.view is not None:
                total = total + gate_bytes(node, self.bounds)
        for node in self.nodes:
            if reduces_across_threads(node) and not exchanges(node):
                kinds = node.op.accumulators
                total = total + self._shared(node, self.threads, SHARED_ALIGNMENT, kinds)
        return total

    def _shared(
        self, node: Node, count: Number, unit: Number, kinds: Sequence[DType] | None = None
    ) -> Number:
        """Bytes of a buffer of `count` elements for each tensor of a stage, in whole units."""
        return sum(_aligned(count * kind.bytes, unit) for kind in kinds or node.op.dtypes)

    @cached_property
    def local_words(self) -> Number:
        """Registers of a thread that its local values fill, one or more for each."""
        total: Number = 0
        for node in self.nodes:
            values = self._accumulators(node)
            if node.held is not None:  # halves share a register
                held = self.copies_of(node) * node.held.fragment.dtype.bytes
                if node.product is None:
                    held = held * node.held.atom.parts
                total = total + ceil_div(held, REGISTER_BYTES)
            elif in_registers(node.scope):
                values = [*values, *((self.copies_of(node), kind) for kind in node.op.dtypes)]
            for count, dtype in values:
                total = total + count * ceil_div(dtype.bytes, REGISTER_BYTES)
        return total

    @property
    def registers(self) -> Number:
        """Registers of a thread, as far as can be told before a compiler has seen it."""
        return self.local_words + BASE_REGISTERS

    @cached_property
    def stack_bytes(self) -> Number:
        """Scratch arrays of a thread of a CPU."""
        total: Number = 0
        for node in self.nodes:
            if node.parent is not None:
                total = total + self.copies_of(node) * node.op.bytes
            for count, dtype in self._accumulators(node):
                total = total + count * dtype.bytes
        return total

    def copies_of(self, node: Node) -> Number:
        """Elements of the node's buffer, in all its copies for virtual threads."""
        if node not in self._elements:
            self._elements[node] = self.bounds.elements(node) * self.bounds.replicas(node)
        return self._elements[node]

    def _accumulators(self, node: Node) -> list[tuple[Number, DType]]:
        """What each thread keeps of a reduction beside the buffer of its stage."""
        found = [
            (block_elements(node, self.bounds, block), kind)
            for block in self.chains(node).blocks
            for kind in node.op.accumulators
        ]
        if reduces_across_threads(node):
            found += [(1, kind) for kind in node.op.accumulators]
        elif has_accumulator(node):
            found += [(accumulator_elements(node, self.bounds), node.op.accumulator)]
        return found

    def chains(self, node: Node) -> Chains:
        """Return how the node adds up long sums."""
        if node not in self._chains:
            self._chains[node] = chains(node, self.bounds)
        return self._chains[node]

    @property
    def longest_chain(self) -> Number:
        """Terms that one accumulator takes in turn, of the sums that may be long."""
        longest: Number = 1
        for node in self.nodes:
            longest = maximum(longest, self.chains(node).longest)
        return longest

    @cached_property
    def vector_registers(self) -> Number:
        """Vector registers of the busiest register tile of a CPU; 0 without one."""
        most: Number = 0
        for node in self.nodes:
            if node.op.combiner is not None and node.scope == "local":
                own = self._vectors(node)
                most = where(own > most, own, most)
        return most

    def _vectors(self, node: Node) -> Number:
        """Vector registers in the innermost nest of a local reduction: an accumulator per element
        of the loops inside the reduction, the vectors these loops read again, and one operand in
        flight."""
        bounds, tree = self.bounds, self.bounds.tree
        leaves = node.stage.leaf_iter_vars
        first = first_reduction(node)
        inside = node.stage.inside  # an atom, whose sums are neighbours
        inner = [ax for ax in leaves[first:] if ax.kind == "spatial" and ax not in inside]
        lanes = [ax for ax in inner if node.stage.annotations.get(ax) == "vectorize"]
        width: Number = node.op.accumulator.compute.bytes
        if node.product is not None:
            width = width * node.product.atom.sum.elements
        for ax in lanes:
            width = width * bounds.extent[ax]
        unit: Number = ceil_div(width, self.target.limits.vector_bytes)
        loops = [ax for ax in inner if ax not in lanes]

        def vectors(roots: set[IterVar]) -> Number:
            count = unit
            for ax in loops:
                if any(ax in tree.leaves_under[r] for r in roots):
                    count = count * bounds.extent[ax]
            return count

        total = vectors(set(node.op.axis)) + 1
        for touch in anatomy(tree).reads[node]:
            roots = {ax for ax in touch.axes if ax.kind == "spatial"}
            if any(ax in tree.leaves_under[r] for r in roots for ax in lanes):
                total = total + vectors(roots)
        return total

    @cached_property
    def iterations(self) -> int:
        """Iterations of the stages in the kernel, each computed once as a whole."""
        axes = [(*node.op.axis, *node.op.reduce_axis) for node in self.nodes]
        return sum(prod(ax.extent or 1 for ax in own) for own in axes)

    @property
    def vectors(self) -> list[tuple[Node, Number]]:
        """Stages with vectorized loops, and the lanes of these."""
        return [
            (node, self.bounds.extent[ax])
            for node in self.nodes
            for ax, how in node.stage.annotations.items()
            if how == "vectorize"
        ]

    # -- the text ----------------------------------------------------------------------------------
    @cached_property
    def body(self) -> Number:
        """Innermost statements in the text, once the unrolling that somebody asked for is done."""
        return self.text(self.root).written

    def text(self, node: Node) -> Text:
        if node not in self._texts:
            self._texts[node] = self._text(node, 1)
        return self._texts[node]

    def written_out(self, node: Node, lanes: Number = 1) -> dict[IterVar, Any]:
        """Leaf axis -> whether the text repeats the loop: it was asked for, or the loop indexes a
        register tile (`register_axes`) and is no longer than the target's longest body.

        lanes: statements that the stage's vectorized loop becomes, more than one where it is no
               vector after all
        """
        text = self.text(node) if isinstance(lanes, int) and lanes == 1 else self._text(node, lanes)
        found = dict(text.asked)
        for ax, steps in text.within.items():
            if ax in self.register_axes and node.stage.annotations.get(ax) != "parallel":
                small = steps <= self.target.limits.max_unrolled_body
                found[ax] = logical_or(found[ax], logical_and(small, self.register_axes[ax]))
        return found

    @cached_property
    def register_axes(self) -> dict[IterVar, Any]:
        """Leaf axes that index local buffers small enough for registers -> whether they do.  Such a
        buffer lives in registers only where all its indices are constants."""
        found: dict[IterVar, Any] = {}
        known = anatomy(self.bounds.tree)
        room = self.target.limits.register_bytes
        for node in self.nodes:
            for touch in (*known.reads[node], known.write[node]):
                if touch.producer is None or not in_registers(touch.scope):
                    continue
                small = self.copies_of(touch.producer) * touch.bytes <= room
                for ax in moves(self.bounds, touch):
                    found[ax] = logical_or(found[ax], small) if ax in found else small
            held = accumulator_elements(node, self.bounds) * node.op.accumulator.bytes
            for ax in accumulator_axes(node):
                found[ax] = logical_or(found.get(ax, False), held <= room)
            for block in self.chains(node).blocks:
                held = block_elements(node, self.bounds, block) * node.op.accumulator.bytes
                small = logical_and(block.made, held <= room)
                for ax in held_axes(node, block.at):
                    found[ax] = logical_or(found.get(ax, False), small)
        return found

    def _text(self, node: Node, lanes: Number) -> Text:
        if node.view is not None:  # its loops are not run
            leaves = node.stage.leaf_iter_vars
            return Text(1, dict.fromkeys(leaves, 1), dict.fromkeys(leaves, False), 1)
        extents, stage = self.bounds.extent, node.stage
        leaves = stage.leaf_iter_vars
        copies = self.bounds.replicas(node)  # virtual threads sink to the innermost statements
        for ax, tag in stage.binds.items():
            if tag == "vthread":
                copies = copies * extents[ax]
        first = -1  # the loop in front of which a reduction starts its results
        if node.op.combiner is not None:
            first = first_reduction(node)
        start: Number = copies * 2 if has_accumulator(node) else copies
        if node.product is not None:
            start = copies * node.product.atom.sum.elements
        if reduces_across_threads(node):
            start = self._board_stores(node)
        start_written = start
        ends = ends_written = copies * 2  # a block of a long sum starts, and is added to the rest
        blocks = {block.at: block.made for block in self.chains(node).blocks}
        steps = written = copies * self._stores(node)
        within: dict[IterVar, Number] = {}
        asked: dict[IterVar, Any] = {}
        for k in reversed(range(len(leaves))):
            ax = leaves[k]
            if node.stage.inside_atom(ax):
                continue
            front: Number = 0  # of rings: the copies before the loop
            front_written: Number = 0
            for child in node.children:
                if child.attach_axis is ax:
                    inside = self.text(child)
                    again: Number = 1  # whether the loop has the copies, too
                    if child.stage.is_copied:
                        behind = lag(node, ax, self.bounds)
                        early = ahead(child, behind, self.bounds)
                        again = where(early < maximum(slots(child, self.bounds), 1), 1, 0)
                        front = front + early * inside.steps
                        front_written = front_written + minimum(early, 1) * inside.written
                    steps, written = steps + again * inside.steps, written + again * inside.written
            tag, how = stage.binds.get(ax, ""), stage.annotations.get(ax, "")
            if tag == "vthread":
                asked[ax] = True
            elif how == "vectorize" and not tag:
                steps, written, asked[ax] = steps * lanes, written * lanes, True
                start, start_written = start * lanes, start_written * lanes
                ends, ends_written = ends * lanes, ends_written * lanes
            elif not tag:
                extent = self.bounds.trips(node, ax)
                steps = steps * extent
                within[ax] = steps
                asked[ax] = self._asked(node, ax, how, steps)
                written = written * where(asked[ax], extent, 1)
                if k > first and ax.kind == "spatial":
                    start = start * extent
                    start_written = start_written * where(asked[ax], extent, 1)
                    ends = ends * extent
                    ends_written = ends_written * where(asked[ax], extent, 1)
            steps, written = steps + front, written + front_written
            if k in blocks:
                steps = steps + where(blocks[k], ends, 0)
                written = written + where(blocks[k], ends_written, 0)
            if k == first:
                steps, written = steps + start, written + start_written
        return Text(steps, within, asked, written)

    def _asked(self, node: Node, ax: IterVar, how: str, steps: Number) -> Any:
        if how == "unroll":
            return True
        alone = self.bounds.trips(node, ax) == 1
        limit = pragma_in_force(node, ax, self.bounds.assignment)
        if how == "parallel" or (isinstance(limit, int) and limit == 0):
            return alone
        return logical_or(alone, steps <= limit)

    def _stores(self, node: Node) -> Number:
        """Statements of one iteration: a copy that may be one of nothing, or of a padding's zero,
        reads first and then writes under its guard; a lane fills a tile element by element."""
        if node.held is not None and node.product is None:
            return node.held.fragment.elements
        if node.scope != "shared" or not any(n.op == "if_then_else" for n in E.walk(node.body)):
            return 1
        total: Number = 1
        for ax in node.stage.leaf_iter_vars:
            total = total * self.bounds.extent[ax]
        plain = logical_not(is_asynchronous(node, self.bounds))
        more = logical_and(plain, total > self.bounds.elements(node))
        twice: Number = where(more, 2, 1)
        return twice

    def _board_stores(self, node: Node) -> Number:
        """Statements around a thread's share of a reduction: it starts, goes to the board, which is
        halved until one sum is left; that is stored."""
        width: Number = 1
        for ax, tag in node.stage.binds.items():
            if ax.kind == "reduce":
                width = width * self.launch[tag]
        count: Number = 3
        halved: Number = 1
        for _ in range(self.target.limits.max_threads_per_block.bit_length()):
            count = count + where(halved < width, 1, 0)
            halved = halved * 2
        return count


def _threads(launch: Mapping[str, Number]) -> Number:
    x, y, z = (launch.get(f"threadIdx.{d}", 1) for d in "xyz")
    return x * y * z


def _aligned(size: Number, unit: Number = SHARED_ALIGNMENT) -> Number:
    pieces: Number = ceil_div(size, unit)
    return pieces * unit
