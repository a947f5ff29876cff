"""Scans: stages whose elements follow from those of earlier steps, along their first axis.

In: a stage that reads its own tensors, by placeholders (`states`) that stand for them.  Out: which
stages its steps compute on the way, and which only steps read.  `te.scan` makes such stages.
Read next: `dag.py`; `schedule/tree/recurrence.py`, what their schedules must leave as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.tuples import parts
from tilewright.te.axis import IterVar
from tilewright.te.tensor import ComputeOp, Operation, Tensor


class ScanOp(ComputeOp):
    """A stage that reads its own elements, of earlier steps.

    states:  placeholders that stand for the tensors of the stage where a step reads them
    first:   how many steps are given
    updates: tensors whose computation is that of the stage
    """

    __slots__ = ("first", "states", "updates")
    kind = "scan"

    def __init__(
        self,
        name: str,
        axis: tuple[IterVar, ...],
        body: Expr,
        tag: str = "",
        attrs: dict[str, Any] | None = None,
        *,
        states: Sequence[Tensor],
        first: int,
        updates: Sequence[Tensor] = (),
    ) -> None:
        self.states, self.first, self.updates = tuple(states), first, tuple(updates)
        super().__init__(name, axis, body, tag, attrs)
        self.input_tensors = tuple(dict.fromkeys([*self.input_tensors, *self.states]))

    @property
    def scan_axis(self) -> IterVar:
        """The time."""
        return self.axis[0]

    @property
    def why_fixed(self) -> tuple[str, str]:
        return (
            "the steps of a scan are kept and computed on their own",
            "Schedule its other loops, and what is computed in its steps.",
        )

    @property
    def why_untuned(self) -> tuple[str, str]:
        return (
            f"{self.name} is a scan, which is not tuned",
            "Schedule it with te.create_schedule, or tune what a step computes.",
        )

    def rest_of_json(self, number: Callable[[Tensor], Any]) -> list[Any]:
        return [[number(t) for t in self.states], self.first]

    def over(self, axis: tuple[IterVar, ...], body: Expr) -> ScanOp:
        return self._of(axis, body, self.states, self.updates)

    def at(self, numbers: Mapping[Expr, int], tensors: Mapping[Tensor, Tensor]) -> ScanOp:
        made = super().at(numbers, tensors)
        return self._of(made.axis, made.body, [tensors[t] for t in self.states])

    def _of(
        self,
        axis: tuple[IterVar, ...],
        body: Expr,
        states: Sequence[Tensor],
        updates: Sequence[Tensor] = (),
    ) -> ScanOp:
        own: dict[str, Any] = {"states": states, "first": self.first, "updates": updates}
        return ScanOp(self.name, axis, body, self.tag, self.attrs, **own)


def scans(ops: Sequence[Operation]) -> list[ScanOp]:
    """List the scans among the operations of a computation, in order."""
    return [op for op in ops if isinstance(op, ScanOp)]


def steps(ops: Sequence[ComputeOp]) -> dict[ScanOp, tuple[ComputeOp, ...]]:
    """Find what the steps of each scan compute: all that depends on its states, in order.

    ops: of the computation, in order
    """
    found: dict[ScanOp, tuple[ComputeOp, ...]] = {}
    for scan in scans(ops):
        known = set(scan.states)
        for op in ops:
            if op is not scan and not known.isdisjoint(op.input_tensors):
                known |= set(op.outputs)
            if op is scan:
                break
        found[scan] = tuple(op for op in ops if op.outputs[0] in known)
    return found


def late(
    steps: Mapping[ScanOp, Sequence[ComputeOp]],
    ops: Sequence[ComputeOp],
    readers: Callable[[ComputeOp], Sequence[ComputeOp]],
) -> dict[ComputeOp, int]:
    """Find what only steps of scans read, at their own time, with the first step that does.

    ops: of the computation, without those that make its outputs, in order
    """
    found: dict[ComputeOp, int] = {}
    if not steps:
        return found
    scan_of = {op: scan for scan, inside in steps.items() for op in (*inside, scan)}
    for op in reversed(ops):
        if op in scan_of:
            continue
        firsts: set[int] = set()
        for reader in readers(op):
            own = [n for n in E.walk(reader.body) if n.op == "read" and n.attr.op is op]
            firsts |= {_first_read(n, reader, scan_of, found) for n in own} or {0}  # 0: statements
        if len(firsts) == 1 and 0 not in firsts:
            found[op] = firsts.pop()
    return found


def _first_read(
    read: Expr,
    reader: ComputeOp,
    scan_of: Mapping[ComputeOp, ScanOp],
    late: Mapping[ComputeOp, int],
) -> int:
    """The first time at which `reader` reads what it does at its own time; 0 of all else."""
    if not reader.axis or not read.args or read.args[0] is not reader.axis[0].var:
        return 0
    scan = scan_of.get(reader)
    if scan is None:
        return late.get(reader, 0)
    begins = [value.args[1] for value in parts(scan.body)] if reader is scan else []
    return 0 if any(n.attr is read.attr for n in E.walk(*begins)) else scan.first
