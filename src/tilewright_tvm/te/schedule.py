"""`te.schedule`, TVM's name for what a schedule is made of.

In: schedules.  Out: the classes that old scripts compare with, the ranges that loops run over, and
functions that inline by the form of computations.  Read next: `schedule/state.py`,
`schedule/schedule.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ScheduleError, absent
from tilewright.driver.build import lower
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Program
from tilewright.ir.symbols import plain
from tilewright.schedule.schedule import Schedule, Stage, create_schedule
from tilewright.schedule.state import FuseRelation as Fuse
from tilewright.schedule.state import SplitRelation as Split
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.te.axis import Range
from tilewright.te.tensor import ComputeOp, IterVar
from tilewright_tvm.te.groups import Group
from tilewright_tvm.te.ir_builder import BufferVar as Buffer

__all__ = [
    "AutoInlineBroadcast",
    "AutoInlineElemWise",
    "AutoInlineInjective",
    "Buffer",
    "Fuse",
    "Group",
    "InferBound",
    "IterVar",
    "Schedule",
    "ScheduleOps",
    "Split",
    "Stage",
    "create_schedule",
]


def InferBound(sch: Schedule) -> dict[IterVar, Range]:
    """What each axis of the stages that are not inlined runs over: min and extent, expressions of
    the variables of outer loops.

    The extent is how often a loop runs; of an axis of a stage inside another one's loop, the part
    that is computed there.  Raises ScheduleError for a schedule that is not finished.
    """
    tree = LoopTree(sch)
    bounds = tree.bounds()
    found = {ax: Range(E.const(0), E.convert(plain(n))) for ax, n in bounds.extent.items()}  # type: ignore[arg-type]
    for node, bases in bounds.base.items():
        for ax, base in zip(node.op.axis, bases, strict=True):
            values = _Variables()
            found[ax] = Range(base.expression(values), found[ax].extent)  # type: ignore[arg-type]
    return found


def ScheduleOps(schedule: Schedule, bounds: Mapping[Any, Any] | None = None) -> Program:
    """The loops of a schedule: `lower`.  bounds: what InferBound gave; lowering finds them anew."""
    return lower(schedule)


class _Variables(dict[IterVar, Expr]):
    """Each axis as its own variable."""

    def __missing__(self, axis: IterVar) -> Expr:
        return axis.var


def _inlined(sch: Schedule, fits: Callable[[ComputeOp], bool]) -> None:
    for stage in sch.stages:
        op = stage.op
        if not isinstance(op, ComputeOp) or op.why_fixed:
            continue
        if not stage.is_output and stage.attach_kind == "root" and fits(op):
            stage.compute_inline()


def _reads(op: ComputeOp) -> list[tuple[Expr, ...]]:
    return [n.args for n in E.walk(op.body) if n.op == "read"]


def AutoInlineElemWise(sch: Schedule) -> None:
    """Inlines what reads other tensors at its own element only."""
    _inlined(sch, lambda op: not op.reduce_axis and all(
        tuple(ax.var for ax in op.axis) == index for index in _reads(op)
    ))  # fmt: skip


def AutoInlineBroadcast(sch: Schedule) -> None:
    """Inlines what reads other tensors at its own element, or at one for a whole dimension."""

    def fits(op: ComputeOp) -> bool:
        own = [ax.var for ax in op.axis]
        for index in _reads(op):
            places = [own.index(i) if i in own else -1 for i in index if i.op != "const"]
            if -1 in places or places != sorted(set(places)):
                return False
        return not op.reduce_axis

    _inlined(sch, fits)


def AutoInlineInjective(sch: Schedule) -> None:
    """Inlines what reduces nothing."""
    _inlined(sch, lambda op: not op.reduce_axis)


open_doors(
    globals(),
    (
        "InferBound",
        "ScheduleOps",
        "AutoInlineElemWise",
        "AutoInlineBroadcast",
        "AutoInlineInjective",
    ),
    ScheduleError,
)

_ELSEWHERE = {
    "Singleton": "s[C].fuse() gives a loop of one iteration, which is in s[C].leaf_iter_vars.",
    "SpecializedCondition": "Extents that are numbers need none; te.var is guarded where it must.",
}


def __getattr__(name: str) -> Any:
    raise absent("te.schedule", name, _ELSEWHERE)
