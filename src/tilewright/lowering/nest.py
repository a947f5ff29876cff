"""Loop nests from a loop tree with integer bounds: the first pass of lowering.

In: a `LoopTree` and its `Bounds` (ints).  Out: one `Kernel` per root stage, with flat indices
relative to each buffer's region, guards where bounds say so, and loops of kind vectorized and
vthread still in place.

`storage.py` says where tensors live, `placement.py` where iterations are; `accesses.py` and
`guards.py` make indices and conditions of these, `overhang.py` finds the needless ones,
`emission.py`, `reductions.py` and `fragments.py` put statements into loops.  Each of these takes
what the earlier ones made and changes nothing of it.  Read next: `virtual_threads.py`, `loops.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from tilewright.base.errors import LoweringError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    Given,
    If,
    Kernel,
    PackedCall,
    Stmt,
    Thread,
    expressions,
    statements,
)
from tilewright.ir.symbols import symbols_of
from tilewright.lowering.accesses import Accesses
from tilewright.lowering.bulk import bulk_copy, gates_for, with_gates
from tilewright.lowering.emission import Emission, guarded
from tilewright.lowering.folds import around, fold, part
from tilewright.lowering.fragments import in_pairs, operand, product, terms
from tilewright.lowering.guards import SPATIAL, Guards
from tilewright.lowering.intrinsics import by_intrinsic
from tilewright.lowering.opaque import opaque_kernels
from tilewright.lowering.overhang import Overhang, let_overhang, whole_tile
from tilewright.lowering.placement import place
from tilewright.lowering.products import rounded_products
from tilewright.lowering.recurrence import from_its_step
from tilewright.lowering.reductions import Reduction, reduction, stores
from tilewright.lowering.ring import begun
from tilewright.lowering.storage import store_tensors
from tilewright.lowering.types import is_narrow
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree, Node
from tilewright.schedule.tree.rings import is_asynchronous
from tilewright.te.tensor import Combiner, Tensor


@dataclass(frozen=True, eq=False)
class Nests:
    """What the later passes need to know beside the kernels.

    unroll_limit: loop variable -> auto_unroll_max_step in force there
    given:        symbol -> the buffer of its value
    narrow:       whether they store or compute in formats of memory: work for `types.py`
    spaces:       memory that kernels of statements share; counters: of blocks that are joined
    calls:        of Python functions, each with how many kernels come before it
    """

    kernels: list[Kernel]
    buffers: Mapping[Tensor, Buffer]
    given: Mapping[Expr, Given]
    unroll_limit: dict[Expr, int]
    narrow: bool
    spaces: tuple[Buffer, ...] = ()
    counters: tuple[Buffer, ...] = ()
    calls: tuple[tuple[int, PackedCall], ...] = ()


def build_nests(
    tree: LoopTree, bounds: Bounds, name: str, gpu: bool, given_out: Collection[Tensor] = ()
) -> Nests:
    """All kernels of the schedule, one per root stage.

    given_out: what the caller gets beside the outputs: such a buffer has no room behind its end
    """
    places = [place(tree, bounds, root) for root in tree.roots]
    storage = store_tensors(tree, bounds)
    guarded_all = gpu or bool(tree.schedule.dag.symbols)  # room is for numbers of elements only
    kept = (
        Overhang(tuple(map(Guards, places)), storage)
        if guarded_all
        else let_overhang(places, storage, given_out)
    )
    dag = tree.schedule.dag
    given = {
        v: Given(v, Buffer(str(v.attr), v.dtype, 1, "global", ()), v in dag.extent_symbols)
        for v in dag.symbols
    }
    limits: dict[Expr, int] = {}
    kernels: list[Kernel] = []
    spaces = tuple(b for op in tree.opaque.values() for b in op.script.spaces)
    calls: list[tuple[int, PackedCall]] = []
    guards_of = {root.stage: own for root, own in zip(tree.roots, kept.guards, strict=True)}
    products = rounded_products(
        (tensor, node.body) for node in tree.nodes for tensor in node.stage.tensors
    )
    for stage in tree.stored_alone:
        if stage in tree.opaque:
            op = tree.opaque[stage]
            made = opaque_kernels(op, stage, kept.storage, bounds.symbols, gpu)
        elif stage in guards_of:
            guards = guards_of[stage]
            emission = Emission(Accesses(guards.place, kept.storage, products), guards, limits)
            made = [_kernel(emission, may_split=not gpu)]
        else:  # it has no elements
            continue
        for one in made:
            if isinstance(one, PackedCall):
                calls.append((len(kernels), one))
            else:
                kernels.append(_finished(one, given))
    if len(kernels) > 1:
        kernels = [replace(kernel, name=f"{name}_{k}") for k, kernel in enumerate(kernels)]
    else:
        kernels = [replace(kernel, name=name) for kernel in kernels]
    narrow = any(map(is_narrow, tree.schedule.dag.types))
    return Nests(
        kernels, kept.storage.buffers, given, limits, narrow, spaces,
        tuple(kept.storage.counters.values()), tuple(calls),
    )  # fmt: skip


def _finished(kernel: Kernel, given: Mapping[Expr, Given]) -> Kernel:
    """The kernel with the symbols it uses among its parameters."""
    body = kernel.body
    local = [s.buffer.size for s in statements(body) if isinstance(s, Allocate)]
    for s in statements(body):
        if isinstance(s, Allocate) and isinstance(s.buffer.size, Expr) and kernel.threads:
            raise LoweringError(
                f"{s.buffer.name}: {s.buffer.scope}",
                f"it would have {s.buffer.size} elements, not a number of them",
                "Compute it inside a loop that a factor split, or at the root.",
            )  # fmt: skip
    used = tuple(given[v] for v in symbols_of([*expressions(body), *local]))
    return replace(kernel, params=(*kernel.params, *(g.buffer for g in used)), given=used)


def _kernel(emission: Emission, may_split: bool) -> Kernel:
    """The nest of a root stage with everything computed inside it; it gets its name later.

    may_split: whether a tile that may overhang gets a nest of its own where it does not
    """
    own = emission.place
    body = _stage(emission, own.root, may_split)
    body, launch = with_gates(body, list(emission.gates.values()), own)
    threads = tuple(Thread(tag, own.thread_var[tag], e) for tag, e in launch.items())
    params = tuple(b for b in emission.accesses.used if b.scope == "global")
    return Kernel(own.root.name, params, body, threads)


def _stage(emission: Emission, node: Node, may_split: bool) -> Stmt:
    """The loops of `node` and of what is computed inside them."""

    def inside(child: Node) -> Stmt:
        return from_its_step(emission, child, _stage(emission, child, may_split))

    combiner = node.op.combiner
    if combiner is None:
        if node.view is not None:
            gates = gates_for(node, emission.place, emission.gates)
            return bulk_copy(emission.accesses, node, gates)
        if node.held is not None:
            tiles = emission.nest(node, operand(emission, node), inside)
            return in_pairs(tiles, emission.place)
        if node.stage.atom is not None:
            tile = by_intrinsic(emission, node)
            return emission.nest(node, tile.innermost, inside, tile.around, tile.upto)
        return emission.nest(node, _copy(emission, node), inside)

    def reduced(guards: Guards) -> Stmt:
        own = replace(emission, guards=guards)
        if node.product is not None:
            made = product(own, node)
        elif node.stage.atom is not None:
            made = by_intrinsic(own, node)
        elif node.stage.along is not None:
            made = part(own, node, combiner)
        elif node.fold is not None:
            made = fold(own, node, combiner)
        elif node.held is not None:
            made = terms(own, node, combiner)
        else:
            made = reduction(own, node, combiner, inside)
        made = _with_parts(own, node, made)
        return emission.nest(node, made.innermost, inside, made.around, made.upto)

    if may_split and node.parent is not None and not node.children:
        return _whole_or_partial(emission, node, reduced)
    return reduced(emission.guards)


def _with_parts(emission: Emission, node: Node, made: Reduction) -> Reduction:
    """The same with what stands around reductions that are added up along its outermost loop."""
    outside = made.around.get(0)
    for child in node.children:
        combiner = child.op.combiner
        if child.stage.along is not None and combiner is not None:
            outside = _around_part(emission, child, combiner, outside)
    return made if outside is None else replace(made, around={**made.around, 0: outside})


def _around_part(
    emission: Emission, child: Node, combiner: Combiner, inner: Callable[[Stmt], Stmt] | None
) -> Callable[[Stmt], Stmt]:
    def outside(nest: Stmt) -> Stmt:
        return around(emission, child, combiner, nest if inner is None else inner(nest))

    return outside


def _copy(emission: Emission, node: Node) -> Stmt:
    accesses, guards = emission.accesses, emission.guards
    value = accesses.value(node, node.body)
    if emission.place.launch and is_asynchronous(node, emission.place.bounds):
        (buffer,), index = accesses.targets(node), accesses.store_index(node)
        copy = begun(buffer, index, value, emission.place.simplify(E.all_of(*guards.edges(node))))
        if copy is not None:
            own = emission.place.simplify(E.all_of(*guards.iterations(node, SPATIAL)))
            return guarded(E.binary("and", guards.lanes(node), own), copy)
    guard = E.binary("and", guards.lanes(node), guards.of(node, SPATIAL))
    return guarded(guard, stores(accesses.targets(node), accesses.store_index(node), value))


def _whole_or_partial(emission: Emission, node: Node, reduced: Callable[[Guards], Stmt]) -> Stmt:
    """A reduction whose guards decide which elements of a tile exist gets two loop nests: one
    without these guards for tiles that lie inside, one with them.
    """
    own, guards = emission.place, emission.guards
    loops = {own.leaf[ax]: own.extent(ax) for ax in node.stage.leaf_iter_vars}
    inside = whole_tile(guards.of(node, SPATIAL), loops, own.simplify)
    if inside is None:
        return reduced(guards)
    partial = fresh_loops(reduced(guards), emission.unroll_limit)
    whole = reduced(guards.without(node, guards.tests(node, SPATIAL)))
    return If(inside, whole, partial)
