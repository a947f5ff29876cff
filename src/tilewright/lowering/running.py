"""Sums that follow a maximum while both are computed: what each part of a loop begins with.

In: an `Emission`, a maximum with what follows it (`schedule/tree/running.py`), the statements that
bring it up to date.  Out: these, and the factors for what was added up before.
Read next: `folds.py`.

rewrite:  M = max(M, part)
          ->   before = M; M = max(M, part); factor = exp(before - M); T *= factor; O *= factor
Where nothing was there, M was the least finite number and the factor is 0 or 1.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Allocate, Buffer, Stmt, Store, load, seq
from tilewright.lowering.emission import Emission, Renaming, guarded
from tilewright.lowering.guards import SPATIAL
from tilewright.lowering.powers import in_powers_of_two
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.running import Scaled


def followed(emission: Emission, node: Node, newer: Stmt) -> Stmt:
    """`newer`, which brings the maximum `node` up to date, and what the sums owe to that."""
    (own,), index = emission.accesses.targets(node), emission.accesses.tile(node)
    assert node.held is not None
    rows, kind = node.held.fragment.elements, node.op.dtype.compute
    before = Buffer(f"{node.name}.before", own.dtype, own.size, "local", own.shape)
    factor = Buffer(f"{node.name}.factor", kind, own.size, "local", own.shape)

    guard = emission.guards.of(node, SPATIAL)

    def kept(renamed: Renaming) -> Stmt:
        places = [renamed(index + k) for k in range(rows)]
        return guarded(renamed(guard), seq(*(Store(before, at, load(own, at)) for at in places)))

    def grown(renamed: Renaming) -> Stmt:
        places = [renamed(index + k) for k in range(rows)]
        steps = (E.cast(kind, load(before, at)) - E.cast(kind, load(own, at)) for at in places)
        factors = (in_powers_of_two(E.call("exp", step)) for step in steps)
        stores = (Store(factor, at, f) for at, f in zip(places, factors, strict=True))
        return guarded(renamed(guard), seq(*stores))

    body = seq(
        emission.again(node, 0, kept, "before"),
        newer,
        emission.again(node, 0, grown, "grown"),
        *(_scaled(emission, one, own, factor) for one in node.running),
    )
    return Allocate(before, Allocate(factor, body))


def _scaled(emission: Emission, scaled: Scaled, largest: Buffer, factor: Buffer) -> Stmt:
    """What was added up so far, times the factors."""
    node, place = scaled.node, emission.place
    (buffer,), index = emission.accesses.targets(node), emission.accesses.tile(node)
    assert node.held is not None
    fragment, lane = node.held.fragment, place.thread_var["threadIdx.x"]
    row_axis = next(node.op.axis[dim] for dim, letter in node.held.letters if letter == "m")
    guard = emission.guards.of(node, SPATIAL)
    stores: list[tuple[Expr, Expr]] = []
    for k in range(fragment.elements):
        row, _ = fragment.place(lane, k)
        values = {ax: v + row if ax is row_axis else v for ax, v in place.values.items()}
        read = emission.accesses.at(replace(place, values=values)).value(node, scaled.read)
        at = place.simplify(index + k)
        stores.append((at, load(buffer, at) * _instead(read, largest, factor)))

    def times(renamed: Renaming) -> Stmt:
        made = (Store(buffer, renamed(at), renamed(value)) for at, value in stores)
        return guarded(renamed(guard), seq(*made))

    return emission.again(node, 0, times, "scaled")


def _instead(read: Expr, largest: Buffer, factor: Buffer) -> Expr:
    """The element of `factor` in the place of one of `largest`."""
    (found,) = (n for n in E.walk(read) if n.op == "load" and n.attr is largest)
    return load(factor, found.args[0])
