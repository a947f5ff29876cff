"""`State`: a schedule on which transform steps are called by hand, by the auto-scheduler's names.

In: a computation, or a schedule as it stands.  Out: steps of the schedule language; stages in the
auto-scheduler's order, and their loops as they are.  Read next: `logs/ansor_steps.py` (who does
the steps), `schedule/steps/`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NoReturn

from tilewright.base.concurrency import cached_property
from tilewright.base.doors import door
from tilewright.base.errors import ScheduleError, SpaceError
from tilewright.ir.stmt import TAGS
from tilewright.schedule import schedule as S
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.state import SplitRelation
from tilewright.schedule.steps.step import Step
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.search.rules.state import RuleState
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import IterVar, Operation, PlaceholderOp, Range, Tensor
from tilewright_tvm.logs.ansor_steps import ANNOTATIONS, Positions

Numbers = Mapping[IterVar, Any]
StageLike = int | Operation | Tensor

_PLACES = {"root": 0, "inline": 1, "scope": 2}
_KINDS = {"spatial": 0, "reduce": 1}


@dataclass(frozen=True)
class Iterator:
    """A loop of a stage; equal where stage and name are, in whatever state.

    name:       as the printed state has it
    range:      `.min` and `.extent`; None where an open decision is in it
    annotation: a value of `State.ANNOTATION_TRANS_TABLE`
    iter_kind:  0 of a spatial loop, 1 of a reduction
    """

    stage: str
    name: str
    range: Range | None = field(compare=False)
    annotation: int = field(compare=False)
    iter_kind: int = field(compare=False)


@dataclass(frozen=True, eq=False)
class Stage:
    """A stage of a state, as it was when the state was asked.

    op:         what it computes; op_type: 0 of an input, 1 of a computed stage
    iters:      its loops, outermost first; an input has none
    compute_at: a value of `COMPUTE_AT_TRANS_TABLE`
    """

    COMPUTE_AT_TRANS_TABLE = MappingProxyType({"root": 0, "inlined": 1, "iter": 2})

    op: Operation
    iters: tuple[Iterator, ...]
    compute_at: int
    op_type: int


class State:
    """A schedule, and the steps that are called on it: `state.split(C, state[C].iters[0], [16])`.

    state: a schedule, another state, or what a sketch rule is given, which is then changed in place
    compute_dag: its computation

    A stage is named by its tensor, its operation, or its position in `stages`.  A step is checked
    when it is called; one that is refused with a ScheduleError leaves the state as it was.
    """

    ANNOTATION_TRANS_TABLE = MappingProxyType(
        {name or "none": number for number, name in enumerate(ANNOTATIONS)}
    )

    @door(SpaceError, "loop_state.State")
    def __init__(
        self, state: State | Schedule | RuleState, compute_dag: ComputeDAG | None = None
    ) -> None:
        found: Any = state.state_object if isinstance(state, State) else state
        self.state_object: Schedule | RuleState = found
        self.schedule = found.schedule if isinstance(found, RuleState) else found
        self.compute_dag = self.schedule.dag if compute_dag is None else compute_dag
        if self.compute_dag.hash != self.schedule.dag.hash:
            raise SpaceError("loop_state.State", "the state is of another computation")
        self._splits: dict[int, list[Any]] = {}  # lengths by the number of the step
        self._done: list[tuple[Step, ...]] = [(step,) for step in self.schedule.steps]
        if isinstance(state, State):
            self.resumed(state)

    # -- what there is -----------------------------------------------------------------------------
    @property
    def steps(self) -> list[Step]:
        """The schedule's own."""
        return self.schedule.steps

    @property
    def transform_steps(self) -> list[tuple[Step, ...]]:
        """An entry for each call, with the steps it became; `follow_split` counts them from 0."""
        return list(self._done)

    @property
    def stages(self) -> list[Stage]:
        numbers = _extents(self.schedule)
        return [_stage(own, numbers) for own in self._at.stages]

    @property
    def stage_ops(self) -> list[Operation]:
        return [own.op for own in self._at.stages]

    @property
    def own_stages(self) -> list[S.Stage]:
        """The schedule's stages, in the order of `stages`."""
        return list(self._at.stages)

    def __getitem__(self, stage: StageLike) -> Stage:
        return _stage(self._at.stages[self._number("state[...]", stage)], _extents(self.schedule))

    def copy(self) -> State:
        """Another one with the same steps; what is called on it leaves this one as it is."""
        if isinstance(self.state_object, RuleState):
            return State(self.state_object.copy(), self.compute_dag).resumed(self)
        again = Schedule.replay(self.schedule.dag, self.steps)
        return State(again, self.compute_dag).resumed(self)

    def resumed(self, other: State) -> State:
        """This one, its steps counted as those of `other`, which are the same."""
        self._done, self._splits = list(other._done), dict(other._splits)
        return self

    @cached_property
    def _at(self) -> Positions:
        """Made when it is needed: most states are only looked at as a whole."""
        made = Positions(self.schedule)
        made.splits = self._splits
        if isinstance(self.state_object, RuleState):  # rules are told positions in this order
            made.stages = list(self.schedule.stages)
        return made

    def to_json(self) -> list[list[Any]]:
        return self.schedule.to_json()

    def to_python(self) -> str:
        """The steps as Python, see `Schedule.to_python`."""
        return self.schedule.to_python()

    def __eq__(self, other: object) -> bool:
        """Whether the same steps are done on an equal computation."""
        if not isinstance(other, State):
            return NotImplemented
        return self.steps == other.steps and self.compute_dag.hash == other.compute_dag.hash

    __hash__ = None  # type: ignore[assignment]

    def __str__(self) -> str:
        return str(self.schedule)

    def __repr__(self) -> str:
        return f"State({len(self.schedule.stages)} stages, {len(self._done)} transform steps)"

    # -- loops -------------------------------------------------------------------------------------
    @door(ScheduleError)
    def split(
        self, stage: StageLike, iterator: Iterator, lengths: Sequence[int | None],
        inner_to_outer: bool = True,
    ) -> list[Iterator]:  # fmt: skip
        """One loop for each length and one for the rest, outermost first.

        inner_to_outer: lengths are those of the inner loops; else of the outer ones
        A length of None is a decision of the search: in sketch rules only.
        """
        k, loop, axis = self._loop("split", stage, iterator)
        sizes = self._lengths(self._at.stages[k], axis, lengths, inner_to_outer)
        if not sizes:
            raise ScheduleError("State.split(lengths=[])", "there is no length", "Give [16].")
        self._do(lambda: self._at.divide(self._at.stages[k], axis, sizes, inner_to_outer), sizes)
        return self._iters(k)[loop : loop + len(sizes) + 1]

    @door(ScheduleError)
    def follow_split(
        self, stage: StageLike, iterator: Iterator, src_step_id: int, n_split: int
    ) -> list[Iterator]:
        """As the split of an earlier step, in n_split + 1 loops: the innermost takes the rest."""
        k, loop, _ = self._loop("follow_split", stage, iterator)
        self._do(lambda: self._at.follow_split(k, loop, src_step_id, n_split))
        return self._iters(k)[loop : loop + n_split + 1]

    @door(ScheduleError)
    def follow_fused_split(
        self, stage: StageLike, iterator: Iterator, src_step_ids: Sequence[int], level: int,
        factor_or_nparts: bool,
    ) -> list[Iterator]:  # fmt: skip
        """In two, by the product of a level of several earlier splits.

        factor_or_nparts: True: it is the inner loop's; False: the outer one's
        """
        k, loop, _ = self._loop("follow_fused_split", stage, iterator)
        sources, factor = list(src_step_ids), int(factor_or_nparts)
        self._do(lambda: self._at.follow_fused_split(k, loop, sources, level, factor))
        return self._iters(k)[loop : loop + 2]

    @door(ScheduleError)
    def fuse(self, stage: StageLike, iters: Sequence[Iterator]) -> Iterator:
        """One loop for several neighbours."""
        if not iters:
            raise ScheduleError("State.fuse(iters=[])", "there is no loop", "Give two of a stage.")
        loops = [self._loop("fuse", stage, it) for it in iters]
        k, first, _ = loops[0]
        self._do(lambda: self._at.fuse(k, [loop for _, loop, _ in loops]))
        return self._iters(k)[first]

    @door(ScheduleError)
    def reorder(self, stage: StageLike, order: Sequence[Iterator]) -> None:
        """All loops of the stage in a new order."""
        loops = [self._loop("reorder", stage, it) for it in order]
        k = self._number("reorder", stage)
        self._do(lambda: self._at.reorder(k, [loop for _, loop, _ in loops]))

    @door(ScheduleError)
    def bind(self, stage: StageLike, iterator: Iterator, thread_name: str) -> Iterator:
        """Run a loop on "blockIdx.x", "threadIdx.x" and so on, or "vthread"."""
        if thread_name not in TAGS:
            raise ScheduleError(
                f"State.bind(thread_name={thread_name!r})", "it is no thread index",
                f"Use one of {', '.join(TAGS)}.",
            )  # fmt: skip
        return self._annotated("bind", stage, iterator, thread_name)

    @door(ScheduleError)
    def parallel(self, stage: StageLike, iterator: Iterator) -> Iterator:
        return self._annotated("parallel", stage, iterator, "parallel")

    @door(ScheduleError)
    def vectorize(self, stage: StageLike, iterator: Iterator) -> Iterator:
        return self._annotated("vectorize", stage, iterator, "vectorize")

    @door(ScheduleError)
    def unroll(
        self, stage: StageLike, iterator: Iterator, max_unroll: int | None = None
    ) -> Iterator:
        """max_unroll: a loop of more iterations stays as it is"""
        k, loop, _ = self._loop("unroll", stage, iterator)
        found = self._iters(k)[loop]
        if max_unroll is not None and found.range is not None and found.range.extent > max_unroll:
            return found
        return self._annotated("unroll", stage, iterator, "unroll")

    @door(ScheduleError)
    def pragma(self, stage: StageLike, iterator: Iterator, pragma_type: str) -> None:
        """pragma_type: "auto_unroll_max_step$64" """
        k, loop, _ = self._loop("pragma", stage, iterator)
        self._do(lambda: self._at.pragma(k, loop, pragma_type))

    @door(ScheduleError)
    def storage_align(self, stage: StageLike, iterator: Iterator, factor: int, offset: int) -> None:
        """Pad the stride of the dimension that the loop walks over."""
        k, loop, _ = self._loop("storage_align", stage, iterator)
        self._do(lambda: self._at.storage_align(k, loop, factor, offset))

    @door(ScheduleError)
    def tensorize(self, stage: StageLike, iterator: Iterator, ti_func_name: str) -> NoReturn:
        raise ScheduleError(
            f"State.tensorize({ti_func_name!r})", "matrix instructions are not there yet",
            "Split, vectorize and unroll.",
        )  # fmt: skip

    # -- places and stages -------------------------------------------------------------------------
    @door(ScheduleError)
    def compute_at(self, stage: StageLike, target_stage: StageLike, target_iter: Iterator) -> None:
        """Compute a stage inside a loop of one that reads it."""
        k = self._number("compute_at", stage)
        host, loop, _ = self._loop("compute_at", target_stage, target_iter)
        self._do(lambda: self._at.compute_at(k, host, loop))

    @door(ScheduleError)
    def compute_inline(self, stage: StageLike) -> None:
        k = self._number("compute_inline", stage)
        self._do(lambda: self._at.compute_inline(k))

    @door(ScheduleError)
    def compute_root(self, stage: StageLike) -> None:
        k = self._number("compute_root", stage)
        self._do(lambda: self._at.compute_root(k))

    @door(ScheduleError)
    def cache_read(
        self, stage: StageLike, scope_name: str, reader_stages: Sequence[StageLike]
    ) -> Operation:
        """A copy of the tensor for some of its readers: the operation of the new stage."""
        k = self._number("cache_read", stage)
        readers = [self._number("cache_read", reader) for reader in reader_stages]
        self._do(lambda: self._at.cache_read(k, scope_name, readers))
        return self._at.stages[k + 1].op

    @door(ScheduleError)
    def cache_write(self, stage: StageLike, scope_name: str) -> Operation:
        """Compute in another scope and copy from there: the operation of the new stage."""
        k = self._number("cache_write", stage)
        self._do(lambda: self._at.cache_write(k, scope_name))
        return self._at.stages[k].op

    @door(ScheduleError)
    def rfactor(self, stage: StageLike, iterator: Iterator, factor_iter_id: int) -> Operation:
        """Partial results over a reduction loop, at place factor_iter_id of their dimensions."""
        k, loop, _ = self._loop("rfactor", stage, iterator)
        self._do(lambda: self._at.rfactor(k, loop, factor_iter_id))
        return self._at.stages[k].op

    # -- parts -------------------------------------------------------------------------------------
    def _do(self, act: Any, lengths: list[Any] | None = None) -> None:
        """A transform step.  What it did of one that is refused is taken back."""
        before = len(self.steps)
        self._at.number = len(self._done)
        try:
            act()
        except ScheduleError as error:
            assert len(self.steps) == before, error  # the first step of several is the one refused
            raise
        if lengths is not None:
            self._splits[self._at.number] = lengths
        self._done.append(tuple(self.steps[before:]))

    def _annotated(self, call: str, stage: StageLike, it: Iterator, how: str) -> Iterator:
        k, loop, _ = self._loop(call, stage, it)
        self._do(lambda: self._at.annotate(k, loop, self.ANNOTATION_TRANS_TABLE[how]))
        return self._iters(k)[loop]

    def _lengths(
        self, stage: S.Stage, axis: IterVar, lengths: Sequence[int | None], inner_to_outer: bool
    ) -> list[Any]:
        if None not in lengths:
            return list(lengths)
        rule = self.state_object
        if not isinstance(rule, RuleState):
            raise ScheduleError(
                f"State.split(lengths={list(lengths)})", "a length is open", "Give a number."
            )
        if any(n is not None for n in lengths) or not inner_to_outer or axis.extent is None:
            raise ScheduleError(
                f"State.split(lengths={list(lengths)})",
                "open lengths are for all inner loops of an axis that was not split before",
                "Give [None, None], or numbers.",
            )  # fmt: skip
        return list(rule.tiles(stage, axis, len(lengths) + 1)[1:])

    def _iters(self, number: int) -> list[Iterator]:
        return list(_stage(self._at.stages[number], _extents(self.schedule)).iters)

    def _number(self, call: str, stage: StageLike) -> int:
        """The position of a stage; operations that other states made are known by their names."""
        stages = self._at.stages
        if isinstance(stage, int) and not isinstance(stage, bool) and 0 <= stage < len(stages):
            return stage
        found: list[int] = []
        if isinstance(stage, Tensor):
            found = [k for k, own in enumerate(stages) if own.tensor == stage]
            stage = stage.op
        if isinstance(stage, Operation) and not found:
            found = [k for k, own in enumerate(stages) if own.op is stage or own.tensor.op is stage]
            found = found or [k for k, own in enumerate(stages) if own.name == stage.name]
        if len(found) == 1:
            return found[0]
        names = ", ".join(f"{k}: {own.name}" for k, own in enumerate(stages))
        what = stage.name if isinstance(stage, Operation) else repr(stage)
        raise ScheduleError(f"State.{call}({what})", "no stage of this state", f"Stages: {names}.")

    def _loop(self, call: str, stage: StageLike, it: Iterator) -> tuple[int, int, IterVar]:
        """(position of the stage, position of the loop, its axis)."""
        k = self._number(call, stage)
        own = self._at.stages[k]
        names = [ax.name for ax in own.leaf_iter_vars]
        if it.stage != own.name or it.name not in names:
            raise ScheduleError(
                f"State.{call}({own.name}, {it.stage}.{it.name})", f"no loop of {own.name}",
                f"state[...].iters are {', '.join(names) or 'none'}.",
            )  # fmt: skip
        loop = names.index(it.name)
        return k, loop, own.leaf_iter_vars[loop]


