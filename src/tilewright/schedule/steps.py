"""The schedule language: frozen steps, each with its rewrite, its legality and its JSON.

A step names stages and axes by their unique names, so a list of steps replays on an equal DAG
(`Schedule.replay`), prints as runnable Python, and is what records store.  Numbers may be `Choice`s.
Read next: `schedule.py` (the spelling users know), `tree.py` (the numbers behind the structure).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.decision import Choice, from_json, to_json
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor

if TYPE_CHECKING:
    from tilewright.schedule.schedule import Schedule, Stage

Size = int | Choice
ANNOTATIONS = ("vectorize", "unroll", "parallel")
PRAGMAS = ("auto_unroll_max_step", "unroll_explicit")
TAGS = (
    "blockIdx.x",
    "blockIdx.y",
    "blockIdx.z",
    "threadIdx.x",
    "threadIdx.y",
    "threadIdx.z",
    "vthread",
)


@dataclass(frozen=True, eq=False)
class SplitRelation:
    """parent = outer * factor + inner; with `nparts` the factor is ceil_div(parent, nparts)."""

    parent: IterVar
    outer: IterVar
    inner: IterVar
    factor: Size | None
    nparts: Size | None


@dataclass(frozen=True, eq=False)
class FuseRelation:
    """fused = outer * extent(inner) + inner."""

    outer: IterVar
    inner: IterVar
    fused: IterVar


@dataclass(frozen=True)
class Step:
    """One schedule primitive.  `apply` checks legality, changes the schedule, returns what users get."""

    stage: str
    verb: ClassVar[str] = ""

    def apply(self, s: Schedule) -> Any:
        raise ScheduleError(self.verb, "an abstract step cannot be applied")

    def to_json(self) -> list[Any]:
        return [self.verb, *(_plain(getattr(self, f.name)) for f in fields(self))]

    def place(self, s: Schedule, *what: object) -> str:
        return f"{self.verb}({', '.join(map(str, (self.stage, *what)))})"


def _plain(value: Any) -> Any:
    if isinstance(value, Choice):
        return {"choice": to_json(value)}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _unplain(value: Any) -> Any:
    if isinstance(value, dict):
        return from_json(value["choice"])
    return tuple(_unplain(v) for v in value) if isinstance(value, list) else value


def step_from_json(data: list[Any]) -> Step:
    """The step behind `Step.to_json`; an unknown verb or a wrong length is a ScheduleError."""
    cls = STEPS.get(data[0]) if data else None
    if cls is None or len(data) - 1 != len(fields(cls)):
        raise ScheduleError(
            "step_from_json", f"not a step: {data!r}", f"Verbs: {', '.join(STEPS)}."
        )
    return cls(*map(_unplain, data[1:]))


def _describe(stage: Stage) -> str:
    return f"{stage.name} has axes {' '.join(map(repr, stage.leaf_iter_vars))}"


def _leaf(step: Step, stage: Stage, name: str) -> IterVar:
    for ax in stage.leaf_iter_vars:
        if ax.name == name:
            return ax
    known = any(ax.name == name for ax in stage.all_iter_vars)
    why = "was split or fused and is no loop any more" if known else f"is no axis of {stage.name}"
    raise ScheduleError(
        f"{step.verb}({stage.name}.{name})", f"{name} {why}", f"{_describe(stage)}."
    )


def _stage(step: Step, s: Schedule, name: str = "") -> Stage:
    stage = s.find(name or step.stage)
    if isinstance(stage.op, PlaceholderOp):
        raise ScheduleError(
            f"{step.verb}({stage.name})",
            "an input has no loops to schedule",
            "Schedule its cache_read stage.",
        )
    return stage


def _no_inline(step: Step, stage: Stage) -> None:
    if stage.attach_kind == "inline":
        raise ScheduleError(
            f"{step.verb}({stage.name})", "the stage was inlined and has no loops",
            "Leave out compute_inline, or schedule its readers.",
        )  # fmt: skip


@dataclass(frozen=True)
class Split(Step):
    """One loop becomes two; the inner one has `factor` iterations (or the outer one `nparts`).

    rewrite:  for i in n: ..   ->   for i.outer in ceil(n/f): for i.inner in f: (if i < n) ..
    legal:    factor or nparts is at least 1; any size, dividing or not.
    """

    axis: str
    factor: Size | None
    nparts: Size | None
    verb: ClassVar[str] = "split"

    def apply(self, s: Schedule) -> tuple[IterVar, IterVar]:
        stage = _stage(self, s)
        _no_inline(self, stage)
        asked = f"factor={self.factor}" if self.nparts is None else f"nparts={self.nparts}"
        place = f"split({stage.name}.{self.axis}, {asked})"
        if (self.factor is None) == (self.nparts is None):
            raise ScheduleError(place, "give either factor or nparts", "For example factor=8.")
        size = self.factor if self.factor is not None else self.nparts
        if isinstance(size, int) and size < 1:
            which = "factor" if self.nparts is None else "nparts"
            raise ScheduleError(
                place, f"{which} must be at least 1", f"{_describe(stage)}. Try {which}=8."
            )
        parent = _leaf(self, stage, self.axis)
        _unbound(place, stage, parent)
        outer = stage.new_axis(f"{parent.name}.outer", parent.kind)
        inner = stage.new_axis(f"{parent.name}.inner", parent.kind)
        stage.relations.append(SplitRelation(parent, outer, inner, self.factor, self.nparts))
        stage.replace_leaves([parent], [outer, inner])
        return outer, inner


def _unbound(place: str, stage: Stage, axis: IterVar) -> None:
    if axis in stage.binds or axis in stage.annotations:
        how = stage.binds.get(axis) or stage.annotations[axis]
        raise ScheduleError(
            place, f"{axis.name} is already {how}", "Split and fuse before annotating."
        )
    for child in stage.schedule.stages:
        if child.attach == (stage, axis):
            raise ScheduleError(
                place,
                f"{child.name} is computed at {axis.name}",
                "Split and fuse before compute_at.",
            )


@dataclass(frozen=True)
class Fuse(Step):
    """Adjacent loops become one.

    rewrite:  for i in n: for j in m: ..   ->   for i.j.fused in n*m: ..
    legal:    the axes are neighbours in loop order, of one kind (all spatial or all reduction).
    """

    axes: tuple[str, ...]
    verb: ClassVar[str] = "fuse"

    def apply(self, s: Schedule) -> IterVar:
        stage = _stage(self, s)
        _no_inline(self, stage)
        place = f"fuse({', '.join(f'{stage.name}.{a}' for a in self.axes)})"
        if not self.axes:
            raise ScheduleError(place, "no axes to fuse", f"{_describe(stage)}.")
        axes = [_leaf(self, stage, a) for a in self.axes]
        first = stage.leaf_iter_vars.index(axes[0])
        if stage.leaf_iter_vars[first : first + len(axes)] != axes:
            raise ScheduleError(
                place,
                "the axes are not neighbours in loop order",
                f"{_describe(stage)}. Reorder first.",
            )
        if len({ax.kind for ax in axes}) > 1:
            raise ScheduleError(
                place, "spatial and reduction axes do not fuse", f"{_describe(stage)}."
            )
        for ax in axes:
            _unbound(place, stage, ax)
        fused = axes[0]
        for ax in axes[1:]:
            new = stage.new_axis(f"{fused.name}.{ax.name}.fused", ax.kind)
            stage.relations.append(FuseRelation(fused, ax, new))
            stage.replace_leaves([fused, ax], [new])
            fused = new
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
        stage = _stage(self, s)
        _no_inline(self, stage)
        axes = [_leaf(self, stage, a) for a in self.axes]
        if len(set(axes)) != len(axes):
            raise ScheduleError(
                self.place(s, *self.axes), "an axis is named twice", f"{_describe(stage)}."
            )
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
        stage = _stage(self, s)
        _no_inline(self, stage)
        place = f"bind({stage.name}.{self.axis}, {self.tag})"
        if self.tag not in TAGS:
            raise ScheduleError(place, "unknown thread tag", f"Use one of {', '.join(TAGS)}.")
        axis = _leaf(self, stage, self.axis)
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
        stage = _stage(self, s)
        _no_inline(self, stage)
        place = f"{self.how}({stage.name}.{self.axis})"
        if self.how not in ANNOTATIONS:
            raise ScheduleError(
                place, "unknown annotation", f"Use one of {', '.join(ANNOTATIONS)}."
            )
        axis = _leaf(self, stage, self.axis)
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
    """A hint on everything inside a loop: auto_unroll_max_step (operations), unroll_explicit (0 or 1).

    rewrite:  loops inside whose total steps stay within the limit become unrolled.
    legal:    a known hint with a non-negative value.
    """

    axis: str
    key: str
    value: Size
    verb: ClassVar[str] = "pragma"

    def apply(self, s: Schedule) -> None:
        stage = _stage(self, s)
        _no_inline(self, stage)
        place = f"pragma({stage.name}.{self.axis}, {self.key}, {self.value})"
        if self.key not in PRAGMAS:
            raise ScheduleError(place, "unknown pragma", f"Known: {', '.join(PRAGMAS)}.")
        if isinstance(self.value, int) and self.value < 0:
            raise ScheduleError(place, "the value must not be negative")
        stage.pragmas[self.key] = (_leaf(self, stage, self.axis), self.value)


@dataclass(frozen=True)
class ComputeAt(Step):
    """The stage is computed inside a loop of one of its readers, just what that iteration needs.

    rewrite:  for p: P[p] = ..; for c: for d: C[..P..]   ->   for c: {for p in needed: P[p] = ..}; for d: C[..]
    legal:    all readers of the stage are inside that loop; the stage is no output.
    """

    parent: str
    axis: str
    verb: ClassVar[str] = "compute_at"

    def apply(self, s: Schedule) -> None:
        stage, parent = _stage(self, s), _stage(self, s, self.parent)
        place = f"compute_at({stage.name}, {parent.name}.{self.axis})"
        if stage.is_output:
            raise ScheduleError(
                place,
                "an output must be complete when the kernel ends",
                "Use cache_write and attach the cache.",
            )
        _no_inline(self, parent)
        axis = _leaf(self, parent, self.axis)
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
    legal:    not an output, not a reduction.
    """

    verb: ClassVar[str] = "compute_inline"

    def apply(self, s: Schedule) -> None:
        stage = _stage(self, s)
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
        stage.attach_kind, stage.attach = "inline", None


