"""What a schedule is at one moment: its stages in order, and the loops of each.

In: a ComputeDAG.  Out: `ScheduleState` and `StageState`, which steps change by a few named
operations and which everything else only reads.  What is legal is known to the steps alone.
Read next: `steps/` (who changes it), `tree/` (what it means).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.space.decision import Size, same
from tilewright.te.dag import ComputeDAG, fresh_name
from tilewright.te.recurrence import ScanOp
from tilewright.te.tensor import (
    AxisCopy,
    ComputeOp,
    IterVar,
    Operation,
    PlaceholderOp,
    Tensor,
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


class StageState:
    """The loops of one operation and where they run.

    op:             what is computed; its axes are the roots of all others
    tensors:        what it gives; `tensor` is the first of them
    scope:          of the buffer; "" where the place of the stage decides
    attach_kind:    "root", "inline" or "scope"; attach: the stage and loop it is computed at, None
                    unless attach_kind is "scope"
    along:          the reduction axis of the stage it is computed in, of which each iteration of
                    the loop adds a part to this stage's own reduction; None: it is whole at once
    joined:         whether blocks of its own compute it there, and the last of them reads it
    all_iter_vars:  every axis there ever was, roots first; their names differ
    leaf_iter_vars: those that are loops, outermost first
    units:          loops of one iteration that stand for no axis of the operation
    relations:      splits and fusions in the order made.  Every axis that is no root and no unit
                    was made by one relation, every axis that is no loop was consumed by one
    binds, annotations: loop -> thread tag, or "vectorize", "unroll", "parallel"; none has both
    pragmas:        key -> the loop it begins at (or an axis that was split since) and its value
    aligned:        dimension of the buffer -> (factor, offset) of its stride
    order:          dimensions of the buffer, outermost first; (): those of the tensor, in its order
    swizzled:       bytes within which its shared buffer is swizzled; 0: it is not
    atom:           name of a matrix instruction and the first of the three innermost loops, m, n
                    and k, which are inside it
    slots:          of the ring that asynchronous copies fill, 1 for copies into one place; 0: its
                    threads load and store
    """

    def __init__(
        self, name: str, op: Operation, tensors: tuple[Tensor, ...], is_output: bool
    ) -> None:
        self.name, self.tensors, self.is_output = name, tensors, is_output
        self.scope = "global" if is_output or isinstance(op, PlaceholderOp) else ""
        self.attach_kind = "root"
        self.attach: tuple[StageState, IterVar] | None = None
        self.along: IterVar | None = None
        self.joined = False
        self.restart(op)

    # -- operations of steps -----------------------------------------------------------------------
    def restart(self, op: Operation) -> None:
        """Compute `op` instead; loops start afresh, place and tensor stay."""
        self.op = op = _with_copies(op, _namesakes(op))
        self.all_iter_vars: list[IterVar] = [*op.axis, *op.reduce_axis]
        self.leaf_iter_vars: list[IterVar] = list(self.all_iter_vars)
        self.units: list[IterVar] = []
        self.relations: list[SplitRelation | FuseRelation] = []
        self.binds: dict[IterVar, str] = {}
        self.annotations: dict[IterVar, str] = {}
        self.pragmas: dict[str, tuple[IterVar, Size]] = {}
        self.aligned: dict[int, tuple[Size, Size]] = {}
        self.order: tuple[int, ...] = ()
        self.swizzled: Size = 0
        self.atom: tuple[str, IterVar] | None = None
        self.slots: Size = 0
        self.is_bulk = False  # whether a copy engine fills its buffer
        self.loaders: Size = 0  # warps of their own that fill its ring

    def set_body(self, body: Expr) -> None:
        """Replace the expression; axes and loops stay."""
        assert isinstance(self.op, ComputeOp)
        self.op = self.op.over(self.op.axis, body)

    def add_split(
        self, parent: IterVar, factor: Size | None, nparts: Size | None
    ) -> tuple[IterVar, IterVar]:
        """Two loops, (outer, inner), in the place of `parent`."""
        outer = self._new_axis(f"{parent.name}.outer", parent.kind)
        inner = self._new_axis(f"{parent.name}.inner", parent.kind)
        self.relations.append(SplitRelation(parent, outer, inner, factor, nparts))
        self._replace([parent], [outer, inner])
        return outer, inner

    def add_fusion(self, outer: IterVar, inner: IterVar) -> IterVar:
        """One loop in the place of two neighbours."""
        fused = self._new_axis(f"{outer.name}.{inner.name}.fused", inner.kind)
        self.relations.append(FuseRelation(outer, inner, fused))
        self._replace([outer, inner], [fused])
        return fused

    def add_unit(self) -> IterVar:
        """An outermost loop of one iteration."""
        axis = self._new_axis("singleton", "spatial", 1)
        self.units.append(axis)
        self.leaf_iter_vars.insert(0, axis)
        return axis

    def arrange(self, axes: Sequence[IterVar]) -> None:
        """The loops `axes` take, among their own places, the given order."""
        places = sorted(self.leaf_iter_vars.index(ax) for ax in axes)
        for where, ax in zip(places, axes, strict=True):
            self.leaf_iter_vars[where] = ax

    def attach_to(
        self,
        kind: str,
        at: tuple[StageState, IterVar] | None = None,
        along: IterVar | None = None,
        *,
        joined: bool = False,
    ) -> None:
        """Compute the stage at its "root", "inline", or (kind "scope") inside a loop `at`."""
        self.attach_kind, self.attach, self.along, self.joined = kind, at, along, joined

    def _new_axis(self, name: str, kind: str, extent: int | None = None) -> IterVar:
        axis = IterVar(fresh_name(name, {ax.name for ax in self.all_iter_vars}), extent, kind)
        self.all_iter_vars.append(axis)
        return axis

    def _replace(self, old: Sequence[IterVar], new: Sequence[IterVar]) -> None:
        at = self.leaf_iter_vars.index(old[0])
        self.leaf_iter_vars[at : at + len(old)] = new

    # -- questions ---------------------------------------------------------------------------------
    @property
    def tensor(self) -> Tensor:
        return self.tensors[0]

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """Names of the buffers of all tensors; they follow the name of the stage."""
        several = len(self.tensors) > 1
        return tuple(
            f"{self.name}.v{k}" if several else self.name for k in range(len(self.tensors))
        )

    def mark(self, axis: IterVar) -> str | None:
        """The thread tag or annotation of a loop, or the atom that it is inside of."""
        if self.atom is not None and self.inside_atom(axis):
            return self.atom[0]
        return self.binds.get(axis) or self.annotations.get(axis)

    def inside_atom(self, axis: IterVar) -> bool:
        """Whether `axis` is one of the loops that a matrix instruction runs."""
        return self.atom is not None and axis in self.inside

    @property
    def inside(self) -> tuple[IterVar, ...]:
        """The loops inside the atom: m, n and k; none without one."""
        if self.atom is None:
            return ()
        return tuple(self.leaf_iter_vars[self.leaf_iter_vars.index(self.atom[1]) :])

    @property
    def is_copied(self) -> bool:
        """Whether asynchronous copies fill its buffer, or may: the decision is open."""
        return self.is_bulk or not same(self.slots, 0)

    @property
    def is_scheduled(self) -> bool:
        """Whether a step has changed how its loops look or run (their order apart)."""
        return bool(self.relations or self.binds or self.annotations)

    def axis_values(
        self, loops: Mapping[IterVar, Expr], extent: Mapping[IterVar, Any]
    ) -> dict[IterVar, Expr]:
        """Every axis as an expression of the values of the loops.

        extent: of axes that are the inner one of a relation, int or Expr
        """
        values = dict(loops)
        for r in reversed(self.relations):
            n = extent[r.inner]
            if isinstance(r, SplitRelation):
                values[r.parent] = values[r.outer] * n + values[r.inner]
            else:
                values[r.outer], values[r.inner] = values[r.fused] // n, values[r.fused] % n
        return values


S = TypeVar("S", bound=StageState, covariant=True)


class ScheduleState(ABC, Generic[S]):
    """The stages of a DAG in order, producers first.  Their names differ, and so do their tensors;
    every tensor that a stage reads has a stage before it.

    stands_for: what steps of a scan read in the place of a tensor of it -> that tensor
    """

    def __init__(self, dag: ComputeDAG) -> None:
        self.dag = dag
        self.stages: list[S] = []
        self._by_name: dict[str, S] = {}
        self._by_tensor: dict[Tensor, S] = {}
        self._by_op: dict[Operation, S] = {}
        self.stands_for: dict[Tensor, Tensor] = {}
        outputs = set(dag.outputs)
        uses = Counter(ax for op in dag.ops for ax in (*op.axis, *op.reduce_axis))
        shared = {ax: ax.name for ax, count in uses.items() if count > 1}
        states = {t.op for scan in dag.steps for t in scan.states}
        for op, name in dag.unique_names().items():
            if op in states:
                continue
            own = _with_copies(op, shared)
            is_output = not outputs.isdisjoint(op.outputs)
            stage = self._new_stage(name, own, op.outputs, is_output)
            self._insert(stage, op, len(self.stages))

        for op, inside in dag.steps.items():
            self._place_steps(op, inside)

    def _place_steps(self, op: ScanOp, inside: Sequence[ComputeOp]) -> None:
        """What the steps of a scan compute is computed in them, unless a schedule says where."""
        scan = self._by_op[op]
        self.stands_for |= zip(op.states, scan.tensors, strict=True)
        self._by_tensor |= dict.fromkeys(op.states, scan)
        for update in op.updates:
            self._by_tensor.setdefault(update, scan)
            self._by_op.setdefault(update.op, scan)
        for inner in inside:
            self._by_op[inner].attach_to("scope", (scan, scan.leaf_iter_vars[0]))

    @abstractmethod
    def _new_stage(
        self, name: str, op: Operation, tensors: tuple[Tensor, ...], is_output: bool
    ) -> S:
        """A stage for `op`, which gives `tensors`; it is not in the schedule yet."""

    def _insert(self, stage: Any, op: Operation, at: int) -> None:
        self.stages.insert(at, stage)
        self._by_name[stage.name] = self._by_op[op] = stage
        self._by_tensor |= dict.fromkeys(op.outputs, stage)

    # -- operations of steps -----------------------------------------------------------------------
    def insert_stage(
        self, op: ComputeOp, *, after: StageState | None = None, before: StageState | None = None
    ) -> S:
        """A stage for `op`, next to another one."""
        anchor = after or before
        assert anchor is not None
        names = [stage.name for stage in self.stages]
        stage = self._new_stage(op.name, op, op.outputs, False)
        self._insert(stage, op, names.index(anchor.name) + (1 if after is not None else 0))
        return stage

    def move_before(self, stage: StageState, other: StageState) -> None:
        """Have a stage, with what it is computed of, come before another one in the order."""
        names = [st.name for st in self.stages]
        at = names.index(other.name)
        late = [
            st for k, st in enumerate(self.stages)
            if k > at and (st.name == stage.name or self.reaches(st, stage))
        ]  # fmt: skip
        kept = [st for st in self.stages if st not in late]
        self.stages[:] = [*kept[:at], *late, *kept[at:]]

    def put_before(self, stage: StageState, other: StageState) -> None:
        """Have a stage come right before another one; who calls knows that no reader is between."""
        self.stages.remove(stage)  # type: ignore[arg-type]
        self.stages.insert(self.stages.index(other), stage)  # type: ignore[arg-type]

    def replace_op(self, stage: StageState, op: ComputeOp) -> None:
        """The stage computes `op`, and its tensors are those of `op`, of other shapes; whoever asks
        for the stage of the old ones still finds it.  Readers are the caller's to redirect."""
        stage.tensors = op.outputs
        stage.restart(op)
        self._by_op[op] = self._by_name[stage.name]
        self._by_tensor |= dict.fromkeys(op.outputs, self._by_name[stage.name])

    # -- questions ---------------------------------------------------------------------------------
    def __getitem__(self, key: Tensor | Operation | StageState | Sequence[Tensor | Operation]) -> S:
        """The stage of an operation, of a tensor, or of all tensors of a stage."""
        stage: S | None = None
        if isinstance(key, (tuple, list)) and key:
            owners = {self[item] for item in key}
            stage = owners.pop() if len(owners) == 1 else None
        if isinstance(key, StageState):
            stage = next((st for st in self.stages if st is key), None)
        elif isinstance(key, Tensor):
            stage = self._by_tensor.get(key)
        elif isinstance(key, Operation):
            stage = self._by_op.get(key)
        if stage is None:
            raise ScheduleError(
                f"schedule[{key}]", "no stage of this schedule computes it",
                f"Stages: {', '.join(st.name for st in self.stages)}.",
            )  # fmt: skip
        return stage

    def find(self, name: str) -> S:
        stage = self._by_name.get(name)
        if stage is None:
            raise ScheduleError(
                f"stage {name!r}", "no such stage", f"Stages: {', '.join(self._by_name)}."
            )
        return stage

    def readers(self, of: Tensor | StageState) -> list[S]:
        """Stages whose own body reads a tensor, or one of a stage (inlined readers count as
        themselves)."""
        tensors = {of} if isinstance(of, Tensor) else set(of.tensors)
        return [st for st in self.stages if not tensors.isdisjoint(st.op.input_tensors)]

    def attached(self, stage: StageState, axis: IterVar | None = None) -> list[S]:
        """The stages that are computed in loops of `stage`, or at its loop `axis`."""
        return [
            st for st in self.stages
            if st.attach is not None and st.attach[0] is stage and axis in (None, st.attach[1])
        ]  # fmt: skip

    def reaches(self, producer: StageState, consumer: StageState) -> bool:
        """Tell whether `consumer` depends on `producer`."""
        seen: set[StageState] = set()
        todo = [consumer]
        while todo:
            st = todo.pop()
            for t in st.op.input_tensors:
                source = self._by_tensor[t]
                if source is producer:
                    return True
                if source not in seen:
                    seen.add(source)
                    todo.append(source)
        return False

    @property
    def outputs(self) -> list[S]:
        return [st for st in self.stages if st.is_output]

    @property
    def binds_threads(self) -> bool:
        """Whether a loop is bound to blocks or threads, or statements are, so that only GPUs can
        run it."""
        loops = any(tag != "vthread" for st in self.stages for tag in st.binds.values())
        return loops or any(st.op.launches_threads for st in self.stages)

    def new_name(self, name: str) -> str:
        return fresh_name(name, self._by_name)


