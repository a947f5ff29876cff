"""Rows of what a warp holds, reduced by its lanes: maxima and sums of rows.

In: an `Emission` and a reduction that reads sums of a matrix instruction.  Out: a `Reduction`.
Read next: `fragments.py`, `nest.py`.

A lane reduces the elements of a row that it holds; then the lanes that hold the row exchange what
they have, and all of them know the result.  What lies beyond the end of a row counts as nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.base.errors import LegalityError
from tilewright.ir import expr as E
from tilewright.ir.atoms import shared_bits
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Allocate, Buffer, Exchange, Region, Stmt, Store, load, seq
from tilewright.lowering.emission import Emission, Renaming, guarded
from tilewright.lowering.fragments import of_held
from tilewright.lowering.guards import ALL, SPATIAL
from tilewright.lowering.powers import in_powers_of_two
from tilewright.lowering.reductions import Reduction
from tilewright.lowering.running import followed
from tilewright.schedule.tree.accumulators import first_reduction
from tilewright.schedule.tree.loop_tree import Node
from tilewright.te.tensor import Combiner, reduction_of


def fold(emission: Emission, node: Node, combiner: Combiner) -> Reduction:
    """The values of rows.

    rewrite:  for n in 64: M[m] = max(M[m], S[m, n])
              ->   M[0..1] = -inf; for n.tile in 8: M[0] = max(M[0], S[n.tile*4]); ..
                   got = M[0] of lane ^ 1; M[0] = max(M[0], got); ..
    """
    assert node.fold is not None and node.held is not None
    _check_splits(emission, node)
    first = first_reduction(node)
    start = emission.again(node, first, _identity(emission, node, combiner), "init")
    end = emission.again(node, first, _joined(emission, node, combiner), "rows")
    return Reduction(_update(emission, node, combiner), {first: lambda nest: seq(start, nest, end)})


def part(emission: Emission, node: Node, combiner: Combiner) -> Reduction:
    """The same of the part of a row that an iteration of another stage is about, added to what
    there is: a maximum that is read there has to be that of all lanes, and sums follow it."""
    if not node.running:
        return Reduction(_update(emission, node, combiner), {})
    end = emission.again(node, 0, _joined(emission, node, combiner), "rows")
    update = _update(emission, node, combiner)
    return Reduction(update, {0: lambda nest: followed(emission, node, seq(nest, end))})


def around(emission: Emission, node: Node, combiner: Combiner, nest: Stmt) -> Stmt:
    """`nest` of another stage, along which `node` is added up: what stands before and behind."""
    start = emission.again(node, 0, _identity(emission, node, combiner), "init")
    if node.running:
        return seq(start, nest)
    return seq(start, nest, emission.again(node, 0, _joined(emission, node, combiner), "rows"))


def _spatial(emission: Emission, node: Node) -> Expr:
    guards = emission.guards
    return E.binary("and", guards.lanes(node, once=False), guards.of(node, SPATIAL))


def _identity(emission: Emission, node: Node, combiner: Combiner) -> Callable[[Renaming], Stmt]:
    """The value of nothing; of a maximum that sums follow, the least finite number."""
    (buffer,), index = emission.accesses.targets(node), emission.accesses.tile(node)
    held, value = node.held, combiner.identity
    assert held is not None
    if node.running:
        value = E.const(node.op.dtype.least, node.op.dtype)

    def identity(renamed: Renaming) -> Stmt:
        rows = range(held.fragment.elements)
        stores = (Store(buffer, renamed(index + k), value) for k in rows)
        return guarded(renamed(_spatial(emission, node)), seq(*stores))

    return identity


def _joined(emission: Emission, node: Node, combiner: Combiner) -> Callable[[Renaming], Stmt]:
    """What the lanes that hold a row have, put together in all of them."""
    (buffer,), index = emission.accesses.targets(node), emission.accesses.tile(node)
    assert node.held is not None and node.fold is not None
    rows, bits = node.held.fragment.elements, shared_bits(node.fold.source.fragment)
    got = Buffer(f"{node.name}.other", buffer.dtype, rows, "local", (rows,))

    def joined(renamed: Renaming) -> Stmt:
        own, stmts = Region(buffer, renamed(index), rows), list[Stmt]()
        for bit in bits:
            stmts.append(Exchange(Region(got, E.const(0), rows), own, 1 << bit))
            for k in range(rows):
                at = own.index + k
                both = combiner.combine(load(buffer, at), load(got, E.const(k)))
                stmts.append(Store(buffer, at, both))
        return guarded(renamed(_spatial(emission, node)), Allocate(got, seq(*stmts)))

    return joined


def _update(emission: Emission, node: Node, combiner: Combiner) -> Stmt:
    """Each element of a tile that a lane holds, added to the value of its row."""
    (buffer,), index = emission.accesses.targets(node), emission.accesses.tile(node)
    place, fold = emission.place, node.fold
    assert fold is not None and node.held is not None
    source, lane = fold.source.fragment, place.thread_var["threadIdx.x"]
    root = fold.column.root
    reduced = reduction_of(node.body)
    assert reduced is not None
    held = of_held(place, node)  # rows beyond the end are no matter
    stmts: list[Stmt] = []
    for element in range(source.elements):
        row, column = source.place(lane, element)
        _, which = node.held.fragment.holder(row, column)
        inside = {fold.row: row, root: column}
        values = {ax: v + inside[ax] if ax in inside else v for ax, v in place.values.items()}
        here = replace(place, values=values)
        there = replace(place, values=values | {fold.row: place.values[fold.row]})
        tests = replace(emission.guards, place=there if held else here).tests(node, ALL)
        tests.append(here.coordinate(node, root) < root.size)
        at = place.simplify(index + which)
        value = in_powers_of_two(emission.accesses.at(here).value(node, reduced.args[0]))
        both = combiner.combine(load(buffer, at), value)
        test = place.simplify(E.all_of(*tests))
        stmts.append(guarded(test, Store(buffer, at, both)))
    return guarded(emission.guards.lanes(node, once=False), seq(*stmts))


def _check_splits(emission: Emission, node: Node) -> None:
    """Raise LegalityError where a part of a row would begin inside an atom, as masks do."""
    assert node.fold is not None
    for split in node.fold.column.splits:
        factor, width = emission.place.bounds.factor[split], node.fold.width
        if factor % width:
            raise LegalityError(
                f"split of {node.name}.{split.parent.name}",
                f"it is split by {factor}, and an atom has {width} columns",
                f"Split by a multiple of {width}.",
            )  # fmt: skip
