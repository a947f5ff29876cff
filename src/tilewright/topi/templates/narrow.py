"""Products with narrow weights: what templates read off an anchor.  Read next: `gpu_narrow.py`."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.schedule.template import PART, Anchored
from tilewright.te.tensor import ComputeOp, Tensor


@dataclass(frozen=True)
class Operands:
    """part: the sums of lines; what is read, and the scales of its groups."""

    part: Tensor
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
        if len(weights) == len(data) == 1:
            return Operands(lines[0], data.pop(), weights.pop(), others[0])
    raise ScheduleError(
        f"template for {op.name}", "it is no sum of lines with scales",
        "It compiles with its default schedule.",
    )  # fmt: skip
