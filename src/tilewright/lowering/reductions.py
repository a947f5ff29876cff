"""Reductions: in place, into an accumulator of another type, over threads.

In: an `Emission` and a reduction stage.  Out: a `Reduction`: the innermost statement and what
stands around the loops from its first reduction loop inwards; `nest.py` puts the loops in between.

Another form of a reduction enters here.  Rings of asynchronous copies are of no matter here: they
belong to the stages that are computed in the loops.  Read next: `fragments.py` (sums by matrix
instructions), `nest.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.atoms import WARP
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    Exchange,
    Region,
    Stmt,
    Store,
    load,
    seq,
)
from tilewright.ir.tuples import parts, together
from tilewright.lowering.emission import Around, Emission, Renaming, guarded
from tilewright.lowering.guards import ALL, SPATIAL
from tilewright.lowering.placement import Placement
from tilewright.schedule.state import narrowed
from tilewright.schedule.tree.accumulators import (
    accumulator_axes,
    exchanges,
    first_reduction,
    has_accumulator,
    held_axes,
    reduces_across_threads,
)
from tilewright.schedule.tree.chains import chains
from tilewright.schedule.tree.loop_tree import Node
from tilewright.te.tensor import Combiner, IterVar, reduction_of

_SEVERAL = 2  # loads


@dataclass(frozen=True, eq=False)
class Reduction:
    """innermost: the statement that the loops repeat; around: see `Emission.nest`

    upto: how many leaves get loops outside `innermost`, all unless given
    """

    innermost: Stmt
    around: Around
    upto: int | None = None


def reduction(
    emission: Emission, node: Node, combiner: Combiner, inside: Callable[[Node], Stmt]
) -> Reduction:
    """How `node` reduces, by its schedule and its types.

    inside: gives the statements of a stage that is computed in its loops
    """
    if reduces_across_threads(node):
        return _across_threads(emission, node, combiner, inside)
    if has_accumulator(node):
        return _accumulated(emission, node, combiner)
    return _in_place(emission, node, combiner)


def _in_place(emission: Emission, node: Node, combiner: Combiner) -> Reduction:
    """rewrite:  C[i] = sum(k, e(i, k))   ->   C[i] = 0; for k: C[i] += e(i, k)"""
    accesses, guards = emission.accesses, emission.guards
    buffers, index = accesses.targets(node), accesses.store_index(node)
    lanes, first = guards.lanes(node), first_reduction(node)
    spatial = E.binary("and", lanes, guards.of(node, SPATIAL))

    def identity(renamed: Renaming) -> Stmt:
        return guarded(renamed(spatial), stores(buffers, renamed(index), combiner.identity))

    start = emission.again(node, first, identity, "init")
    sums = _blocks(emission, node, combiner, buffers, index, spatial)
    there, value = _wanted(emission, node, combiner)
    guard = E.all_of(lanes, guards.of(node, ALL), there)
    update = guarded(guard, _added(sums, combiner, value))
    return Reduction(update, _outside(sums.around, first, lambda nest: seq(start, nest)))


def _accumulated(emission: Emission, node: Node, combiner: Combiner) -> Reduction:
    """Into a local buffer of the accumulator's type, which is stored when it is complete.

    rewrite:  C[i] = float16(sum(k, e(i, k)))
              ->   C.acc[i] = 0; for k: for i: C.acc[i] += e(i, k); for i: C[i] = C.acc[i]
    """
    accesses, guards, place = emission.accesses, emission.guards, emission.place
    (buffer,), index = accesses.targets(node), accesses.store_index(node)
    lanes, first = guards.lanes(node), first_reduction(node)
    spatial = E.binary("and", lanes, guards.of(node, SPATIAL))
    leaves, axes = node.stage.leaf_iter_vars, accumulator_axes(node)
    outermost = min([first, *(leaves.index(ax) for ax in axes)])
    _refuse_parallel(node, outermost)
    shape, at = _places(place, axes)
    acc = Buffer(f"{node.name}.acc", node.op.accumulator, math.prod(shape), "local", shape)

    def identity(renamed: Renaming) -> Stmt:
        return Store(acc, renamed(at), combiner.identity)

    def result(renamed: Renaming) -> Stmt:
        value = E.cast(buffer.dtype, load(acc, renamed(at)))
        return guarded(renamed(spatial), Store(buffer, renamed(index), value))

    start = emission.again(node, first, identity, "init")
    sums = _blocks(emission, node, combiner, [acc], at, spatial)
    there, value = _wanted(emission, node, combiner)
    guard = E.all_of(lanes, guards.of(node, ALL), there)
    update = guarded(guard, _added(sums, combiner, value))
    end = emission.again(node, first, result, "out")
    around = _outside(sums.around, first, lambda nest: seq(start, nest, end))
    # lanes may be outside the reduction: their elements live side by side
    return Reduction(update, _outside(around, outermost, lambda nest: Allocate(acc, nest)))


@dataclass(frozen=True, eq=False)
class _Sums:
    """buffers, index: where terms are added to; around: see `Emission.nest`"""

    buffers: Sequence[Buffer]
    index: Expr
    around: Around


def _blocks(
    emission: Emission, node: Node, combiner: Combiner, buffers: Sequence[Buffer], index: Expr,
    spatial: Expr,
) -> _Sums:  # fmt: skip
    """Partial results of the blocks of a long sum, each added to what lies outside of it.

    buffers, index: of the whole; spatial: where its elements exist
    rewrite:  see `schedule/tree/chains.py`
    """
    place, leaves = emission.place, node.stage.leaf_iter_vars
    around: Around = {}
    kinds = list(zip(node.stage.buffer_names, node.op.accumulators, strict=True))
    for block in chains(node, place.bounds).blocks:
        if not block.made:
            continue
        axes, word = held_axes(node, block.at), f"block{len(around) or ''}"
        shape, at = _places(place, axes)
        own = [Buffer(f"{n}.{word}", kind, math.prod(shape), "local", shape) for n, kind in kinds]

        def identity(renamed: Renaming, own: Sequence[Buffer] = own, at: Expr = at) -> Stmt:
            return stores(own, renamed(at), combiner.identity)

        def added(
            renamed: Renaming, own: Sequence[Buffer] = own, at: Expr = at,
            whole: tuple[Sequence[Buffer], Expr] = (buffers, index),
        ) -> Stmt:  # fmt: skip
            outer = renamed(whole[1])
            both = combiner.combine(_loads(whole[0], outer), _loads(own, renamed(at)))
            return guarded(renamed(spatial), stores(whole[0], outer, both))

        start = emission.again(node, block.at, identity, f"{word}.init")
        end = emission.again(node, block.at, added, f"{word}.out")

        def summed(nest: Stmt, start: Stmt = start, end: Stmt = end) -> Stmt:
            return seq(start, nest, end)

        def allocated(nest: Stmt, own: Sequence[Buffer] = own) -> Stmt:
            for buffer in own:
                nest = Allocate(buffer, nest)
            return nest

        around = _outside(around, block.at, summed)
        around = _outside(around, min([block.at, *map(leaves.index, axes)]), allocated)
        buffers, index = own, at
    return _Sums(buffers, index, around)


def _outside(around: Around, at: int, change: Callable[[Stmt], Stmt]) -> Around:
    """`around` with another change of the nest from the leaf `at` on, outside of what is there."""
    inner = around.get(at)
    return {**around, at: change if inner is None else lambda nest: change(inner(nest))}


def _places(place: Placement, axes: Sequence[IterVar]) -> tuple[tuple[int, ...], Expr]:
    """The shape of a buffer with an element for each iteration of `axes`, and its flat index."""
    shape = tuple(place.extent(ax) for ax in axes)
    at = E.const(0)
    for ax, extent in zip(axes, shape, strict=True):
        at = at * extent + place.leaf[ax]
    return shape, place.simplify(at)


def _added(sums: _Sums, combiner: Combiner, value: Expr) -> Stmt:
    both = combiner.combine(_loads(sums.buffers, sums.index), value)
    return stores(sums.buffers, sums.index, both)


def _wanted(emission: Emission, node: Node, combiner: Combiner) -> tuple[Expr, Expr]:
    """When there is something to combine, and what; a step that adds nothing is left out.

    rewrite:  C[i] += if_then_else(c, A[i]*B[i], 0)   ->   if (c) C[i] += A[i]*B[i]
    Only where all lanes of a vector agree, and where more is saved than one load.
    """
    value, always = emission.accesses.value(node, _reduced(node)), E.const(True)
    if value.op != "if_then_else" or value.args[2] is not combiner.identity:
        return always, value
    test, then, _ = value.args
    place, stage = emission.place, node.stage
    lanes = {place.leaf[ax] for ax, how in stage.annotations.items() if how == "vectorize"}
    loads = [n for n in E.walk(then) if n.op == "load"]
    if len(loads) < _SEVERAL or any(n.op == "load" or n in lanes for n in E.walk(test)):
        return always, value
    return test, then


def _loads(buffers: Sequence[Buffer], index: Expr) -> Expr:
    return together([load(b, index) for b in buffers])


def stores(buffers: Sequence[Buffer], index: Expr, values: Expr) -> Stmt:
    """Each of the values into its buffer, as if at once: none reads what another one has stored.

    Where no order of the stores does that, the values wait in local variables.
    """
    todo = list(zip(buffers, parts(values), strict=True))
    done: list[Stmt] = []
    while todo:
        free = next((item for item in todo if not _is_read(item, todo)), None)
        if free is None:
            held = [Buffer(f"{b.name}.next", b.dtype, 1, "local", (1,)) for b, _ in todo]
            body = seq(
                *(Store(h, E.const(0), v) for h, (_, v) in zip(held, todo, strict=True)),
                *(
                    Store(b, index, load(h, E.const(0)))
                    for h, (b, _) in zip(held, todo, strict=True)
                ),
            )
            for buffer in held:
                body = Allocate(buffer, body)
            return seq(*done, body)
        todo.remove(free)
        done.append(Store(free[0], index, free[1]))
    return seq(*done)


def _is_read(item: tuple[Buffer, Expr], others: Sequence[tuple[Buffer, Expr]]) -> bool:
    """Whether the buffer of `item` is read by the value of another one."""
    return any(
        n.op == "load" and n.attr is item[0]
        for buffer, value in others
        if buffer is not item[0]
        for n in E.walk(value)
    )


def _refuse_parallel(node: Node, outermost: int) -> None:
    for ax in node.stage.leaf_iter_vars[outermost:]:
        if node.stage.annotations.get(ax) == "parallel":
            raise LoweringError(
                f"parallel({node.name}.{ax.name})",
                f"partial results of {node.name} are {node.op.accumulator} and private to a thread,"
                " but this loop is inside the reduction",
                "Reorder: the parallel loop outside the reduction loops; or cache_write the stage "
                "first.",
            )  # fmt: skip


def _across_threads(
    emission: Emission, node: Node, combiner: Combiner, inside: Callable[[Node], Stmt]
) -> Reduction:
    """Each thread reduces its share into a register; shared memory combines the shares.  What is
    computed at the loops of the reduction, such as the partial results of `rfactor`, is computed by
    each thread for its share."""
    accesses, guards, place = emission.accesses, emission.guards, emission.place
    leaves, first = node.stage.leaf_iter_vars, first_reduction(node)
    _refuse_across_threads(place, node, first)
    zero = E.const(0)
    tags = [tag for tag in place.launch if tag.startswith("threadIdx")]
    bound = {tag for ax, tag in node.stage.binds.items() if ax.kind == "reduce"}
    reduced, kept = [t for t in tags if t in bound], [t for t in tags if t not in bound]
    width = math.prod(place.launch[t] for t in reduced)
    groups = math.prod(place.launch[t] for t in kept)
    kinds = list(zip(node.stage.buffer_names, node.op.accumulators, strict=True))
    partial = [Buffer(f"{name}.partial", kind, 1, "local", (1,)) for name, kind in kinds]
    board = [
        Buffer(f"{name}.board", kind, width * groups, "shared", (groups, width))
        for name, kind in kinds
    ]
    lane, group = _linear(place, reduced), _linear(place, kept)
    mine = place.simplify(group * width + lane)
    sums = _blocks(emission, node, combiner, partial, zero, E.const(True, "bool"))
    guard = E.binary("and", guards.lanes(node, once=False), guards.of(node, ALL))
    update = guarded(guard, _added(sums, combiner, accesses.value(node, _reduced(node))))
    for k in reversed(range(first, len(leaves))):
        ax = leaves[k]

        def inner(nest: Stmt = update) -> Stmt:
            return nest

        repeat = ax not in node.stage.binds
        update = emission.iterated(node, ax, inner, inside, repeat=repeat)
        if k in sums.around:
            update = sums.around[k](update)
    combine: list[Stmt] = []
    stride = 1
    while stride * 2 < width:
        stride *= 2
    while stride >= 1:
        test = E.all_of(lane < stride, lane + stride < width)
        other = _loads(board, place.simplify(mine + stride))
        both = combiner.combine(_loads(board, mine), other)
        combine += [guarded(place.simplify(test), stores(board, mine, both)), Barrier()]
        stride //= 2
    if exchanges(node):
        _refuse_exchange(node, place, reduced, width)
        return Reduction(_exchanged(emission, node, combiner, partial, update), {}, upto=first)
    result = narrowed(node.op, _loads(board, place.simplify(group * width)))
    final = E.binary("and", guards.lanes(node, reduce=False), guards.of(node, SPATIAL))
    steps = seq(
        stores(partial, zero, combiner.identity),
        update,
        stores(board, mine, _loads(partial, zero)),
        Barrier(),
        *combine,
        guarded(final, stores(accesses.targets(node), accesses.store_index(node), result)),
        Barrier(),
    )
    for buffer in (*partial, *board):
        steps = Allocate(buffer, steps)
    return Reduction(steps, {}, upto=first)


def _exchanged(
    emission: Emission, node: Node, combiner: Combiner, partial: Sequence[Buffer], update: Stmt
) -> Stmt:
    """A thread's share, then those of the other lanes of its warp; one of them stores the result.

    rewrite:  got = part of lane ^ 16; part += got; .. got = part of lane ^ 1; part += got
    """
    accesses, guards, zero = emission.accesses, emission.guards, E.const(0)
    got = [Buffer(f"{b.name}.other", b.dtype, 1, "local", (1,)) for b in partial]
    joined: list[Stmt] = []
    for apart in (16, 8, 4, 2, 1):
        joined += [
            Exchange(Region(g, zero, 1), Region(b, zero, 1), apart)
            for g, b in zip(got, partial, strict=True)
        ]
        both = combiner.combine(_loads(partial, zero), _loads(got, zero))
        joined.append(stores(partial, zero, both))
    result = narrowed(node.op, _loads(partial, zero))
    final = E.binary("and", guards.lanes(node, reduce=False), guards.of(node, SPATIAL))
    body = seq(
        stores(partial, zero, combiner.identity), update, *joined,
        guarded(final, stores(accesses.targets(node), accesses.store_index(node), result)),
    )  # fmt: skip
    for buffer in (*partial, *got):
        body = Allocate(buffer, body)
    return body


def _refuse_exchange(node: Node, place: Placement, reduced: Sequence[str], width: int) -> None:
    if list(reduced) != ["threadIdx.x"] or width != WARP:
        raise LoweringError(
            f"pragma({node.name}, exchange)",
            f"{width} threads along {', '.join(reduced)} share the reduction",
            f"The {WARP} lanes of a warp, which are all of threadIdx.x, can exchange.",
        )  # fmt: skip


def _refuse_across_threads(place: Placement, node: Node, first: int) -> None:
    leaves = node.stage.leaf_iter_vars
    if any(
        ax.kind == "spatial" and place.leaf[ax].op == "var" and ax not in node.stage.binds
        for ax in leaves[first:]
    ):
        raise LoweringError(
            f"{node.name}", "a spatial loop inside a reduction over threads",
            "Reorder: spatial loops first, then the reduction.",
        )  # fmt: skip
    around = [ax for _, ax in place.tree.path(node)] + leaves[:first]
    for ax in around:
        if place.tree.tag_of.get(ax) == "vthread" and place.extent(ax) > 1:
            raise LoweringError(
                node.name, f"a reduction over threads inside the virtual thread {ax.name}",
                "Leave that loop unbound, or bind it to blockIdx.",
            )  # fmt: skip


def _linear(place: Placement, tags: list[str]) -> Expr:
    """The number of a thread among those that differ by these indices."""
    index = E.const(0)
    for tag in sorted(tags, reverse=True):
        own = place.thread_var[tag] if place.launch[tag] > 1 else 0
        index = index * place.launch[tag] + own
    return place.simplify(index)


def _reduced(node: Node) -> Expr:
    """What the node reduces, after inlining."""
    root = reduction_of(node.body)
    assert root is not None
    return root.args[0]
