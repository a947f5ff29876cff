"""Steps on the loops of a stage: split, fuse, reorder, bind, annotate, pragma.

In: a state.  Out: other loops, or loops that run otherwise.  Read next: `places.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir.stmt import TAGS
from tilewright.schedule.space.decision import Size
from tilewright.schedule.state import StageState
from tilewright.schedule.steps.names import PythonNames, value_text
from tilewright.schedule.steps.step import (
    AnyState,
    Step,
    describe,
    leaf,
    refuse_inlined,
    refuse_inside,
    stage_of,
)
from tilewright.te.tensor import IterVar

ANNOTATIONS = ("vectorize", "unroll", "parallel")
PRAGMAS = ("auto_unroll_max_step", "unroll_explicit", "exchange")


@dataclass(frozen=True)
class Split(Step):
    """One loop becomes two; the inner one has `factor` iterations (or the outer one `nparts`).

    rewrite:  s[B].split(i, factor=8)
        B: float32[20] global, 20 elements, 80 bytes
          for i in 20:
            B[i] = A[i]*2.0
        ->
        B: float32[20] global, 20 elements, 80 bytes
          for i.outer in 3:
            for i.inner in 8:
              if i.outer*8 + i.inner < 20:
                B[i.outer*8 + i.inner] = A[i.outer*8 + i.inner]*2.0
    legal:    factor or nparts is at least 1; any size, dividing or not.  What was computed at the
              loop is then computed at the inner one.
    """

    axis: str
    factor: Size | None
    nparts: Size | None
    verb: ClassVar[str] = "split"

    def apply(self, s: AnyState) -> tuple[IterVar, IterVar]:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        asked = f"factor={self.factor}" if self.nparts is None else f"nparts={self.nparts}"
        place = f"split({stage.name}.{self.axis}, {asked})"
        if (self.factor is None) == (self.nparts is None):
            raise ScheduleError(place, "give either factor or nparts", "For example factor=8.")
        size = self.factor if self.factor is not None else self.nparts
        if isinstance(size, int) and size < 1:
            which = "factor" if self.nparts is None else "nparts"
            raise ScheduleError(
                place, f"{which} must be at least 1", f"{describe(stage)}. Try {which}=8."
            )
        parent = leaf(self, stage, self.axis)
        _refuse_marked(place, stage, parent)
        inside = s.attached(stage, parent)
        outer, inner = stage.add_split(parent, self.factor, self.nparts)
        for child in inside:
            child.attach_to("scope", (stage, inner), child.along)
        return outer, inner

    def python(self, names: PythonNames) -> str:
        which, size = ("factor", self.factor) if self.nparts is None else ("nparts", self.nparts)
        axis = names.axis(self.stage, self.axis)
        return f"{names.stage(self.stage)}.split({axis}, {which}={value_text(size)})"


def _refuse_marked(place: str, stage: StageState, axis: IterVar) -> None:
    if stage.mark(axis):
        raise ScheduleError(
            place, f"{axis.name} is already {stage.mark(axis)}", "Split and fuse before annotating."
        )


@dataclass(frozen=True)
class Fuse(Step):
    """Adjacent loops become one; of no loops, an outermost one of one iteration.

    rewrite:  s[C].fuse(i, j)
        C: float32[4, 6] global, 24 elements, 96 bytes
          for i in 4:
            for j in 6:
              for r in 8:
                C[i, j] += A[i, r]*B[r, j]
        ->
        C: float32[4, 6] global, 24 elements, 96 bytes
          for i.j.fused in 24:
            for r in 8:
              C[i.j.fused//6, i.j.fused%6] += A[i.j.fused//6, r]*B[r, i.j.fused%6]
    legal:    the axes are neighbours in loop order, of one kind (all spatial or all reduction), and
              nothing is computed at any but the innermost; that is then computed at the new loop.
    """

    axes: tuple[str, ...]
    verb: ClassVar[str] = "fuse"

    def apply(self, s: AnyState) -> IterVar:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        place = f"fuse({', '.join(f'{stage.name}.{a}' for a in self.axes)})"
        if not self.axes:
            return stage.add_unit()
        axes = [leaf(self, stage, a) for a in self.axes]
        first = stage.leaf_iter_vars.index(axes[0])
        if stage.leaf_iter_vars[first : first + len(axes)] != axes:
            raise ScheduleError(
                place,
                "the axes are not neighbours in loop order",
                f"{describe(stage)}. Reorder first.",
            )
        if len({ax.kind for ax in axes}) > 1:
            raise ScheduleError(
                place, "spatial and reduction axes do not fuse", f"{describe(stage)}."
            )
        for ax in axes:
            _refuse_marked(place, stage, ax)
        for ax in axes[:-1]:
            for child in s.attached(stage, ax):
                raise ScheduleError(
                    place, f"{child.name} is computed at {ax.name}", "Fuse before compute_at."
                )
        innermost = s.attached(stage, axes[-1])
        fused = axes[0]
        for ax in axes[1:]:
            fused = stage.add_fusion(fused, ax)
        for child in innermost:
            child.attach_to("scope", (stage, fused), child.along)
        return fused

    def python(self, names: PythonNames) -> str:
        return f"{names.stage(self.stage)}.fuse({names.axes(self.stage, self.axes)})"


@dataclass(frozen=True)
class Reorder(Step):
    """The named loops take, among their own places, the given order.

    rewrite:  s[C].reorder(r, i)
        C: float32[4, 6] global, 24 elements, 96 bytes
          for i in 4:
            for j in 6:
              for r in 8:
                C[i, j] += A[i, r]*B[r, j]
        ->
        C: float32[4, 6] global, 24 elements, 96 bytes
          for r in 8:
            for j in 6:
              for i in 4:
                C[i, j] += A[i, r]*B[r, j]
    legal:    the axes are loops of the stage, each named once.
    """

    axes: tuple[str, ...]
    verb: ClassVar[str] = "reorder"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        axes = [leaf(self, stage, a) for a in self.axes]
        for ax in axes:
            refuse_inside(self, stage, ax)
        if len(set(axes)) != len(axes):
            place = f"reorder({', '.join((stage.name, *self.axes))})"
            raise ScheduleError(place, "an axis is named twice", f"{describe(stage)}.")
        stage.arrange(axes)

    def python(self, names: PythonNames) -> str:
        return f"{names.stage(self.stage)}.reorder({names.axes(self.stage, self.axes)})"


@dataclass(frozen=True)
class Bind(Step):
    """A loop becomes a block or thread index ("vthread": a virtual thread).

    rewrite:  s[B].bind(i, "threadIdx.x")
        B: float32[20] global, 20 elements, 80 bytes
          for i in 20:
            B[i] = A[i]*2.0
        ->
        B: float32[20] global, 20 elements, 80 bytes
          threadIdx.x for i in 20:
            B[i] = A[i]*2.0
    legal:    each hardware index once per stage; reduction loops only on threadIdx.
    """

    axis: str
    tag: str
    verb: ClassVar[str] = "bind"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        place = f"bind({stage.name}.{self.axis}, {self.tag})"
        if self.tag not in TAGS:
            raise ScheduleError(place, "unknown thread tag", f"Use one of {', '.join(TAGS)}.")
        axis = leaf(self, stage, self.axis)
        if stage.mark(axis):
            raise ScheduleError(place, f"{axis.name} is already {stage.mark(axis)}")
        if self.tag != "vthread" and self.tag in stage.binds.values():
            raise ScheduleError(
                place, f"another axis of {stage.name} is bound to it", "Fuse the two axes."
            )
        if axis.kind == "reduce" and not self.tag.startswith("threadIdx"):
            raise ScheduleError(
                place,
                "a reduction loop binds to threadIdx only",
                "Use rfactor to spread it over blocks.",
            )
        stage.binds[axis] = self.tag

    def python(self, names: PythonNames) -> str:
        axis = names.axis(self.stage, self.axis)
        return f'{names.stage(self.stage)}.bind({axis}, te.thread_axis("{self.tag}"))'


@dataclass(frozen=True)
class Annotate(Step):
    """vectorize, unroll or parallel on one loop.

    rewrite:  s[B].vectorize(i_inner)
        B: float32[20] global, 20 elements, 80 bytes
          for i.outer in 5:
            for i.inner in 4:
              B[i.outer*4 + i.inner] = A[i.outer*4 + i.inner]*2.0
        ->
        B: float32[20] global, 20 elements, 80 bytes
          for i.outer in 5:
            vectorized for i.inner in 4:
              B[i.outer*4 + i.inner] = A[i.outer*4 + i.inner]*2.0
    legal:    vectorize and parallel need a spatial loop; a loop takes one annotation.
    """

    axis: str
    how: str
    verb: ClassVar[str] = "annotate"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        place = f"{self.how}({stage.name}.{self.axis})"
        if self.how not in ANNOTATIONS:
            raise ScheduleError(
                place, "unknown annotation", f"Use one of {', '.join(ANNOTATIONS)}."
            )
        axis = leaf(self, stage, self.axis)
        if axis.kind == "reduce" and self.how != "unroll":
            raise ScheduleError(
                place, "a reduction loop cannot run its iterations at once", "Use rfactor first."
            )
        if stage.mark(axis):
            raise ScheduleError(place, f"{axis.name} is already {stage.mark(axis)}")
        stage.annotations[axis] = self.how

    def python(self, names: PythonNames) -> str:
        return f"{names.stage(self.stage)}.{self.how}({names.axis(self.stage, self.axis)})"


@dataclass(frozen=True)
class Pragma(Step):
    """A hint on all inside a loop.

    auto_unroll_max_step: loops inside are unrolled while their steps together stay within it
    unroll_explicit:      0 or 1; accepted for schedules of TVM
    exchange:             0 or 1; of a reduction over threadIdx.x: its 32 lanes exchange what they
                          have reduced, without shared memory and barriers

    rewrite:  s[C].pragma(i, "auto_unroll_max_step", 16)
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:
            for k in 10:
              C[i] += A[i, k]
        ->
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:  # auto_unroll_max_step 16
            for k in 10:
              C[i] += A[i, k]
    legal:    a known hint with a non-negative value.
    """

    axis: str
    key: str
    value: Size
    verb: ClassVar[str] = "pragma"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        place = f"pragma({stage.name}.{self.axis}, {self.key}, {self.value})"
        if self.key not in PRAGMAS:
            raise ScheduleError(place, "unknown pragma", f"Known: {', '.join(PRAGMAS)}.")
        if isinstance(self.value, int) and self.value < 0:
            raise ScheduleError(place, "the value must not be negative")
        stage.pragmas[self.key] = (leaf(self, stage, self.axis), self.value)

    def python(self, names: PythonNames) -> str:
        axis, value = names.axis(self.stage, self.axis), value_text(self.value)
        return f'{names.stage(self.stage)}.pragma({axis}, "{self.key}", {value})'
