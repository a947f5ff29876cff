"""A schedule as Python: the calls that rebuild it.

In: the state before its first step, and the steps.  Out: text.  Works on open schedules too, whose
decisions it names.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.step import AnyState, Step


def python_text(state: AnyState, steps: Iterable[Step]) -> str:
    """Python that repeats the steps, which are applied to `state` on the way.

    It expects `s` (from te.create_schedule) and one variable per tensor of the computation, named
    as in `ComputeDAG.unique_names`.
    """
    names = PythonNames(state)
    for step in steps:
        call = step.python(names)
        names.lines.append(names.assigned(step.stage, call, step.apply(state)))
    return "".join(f"{line}\n" for line in names.lines)
