"""Bulk copies of tiles through a ring: who begins each, who waits for what.

In: what each stage computed at one loop copies in an iteration.  Out: what stands in front of the
loop, and what each iteration begins and ends with.  Every slot has two gates: one opens when its
tile is there, one when all warps have read it.

rewrite:  for k: {S[k % 3] = A[k]; use S[k % 3]}
          ->   if first warp: for p in 2: fill(p)
               for k: {if first warp and k + 2 < n: fill(k + 2)
                       await there[k % 3] of k//3 % 2; use S[k % 3]; show
                       arrive read[k % 3]}
          where fill(t) = {await read[t % 3] of (t//3 + 1) % 2
                           if first thread: {expect there[t % 3] bytes
                                             bulk S[t % 3] = A[t], there[t % 3]}}
Whole warps wait, so that none of their lanes goes on alone.  Loads need not be done when a thread
arrives, and an engine keeps no order with them, so threads show them first; what groups read has
been waited for.  Where groups still multiply tile k - 1 while tile k is (`tree/rings.py`, `lag`),
it is what iteration k says to be read, and copies keep that distance.
A phase of a slot is one tile.  The parity of a phase that nobody has begun is that of the phase
before, so the first tile of a slot waits for nothing.  Where the loop runs again, slots go on with
the phases they had.

With warps of their own that load (`loaders`), these fill tile by tile, and all others do the rest:

               for k: {await ..; use ..; show; arrive ..}    beside    for k: fill(k)

Read next: `ring.py` (copies that threads begin), `roles.py` (what else such warps leave out).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import LegalityError, LoweringError
from tilewright.ir import expr as E
from tilewright.ir.atoms import WARP
from tilewright.ir.bulk import (
    GATE_TYPE,
    MOST_ARRIVALS,
    UNIT,
    Arrive,
    Await,
    Box,
    BulkCopy,
    Expect,
    Fence,
    MakeGates,
)
from tilewright.ir.expr import Expr
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    THREAD_TAGS,
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Region,
    Show,
    Stmt,
    seq,
)
from tilewright.lowering.accesses import Accesses
from tilewright.lowering.placement import Placement
from tilewright.schedule.tree.boxes import extents
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.rings import lag, loaders, read_beside, ring_axis, slots
from tilewright.schedule.tree.rounding import ARRIVED
from tilewright.te.tensor import IterVar


@dataclass(frozen=True, eq=False)
class Gates:
    """Those of the rings of one loop that have as many slots: first of tiles that are there, then
    of tiles that were read."""

    buffer: Buffer
    slots: int

    def there(self, tile: Expr) -> Region:
        return Region(self.buffer, tile % self.slots, 1)

    def read(self, tile: Expr) -> Region:
        return Region(self.buffer, tile % self.slots + self.slots, 1)


def gates_for(node: Node, place: Placement, known: dict[tuple[object, ...], Gates]) -> Gates:
    """Of a stage that bulk copies fill; known: those of this kernel, which grow."""
    held, parent = int(slots(node, place.bounds)), node.parent
    assert parent is not None and node.attach_axis is not None
    key = (parent, node.attach_axis, held)
    if key not in known:
        name = f"{parent.name}.gates"
        known[key] = Gates(Buffer(name, DType(GATE_TYPE), 2 * held, "shared", (2, held)), held)
    return known[key]


def bulk_copy(accesses: Accesses, node: Node, gates: Gates) -> Stmt:
    """The tile of an iteration.  Raises LegalityError as masks do for whoever asks them."""
    place, view = accesses.place, node.view
    assert view is not None
    (to,) = accesses.targets(node)
    source = accesses.storage.buffers[view.tensor]
    accesses.used[source] = None
    shape = tuple(dim.size for dim in view.dimensions)
    strides = tuple(dim.stride for dim in view.dimensions)
    box = Box(shape, strides, tuple(map(int, extents(view, place.bounds.extent))), tuple(
        dim.step for dim in view.dimensions))  # fmt: skip
    if why := box.fault(to.dtype.bytes, to.swizzle):
        raise LegalityError(f"bulk_copy({node.name})", f"it is {why}", "Use other tiles.")
    base = dict(zip(node.op.axis, place.region_base[node], strict=True))
    at = tuple(
        place.simplify((E.const(0) if d.axis is None else base[d.axis] * d.step) + d.offset)
        for d in view.dimensions
    )
    unit = UNIT // to.dtype.bytes
    if not place.simplify.is_multiple(at[-1], unit):
        raise LegalityError(
            f"bulk_copy({node.name})",
            f"a tile begins at {at[-1]} along {node.op.axis[-1].name}, which may be no multiple of"
            f" {unit} elements, {UNIT} bytes",
            f"Split by multiples of {unit}.",
        )  # fmt: skip
    first = accesses.slot_begin(node)
    tile = _tile(node, place)
    return BulkCopy(
        Region(to, first, box.elements), Region(source, E.const(0), source.size), box, at,
        gates.there(tile), node.rounds == ARRIVED,
    )  # fmt: skip


def _tile(node: Node, place: Placement) -> Expr:
    """The number of a tile of the loop that the stage is computed at; 0 where it is none."""
    axis = ring_axis(node)
    return E.const(0) if axis is None else place.leaf[axis]


@dataclass(frozen=True, eq=False)
class Turned:
    """What stands in front of a loop, what each iteration begins and ends with, and what warps of
    their own do beside it, if there are such."""

    front: Stmt
    begin: Stmt
    end: Stmt
    beside: Stmt | None = None

    @staticmethod
    def of(
        copies: Mapping[Node, Stmt], known: dict[tuple[object, ...], Gates], place: Placement,
        limits: dict[Expr, int],
    ) -> Turned:  # fmt: skip
        """Of all stages that bulk copies fill at a loop, with the copies of a tile.

        known: gates of the kernel; limits: as of `fresh_loops`
        """
        groups: dict[Gates, list[Node]] = {}
        for node in copies:
            groups.setdefault(gates_for(node, place, known), []).append(node)
        behind = 0
        for node in copies:
            if node.parent is not None and node.attach_axis is not None:
                behind = int(lag(node.parent, node.attach_axis, place.bounds))
        made = [
            _turned(nodes, [copies[node] for node in nodes], gates, place, limits, behind)
            for gates, nodes in groups.items()
        ]
        beside = [one.beside for one in made if one.beside is not None]
        if beside and len(made) > 1:
            raise LegalityError(
                f"pipeline({next(iter(copies)).name})",
                "warps of their own load for rings of as many slots each",
                "Give all rings of the loop the same slots.",
            )  # fmt: skip
        return Turned(
            seq(*(one.front for one in made)), seq(*(one.begin for one in made)),
            seq(*(one.end for one in made)), beside[0] if beside else None,
        )  # fmt: skip


def _turned(
    nodes: Sequence[Node], copies: Sequence[Stmt], gates: Gates, place: Placement,
    limits: dict[Expr, int], behind: int,
) -> Turned:  # fmt: skip
    node, held = nodes[0], gates.slots
    axis, tile = ring_axis(node), _tile(node, place)
    extent = 1 if axis is None else place.extent(axis)
    nbytes = sum(copy.nbytes for copy in copies if isinstance(copy, BulkCopy))
    if nbytes > MOST_ARRIVALS:
        raise LegalityError(
            f"bulk_copy({node.name})", f"a tile of {nbytes} bytes", "Use smaller tiles."
        )
    before, own = _rounds(node, place), loaders_of(nodes, place)
    mine = first_thread(place, own)

    def uses(tile: Expr) -> Expr:
        """Tiles that the slot had before this one."""
        if before is None:
            return tile // held
        each = extent // held if extent % held == 0 else (extent - 1 - tile % held) // held + 1
        return before * each + tile // held

    def fill(tile: Expr) -> Stmt:
        here = {} if axis is None else {place.leaf[axis]: tile}
        made = [fresh_loops(copy, limits, here) for copy in copies]
        free = Await(gates.read(tile), (uses(tile) + 1) % 2)
        return seq(free, If(mine, seq(Expect(gates.there(tile), nbytes), *made)))

    arrived: Stmt = Await(gates.there(tile), uses(tile) % 2)
    done: Stmt = Arrive(gates.read(tile))
    if behind:
        done = If(tile >= behind, Arrive(gates.read(tile - behind)))
        if before is not None:  # nobody waits for the last ones of the last round
            left = [Arrive(gates.read(tile - k)) for k in reversed(range(behind))]
            done = seq(done, If(tile.equal(extent - 1), seq(*left)))
    if not all(read_beside(node) for node in nodes):
        done = seq(Show(), done)
    warp = first_warp(place, own)
    if own:
        all_tiles = E.var(f"{_named(axis)}.loaded")
        loading = For(all_tiles, extent, fill(all_tiles))
        return Turned(seq(), arrived, done, _where(warp, loading))
    front = seq()
    if held > 1:
        first = E.var(f"{_named(axis)}.first")
        front = _where(warp, For(first, held - 1 - behind, fill(first)))
    later = tile + (held - 1 - behind)
    refill = _where(E.all_of(warp, place.simplify(later < extent)), fill(later))
    return Turned(front, seq(refill, arrived), done)


def _where(test: Expr, body: Stmt) -> Stmt:
    """`body` where a test holds that may be sure."""
    return body if test.op == "const" and test.attr else If(test, body)


def _named(axis: IterVar | None) -> str:
    return "tile" if axis is None else axis.name


def loaders_of(nodes: Sequence[Node], place: Placement) -> int:
    """Warps of their own that fill the rings of these stages."""
    return max((int(loaders(node, place.bounds)) for node in nodes), default=0)


def _rounds(node: Node, place: Placement) -> Expr | None:
    """How often the loop of the ring ran before; None where it runs once."""
    total: Expr | None = None
    axis = ring_axis(node)
    for owner, ax in reversed(place.tree.path(node)):
        if ax is axis or not place.is_loop(ax):
            continue
        if place.tree.tag_of.get(ax) == "vthread":
            raise LoweringError(
                f"bulk_copy({node.name})", f"it is computed inside the virtual threads {ax.name}",
                "Bind these inside the loop that it is computed at.",
            )  # fmt: skip
        trips = place.trips(owner, ax)
        total = place.leaf[ax] if total is None else total * trips + place.leaf[ax]
    return total


def threads_of(place: Placement) -> int:
    """Of a block, without those that load only."""
    return prod(int(e) for tag, e in place.launch.items() if tag in THREAD_TAGS)


def outer_tag(place: Placement) -> str:
    """The thread index that changes slowest."""
    return max(tag for tag in place.launch if tag in THREAD_TAGS)


def more_rows(launch: Mapping[str, Any], own: int) -> int:
    """Steps of the slowest thread index that hold so many more warps."""
    threads = {tag: int(e) for tag, e in launch.items() if tag in THREAD_TAGS}
    return -(-own * WARP // (prod(threads.values()) // threads[max(threads)]))


def first_thread(place: Placement, own: int) -> Expr:
    """Whether a thread is the first of all, or of those that load only."""
    outer = outer_tag(place)
    tests = []
    for tag, extent in place.launch.items():
        if tag not in THREAD_TAGS:
            continue
        begin = int(extent) if own and tag == outer else 0
        if extent > 1 or begin:
            tests.append(place.thread_var[tag].equal(begin))
    return E.all_of(*tests)


def first_warp(place: Placement, own: int) -> Expr:
    """Whether a thread is in the first warp of those that begin copies."""
    threads = {tag: int(e) for tag, e in place.launch.items() if tag in THREAD_TAGS}
    begin = prod(threads.values()) if own else 0
    if more_rows(threads, own) * begin == WARP * threads[max(threads)]:
        return E.const(True)
    number, step = E.const(0), 1
    for tag in sorted(threads):
        number, step = number + place.thread_var[tag] * step, step * threads[tag]
    test = number < begin + WARP
    return test if own else place.simplify(test)


def computes(place: Placement) -> Expr:
    """Whether a thread is none of those that load only.  Not simplified: where there are such, its
    index goes beyond what `place` knows."""
    tag = outer_tag(place)
    return place.thread_var[tag] < int(place.launch[tag])


def check_threads(node: Node, place: Placement) -> None:
    """Raise LegalityError for a block that is no whole warps, or counts others."""
    if counted := next((other.name for other in place.nodes if other.joined), None):
        raise LegalityError(
            f"bulk_copy({node.name})", f"its blocks count each other to join {counted}",
            "Leave one of the two out; asynchronous copies bring tiles, too.",
        )  # fmt: skip
    if any(tag in THREAD_TAGS for tag in place.launch) and threads_of(place) % WARP == 0:
        return
    raise LegalityError(
        f"bulk_copy({node.name})", "a block is not a whole number of warps, which say that they"
        " have read a tile", f"Bind loops of a multiple of {WARP} iterations to threads.",
    )  # fmt: skip


def with_gates(
    body: Stmt, all_gates: Sequence[Gates], place: Placement
) -> tuple[Stmt, Mapping[str, int]]:
    """`body` behind the making of its gates, and the threads of a block, with those that load."""
    launch = dict(place.launch)
    if not all_gates:
        return body, launch
    bulk = [node for node in place.nodes if node.view is not None]
    check_threads(bulk[0], place)
    own = loaders_of(bulk, place)
    if own:
        tag = outer_tag(place)
        launch[tag] += more_rows(launch, own)
    warps, zero = threads_of(place) // WARP, E.const(0)
    making: list[Stmt] = []
    for gates in all_gates:
        making.append(MakeGates(Region(gates.buffer, zero, gates.slots), 1))
        making.append(MakeGates(Region(gates.buffer, E.const(gates.slots), gates.slots), warps))
    body = seq(If(first_thread(place, own), seq(*making, Fence())), Barrier(), body)
    for gates in reversed(all_gates):
        body = Allocate(gates.buffer, body)
    return body, launch
