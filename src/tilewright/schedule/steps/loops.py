"""The schedule language: frozen steps, each with its rewrite, its legality and its JSON.

A step names stages and axes by their unique names, so a list of steps replays on an equal DAG
(`Schedule.replay`), prints as runnable Python, and is what records store.  Numbers may be
`Choice`s.  Read next: `stage_steps.py`, `schedule.py` (the spelling users know), `tree.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir.stmt import TAGS
from tilewright.schedule.space.decision import Choice
from tilewright.schedule.steps.stages import CacheRead, CacheWrite, Pack, RFactor
from tilewright.schedule.steps.step import (
    FuseRelation,
    Size,
    SplitRelation,
    Step,
    check_scope,
    describe,
    leaf,
    refuse_host,
    refuse_inlined,
    stage_of,
    unplain,
)
from tilewright.te.tensor import ComputeOp, IterVar

if TYPE_CHECKING:
    from tilewright.schedule.schedule import Schedule, Stage

__all__ = [
    "ANNOTATIONS", "PRAGMAS", "STEPS", "TAGS", "Annotate", "Bind", "CacheRead", "CacheWrite",
    "ComputeAt", "ComputeInline", "ComputeRoot", "Fuse", "FuseRelation", "Pack", "Pragma",
    "RFactor", "Reorder", "SetScope", "Size", "Split", "SplitRelation", "Step", "StorageAlign",
    "step_from_json",
]  # fmt: skip

ANNOTATIONS = ("vectorize", "unroll", "parallel")
PRAGMAS = ("auto_unroll_max_step", "unroll_explicit")


@dataclass(frozen=True)
class Split(Step):
    """One loop becomes two; the inner one has `factor` iterations (or the outer one `nparts`).

    rewrite:  for i in n: ..   ->   for i.outer in ceil(n/f): for i.inner in f: (if i < n) ..
    legal:    factor or nparts is at least 1; any size, dividing or not.  What was computed at the
              loop is then computed at the inner one.
    """

    axis: str
    factor: Size | None
    nparts: Size | None
    verb: ClassVar[str] = "split"

    def apply(self, s: Schedule) -> tuple[IterVar, IterVar]:
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
        _unbound(place, stage, parent)
        outer = stage.new_axis(f"{parent.name}.outer", parent.kind)
        inner = stage.new_axis(f"{parent.name}.inner", parent.kind)
        stage.relations.append(SplitRelation(parent, outer, inner, self.factor, self.nparts))
        stage.replace_leaves([parent], [outer, inner])
        for child in _attached(stage, parent):
            child.attach = (stage, inner)
        return outer, inner


def _unbound(place: str, stage: Stage, axis: IterVar) -> None:
    if axis in stage.binds or axis in stage.annotations:
        how = stage.binds.get(axis) or stage.annotations[axis]
        raise ScheduleError(
            place, f"{axis.name} is already {how}", "Split and fuse before annotating."
        )


def _attached(stage: Stage, axis: IterVar) -> list[Stage]:
    """The stages that are computed at `axis`."""
    return [st for st in stage.schedule.stages if st.attach == (stage, axis)]


@dataclass(frozen=True)
class Fuse(Step):
    """Adjacent loops become one.

    rewrite:  for i in n: for j in m: ..   ->   for i.j.fused in n*m: ..
    legal:    the axes are neighbours in loop order, of one kind (all spatial or all reduction), and
              nothing is computed at any but the innermost; that is then computed at the new loop.
    """

    axes: tuple[str, ...]
    verb: ClassVar[str] = "fuse"

    def apply(self, s: Schedule) -> IterVar:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        place = f"fuse({', '.join(f'{stage.name}.{a}' for a in self.axes)})"
        if not self.axes:
            raise ScheduleError(place, "no axes to fuse", f"{describe(stage)}.")
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
            _unbound(place, stage, ax)
        for ax in axes[:-1]:
            for child in _attached(stage, ax):
                raise ScheduleError(
                    place, f"{child.name} is computed at {ax.name}", "Fuse before compute_at."
                )
        innermost = _attached(stage, axes[-1])
        fused = axes[0]
        for ax in axes[1:]:
            new = stage.new_axis(f"{fused.name}.{ax.name}.fused", ax.kind)
            stage.relations.append(FuseRelation(fused, ax, new))
            stage.replace_leaves([fused, ax], [new])
            fused = new
        for child in innermost:
            child.attach = (stage, fused)
        return fused


@dataclass(frozen=True)
class Reorder(Step):
    """The named loops take, among their own places, the given order.

    rewrite:  for i: for j: ..   ->   for j: for i: ..
    legal:    the axes are loops of the stage, each named once.
    """

    axes: tuple[str, ...]
    verb: ClassVar[str] = "reorder"

    def apply(self, s: Schedule) -> None:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        axes = [leaf(self, stage, a) for a in self.axes]
        if len(set(axes)) != len(axes):
            place = f"reorder({', '.join((stage.name, *self.axes))})"
            raise ScheduleError(place, "an axis is named twice", f"{describe(stage)}.")
        places = sorted(stage.leaf_iter_vars.index(ax) for ax in axes)
        for where, ax in zip(places, axes, strict=True):
            stage.leaf_iter_vars[where] = ax


@dataclass(frozen=True)
class Bind(Step):
    """A loop becomes a block or thread index ("vthread": a virtual thread).

    rewrite:  for i in n: ..   ->   i = threadIdx.x (n of them): ..
    legal:    each hardware index once per stage; reduction loops only on threadIdx.
    """

    axis: str
    tag: str
    verb: ClassVar[str] = "bind"

    def apply(self, s: Schedule) -> None:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        place = f"bind({stage.name}.{self.axis}, {self.tag})"
        if self.tag not in TAGS:
            raise ScheduleError(place, "unknown thread tag", f"Use one of {', '.join(TAGS)}.")
        axis = leaf(self, stage, self.axis)
        if axis in stage.binds or axis in stage.annotations:
            raise ScheduleError(
                place, f"{axis.name} is already {stage.binds.get(axis) or stage.annotations[axis]}"
            )
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


@dataclass(frozen=True)
class Annotate(Step):
    """vectorize, unroll or parallel on one loop.

    rewrite:  for i in n: ..   ->   vectorized | unrolled | parallel for i in n: ..
    legal:    vectorize and parallel need a spatial loop; a loop takes one annotation.
    """

    axis: str
    how: str
    verb: ClassVar[str] = "annotate"

    def apply(self, s: Schedule) -> None:
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
        if axis in stage.binds or axis in stage.annotations:
            raise ScheduleError(
                place, f"{axis.name} is already {stage.binds.get(axis) or stage.annotations[axis]}"
            )
        stage.annotations[axis] = self.how


@dataclass(frozen=True)
class Pragma(Step):
    """A hint on all inside a loop: auto_unroll_max_step (operations), unroll_explicit (0 or 1).

    rewrite:  loops inside whose total steps stay within the limit become unrolled.
    legal:    a known hint with a non-negative value.
    """

    axis: str
    key: str
    value: Size
    verb: ClassVar[str] = "pragma"

    def apply(self, s: Schedule) -> None:
        stage = stage_of(self, s)
        refuse_inlined(self, stage)
        place = f"pragma({stage.name}.{self.axis}, {self.key}, {self.value})"
        if self.key not in PRAGMAS:
            raise ScheduleError(place, "unknown pragma", f"Known: {', '.join(PRAGMAS)}.")
        if isinstance(self.value, int) and self.value < 0:
            raise ScheduleError(place, "the value must not be negative")
        stage.pragmas[self.key] = (leaf(self, stage, self.axis), self.value)


@dataclass(frozen=True)
class ComputeAt(Step):
    """The stage is computed inside a loop of one of its readers, just what that iteration needs.

    rewrite:  for p: P[p] = ..; for c: for d: C[..P..]
              ->   for c: {for p in needed: P[p] = ..}; for d: C[..P..]
    legal:    all readers of the stage are inside that loop; the stage is no output.
    """

    parent: str
    axis: str
    verb: ClassVar[str] = "compute_at"

    def apply(self, s: Schedule) -> None:
        stage, parent = stage_of(self, s), stage_of(self, s, self.parent)
        place = f"compute_at({stage.name}, {parent.name}.{self.axis})"
        if stage.is_output:
            raise ScheduleError(
                place,
                "an output must be complete when the kernel ends",
                "Use cache_write and attach the cache.",
            )
        refuse_inlined(self, parent)
        axis = leaf(self, parent, self.axis)
        walker: Stage | None = parent
        while walker is not None:
            if walker is stage:
                raise ScheduleError(place, f"{parent.name} is itself computed inside {stage.name}")
            walker = walker.attach[0] if walker.attach else None
        if not s.reaches(stage, parent):
            raise ScheduleError(
                place, f"{parent.name} does not use {stage.name}", "Attach to a reader."
            )
        stage.attach_kind, stage.attach = "scope", (parent, axis)


@dataclass(frozen=True)
class ComputeInline(Step):
    """The stage's expression replaces every read of it.

    rewrite:  P[p] = e(p); C[c] = f(P[g(c)])   ->   C[c] = f(e(g(c)))
    legal:    not an output, not a reduction, without scheduled loops or stages computed in them.
    """

    verb: ClassVar[str] = "compute_inline"

    def apply(self, s: Schedule) -> None:
        stage = stage_of(self, s)
        place = f"compute_inline({stage.name})"
        if stage.is_output:
            raise ScheduleError(
                place, "an output has to be stored", "Inline its producers instead."
            )
        assert isinstance(stage.op, ComputeOp)
        if stage.op.combiner is not None:
            raise ScheduleError(
                place, "a reduction cannot be repeated at every reader", "Use compute_at."
            )
        if stage.relations or stage.binds or stage.annotations:
            raise ScheduleError(
                place, "the stage already has scheduled loops", "Inline before splitting."
            )
        refuse_host(self, stage)
        stage.attach_kind, stage.attach = "inline", None


@dataclass(frozen=True)
class ComputeRoot(Step):
    """The stage is computed on its own before its readers (undoes compute_at and compute_inline).

    rewrite:  for c: {for p in needed: P[p]}; ..   ->   for p: P[p]; for c: ..
    legal:    always.
    """

    verb: ClassVar[str] = "compute_root"

    def apply(self, s: Schedule) -> None:
        stage = stage_of(self, s)
        stage.attach_kind, stage.attach = "root", None


@dataclass(frozen=True)
class SetScope(Step):
    """Where the stage's buffer lives: "global", "shared" or "local".

    rewrite:  alloc P global   ->   alloc P shared
    legal:    a known scope; outputs stay global.
    """

    scope: str
    verb: ClassVar[str] = "set_scope"

    def apply(self, s: Schedule) -> None:
        stage = stage_of(self, s)
        check_scope(f"set_scope({stage.name}, {self.scope})", self.scope)
        if stage.is_output and self.scope != "global":
            raise ScheduleError(f"set_scope({stage.name}, {self.scope})", "an output is global")
        stage.scope = self.scope


@dataclass(frozen=True)
class StorageAlign(Step):
    """Pads rows: the stride of `axis` in the stage's buffer becomes k * factor + offset elements.

    rewrite:  alloc P[n, m]   ->   alloc P[n, m padded]
    legal:    factor at least 1, 0 <= offset < factor; the axis is a root axis, not the last.
    """

    axis: str
    factor: Size
    offset: Size
    verb: ClassVar[str] = "storage_align"

    def apply(self, s: Schedule) -> None:
        stage = stage_of(self, s)
        place = f"storage_align({stage.name}.{self.axis}, {self.factor}, {self.offset})"
        assert isinstance(stage.op, ComputeOp)
        names = [ax.name for ax in stage.op.axis]
        if self.axis not in names:
            raise ScheduleError(
                place, "not a root axis of the stage", f"Root axes: {' '.join(names)}."
            )
        known = isinstance(self.factor, int) and isinstance(self.offset, int)
        if known and not 0 <= self.offset < self.factor:  # which implies factor >= 1
            raise ScheduleError(place, "needs factor >= 1 and 0 <= offset < factor")
        if stage.is_output:
            raise ScheduleError(
                place, "the layout of an output belongs to its user", "Align a cache stage."
            )
        stage.aligned[names.index(self.axis)] = (self.factor, self.offset)


STEPS: dict[str, type[Step]] = {
    cls.verb: cls
    for cls in (
        Split, Fuse, Reorder, Bind, Annotate, Pragma, ComputeAt, ComputeInline, ComputeRoot,
        SetScope, CacheRead, CacheWrite, RFactor, StorageAlign, Pack,
    )
}  # fmt: skip


def step_from_json(data: list[Any]) -> Step:
    """The step behind `Step.to_json`; anything else is a ScheduleError."""
    verb = data[0] if isinstance(data, list) and data else None
    cls = STEPS.get(verb) if isinstance(verb, str) else None
    if cls is None or len(data) - 1 != len(fields(cls)):
        raise ScheduleError(
            "step_from_json", f"not a step: {data!r}", f"Verbs: {', '.join(STEPS)}."
        )
    values = list(map(unplain, data[1:]))
    for field, value in zip(fields(cls), values, strict=True):
        if not _holds(str(field.type), value):
            raise ScheduleError(
                f"step_from_json({data!r})", f"{field.name} must be {field.type}, not {value!r}"
            )
    return cls(*values)


_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,), "int": (int,), "Size": (int, Choice), "Size | None": (int, Choice, type(None)),
}  # fmt: skip


def _holds(annotation: str, value: Any) -> bool:
    """Whether a field of a step may be `value`."""
    item = annotation.removeprefix("tuple[").removesuffix(", ...]")
    if item != annotation:
        return isinstance(value, tuple) and all(_holds(item, v) for v in value)
    return isinstance(value, _FIELD_TYPES[annotation])
