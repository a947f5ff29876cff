"""Arguments that a schedule stores nowhere: each is computed once more, for the caller alone.

A stage that is inlined, or computed inside another one, has no place of its own that a caller
could read; where C reads only a part of it, some of it is not computed at all.  So what is asked
for becomes a stage of its own beside the schedule, `B.whole`, and the rest stays as it is.
In: a schedule, arguments.  Out: the same, with these stages.  Read next: `build.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.base.errors import TilewrightError
from tilewright.ir.expr import Expr
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.thread_loops import over_blocks
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Operation, Tensor

_THREADS = 64
Arguments = Sequence[Tensor | Expr] | None


def with_extra_outputs(schedule: Schedule, args: Arguments) -> tuple[Schedule, Arguments]:
    """Unchanged where what is asked for reads a stage that is inside of another: lowering then
    refuses the argument.  In a schedule of threads it is run by blocks of `_THREADS`."""
    if args is None:
        return schedule, args
    inside = [t for t in args if isinstance(t, Tensor) and _is_inside(schedule, t)]
    if not inside:
        return schedule, args
    copies = {op: _whole(op) for op in dict.fromkeys(t.op for t in inside)}
    whole = {t: copies[t.op].outputs[t.value_index] for t in inside}
    dag = ComputeDAG([*schedule.dag.outputs, *whole.values()])
    try:
        found = Schedule.replay(dag, schedule.steps)
        if schedule.binds_threads:
            for tensor in whole.values():
                over_blocks(found[tensor], found[tensor].op.axis, _THREADS)
        LoopTree(found)
    except TilewrightError:
        return schedule, args
    return found, [whole.get(t, t) if isinstance(t, Tensor) else t for t in args]


def _is_inside(schedule: Schedule, tensor: Tensor) -> bool:
    return tensor in schedule.dag.computed and schedule[tensor].attach_kind != "root"


def _whole(op: Operation) -> ComputeOp:
    assert isinstance(op, ComputeOp)
    return ComputeOp(f"{op.name}.whole", op.axis, op.body, op.tag, dict(op.attrs))
