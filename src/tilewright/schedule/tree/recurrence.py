"""What a schedule of a scan must leave as it is: the order of steps, and who reads what.

In: a structure and the node of a scan.  Out: nothing, or a ScheduleError.
A step reads what earlier ones stored.  So the loop of steps is the outermost and runs in order, and
what depends on the state is inside it.  Threads of a GPU do not wait for each other between two
steps: each reads of the state only what it stored itself.  Read next: `structure.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ScheduleError
from tilewright.schedule.tree.structure import Node, Read, Structure
from tilewright.te.tensor import IterVar


def check_scan(tree: Structure, scan: Node) -> None:
    """Raises ScheduleError where the steps would not run one after the other."""
    time, leaves = scan.op.axis[0], scan.stage.leaf_iter_vars
    if leaves[0] != time or scan.stage.mark(time):
        raise ScheduleError(
            f"scan {scan.name}", "its steps are computed one after the other",
            f"Leave the loop {time.name} outermost and as it is; split and bind the others.",
        )  # fmt: skip
    inside = {node for node, own in tree.steps.items() if own is scan}
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
