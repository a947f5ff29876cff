"""The names that printed Python uses: variables for stages, tensors and axes.

In: a `ScheduleState` just before each step.  Out: variables, and the lines that introduce them.
Read next: `step.py`, `python.py`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

from tilewright.schedule.space.decision import Choice
from tilewright.schedule.state import ScheduleState, StageState
from tilewright.te.tensor import IterVar, Tensor

_TAKEN = ("s", "te", "tensors")  # names that printed Python uses itself


def identifier(name: str) -> str:
    """The variable of a tensor or an axis in printed Python."""
    clean = re.sub(r"\W", "_", name)
    if clean in _TAKEN or keyword.iskeyword(clean):
        return f"{clean}_"
    return clean if not clean[0].isdigit() else f"t_{clean}"


class PythonNames:
    """Variables of the stages and axes of a state.

    lines: filled by whoever asks for an axis that has no variable yet
    """

    def __init__(self, state: ScheduleState[StageState]) -> None:
        self.state = state
        self.lines: list[str] = []
        self._axes: dict[IterVar, str] = {}
        self._tensors = {stage.name for stage in state.stages}

    def tensor(self, stage: str, value: int | None = None) -> str:
        """value: which tensor of the stage is meant; None: all of them."""
        if stage not in self._tensors:  # a step made it beside what it gave
            self._tensors.add(stage)
            self.lines.append(f'{identifier(stage)} = s.find("{stage}").tensor')
        several = value is not None and len(self.state.find(stage).tensors) > 1
        return f"{identifier(stage)}[{value}]" if several else identifier(stage)

    def stage(self, stage: str) -> str:
        return f"s[{self.tensor(stage)}]"

    def axis(self, stage: str, name: str) -> str:
        """The variable of an axis; roots are unpacked from their operation when first named."""
        of = self.state.find(stage)
        axis = next(ax for ax in of.all_iter_vars if ax.name == name)
        if axis not in self._axes:
            roots = (*of.op.axis, *of.op.reduce_axis)
            handle = f"{self.stage(stage)}.op"
            made = self._make(stage, roots)
            self.lines.append(f"{made}, = (*{handle}.axis, *{handle}.reduce_axis)")
        return self._axes[axis]

    def axes(self, stage: str, names: Iterable[str]) -> str:
        return ", ".join([self.axis(stage, name) for name in names])

    def assigned(self, stage: str, call: str, result: object) -> str:
        """The line of a call: what it gave gets a variable."""
        if result is None:
            return call
        if isinstance(result, Tensor):
            made = self.state[result].name
            self._tensors.add(made)
            return f"{identifier(made)} = {call}"
        axes = result if isinstance(result, tuple) else (result,)
        return f"{self._make(stage, axes)} = {call}"

    def _make(self, stage: str, axes: Iterable[IterVar]) -> str:
        made = {ax: identifier(f"{stage}_{ax.name}") for ax in axes}
        self._axes |= made
        return ", ".join(made.values())


def value_text(value: object) -> str:
    """A field of a step in Python."""
    return str(value) if isinstance(value, (int, Choice)) else repr(value)