def schedule_of(state: State | Schedule) -> Schedule:
    """The schedule that a state is."""
    return state.schedule if isinstance(state, State) else state


def _stage(own: S.Stage, numbers: Numbers) -> Stage:
    given = isinstance(own.op, PlaceholderOp)
    loops = [] if given else own.leaf_iter_vars
    iters = tuple(_iterator(own, axis, numbers) for axis in loops)
    return Stage(own.op, iters, _PLACES[own.attach_kind], int(not given))


def _iterator(own: S.Stage, axis: IterVar, numbers: Numbers) -> Iterator:
    extent = numbers.get(axis)
    known = Range(axis.begin, int(extent)) if isinstance(extent, int) else None
    mark = State.ANNOTATION_TRANS_TABLE[own.mark(axis) or "none"]
    return Iterator(own.name, axis.name, known, mark, _KINDS[axis.kind])


def _extents(schedule: Schedule) -> Numbers:
    """Iterations of every loop: those of the loop nests, where they are finished, and of a stage
    that is in none of them those of its whole tensor."""
    found: dict[IterVar, Any] = {}
    for stage in schedule.stages:
        found.update(_whole(stage))
    with suppress(ScheduleError, SpaceError):  # a stage is not where it is read; an open decision
        found.update(LoopTree(schedule).bounds().extent)
    return found


def _whole(stage: S.Stage) -> dict[IterVar, Any]:
    """Extents of the axes of a stage that is computed for its whole tensor; of open sizes none."""
    found: dict[IterVar, Any] = {ax: ax.extent for ax in (*stage.op.axis, *stage.op.reduce_axis)}
    for r in stage.relations:
        if not isinstance(r, SplitRelation):
            outer, within = found.get(r.outer), found.get(r.inner)
            if isinstance(outer, int) and isinstance(within, int):
                found[r.fused] = outer * within
            continue
        size, whole = r.factor if r.nparts is None else r.nparts, found.get(r.parent)
        if not isinstance(size, int) or not isinstance(whole, int):
            continue
        inner = size if r.nparts is None else -(-whole // size)
        found[r.inner], found[r.outer] = inner, -(-whole // inner) if inner else 0
    return found
