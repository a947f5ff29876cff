"""Loops of what the steps of a scan compute on the way.

In: an emission, a node, its loops.  Out: the loops, where there are earlier steps to read.
Read next: `schedule/tree/recurrence.py`.
"""

from __future__ import annotations

from tilewright.ir import expr as E
from tilewright.ir.stmt import Stmt
from tilewright.lowering.emission import Emission, guarded
from tilewright.lowering.guards import SPATIAL
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.recurrence import steps_of


def from_its_step(emission: Emission, node: Node, body: Stmt) -> Stmt:
    """`body` where there are earlier steps, of a stage that reads them; and only by the threads
    that store what follows from it, since others did not store what it reads."""
    own, guards = emission.place, emission.guards
    steps = steps_of(own.tree)
    scan, begun = steps.scan.get(node), steps.begun(node)
    if scan is None or begun is None or node.parent in steps.scan:
        return body
    time, first = begun
    tests = [own.values[time] >= first]
    if own.launch:
        known = {*own.thread_var.values(), *(own.leaf[ax] for _, ax in own.tree.path(node))}
        loops = {own.leaf[ax] for ax in scan.stage.leaf_iter_vars} - known
        tests += [t for t in guards.tests(scan, SPATIAL) if loops.isdisjoint(E.free_variables(t))]
        tests.append(guards.lanes(scan))
    return guarded(own.simplify(E.all_of(*tests)), body)