@dataclass(frozen=True)
class ComputeRoot(Step):
    """The stage is computed on its own before its readers (undoes compute_at and compute_inline).

    rewrite:  for c: {for p in needed: P[p]}; ..   ->   for p: P[p]; for c: ..
    legal:    always.
    """

    verb: ClassVar[str] = "compute_root"

    def apply(self, s: Schedule) -> None:
        stage = _stage(self, s)
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
        stage = _stage(self, s)
        _check_scope(f"set_scope({stage.name}, {self.scope})", self.scope)
        if stage.is_output and self.scope != "global":
            raise ScheduleError(f"set_scope({stage.name}, {self.scope})", "an output is global")
        stage.scope = self.scope


def _check_scope(place: str, scope: str) -> None:
    if scope not in ("global", "shared", "local"):
        raise ScheduleError(place, "unknown scope", "Use global, shared or local.")


@dataclass(frozen=True)
class CacheRead(Step):
    """A copy of a tensor in `scope` that the named readers use.

    rewrite:  C[c] = f(A[g(c)])   ->   A.scope[a] = A[a]; C[c] = f(A.scope[g(c)])
    legal:    every reader does read the tensor.
    """

    scope: str
    readers: tuple[str, ...]
    verb: ClassVar[str] = "cache_read"

    def apply(self, s: Schedule) -> Tensor:
        source = s.find(self.stage)
        place = f"cache_read({source.name}, {self.scope})"
        _check_scope(place, self.scope)
        if not self.readers:
            raise ScheduleError(place, "no readers given", "Pass the tensors that read it.")
        tensor = source.tensor
        axes = _copy_axes(source.op.shape, [f"ax{k}" for k in range(len(source.op.shape))])
        op = ComputeOp(
            s.new_name(f"{source.name}.{self.scope}"), axes, tensor[tuple(ax.var for ax in axes)]
        )
        for name in self.readers:
            reader = _stage(self, s, name)
            assert isinstance(reader.op, ComputeOp)
            if tensor not in reader.op.input_tensors:
                raise ScheduleError(
                    place, f"{reader.name} does not read {source.name}", "Name its readers only."
                )
            reader.set_body(_redirect(reader.op.body, tensor, op.output_tensor))
        cache = s.insert_stage(op, after=source)
        cache.scope = self.scope
        return op.output_tensor


