"""What stages and schedules have by TVM's names, beside what they have in the compiler.

In: nothing.  Out: `Stage` and `Schedule`, of which no object is made: their methods and properties
are those of the compiler's classes of these names (`base/plugins.py`, "members").
Read next: `groups.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ScheduleError
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import THREAD_TAGS
from tilewright.schedule import schedule
from tilewright.te.tensor import IterVar, Operation, Tensor
from tilewright_tvm.te.groups import Group, between, grouped, groups_of, of_stage

_ATTACH_TYPES = {"root": 1, "inline": 2, "scope": 4}  # TVM's numbers


@dataclass(frozen=True)
class LoopAttributes:
    """What was said of one axis, by TVM's names.

    iter_type:   IterVar.Unrolled, Vectorized, Parallelized or ThreadIndex; else DataPar, or
                 CommReduce of a reduction
    bind_thread: the thread index, such as "threadIdx.x", or None
    pragma_keys, pragma_values: of pragmas that begin here
    """

    iter_type: int
    bind_thread: str | None
    pragma_keys: tuple[str, ...]
    pragma_values: tuple[Any, ...]


_ITER_TYPES = {
    "parallel": IterVar.Parallelized,
    "unroll": IterVar.Unrolled,
    "vectorize": IterVar.Vectorized,
}


class Stage(schedule.Stage):
    @property
    def attach_type(self) -> int:
        """1 where it is computed on its own, 2 inlined, 4 inside a loop."""
        return _ATTACH_TYPES[self.attach_kind]

    @property
    def attach_stage(self) -> Stage | None:
        """The stage in whose loop it is computed."""
        return None if self.attach is None else self.attach[0]  # type: ignore[return-value]

    @property
    def attach_ivar(self) -> IterVar | None:
        """The loop in which it is computed."""
        return None if self.attach is None else self.attach[1]

    @property
    def group(self) -> Group | None:
        """The innermost group that it is in."""
        return of_stage(self)

    @property
    def iter_var_attrs(self) -> dict[IterVar, LoopAttributes]:
        """The attributes of the axes of which something was said."""
        begun = [ax for ax, _ in self.pragmas.values()]
        return {ax: _said_of(self, ax) for ax in self.all_iter_vars if self.mark(ax) or ax in begun}

    def double_buffer(self) -> None:
        """TVM's hint to copy the next part while this one is used: changes nothing, copies do not
        overlap arithmetic yet."""

    @door(ScheduleError)
    def set_store_predicate(self, predicate: Any) -> None:
        """Only the first of the threads that would store the same elements does: it is so anyway.

        predicate: `thread.var.equal(0)`, of a thread index that no spatial loop of the stage takes.
        Raises ScheduleError for any other.
        """
        tag = _first_of(predicate)
        if not tag or any(t == tag and ax.kind != "reduce" for ax, t in self.binds.items()):
            raise ScheduleError(
                f"set_store_predicate({self.name}, {predicate})",
                "it is not the first of threads that would store the same elements",
                "Give thread.var.equal(0), or put the condition into te.compute.",
            )  # fmt: skip


def _said_of(stage: schedule.Stage, axis: IterVar) -> LoopAttributes:
    plain = IterVar.CommReduce if axis.kind == "reduce" else IterVar.DataPar
    kind = _ITER_TYPES.get(stage.annotations.get(axis, ""), plain)
    tag = stage.binds.get(axis)
    pragmas = {key: value for key, (ax, value) in stage.pragmas.items() if ax is axis}
    return LoopAttributes(
        kind if tag is None else IterVar.ThreadIndex, tag, tuple(pragmas), (*pragmas.values(),)
    )


def _first_of(predicate: Any) -> str:
    """The thread index that a condition compares with 0; "" for another condition."""
    if not isinstance(predicate, Expr) or predicate.op != "eq":
        return ""
    thread, zero = predicate.args
    named = thread.op == "var" and str(thread.attr) in THREAD_TAGS
    return str(thread.attr) if named and zero.op == "const" and zero.attr == 0 else ""


class Schedule(schedule.Schedule):
    @property
    def groups(self) -> list[Group]:
        """Those of the steps of scans, and those that were made."""
        return groups_of(self)

    @door(ScheduleError)
    def create_group(
        self,
        outputs: Tensor | Operation | Sequence[Tensor | Operation],
        inputs: Tensor | Operation | Sequence[Tensor | Operation],
        include_inputs: bool = False,
    ) -> Group:
        """The stages between some tensors, to be attached together.

        Raises ScheduleError where there are none, and for parts of other groups.
        """
        ends = [
            [self[t] for t in (listed if isinstance(listed, Sequence) else [listed])]
            for listed in (outputs, inputs)
        ]
        made = grouped(self, between(self, *ends, include_inputs=include_inputs))
        groups_of(self).append(made)
        return made

    def normalize(self) -> schedule.Schedule:
        """The schedule itself: axes begin at 0 already."""
        return self
