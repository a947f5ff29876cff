"""Stages that the lanes of a warp hold together: operands of atoms, and what these add up.

In: an `Emission` and a stage with a fragment.  Out: the statement for one tile of an operand; a
`Reduction` whose innermost statement is an atom.  Read next: `reductions.py`, `nest.py`.

A lane computes the elements of a tile that it holds, those that lie side by side in memory as one
vector.  Atoms take no guard that differs between lanes: what lies beyond a tensor is zero in both
operands, and the stage that stores the sums drops the rest.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.errors import LegalityError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Mma, Region, Stmt, Store, seq
from tilewright.lowering.emission import Emission, Renaming, guarded
from tilewright.lowering.guards import ALL, SPATIAL
from tilewright.lowering.loops import WORD, Lanes
from tilewright.lowering.reductions import Reduction
from tilewright.schedule.tree.accumulators import first_reduction
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.products import Operand

_WIDEST = 16  # bytes of one access


def operand(emission: Emission, node: Node) -> Stmt:
    """The elements of one tile that a lane holds; the loops of the stage go over tiles.

    rewrite:  for m in 16: for k in 16: F[m, k] = A[m, k]
              ->   F[0..1] = A[x//4, x%4*2..x%4*2+1]; F[2..3] = A[x//4+8, x%4*2..x%4*2+1]; ..
    """
    assert node.held is not None
    held = node.held
    wide = min(_WIDEST // held.fragment.dtype.bytes, held.fragment.elements)
    stmts: list[Stmt] = []
    done = 0
    while done < held.fragment.elements:
        width = next(w for w in (8, 4, 2, 1) if w <= wide and done % w == 0)
        while (made := _elements(emission, node, done, width)) is None:
            width //= 2
        stmts.append(made)
        done += width
    return guarded(emission.guards.lanes(node, once=False), seq(*stmts))


def _elements(emission: Emission, node: Node, first: int, width: int) -> Stmt | None:
    """`width` elements of a lane from `first` on; None where they are no vector."""
    held, place = node.held, emission.place
    assert held is not None
    element = E.var("element") if width > 1 else E.const(0)
    simple = Simplifier({**place.simplify.ranges, element: (0, width - 1)})
    lane = place.thread_var["threadIdx.x"]
    index = dict(zip(held.fragment.axes, held.fragment.place(lane, element + first), strict=True))
    inside = {node.op.axis[dim]: index[letter] for dim, letter in held.letters}
    values = {ax: v + inside[ax] if ax in inside else v for ax, v in place.values.items()}
    here = replace(place, values=values, simplify=simple)
    accesses = emission.accesses.at(here)
    value = accesses.value(node, node.body)
    guards = replace(emission.guards, place=here)
    tests = [*guards.tests(node, SPATIAL), *_within_sums(here.coordinates(node), emission, node)]
    test, zero = E.all_of(*dict.fromkeys(map(simple, tests))), E.const(0, value.dtype)
    if value.op == "if_then_else" and value.args[2] is zero:
        test, value = E.binary("and", test, value.args[0]), value.args[1]
    if held.atom.cut:
        value = E.call("tf32", value)
    (buffer,) = accesses.targets(node)
    at = place.simplify(emission.accesses.tile(node) + first)
    if width > 1:
        lanes = Lanes(element, width, simple, gpu=True, shortest=WORD)
        vector = lanes.value(value)
        together = _same_for_all(test, element, width, simple)
        if vector is None or vector.lanes == 1 or together is None:
            return None
        value, test, at = vector, together, E.ramp(at, 1, width)
    test = simple(test)
    if test.op != "const":
        value = E.if_then_else(E.broadcast(test, width), value, E.broadcast(zero, width))
    elif not test.attr:
        value = E.broadcast(zero, width)
    return Store(buffer, at, value)


def _within_sums(coordinates: dict[Expr, Expr], emission: Emission, node: Node) -> list[Expr]:
    """Where terms end within an atom: both operands are zero there, whatever lies in memory."""
    place, tests = emission.place, []
    for read in node.reads:
        reader = read.reader
        assert reader.product is not None
        product = reader.product
        k, size = product.parts["k"].root, product.atom.extents["k"]
        if not isinstance(k.extent, int) or k.extent % size == 0:
            continue
        assert node.held is not None
        dim = next(d for d, letter in node.held.letters if letter == "k")
        start = E.substitute(
            read.expression.args[dim], {**place.coordinates(reader), k.var: E.const(0)}
        )
        tests.append(coordinates[node.op.axis[dim].var] - start < k.extent)
    return tests


def _same_for_all(test: Expr, element: Expr, width: int, simple: Simplifier) -> Expr | None:
    """The test of a whole vector; None where its elements differ in it."""
    parts = []
    for part in E.conjuncts(test):
        if not any(n is element for n in E.walk(part)):
            parts.append(part)
            continue
        if part.op not in ("lt", "ge"):
            return None
        first = E.substitute(part.args[0] - part.args[1], {element: E.const(0)})
        steps = simple(part.args[0] - part.args[1] - first - element)
        if steps.op != "const" or steps.attr or not simple.is_multiple(first, width):
            return None
        parts.append(E.substitute(part, {element: E.const(0)}))
    return E.all_of(*parts)


def product(emission: Emission, node: Node) -> Reduction:
    """The sums of a stage, by an atom.

    rewrite:  for k.outer: for m in 16: for n in 8: for k in 16: C[m, n] += F[m, k] * G[k, n]
              ->   C[0..3] = 0; for k.outer: C[0..3] += F[0..7] * G[0..3]      (atom)
    """
    assert node.product is not None and node.held is not None
    _check_splits(emission, node)
    accesses, guards, atom = emission.accesses, emission.guards, node.product.atom
    (buffer,), index = accesses.targets(node), accesses.tile(node)
    lanes, first = guards.lanes(node, once=False), first_reduction(node)
    spatial = E.binary("and", lanes, guards.of(node, SPATIAL))

    def identity(renamed: Renaming) -> Stmt:
        zero = E.const(0, buffer.dtype)
        stores = (Store(buffer, renamed(index + k), zero) for k in range(atom.sum.elements))
        return guarded(renamed(spatial), seq(*stores))

    def region(of: Operand) -> Region:
        return Region(*accesses.tile_read(node, of), of.held.fragment.elements)

    start = emission.again(node, first, identity, "init")
    update = Mma(
        atom, Region(buffer, index, atom.sum.elements), region(node.product.a),
        region(node.product.b),
    )  # fmt: skip
    guard = E.binary("and", lanes, guards.of(node, ALL))
    return Reduction(guarded(guard, update), {first: lambda nest: seq(start, nest)})


def _check_splits(emission: Emission, node: Node) -> None:
    """Raise LegalityError where atoms would overlap, as masks do for whoever asks them."""
    assert node.product is not None
    bounds, atom = emission.place.bounds, node.product.atom
    for letter, part in node.product.parts.items():
        factors = [(split.parent.name, bounds.factor[split]) for split in part.splits]
        for name, factor in [*factors, (part.leaf.name, bounds.extent[part.leaf])]:
            wanted = atom.extents[letter]
            if factor % wanted:
                raise LegalityError(
                    f"split of {node.name}.{name}",
                    f"it is split by {factor}, and {letter} of {atom} is {wanted}",
                    f"Split by a multiple of {wanted}.",
                )