@dataclass(frozen=True)
class CacheWrite(Step):
    """The computation moves to a new stage in `scope`; the tensor itself becomes a copy of it.

    rewrite:  C[c] = e(c)   ->   C.scope[c] = e(c); C[c] = C.scope[c]
    legal:    the stage has no scheduled loops yet.
    """

    scope: str
    verb: ClassVar[str] = "cache_write"

    def apply(self, s: Schedule) -> Tensor:
        stage = _stage(self, s)
        place = f"cache_write({stage.name}, {self.scope})"
        _check_scope(place, self.scope)
        if stage.relations or stage.binds or stage.annotations or stage.attach_kind != "root":
            raise ScheduleError(
                place, "the stage already has scheduled loops", "Call cache_write first."
            )
        old = stage.op
        assert isinstance(old, ComputeOp)
        spatial = _copy_axes(old.shape, [f"{ax.name}.c" for ax in old.axis])
        body = _rename_body(old, spatial)
        op = ComputeOp(s.new_name(f"{stage.name}.{self.scope}"), spatial, body, old.tag, old.attrs)
        fresh = _copy_axes(old.shape, [ax.name for ax in old.axis])
        stage.set_op(ComputeOp(old.name, fresh, op.output_tensor[tuple(ax.var for ax in fresh)]))
        cache = s.insert_stage(op, before=stage)
        cache.scope = self.scope
        return op.output_tensor


