"""Steps on how a copy into shared memory is made: beside the threads, and ahead of its use.

In: a state.  Out: a stage whose copies are asynchronous.  What such a stage may be is checked when
the schedule is finished, too: stages that it reads may still be inlined or moved
(`tree/structure.py`).  Read next: `tree/rings.py` (what it means), `lowering/ring.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.schedule.copies import LOADERS, MOST_SLOTS, why_no_copy
from tilewright.schedule.space.decision import Size, same
from tilewright.schedule.state import StageState
from tilewright.schedule.steps.names import PythonNames, value_text
from tilewright.schedule.steps.step import AnyState, Step, refuse_fixed, stage_of
from tilewright.te.tensor import ComputeOp


@dataclass(frozen=True)
class AsyncCopy(Step):
    """The stage's copies go on beside its threads, which wait for them before others read.

    rewrite:  s[A_shared].async_copy()
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i in 4:
            for k.outer in 5:
              A.shared: float32[1, 2] shared, 2 elements, 8 bytes, at C.k.outer
                for ax0 in 1:
                  for ax1 in 2:
                    A.shared[i, k.outer*2 + ax1] = A[i, k.outer*2 + ax1]
              for k.inner in 2:
                C[i] += A.shared[i, k.outer*2 + k.inner]
        ->
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i in 4:
            for k.outer in 5:
              A.shared: float32[1, 2] shared, 2 elements, 8 bytes, asynchronous, at C.k.outer
                for ax0 in 1:
                  for ax1 in 2:
                    A.shared[i, k.outer*2 + ax1] = A[i, k.outer*2 + ax1]
              for k.inner in 2:
                C[i] += A.shared[i, k.outer*2 + k.inner]
    legal:    a stage in shared memory that copies elements of one tensor in global memory, or zeros
              where a condition does not hold; on devices that have such copies.
    """

    verb: ClassVar[str] = "async_copy"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        _check(self, f"async_copy({stage.name})", stage)
        stage.slots = 1


@dataclass(frozen=True)
class Pipeline(Step):
    """The stage's tiles are copied ahead of their use, into a ring of slots along the loop that it
    is computed at: while one is read, slots - 1 are on their way.

    slots: 1 is `async_copy`, 0 plain copies, as before any of these steps (of bulk copies as 1)
    loaders: warps of the block, beside those that its loops take, that begin bulk copies and do
           nothing else: 0, 1, or 4, which give registers to the others
    rewrite:  s[A_shared].pipeline(3)
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i in 4:
            for k.outer in 5:
              A.shared: float32[1, 2] shared, 2 elements, 8 bytes, at C.k.outer
                for ax0 in 1:
                  for ax1 in 2:
                    A.shared[i, k.outer*2 + ax1] = A[i, k.outer*2 + ax1]
              for k.inner in 2:
                C[i] += A.shared[i, k.outer*2 + k.inner]
        ->
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i in 4:
            for k.outer in 5:
              A.shared: float32[1, 2] shared, 2 elements, 8 bytes, ring of 3 slots, at C.k.outer
                for ax0 in 1:
                  for ax1 in 2:
                    A.shared[i, k.outer*2 + ax1] = A[i, k.outer*2 + ax1]
              for k.inner in 2:
                C[i] += A.shared[i, k.outer*2 + k.inner]
    legal:    as `async_copy`.  A loop of fewer iterations has as many slots; one that threads or
              virtual threads take has one.
    """

    slots: Size
    loaders: Size = 0
    verb: ClassVar[str] = "pipeline"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        place = f"pipeline({stage.name}, {self.slots})"
        if not same(self.loaders, 0) and not stage.is_bulk:
            raise ScheduleError(
                place, "warps of their own begin bulk copies, and none that threads make",
                "Call bulk_copy first, or leave `loaders` out.",
            )  # fmt: skip
        if isinstance(self.loaders, int) and self.loaders not in LOADERS:
            raise ScheduleError(
                place, f"{self.loaders} warps of their own",
                f"There are {', '.join(map(str, LOADERS))}.",
            )  # fmt: skip
        if isinstance(self.slots, int) and not 0 <= self.slots <= MOST_SLOTS:
            raise ScheduleError(
                place, f"a ring has at most {MOST_SLOTS} slots, and not fewer than none",
                "Use 2, 3 or 4; 0 for plain copies.",
            )  # fmt: skip
        _check(self, place, stage)
        stage.slots, stage.loaders = self.slots, self.loaders

    def python(self, names: PythonNames) -> str:
        own = "" if same(self.loaders, 0) else f", loaders={value_text(self.loaders)}"
        return f"{names.stage(self.stage)}.pipeline({value_text(self.slots)}{own})"


@dataclass(frozen=True)
class BulkCopy(Step):
    """A copy engine brings the stage's tiles, boxes of a tensor, while its threads do other things.

    In a ring (`pipeline`), too: then each tile is waited for by itself, and no barrier stands in
    the loop.  The loops of the stage are not run, and stay as they are.

    rewrite:  s[A_shared].bulk_copy()
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i in 4:
            for k.outer in 4:
              A.shared: float32[1, 4] shared, 4 elements, 16 bytes, at C.k.outer
                for ax0 in 1:
                  for ax1 in 4:
                    A.shared[i, k.outer*4 + ax1] = A[i, k.outer*4 + ax1]
              for k.inner in 4:
                C[i] += A.shared[i, k.outer*4 + k.inner]
        ->
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i in 4:
            for k.outer in 4:
              A.shared: float32[1, 4] shared, 4 elements, 16 bytes, bulk copies, at C.k.outer
                for ax0 in 1:
                  for ax1 in 4:
                    A.shared[i, k.outer*4 + ax1] = A[i, k.outer*4 + ax1]
              for k.inner in 4:
                C[i] += A.shared[i, k.outer*4 + k.inner]
    legal:    a stage in shared memory that copies a box of one tensor in global memory, or zeros
              outside of that; its rows are multiples of 16 bytes, and those of the tensor begin at
              such; a box has at most 5 dimensions of 256 elements; blocks of whole warps; on
              devices that have such an engine.
    """

    verb: ClassVar[str] = "bulk_copy"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        place = f"bulk_copy({stage.name})"
        _check(self, place, stage)
        if stage.is_scheduled or stage.aligned:
            raise ScheduleError(
                place, "its loops are split, bound or marked, or its rows moved apart",
                "A copy engine has its own loops: call bulk_copy on a stage as it was made.",
            )  # fmt: skip
        stage.is_bulk = True
        stage.slots = 1 if same(stage.slots, 0) else stage.slots


def _check(step: Step, place: str, stage: StageState) -> None:
    refuse_fixed(step, stage)
    if stage.scope != "shared":
        raise ScheduleError(
            place, f"asynchronous copies go to shared memory, not to scope {stage.scope!r}",
            'Make the stage by cache_read(tensor, "shared", ...), or call set_scope first.',
        )  # fmt: skip
    assert isinstance(stage.op, ComputeOp)
    why = why_no_copy(stage.op.body)
    if why:
        raise ScheduleError(place, why, "Leave the step out, or copy the tensor by cache_read.")
