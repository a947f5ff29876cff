"""Steps on where a stage is computed and where its buffer lives.

In: a state.  Out: another place, scope or layout of a stage.  Read next: `stages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir.swizzle import SWIZZLES
from tilewright.schedule.scopes import FRAGMENT
from tilewright.schedule.space.decision import Size
from tilewright.schedule.state import StageState
from tilewright.schedule.steps.names import PythonNames, value_text
from tilewright.schedule.steps.step import (
    AnyState,
    Step,
    check_scope,
    leaf,
    refuse_fixed,
    refuse_host,
    refuse_inlined,
    refuse_inside,
    refuse_opaque,
    refuse_read_by_opaque,
    stage_of,
)
from tilewright.te.tensor import ComputeOp


@dataclass(frozen=True)
class ComputeAt(Step):
    """The stage is computed inside a loop of one of its readers, just what that iteration needs.

    rewrite:  s[B].compute_at(s[C], i)
        B: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              B[i, j] = A[i, j]*2.0
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = B[i, j] + 1.0
        ->
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            B: float32[1, 4] local, 4 elements, 16 bytes, at C.i
              for B.i in 1:
                for j in 4:
                  B[i, j] = A[i, j]*2.0
            for j in 4:
              C[i, j] = B[i, j] + 1.0
    legal:    all readers of the stage are inside that loop; the stage is no output.
    """

    parent: str
    axis: str
    verb: ClassVar[str] = "compute_at"

    def apply(self, s: AnyState) -> None:
        stage, parent = stage_of(self, s), stage_of(self, s, self.parent)
        place = f"compute_at({stage.name}, {parent.name}.{self.axis})"
        if stage.is_output:
            raise ScheduleError(
                place,
                "an output must be complete when the kernel ends",
                "Use cache_write and attach the cache.",
            )
        refuse_fixed(self, stage)
        refuse_read_by_opaque(self, s, stage)
        refuse_inlined(self, parent)
        axis = leaf(self, parent, self.axis)
        refuse_inside(self, parent, axis)
        walker: StageState | None = parent
        while walker is not None:
            if walker is stage:
                raise ScheduleError(place, f"{parent.name} is itself computed inside {stage.name}")
            walker = walker.attach[0] if walker.attach else None
        if not s.reaches(stage, parent):
            raise ScheduleError(
                place, f"{parent.name} does not use {stage.name}", "Attach to a reader."
            )
        stage.attach_to("scope", (parent, axis))

    def python(self, names: PythonNames) -> str:
        host, axis = names.stage(self.parent), names.axis(self.parent, self.axis)
        return f"{names.stage(self.stage)}.compute_at({host}, {axis})"


@dataclass(frozen=True)
class ComputeInline(Step):
    """The stage's expression replaces every read of it.

    rewrite:  s[B].compute_inline()
        B: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              B[i, j] = A[i, j]*2.0
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = B[i, j] + 1.0
        ->
        B: inlined into C
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = A[i, j]*2.0 + 1.0
    legal:    not an output, not a reduction, without scheduled loops or stages computed in them.
    """

    verb: ClassVar[str] = "compute_inline"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        place = f"compute_inline({stage.name})"
        if stage.is_output:
            raise ScheduleError(
                place, "an output has to be stored", "Inline its producers instead."
            )
        assert isinstance(stage.op, ComputeOp)
        refuse_fixed(self, stage)
        refuse_read_by_opaque(self, s, stage)
        if stage.op.combiner is not None:
            raise ScheduleError(
                place, "a reduction cannot be repeated at every reader", "Use compute_at."
            )
        if stage.is_scheduled:
            raise ScheduleError(
                place, "the stage already has scheduled loops", "Inline before splitting."
            )
        refuse_host(self, s, stage)
        stage.attach_to("inline")


@dataclass(frozen=True)
class ComputeRoot(Step):
    """The stage is computed on its own before its readers (undoes compute_at and compute_inline).

    rewrite:  s[B].compute_root()
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            B: float32[1, 4] local, 4 elements, 16 bytes, at C.i
              for B.i in 1:
                for j in 4:
                  B[i, j] = A[i, j]*2.0
            for j in 4:
              C[i, j] = B[i, j] + 1.0
        ->
        B: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              B[i, j] = A[i, j]*2.0
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = B[i, j] + 1.0
    legal:    always.
    """

    verb: ClassVar[str] = "compute_root"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        stage.attach_to("root")


@dataclass(frozen=True)
class SetScope(Step):
    """Where the stage's buffer lives: "global", "shared", "fragment" or "local".

    A fragment is held by the lanes of a warp together: the sums of `Tensorize` and its operands.

    rewrite:  s[B].set_scope("shared")
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            B: float32[1, 4] local, 4 elements, 16 bytes, at C.i
              for B.i in 1:
                for j in 4:
                  B[i, j] = A[i, j]*2.0
            for j in 4:
              C[i, j] = B[i, j] + 1.0
        ->
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            B: float32[1, 4] shared, 4 elements, 16 bytes, at C.i
              for B.i in 1:
                for j in 4:
                  B[i, j] = A[i, j]*2.0
            for j in 4:
              C[i, j] = B[i, j] + 1.0
    legal:    a known scope; outputs stay global.
    """

    scope: str
    verb: ClassVar[str] = "set_scope"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        check_scope(f"set_scope({stage.name}, {self.scope})", self.scope)
        if stage.is_output and self.scope != "global":
            raise ScheduleError(f"set_scope({stage.name}, {self.scope})", "an output is global")
        if stage.atom is not None and self.scope != FRAGMENT:
            raise ScheduleError(
                f"set_scope({stage.name}, {self.scope})",
                f"{stage.atom[0]} computes it, in the registers of a warp",
                f"Leave it in scope {FRAGMENT}; s.cache_write makes a stage of that before.",
            )
        stage.scope = self.scope

    def python(self, names: PythonNames) -> str:
        return f'{names.stage(self.stage)}.set_scope("{self.scope}")'


@dataclass(frozen=True)
class StorageAlign(Step):
    """Pads rows: the stride of `axis` in the stage's buffer becomes k * factor + offset elements.

    rewrite:  s[B].storage_align(B_i, 8, 1)
        B: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              B[i, j] = A[i, j]*2.0
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = B[i, j] + 1.0
        ->
        B: float32[6, 4] global, 54 elements, 216 bytes, stride of i 9 (8n + 1)
          for i in 6:
            for j in 4:
              B[i, j] = A[i, j]*2.0
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = B[i, j] + 1.0
    legal:    factor at least 1, 0 <= offset < factor; the axis is a root axis of no output.
    """

    axis: str
    factor: Size
    offset: Size
    verb: ClassVar[str] = "storage_align"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        place = f"storage_align({stage.name}.{self.axis}, {self.factor}, {self.offset})"
        (dim,) = _dimensions(self, s, stage, place, (self.axis,))
        known = isinstance(self.factor, int) and isinstance(self.offset, int)
        if known and not 0 <= self.offset < self.factor:  # which implies factor >= 1
            raise ScheduleError(place, "needs factor >= 1 and 0 <= offset < factor")
        stage.aligned[dim] = (self.factor, self.offset)

    def python(self, names: PythonNames) -> str:
        axis = names.axis(self.stage, self.axis)
        sizes = f"{value_text(self.factor)}, {value_text(self.offset)}"
        return f"{names.stage(self.stage)}.storage_align({axis}, {sizes})"


@dataclass(frozen=True)
class StorageOrder(Step):
    """Stores dimensions in another order: those of the given axes innermost, the last at stride 1.

    rewrite:  s[B].storage_order(B_i)
        B: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              B[i, j] = A[i, j]*2.0
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = B[i, j] + 1.0
        ->
        B: float32[6, 4] global, 24 elements, 96 bytes, stored as j, i
          for i in 6:
            for j in 4:
              B[i, j] = A[i, j]*2.0
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            for j in 4:
              C[i, j] = B[i, j] + 1.0
    legal:    root axes, each once, of no output.
    """

    axes: tuple[str, ...]
    verb: ClassVar[str] = "storage_order"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        place = f"storage_order({', '.join((stage.name, *self.axes))})"
        dims = _dimensions(self, s, stage, place, self.axes)
        if len(set(dims)) < len(dims):
            raise ScheduleError(place, "an axis is named twice", "Name each once.")
        rest = (d for d in range(len(stage.op.axis)) if d not in dims)
        stage.order = (*rest, *dims)

    def python(self, names: PythonNames) -> str:
        axes = ", ".join(names.axis(self.stage, axis) for axis in self.axes)
        return f"{names.stage(self.stage)}.storage_order({axes})"


@dataclass(frozen=True)
class Swizzle(Step):
    """Exchanges pieces of 16 bytes inside the rows of a shared buffer, so that pieces below each
    other lie in different banks.  Indices stay as they are; 0 bytes undo it.

    Of 128 bytes: address ^= (address >> 7 & 7) << 4, what matrix units and copy engines undo.

    rewrite:  s[B].swizzle(64)
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            B: float32[1, 4] shared, 4 elements, 16 bytes, at C.i
              for B.i in 1:
                for j in 4:
                  B[i, j] = A[i, j]*2.0
            for j in 4:
              C[i, j] = B[i, j] + 1.0
        ->
        C: float32[6, 4] global, 24 elements, 96 bytes
          for i in 6:
            B: float32[1, 4] shared, 4 elements, 16 bytes, swizzled by 64 bytes, at C.i
              for B.i in 1:
                for j in 4:
                  B[i, j] = A[i, j]*2.0
            for j in 4:
              C[i, j] = B[i, j] + 1.0
    legal:    a stage in shared memory; 0, 32, 64 or 128 bytes.
    """

    nbytes: Size
    verb: ClassVar[str] = "swizzle"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        place = f"swizzle({stage.name}, {self.nbytes})"
        refuse_fixed(self, stage)
        refuse_opaque(self, stage)
        refuse_read_by_opaque(self, s, stage)
        if stage.scope != "shared":
            raise ScheduleError(
                place, f"shared memory has banks, and the scope is {stage.scope!r}",
                'Make the stage by cache_read(tensor, "shared", ...), or call set_scope first.',
            )  # fmt: skip
        if isinstance(self.nbytes, int) and self.nbytes not in SWIZZLES:
            raise ScheduleError(
                place, "no such swizzle", f"There are those of {', '.join(map(str, SWIZZLES))}."
            )
        stage.swizzled = self.nbytes

    def python(self, names: PythonNames) -> str:
        return f"{names.stage(self.stage)}.swizzle({value_text(self.nbytes)})"


def _dimensions(
    step: Step, s: AnyState, stage: StageState, place: str, axes: tuple[str, ...]
) -> list[int]:
    """The dimensions of root axes, where the layout of the buffer is the schedule's to choose."""
    assert isinstance(stage.op, ComputeOp)
    refuse_opaque(step, stage)
    refuse_read_by_opaque(step, s, stage)
    names = [ax.name for ax in stage.op.axis]
    if not set(axes) <= set(names):
        raise ScheduleError(place, "not a root axis of the stage", f"Root axes: {' '.join(names)}.")
    if stage.is_output:
        raise ScheduleError(
            place, "the layout of an output belongs to its user", "Lay out a cache stage."
        )
    return [names.index(axis) for axis in axes]
