"""The step by which blocks share what one of them then finishes: sums over blocks in one kernel.

In: a state.  Out: a stage that several blocks compute and the last of them reads.
Read next: `tree/joins.py` (what it means), `lowering/joins.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.places import ComputeAt
from tilewright.schedule.steps.step import AnyState, Step, leaf, stage_of


@dataclass(frozen=True)
class Join(Step):
    """The stage is computed inside a loop over blocks of one of its readers, by blocks of its own
    for each of these: those that its loops are bound to.  The last of them to be done, whichever
    it is, goes on with the reader.

    The stage stays in global memory, where each tile has a place of its own.  Reductions that
    `rfactor` split over blocks are so finished in the kernel that began them, in a fixed order.
    rewrite:  s[C_rf].join(s[C], i_outer)
        C.rf: float32[2, 4] global, 8 elements, 32 bytes
          blockIdx.y for k.outer in 2:
            for i.rf in 4:
              for k.inner in 5:
                C.rf[k.outer, i.rf] += A[i.rf, k.outer*5 + k.inner]
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i.outer in 2:
            for i.inner in 2:
              for k.outer.v in 2:
                C[i.outer*2 + i.inner] += C.rf[k.outer.v, i.outer*2 + i.inner]
        ->
        C: float32[4] global, 4 elements, 16 bytes
          blockIdx.x for i.outer in 2:
            C.rf: float32[2, 2] global, 4 elements, 16 bytes, read by the last block, at C.i.outer
              blockIdx.y for k.outer in 2:
                for i.rf in 2:
                  for k.inner in 5:
                    C.rf[k.outer, i.outer*2 + i.rf] += A[i.outer*2 + i.rf, k.outer*5 + k.inner]
            for i.inner in 2:
              for k.outer.v in 2:
                C[i.outer*2 + i.inner] += C.rf[k.outer.v, i.outer*2 + i.inner]
    legal:    as `compute_at`, inside loops that are all bound to blockIdx, and no loops further in
              are; the stage's own blocks have another index.  One stage of a kernel is joined.  On
              devices whose blocks can count each other.
    """

    parent: str
    axis: str
    verb: ClassVar[str] = "join"

    def apply(self, s: AnyState) -> None:
        stage, parent = stage_of(self, s), stage_of(self, s, self.parent)
        axis = leaf(self, parent, self.axis)
        if stage.atom is not None:
            raise ScheduleError(
                f"join({stage.name}, {parent.name}.{axis.name})",
                f"{stage.atom[0]} computes it, in the registers of a warp",
                'Store its sums by a stage of their own: s.cache_write(tensor, "fragment").',
            )
        ComputeAt(self.stage, self.parent, self.axis).apply(s)
        stage.scope = "global"
        stage.attach_to("scope", (parent, axis), joined=True)

    def python(self, names: PythonNames) -> str:
        host, axis = names.stage(self.parent), names.axis(self.parent, self.axis)
        return f"{names.stage(self.stage)}.join({host}, {axis})"
