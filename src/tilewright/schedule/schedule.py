"""`Schedule` and `Stage`: the spelling users know over the steps, plus replay and printing.

In: a ComputeDAG and calls such as `s[C].split(x, factor=8)`.  Out: a list of steps and the
structure they built (axes, relations, leaf order, attachment).  Read next: `tree.py`, `bounds.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.base.errors import ScheduleError, absent
from tilewright.ir.expr import Expr
from tilewright.schedule import steps as S
from tilewright.schedule.space.decision import Choice
from tilewright.schedule.steps.loops import FuseRelation, Size, SplitRelation, Step, step_from_json
from tilewright.schedule.steps.stages import renamed_body
from tilewright.te.dag import ComputeDAG, fresh_name
from tilewright.te.tensor import ComputeOp, IterVar, Operation, PlaceholderOp, Tensor

# Primitives of TVM that are not there: what to use instead.
_ELSEWHERE_STAGE = {
    "double_buffer": "Copies that overlap arithmetic are not there yet; tune the shared tiles.",
    "env_threads": "Bind the loops of the stage.",
    "prefetch": "Use s.cache_read and compute_at.",
    "rolling_buffer": "Use compute_at: the buffer holds what one iteration needs.",
    "set_store_predicate": "Not needed: threads that would repeat a store are guarded.",
    "tensorize": "Matrix instructions are not there yet; split, vectorize and unroll.",
    "transform_layout": "Use s.pack for constants; reorder loops for computed tensors.",
}
_ELSEWHERE_SCHEDULE = {
    "create_group": "Call compute_at for each stage.",
    "normalize": "Not needed: leave it out.",
}


class Stage:
    """The loops of one operation.  Attributes are read-only for users; steps change them."""

    def __init__(
        self, schedule: Schedule, name: str, op: Operation, tensor: Tensor, is_output: bool
    ) -> None:
        self.schedule, self.name, self.tensor, self.is_output = schedule, name, tensor, is_output
        self.scope = "global" if is_output or isinstance(op, PlaceholderOp) else ""
        self.attach_kind = "root"  # "root", "inline" or "scope"
        self.attach: tuple[Stage, IterVar] | None = None
        self.set_op(op)

    def __getattr__(self, name: str) -> Any:
        raise absent(f"s[{self.__dict__.get('name', '?')}]", name, _ELSEWHERE_STAGE)

    # -- structure, changed by steps ---------------------------------------------------------------
    def set_op(self, op: Operation) -> None:
        """Replace the operation; loops start afresh."""
        self.op = op
        self.leaf_iter_vars: list[IterVar] = []
        self.all_iter_vars: list[IterVar] = []
        self.relations: list[SplitRelation | FuseRelation] = []
        self.binds: dict[IterVar, str] = {}
        self.annotations: dict[IterVar, str] = {}
        self.pragmas: dict[str, tuple[IterVar, Size]] = {}
        self.aligned: dict[int, tuple[Size, Size]] = {}
        names: set[str] = set()
        for ax in (*op.axis, *op.reduce_axis):
            if ax.name in names:  # axes are named in steps: a repeated name gets a suffix
                ax.var.attr = fresh_name(ax.name, names)
            names.add(ax.name)
            self.leaf_iter_vars.append(ax)
            self.all_iter_vars.append(ax)

    def set_body(self, body: Expr) -> None:
        """Replace the expression, keeping axes and loops."""
        assert isinstance(self.op, ComputeOp)
        self.op = ComputeOp(self.op.name, self.op.axis, body, self.op.tag, self.op.attrs)

    def new_axis(self, name: str, kind: str) -> IterVar:
        axis = IterVar(fresh_name(name, {ax.name for ax in self.all_iter_vars}), None, kind)
        self.all_iter_vars.append(axis)
        return axis

    def replace_leaves(self, old: Sequence[IterVar], new: Sequence[IterVar]) -> None:
        at = self.leaf_iter_vars.index(old[0])
        self.leaf_iter_vars[at : at + len(old)] = new

    # -- primitives --------------------------------------------------------------------------------
    def _do(self, step: Step) -> Any:
        return self.schedule.do(step)

    def split(
        self, parent: IterVar, factor: Size | None = None, nparts: Size | None = None
    ) -> tuple[IterVar, IterVar]:
        """(outer, inner) of `parent`; see `steps.Split`."""
        return self._do(S.Split(self.name, parent.name, _size(factor), _size(nparts)))  # type: ignore[no-any-return]

    def tile(
        self, x: IterVar, y: IterVar, x_factor: Size, y_factor: Size
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and bring the outer loops out: (x_outer, y_outer, x_inner, y_inner)."""
        xo, xi = self.split(x, factor=x_factor)
        yo, yi = self.split(y, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *axes: IterVar) -> IterVar:
        """One axis for several neighbours; see `steps.Fuse`."""
        return self._do(S.Fuse(self.name, tuple(ax.name for ax in axes)))  # type: ignore[no-any-return]

    def reorder(self, *axes: IterVar) -> None:
        """New order of the given loops; see `steps.Reorder`."""
        self._do(S.Reorder(self.name, tuple(ax.name for ax in axes)))

    def bind(self, axis: IterVar, thread: IterVar | str) -> None:
        """Run a loop on blocks or threads; see `steps.Bind`."""
        tag = thread if isinstance(thread, str) else thread.thread_tag
        self._do(S.Bind(self.name, axis.name, tag))

    def vectorize(self, axis: IterVar) -> None:
        self._do(S.Annotate(self.name, axis.name, "vectorize"))

    def unroll(self, axis: IterVar) -> None:
        self._do(S.Annotate(self.name, axis.name, "unroll"))

    def parallel(self, axis: IterVar) -> None:
        self._do(S.Annotate(self.name, axis.name, "parallel"))

    def pragma(self, axis: IterVar, key: str, value: Size = 1) -> None:
        """auto_unroll_max_step or unroll_explicit for all inside `axis`; see `steps.Pragma`."""
        self._do(S.Pragma(self.name, axis.name, key, _size(value)))

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Compute inside a loop of a reader; see `steps.ComputeAt`."""
        self._do(S.ComputeAt(self.name, parent.name, axis.name))

    def compute_inline(self) -> None:
        self._do(S.ComputeInline(self.name))

    def compute_root(self) -> None:
        self._do(S.ComputeRoot(self.name))

    def set_scope(self, scope: str) -> None:
        self._do(S.SetScope(self.name, scope))

    def storage_align(self, axis: IterVar, factor: Size, offset: Size) -> None:
        """Pad the stride of `axis`; see `steps.StorageAlign`."""
        self._do(S.StorageAlign(self.name, axis.name, _size(factor), _size(offset)))

    def __repr__(self) -> str:
        return f"stage({self.name}, {' '.join(map(repr, self.leaf_iter_vars))})"


def _size(value: Any) -> Any:
    """Numpy and other integers, True and False, as int; Choice and None as they are."""
    if value is None or isinstance(value, Choice):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise ScheduleError(
            f"size {value!r}", "not an integer", "Use // where / makes a float."
        ) from None


class Schedule:
    """The stages of a DAG in order (producers first) and the steps that shaped them."""

    def __init__(self, dag: ComputeDAG) -> None:
        self.dag = dag
        self.steps: list[Step] = []
        self.stages: list[Stage] = []
        self._by_name: dict[str, Stage] = {}
        self._by_tensor: dict[Tensor, Stage] = {}
        self._by_op: dict[Operation, Stage] = {}
        outputs = set(dag.outputs)
        for op, name in dag.unique_names().items():
            fresh = _private(op)  # schedules rename axes: operations of the user stay untouched
            self._add(
                Stage(self, name, fresh, op.output_tensor, op.output_tensor in outputs),
                len(self.stages),
            )
            self._by_op[op] = self._by_tensor[op.output_tensor]

    def __getattr__(self, name: str) -> Any:
        raise absent("schedule", name, _ELSEWHERE_SCHEDULE)

    # -- looking up --------------------------------------------------------------------------------
    def __getitem__(self, key: Tensor | Operation | Stage) -> Stage:
        if isinstance(key, Stage):
            return key
        stage = self._by_tensor.get(key) if isinstance(key, Tensor) else self._by_op.get(key)
        if stage is None:
            raise ScheduleError(
                f"schedule[{key}]", "no stage of this schedule computes it",
                f"Stages: {', '.join(st.name for st in self.stages)}.",
            )  # fmt: skip
        return stage

    def find(self, name: str) -> Stage:
        stage = self._by_name.get(name)
        if stage is None:
            raise ScheduleError(
                f"stage {name!r}", "no such stage", f"Stages: {', '.join(self._by_name)}."
            )
        return stage

    def readers(self, tensor: Tensor) -> list[Stage]:
        """Stages whose own body reads `tensor` (inlined readers count as themselves)."""
        return [st for st in self.stages if tensor in st.op.input_tensors]

    def reaches(self, producer: Stage, consumer: Stage) -> bool:
        """Whether `consumer` depends on `producer`."""
        seen: set[Stage] = set()
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
    def outputs(self) -> list[Stage]:
        return [st for st in self.stages if st.is_output]

    # -- changing ----------------------------------------------------------------------------------
    def do(self, step: Step) -> Any:
        """Apply one step; it is recorded only if it is legal."""
        result = step.apply(self)
        self.steps.append(step)
        return result

    def new_name(self, name: str) -> str:
        return fresh_name(name, self._by_name)

    def _add(self, stage: Stage, at: int) -> Stage:
        self.stages.insert(at, stage)
        self._by_name[stage.name] = stage
        self._by_tensor[stage.tensor] = stage
        return stage

    def insert_stage(
        self, op: ComputeOp, *, after: Stage | None = None, before: Stage | None = None
    ) -> Stage:
        anchor = after or before
        assert anchor is not None
        at = self.stages.index(anchor) + (1 if after is not None else 0)
        stage = self._add(Stage(self, op.name, op, op.output_tensor, False), at)
        self._by_op[op] = stage
        return stage

    def cache_read(
        self, tensor: Tensor, scope: str, readers: Iterable[Tensor | Operation] | Tensor
    ) -> Tensor:
        """A copy of `tensor` in `scope` for the given readers; see `steps.CacheRead`."""
        items = [readers] if isinstance(readers, Tensor) else list(readers)
        return self.do(S.CacheRead(self[tensor].name, scope, tuple(self[r].name for r in items)))  # type: ignore[no-any-return]

    def cache_write(self, tensor: Tensor | Sequence[Tensor], scope: str) -> Any:
        """Move the computation into a stage in `scope`; see `steps.CacheWrite`.

        For a list of tensors, a list: schedules that TVM printed say `x, = s.cache_write([y], ..)`.
        """
        if not isinstance(tensor, Tensor):
            return [self.cache_write(t, scope) for t in tensor]
        return self.do(S.CacheWrite(self[tensor].name, scope))

    def rfactor(self, tensor: Tensor, axis: IterVar, factor_axis: int = 0) -> Tensor:
        """Partial results over a reduction loop; see `steps.RFactor`."""
        return self.do(S.RFactor(self[tensor].name, axis.name, int(factor_axis)))  # type: ignore[no-any-return]

    def pack(self, tensor: Tensor, blocks: Sequence[Size], order: Sequence[int]) -> Tensor:
        """Store an input in a blocked, permuted layout; see `steps.Pack`."""
        return self.do(S.Pack(self[tensor].name, tuple(_size(b) for b in blocks), tuple(order)))  # type: ignore[no-any-return]

    @staticmethod
    def replay(dag: ComputeDAG, steps: Iterable[Step | list[Any]]) -> Schedule:
        """The schedule that `steps` (or their JSON) build on `dag`."""
        s = Schedule(dag)
        for step in steps:
            s.do(step if isinstance(step, Step) else step_from_json(step))
        return s

    def to_json(self) -> list[list[Any]]:
        return [step.to_json() for step in self.steps]

    def __str__(self) -> str:
        from tilewright.schedule.show import loop_nest_text

        return loop_nest_text(self)

    def to_python(self) -> str:
        """The steps as Python that rebuilds this schedule from `s = te.create_schedule(...)`."""
        from tilewright.schedule.show import python_text

        return python_text(self)


def _private(op: Operation) -> Operation:
    if isinstance(op, PlaceholderOp):
        return op
    axes = tuple(IterVar(ax.name, ax.extent) for ax in op.axis)
    return ComputeOp(op.name, axes, renamed_body(op, axes), op.tag, op.attrs)


def create_schedule(
    ops: Operation | Tensor | Sequence[Operation | Tensor] | ComputeDAG,
) -> Schedule:
    """A schedule of everything behind the given outputs, as `te.create_schedule([C.op])`."""
    if isinstance(ops, ComputeDAG):
        return Schedule(ops)
    items: Sequence[Any] = ops if isinstance(ops, Sequence) else [ops]
    tensors = [x if isinstance(x, Tensor) else x.output_tensor for x in items]
    return Schedule(ComputeDAG(tensors))
