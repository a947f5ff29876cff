"""Scans in a loop tree: what is computed in their steps, and what a schedule must leave as it is.

In: a structure.  Out: `Steps`, one for each structure; `check_scan` gives nothing, or a
ScheduleError.
A step reads what earlier ones stored.  So the loop of steps is the outermost and runs in order, and
what depends on the state is inside it.  Threads of a GPU do not wait for each other between two
steps: each reads of the state only what it stored itself.
Read next: `te/recurrence.py`, `lowering/recurrence.py`.
"""

from __future__ import annotations

import weakref

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.tuples import parts
from tilewright.schedule.tree.structure import Node, Read, Structure
from tilewright.te.recurrence import ScanOp
from tilewright.te.tensor import IterVar


class Steps:
    """What the steps of the scans of a schedule compute.  `steps_of(tree)` makes one a tree.

    scan: stages that depend on the state of a scan, and are computed in its steps -> the scan
    late: stages that only steps of a scan read, at their own time -> the first that is read: those
          before it need not be there, nor what they would read
    """

    def __init__(self, tree: Structure) -> None:
        self.scan: dict[Node, Node] = {}
        self.late: dict[Node, int] = {}
        self._op = {node: node.op for node in tree.nodes if isinstance(node.op, ScanOp)}
        if self._op:
            self._find_steps(tree)
            self._find_late(tree)

    @property
    def scans(self) -> list[Node]:
        return list(self._op)

    def begun(self, node: Node) -> tuple[IterVar, int] | None:
        """The time of the scan in whose steps a stage is computed, and the first that needs it."""
        scan = self.scan.get(node)
        return (scan.op.axis[0], self._op[scan].first) if scan is not None else None

    def _find_steps(self, tree: Structure) -> None:
        for scan, op in self._op.items():
            known = set(op.states)
            for stage in tree.schedule.stages:
                if stage is scan.stage:
                    break
                if not known.isdisjoint(stage.op.input_tensors):
                    known |= set(stage.tensors)
                    if stage in tree.of_stage:
                        self.scan[tree.of_stage[stage]] = scan

    def _find_late(self, tree: Structure) -> None:
        whole = {tensor for op in tree.opaque.values() for tensor in op.input_tensors}
        for node in reversed(tree.nodes):
            known = node in self.scan or node in self._op or node.stage.is_output
            if known or not whole.isdisjoint(node.stage.tensors):
                continue
            firsts = {self._first_read(node, read) for read in node.reads}
            if len(firsts) == 1 and 0 not in firsts:
                self.late[node] = firsts.pop()

    def _first_read(self, node: Node, read: Read) -> int:
        reader, at = read.reader, read.indices[0] if read.indices else None
        if at is None or not reader.op.axis or at.constant != 0:
            return 0
        if at.terms != ((1, reader.op.axis[0]),):
            return 0
        scan = reader if reader in self._op else self.scan.get(reader)
        if scan is None:
            return self.late.get(reader, 0)
        begins = [v.args[1] for v in parts(reader.body) if v.op == "if_then_else"]
        known = {n.attr for n in E.walk(*begins) if n.op == "read"} if reader is scan else set()
        unclear = reader is scan and len(begins) != len(parts(reader.body))
        used = unclear or not known.isdisjoint(node.stage.tensors)
        return 0 if used else self._op[scan].first


_known: weakref.WeakKeyDictionary[Structure, Steps] = weakref.WeakKeyDictionary()


def steps_of(tree: Structure) -> Steps:
    """Give the one of a tree, made at the first call."""
    found = _known.get(tree)
    if found is None:
        found = _known[tree] = Steps(tree)
    return found


def check_scan(tree: Structure, scan: Node) -> None:
    """Raises ScheduleError where the steps would not run one after the other."""
    time, leaves = scan.op.axis[0], scan.stage.leaf_iter_vars
    if leaves[0] != time or scan.stage.mark(time):
        raise ScheduleError(
            f"scan {scan.name}", "its steps are computed one after the other",
            f"Leave the loop {time.name} outermost and as it is; split and bind the others.",
        )  # fmt: skip
    inside = {node for node, own in steps_of(tree).scan.items() if own is scan}
    for node in tree.nodes:
        if node in inside and (scan, time) not in tree.path(node):
            raise ScheduleError(
                f"stage {node.name}", f"it depends on the state of {scan.name}, whose steps it is "
                "outside of",
                f"Call compute_at(s[{scan.name}], {scan.name}.op.scan_axis), or at a loop inside.",
            )  # fmt: skip
    _check_threads(tree, scan, inside)


def _check_threads(tree: Structure, scan: Node, inside: set[Node]) -> None:
    """Raises ScheduleError where a thread would read what another one stored a step before."""
    kernel = tree.subtree(scan)
    bound = {ax for n in kernel for ax, tag in n.stage.binds.items() if tag != "vthread"}
    if not bound:
        return
    dims = [d for d in range(1, len(scan.op.axis)) if _varies(tree, scan, d, bound)]
    loops = {ax for d in dims for ax in tree.leaves_under[scan.op.axis[d]]} - bound
    for read in scan.reads:
        node = read.reader
        if node is not scan and node not in inside:
            continue
        alone = {ax for _, ax in tree.path(node)} >= loops and not bound & node.stage.binds.keys()
        private = node is scan or (node.scope == "local" and alone)
        if private and all(_is_own(scan, read, d) for d in dims):
            continue
        raise ScheduleError(
            f"scan {scan.name}", f"{node.name} reads what other threads stored the step before, "
            "and threads do not wait for each other between steps",
            "Bind axes only along which each element is read where it was stored, keep stages in "
            "between local and inside the loops of these axes, or build for llvm, with parallel "
            "loops.",
        )  # fmt: skip


def _varies(tree: Structure, scan: Node, dim: int, bound: set[IterVar]) -> bool:
    """Whether threads have different parts of a dimension."""
    axis = scan.op.axis[dim]
    alone = isinstance(axis.size, int) and axis.size == 1
    return not alone and not bound.isdisjoint(tree.leaves_under[axis])


def _is_own(scan: Node, read: Read, dim: int) -> bool:
    """Whether the element that is read has, along a dimension, the place of the element of the scan
    that is computed from it."""
    node = read.reader
    access, axis = read.indices[dim], node.op.axis[dim] if dim < len(node.op.axis) else None
    if access is None or axis is None or access.constant != 0 or access.terms != ((1, axis),):
        return False
    return node is scan or all(_is_own(scan, other, dim) for other in node.reads)