def _copy_axes(shape: tuple[int, ...], names: list[str]) -> tuple[IterVar, ...]:
    return tuple(IterVar(n, d) for n, d in zip(names, shape, strict=True))


def _redirect(body: Expr, old: Tensor, new: Tensor) -> Expr:
    def rule(node: Expr) -> Expr | None:
        return new[node.args] if node.op == "read" and node.attr is old else None

    return E.transform(body, rule)


def _rename_body(op: ComputeOp, spatial: tuple[IterVar, ...]) -> Expr:
    """The body of `op` over fresh spatial and reduction axes."""
    mapping: dict[Expr, Any] = {a.var: b.var for a, b in zip(op.axis, spatial, strict=True)}
    if op.combiner is None:
        return E.substitute(op.body, mapping)
    reduce = tuple(IterVar(ax.name, ax.extent, "reduce", begin=ax.begin) for ax in op.reduce_axis)
    mapping |= {a.var: b.var for a, b in zip(op.reduce_axis, reduce, strict=True)}
    value = E.substitute(op.body.args[0], mapping)
    return E.make("reduce", (value,), (op.combiner, reduce), value.dtype)


@dataclass(frozen=True)
class RFactor(Step):
    """A reduction loop becomes a spatial axis of a new partial stage, which the stage then combines.

    rewrite:  C[c] += e(c, k)   ->   C.rf[ki, c] += e(c, ko, ki); C[c] += C.rf[ki, c]
    legal:    the axis is a reduction loop whose split factors are known; no spatial loop is scheduled yet.
    """

    axis: str
    factor_axis: int
    verb: ClassVar[str] = "rfactor"

    def apply(self, s: Schedule) -> Tensor:
        stage = _stage(self, s)
        place = f"rfactor({stage.name}.{self.axis})"
        op = stage.op
        assert isinstance(op, ComputeOp)
        axis = _leaf(self, stage, self.axis)
        if op.combiner is None or axis.kind != "reduce":
            raise ScheduleError(place, "not a reduction axis", f"{_describe(stage)}.")
        if not 0 <= self.factor_axis <= len(op.axis):
            raise ScheduleError(
                place, f"factor_axis={self.factor_axis} is outside 0..{len(op.axis)}"
            )
        spatial_leaves = [ax for ax in stage.leaf_iter_vars if ax.kind == "spatial"]
        if (
            spatial_leaves != list(op.axis)
            or stage.binds
            or stage.annotations
            or stage.attach_kind != "root"
        ):
            raise ScheduleError(
                place, "a spatial loop is already scheduled", "Call rfactor before tiling."
            )
        values, extents, guards = _leaf_values(place, stage)
        spatial = _copy_axes(op.shape, [f"{ax.name}.rf" for ax in op.axis])
        kept = [ax for ax in stage.leaf_iter_vars if ax.kind == "reduce" and ax is not axis]
        partial = IterVar(axis.name, extents[axis])
        reduce = tuple(IterVar(ax.name, extents[ax], "reduce") for ax in kept)
        mapping: dict[Expr, Any] = {a.var: b.var for a, b in zip(op.axis, spatial, strict=True)}
        leaves = {ax.var: r.var for ax, r in zip(kept, reduce, strict=True)} | {
            axis.var: partial.var
        }
        for root in op.reduce_axis:
            mapping[root.var] = E.substitute(values[root], leaves)
        value = E.substitute(op.body.args[0], mapping)
        if guards:
            test = E.all_of(*(E.substitute(g, leaves) for g in guards))
            value = E.if_then_else(test, value, op.combiner.identity)
        axes = (*spatial[: self.factor_axis], partial, *spatial[self.factor_axis :])
        if reduce:
            value = E.make("reduce", (value,), (op.combiner, reduce), value.dtype)
        part = ComputeOp(s.new_name(f"{stage.name}.rf"), axes, value, op.tag, op.attrs)
        fresh = _copy_axes(op.shape, [ax.name for ax in op.axis])
        k = IterVar(f"{axis.name}.v", extents[axis], "reduce")
        index = [ax.var for ax in fresh]
        index.insert(self.factor_axis, k.var)
        read = part.output_tensor[tuple(index)]
        stage.set_op(
            ComputeOp(op.name, fresh, E.make("reduce", (read,), (op.combiner, (k,)), op.dtype))
        )
        s.insert_stage(part, before=stage)
        return part.output_tensor