def _namesakes(op: Operation) -> dict[IterVar, str]:
    """A new name for each axis whose name an axis before it has."""
    taken: set[str] = set()
    renamed: dict[IterVar, str] = {}
    for ax in (*op.axis, *op.reduce_axis):
        name = fresh_name(ax.name, taken)
        taken.add(name)
        if name != ax.name:
            renamed[ax] = name
    return renamed


def _with_copies(op: Operation, names: Mapping[IterVar, str]) -> Operation:
    """`op` over copies of those of its axes that `names` names."""
    if isinstance(op, PlaceholderOp) or names.keys().isdisjoint((*op.axis, *op.reduce_axis)):
        return op

    def own(axes: tuple[IterVar, ...]) -> tuple[IterVar, ...]:
        return tuple(AxisCopy(ax, names[ax]) if ax in names else ax for ax in axes)

    axes = own(op.axis)
    body = renamed_body(op, axes, own(op.reduce_axis))
    return op.over(axes, body)


def renamed_body(op: ComputeOp, spatial: tuple[IterVar, ...], reduce: tuple[IterVar, ...]) -> Expr:
    """The body of `op` over other axes."""
    mapping: dict[Expr, Any] = {a.var: b.var for a, b in zip(op.axis, spatial, strict=True)}
    if op.combiner is None:
        return E.substitute(op.body, mapping)
    mapping |= {a.var: b.var for a, b in zip(op.reduce_axis, reduce, strict=True)}
    value = E.substitute(op.reduced, mapping)
    return narrowed(op, E.make("reduce", (value,), (op.combiner, reduce), value.dtype))


def narrowed(op: ComputeOp, value: Expr) -> Expr:
    """`value`, of the type of partial results of `op`, as `op` stores it."""
    return value if op.num_outputs > 1 else E.cast(op.dtype, value)
