"""Products with narrow weights: what templates read off an anchor.  Read next: `gpu_narrow.py`."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.schedule.template import PART, Anchored
from tilewright.te.tensor import ComputeOp, Tensor


@dataclass(frozen=True)
class Operands:
    """part: the sums of lines; rows: the data in lines, data: as it was; what else is read."""

    part: Tensor
    rows: Tensor
    data: Tensor
    weight: Tensor
    scale: Tensor


def operands_of(a: Anchored) -> Operands:
    """Raises ScheduleError where the anchor is no sum of lines, times scales."""
    op = a.schedule[a.anchor].op
    assert isinstance(op, ComputeOp)
    lines = [t for t in op.input_tensors if isinstance(t.op, ComputeOp) and t.op.tag == PART]
    others = [t for t in op.input_tensors if t not in lines]
    if len(lines) == len(others) == 1 and isinstance(part := lines[0].op, ComputeOp):
        column = part.axis[-2].var
        reads = list(dict.fromkeys(e for e in E.walk(part.body) if e.op == "read"))
        weights = {e.attr for e in reads if column in E.free_variables(*e.args)}
        data = {e.attr for e in reads if column not in E.free_variables(*e.args)}
        rows = data.pop() if len(weights) == len(data) == 1 else None
        if rows is not None and isinstance(rows.op, ComputeOp) and len(rows.op.input_tensors) == 1:
            return Operands(lines[0], rows, rows.op.input_tensors[0], weights.pop(), others[0])
    raise ScheduleError(
        f"template for {op.name}", "it is no sum of lines with scales",
        "It compiles with its default schedule.",
    )  # fmt: skip