def _leaf_values(
    place: str, stage: Stage
) -> tuple[dict[IterVar, Expr], dict[IterVar, int], list[Expr]]:
    """Root reduction axes as expressions of leaf variables, extents of all axes, guards of uneven splits."""
    assert isinstance(stage.op, ComputeOp)
    extents: dict[IterVar, int] = {ax: int(ax.extent) for ax in stage.op.reduce_axis}  # type: ignore[arg-type]
    uneven: list[IterVar] = []
    for r in stage.relations:
        if isinstance(r, FuseRelation):
            if r.outer.kind == "reduce":
                extents[r.fused] = extents[r.outer] * extents[r.inner]
        elif r.parent.kind == "reduce":
            n = extents[r.parent]
            # a decision asked for here becomes part of the structure: extents of stages are fixed
            factor = int(r.factor) if r.factor is not None else -(-n // int(r.nparts))  # type: ignore[arg-type]
            extents[r.inner], extents[r.outer] = factor, -(-n // factor)
            if r.nparts is not None:
                extents[r.outer] = int(r.nparts)
            if extents[r.outer] * factor != n:
                uneven.append(r.parent)
    values: dict[IterVar, Expr] = {ax: ax.var for ax in stage.leaf_iter_vars}
    for r in reversed(stage.relations):
        if isinstance(r, FuseRelation):
            if r.fused in values and r.inner in extents:
                values[r.outer] = values[r.fused] // extents[r.inner]
                values[r.inner] = values[r.fused] % extents[r.inner]
        elif r.inner in extents:
            values[r.parent] = values[r.outer] * extents[r.inner] + values[r.inner]
    return values, extents, [values[ax] < extents[ax] for ax in uneven]


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
        stage = _stage(self, s)
        place = f"storage_align({stage.name}.{self.axis}, {self.factor}, {self.offset})"
        assert isinstance(stage.op, ComputeOp)
        names = [ax.name for ax in stage.op.axis]
        if self.axis not in names:
            raise ScheduleError(
                place, "not a root axis of the stage", f"Root axes: {' '.join(names)}."
            )
        if isinstance(self.factor, int) and isinstance(self.offset, int):
            if self.factor < 1 or not 0 <= self.offset < self.factor:
                raise ScheduleError(place, "needs factor >= 1 and 0 <= offset < factor")
        if stage.is_output:
            raise ScheduleError(
                place, "the layout of an output belongs to its user", "Align a cache stage."
            )
        stage.aligned[names.index(self.axis)] = (self.factor, self.offset)


@dataclass(frozen=True)
class Pack(Step):
    """An input is stored in another layout: some dimensions split into blocks, then permuted.

    blocks: per dimension the block size (1: not split); order: of the outer dimensions 0..n-1 and the
    blocks n..2n-1 (of the dimensions that are split).
    rewrite:  C[c] = f(W[o, i])   ->   W.packed[o//8, i, o%8] = W[o, i]; C[c] = f(W.packed[o//8, i, o%8])
    legal:    an input; every outer dimension and every block larger than 1 appears in the order once.
    """

    blocks: tuple[Size, ...]
    order: tuple[int, ...]
    verb: ClassVar[str] = "pack"

    def apply(self, s: Schedule) -> Tensor:
        source = s.find(self.stage)
        place = f"pack({source.name}, blocks={self.blocks}, order={self.order})"
        if not isinstance(source.op, PlaceholderOp):
            raise ScheduleError(
                place, "only inputs can be packed", "Use cache_read for computed tensors."
            )
        shape = source.op.shape
        n = len(shape)
        blocks = tuple(int(b) for b in self.blocks)
        wanted = [*range(n), *(n + d for d in range(n) if len(blocks) == n and blocks[d] > 1)]
        if len(blocks) != n or min(blocks) < 1 or sorted(self.order) != wanted:
            raise ScheduleError(
                place,
                f"{n} block sizes and an order of {wanted} are needed",
                "For OIHW16o: (16,1,1,1), (0,1,2,3,4).",
            )
        sizes = [-(-d // b) for d, b in zip(shape, blocks, strict=True)] + list(blocks)
        axes = {k: IterVar(f"{'o' if k < n else 'b'}{k % n}", sizes[k]) for k in self.order}
        index = [
            axes[d].var * b + axes[n + d].var if b > 1 else axes[d].var
            for d, b in enumerate(blocks)
        ]
        inside = E.all_of(*(ix < d for ix, d, b in zip(index, shape, blocks, strict=True) if d % b))
        tensor = source.tensor
        value = E.if_then_else(inside, tensor[tuple(index)], E.const(0, tensor.dtype))
        layout = {"blocks": blocks, "order": tuple(self.order)}
        op = ComputeOp(
            s.new_name(f"{source.name}.packed"),
            tuple(axes[k] for k in self.order),
            value,
            "pack",
            layout,
        )
        for reader in s.readers(tensor):
            assert isinstance(reader.op, ComputeOp)
            reader.set_body(_repack(reader.op.body, tensor, op.output_tensor, blocks, self.order))
        s.insert_stage(op, after=source)
        return op.output_tensor


def _repack(
    body: Expr, old: Tensor, new: Tensor, blocks: tuple[int, ...], order: tuple[int, ...]
) -> Expr:
    n = len(blocks)

    def rule(node: Expr) -> Expr | None:
        if node.op != "read" or node.attr is not old:
            return None
        parts = {d: i // b for d, (i, b) in enumerate(zip(node.args, blocks, strict=True))}
        parts |= {n + d: i % b for d, (i, b) in enumerate(zip(node.args, blocks, strict=True))}
        return new[tuple(parts[k] for k in order)]

    return E.transform(body, rule)


STEPS: dict[str, type[Step]] = {
    cls.verb: cls
    for cls in (
        Split, Fuse, Reorder, Bind, Annotate, Pragma, ComputeAt, ComputeInline, ComputeRoot, SetScope,
        CacheRead, CacheWrite, RFactor, StorageAlign, Pack,
    )
}  # fmt: skip
