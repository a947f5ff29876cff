"""Schedules of TVM's auto-scheduler (Ansor): the transform steps of its records, replayed.

In: a ComputeDAG and steps as log version v0.6 writes them, which name stages and iterators by their
positions at that moment.  Out: a `Schedule`, whose own steps name them.
Read next: `schedule/steps/`; who reads the logs: `tvm_logs.py`.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tilewright.base.errors import ScheduleError
from tilewright.schedule import steps as S
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import IterVar, Operation, Tensor

ANNOTATIONS = (
    None, "unroll", "vectorize", "parallel", "vthread", "blockIdx.x", "threadIdx.x", "blockIdx.y",
    "threadIdx.y", "blockIdx.z", "threadIdx.z", "tensorize",
)  # fmt: skip
MOST_STEPS, MOST_PARTS = 1000, 16  # Ansor's longest have some hundred steps, and six parts
UNROLL = "auto_unroll_max_step$"


def replay_ansor(dag: ComputeDAG, steps: Sequence[Any], target: Target | None = None) -> Schedule:
    """The schedule that Ansor's `steps` build on `dag`.

    target: on a GPU, vectorized loops wider than its accesses become unrolled ones; TVM ran them an
            element at a time, too
    Raises ScheduleError naming the step (the first is 0, as follow-splits count them).
    """
    if len(steps) > MOST_STEPS:
        raise ScheduleError(
            "Ansor steps", f"{len(steps)} steps", f"At most {MOST_STEPS} are replayed."
        )
    replay = Positions(Schedule(dag))
    for number, step in enumerate(steps):
        replay.do(number, step)
    return _narrowed(replay.schedule, target) if target is not None else replay.schedule


def ansor_order(dag: ComputeDAG) -> list[Operation]:
    """The operations as Ansor numbers its stages.

    A search from the last argument backwards, last inputs first, numbers them; of what has all its
    inputs, the highest number comes next.
    """
    depth: dict[Operation, int] = {}
    todo = [t.op for t in dag.args]
    while todo:
        op = todo.pop()
        if op not in depth:
            depth[op] = len(depth)
            todo += [t.op for t in op.input_tensors]
    unmet = {op: len({t.op for t in op.input_tensors}) for op in depth}
    numbered = list(depth)
    ready = [-depth[op] for op, count in unmet.items() if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        op = numbered[-heapq.heappop(ready)]
        order.append(op)
        for reader in dag.consumers(op):
            unmet[reader] -= 1
            if not unmet[reader]:
                heapq.heappush(ready, -depth[reader])
    return order


def ansor_stages(schedule: Schedule) -> list[Stage]:
    """The stages of a schedule as Ansor numbers them after the same steps: copies of a tensor come
    right behind it, and what cache_write and rfactor make before the stage that it is made for."""
    again = Schedule(schedule.dag)
    order = [again[op] for op in ansor_order(schedule.dag)]
    for step in schedule.steps:
        again.do(step)
        for stage in [st for st in again.stages if st not in order]:
            source = again.find(step.stage)
            behind = again.stages.index(stage) > again.stages.index(source)
            order.insert(order.index(source) + behind, stage)
    return [schedule.find(stage.name) for stage in order]


class Positions:
    """A schedule whose stages and loops are named by their positions, as Ansor's steps do.

    stages: in Ansor's order; splits: lengths by the number of the step that made them; number: of
    the step that is being done
    """

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.stages = ansor_stages(schedule)
        self.splits: dict[int, list[Any]] = {}
        self.number = 0

    def do(self, number: int, step: Any) -> None:
        self.number = number
        code = step[0] if isinstance(step, (list, tuple)) and step else None
        if not isinstance(code, str) or code not in _CODES:
            raise ScheduleError(
                self._place(step), f"unknown step code {code!r}", f"Known: {', '.join(_CODES)}."
            )
        fields, apply = _CODES[code]
        try:
            apply(self, *msgspec.convert(list(step[1:]), fields))
        except msgspec.ValidationError as error:
            raise ScheduleError(
                self._place(step), f"malformed {code} step ({error})", "See log version v0.6."
            ) from None
        except ScheduleError as error:
            reason = error.reason if error.place == code else f"{error.place}: {error.reason}"
            raise ScheduleError(self._place(step), reason, error.way_out) from None

    def _place(self, step: Any) -> str:
        text = json.dumps(step, default=str)
        return f"Ansor step {self.number} {text if len(text) <= 80 else text[:77] + '...'}"

    # -- positions ---------------------------------------------------------------------------------
    def stage(self, code: str, at: int) -> Stage:
        if not 0 <= at < len(self.stages):
            names = " ".join(f"{k}:{st.name}" for k, st in enumerate(self.stages))
            raise ScheduleError(code, f"no stage {at}", f"There are {names}.")
        return self.stages[at]

    def axis(self, code: str, stage: Stage, at: int) -> IterVar:
        loops = stage.leaf_iter_vars
        if not 0 <= at < len(loops):
            raise ScheduleError(
                code, f"no iterator {at} in a stage of {len(loops)}",
                f"{stage.name} has {' '.join(ax.name for ax in loops)}.",
            )  # fmt: skip
        return loops[at]

    def lengths(self, code: str, source: int) -> list[Any]:
        if source not in self.splits:
            raise ScheduleError(
                code, f"step {source} is no split",
                f"Splits so far: {', '.join(map(str, self.splits)) or 'none'}.",
            )  # fmt: skip
        return self.splits[source]

    # -- the codes ---------------------------------------------------------------------------------
    def annotate(self, at: int, loop: int, how: int) -> None:
        stage = self.stage("AN", at)
        axis = self.axis("AN", stage, loop)
        name = ANNOTATIONS[how] if 0 <= how < len(ANNOTATIONS) else None
        if name is None:
            if how:
                raise ScheduleError("AN", f"unknown annotation {how}", "Known: 0 to 10.")
        elif name == "tensorize":
            raise ScheduleError("AN", "tensorize has no meaning without an intrinsic")
        elif name in S.ANNOTATIONS:
            self.schedule.do(S.Annotate(stage.name, axis.name, name))
        else:
            stage.bind(axis, name)

    def fuse(self, at: int, loops: list[int]) -> None:
        stage = self.stage("FU", at)
        stage.fuse(*(self.axis("FU", stage, k) for k in loops))

    def pragma(self, at: int, loop: int, what: str) -> None:
        stage = self.stage("PR", at)
        axis = self.axis("PR", stage, loop)
        limit = what.removeprefix(UNROLL)
        if limit == what or not limit.isdecimal():
            raise ScheduleError("PR", f"pragma {what!r}", f"Only {UNROLL}N is known.")
        stage.pragma(axis, "auto_unroll_max_step", int(limit))
        stage.pragma(axis, "unroll_explicit", 1)

    def reorder(self, at: int, order: list[int]) -> None:
        stage = self.stage("RE", at)
        if sorted(order) != list(range(len(stage.leaf_iter_vars))):
            raise ScheduleError(
                "RE", f"no order of the {len(stage.leaf_iter_vars)} iterators of {stage.name}"
            )
        stage.reorder(*(stage.leaf_iter_vars[k] for k in order))

    def split(
        self, at: int, loop: int, extent: int | None, lengths: list[int | None], inner_to_outer: int
    ) -> None:
        stage = self.stage("SP", at)
        axis = self.axis("SP", stage, loop)
        known = axis.extent if stage.attach_kind == "root" else None
        if extent and known is not None and extent != known:
            raise ScheduleError(
                "SP", f"it splits a loop of {extent}, {stage.name}.{axis.name} has {known}",
                "The record is of another computation.",
            )  # fmt: skip
        if len(lengths) >= MOST_PARTS:
            raise ScheduleError(
                "SP", f"it makes {len(lengths) + 1} loops", f"At most {MOST_PARTS} are replayed."
            )
        closed = [n for n in lengths if n]
        if len(closed) < len(lengths):
            raise ScheduleError("SP", "a length is open", "Records hold finished schedules only.")
        self.divide(stage, axis, closed, bool(inner_to_outer))
        self.splits[self.number] = closed

    def follow_split(self, at: int, loop: int, source: int, count: int) -> None:
        stage = self.stage("FSP", at)
        axis = self.axis("FSP", stage, loop)
        lengths = self.lengths("FSP", source)
        if not 1 <= count <= len(lengths) + 1:
            raise ScheduleError("FSP", f"{count} lengths of a split into {len(lengths) + 1}")
        rest = math.prod(lengths[count - 1 :])
        self.divide(stage, axis, [*lengths[: count - 1], rest], True)

    def follow_fused_split(
        self, at: int, loop: int, sources: list[int], level: int, factor: int
    ) -> None:
        stage = self.stage("FFSP", at)
        axis = self.axis("FFSP", stage, loop)
        every = [self.lengths("FFSP", source) for source in sources]
        if any(not 0 <= level < len(lengths) for lengths in every):
            raise ScheduleError("FFSP", f"a source has no level {level}")
        size = math.prod(lengths[level] for lengths in every)
        self.divide(stage, axis, [size], bool(factor))

    def divide(self, stage: Stage, axis: IterVar, lengths: list[Any], inner_first: bool) -> None:
        """One loop per length and one for the rest: outermost, or innermost where the lengths count
        parts from outside."""
        for n in reversed(lengths) if inner_first else lengths:
            if inner_first:
                axis, _ = stage.split(axis, factor=n)
            else:
                _, axis = stage.split(axis, nparts=n)

    def storage_align(self, at: int, loop: int, factor: int, offset: int) -> None:
        stage = self.stage("SA", at)
        stage.storage_align(self.axis("SA", stage, loop), factor, offset)

    def compute_at(self, at: int, parent: int, loop: int) -> None:
        stage, host = self.stage("CA", at), self.stage("CA", parent)
        stage.compute_at(host, self.axis("CA", host, loop))

    def compute_inline(self, at: int) -> None:
        self.stage("CI", at).compute_inline()

    def compute_root(self, at: int) -> None:
        self.stage("CR", at).compute_root()

    def cache_read(self, at: int, scope: str, readers: list[int]) -> None:
        source = self.stage("CHR", at)
        tensors = [self.stage("CHR", k).tensor for k in readers]
        self._insert(at + 1, self.schedule.cache_read(source.tensor, scope, tensors))

    def cache_write(self, at: int, scope: str) -> None:
        self._insert(at, self.schedule.cache_write(self.stage("CHW", at).tensor, scope))

    def rfactor(self, at: int, loop: int, factor_axis: int) -> None:
        stage = self.stage("RF", at)
        axis = self.axis("RF", stage, loop)
        self._insert(at, self.schedule.rfactor(stage.tensor, axis, factor_axis))

    def _insert(self, at: int, tensor: Tensor) -> None:
        """A new stage; those at and behind its place move up by one."""
        self.stages.insert(at, self.schedule[tensor])


# Code -> what follows it in a record, who does it.
_CODES: dict[str, tuple[Any, Callable[..., None]]] = {
    "AN": (tuple[int, int, int], Positions.annotate),
    "CA": (tuple[int, int, int], Positions.compute_at),
    "CHR": (tuple[int, str, list[int]], Positions.cache_read),
    "CHW": (tuple[int, str], Positions.cache_write),
    "CI": (tuple[int], Positions.compute_inline),
    "CR": (tuple[int], Positions.compute_root),
    "FFSP": (tuple[int, int, list[int], int, int], Positions.follow_fused_split),
    "FSP": (tuple[int, int, int, int], Positions.follow_split),
    "FU": (tuple[int, list[int]], Positions.fuse),
    "PR": (tuple[int, int, str], Positions.pragma),
    "RE": (tuple[int, list[int]], Positions.reorder),
    "RF": (tuple[int, int, int], Positions.rfactor),
    "SA": (tuple[int, int, int, int], Positions.storage_align),
    "SP": (tuple[int, int, int | None, list[int | None], int], Positions.split),
}


def _narrowed(s: Schedule, target: Target) -> Schedule:
    """The same with vectorized loops unrolled where a GPU has no access of their width."""
    marked = [
        (st, ax) for st in s.stages for ax, how in st.annotations.items() if how == "vectorize"
    ]
    if not target.has_threads or not marked:
        return s
    extent = LoopTree(s).bounds().extent
    wide = {
        (st.name, ax.name)
        for st, ax in marked
        if extent[ax] * st.tensor.dtype.bytes > target.limits.vector_bytes
    }
    steps = [
        replace(step, how="unroll")
        if isinstance(step, S.Annotate) and (step.stage, step.axis) in wide
        else step
        for step in s.steps
    ]
    return Schedule.replay(s.dag, steps) if wide else s
