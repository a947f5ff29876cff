"""The step that gives three loops to a matrix instruction.

In: a state.  Out: a stage whose innermost loops are inside an atom.  What the stage reads is looked
at when all stages are known (`tree/products.py`).  Read next: `places.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import ALL_ATOMS, names
from tilewright.schedule.atoms import LETTERS, innermost_part
from tilewright.schedule.intrinsics import INTRINSICS
from tilewright.schedule.state import StageState
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.step import (
    AnyState,
    Step,
    describe,
    leaf,
    refuse_fixed,
    refuse_inlined,
    stage_of,
)
from tilewright.te.tensor import ComputeOp, IterVar

_KINDS = ("spatial", "spatial", "reduce")


@dataclass(frozen=True)
class Tensorize(Step):
    """The three innermost loops of a sum of products are run by a matrix instruction of a warp.

    Its 32 lanes are threadIdx.x; which of them holds what is the atom's affair.  That of a group of
    four warps (m64n128k16.float16) has 128 lanes, and reads its operands in shared memory.  One of
    a thread (m1n1k4.int8) has no lanes, and scope local in the place of fragment.  An intrinsic of
    `schedule/intrinsics.py` runs loops from the axis inwards that are as it declares.

    rewrite:  s[P].tensorize(P_i, "m16n8k16.float16")
        # stage A.fragment: P reads this fragment without an atom. Tensorize P; other readers take it from where it comes from.
        C: float32[16, 8] global
          threadIdx.x for i.inner.j.outer.fused in 32:
            P: float32[?, ?] fragment, at C.i.inner.j.outer.fused
              for r.outer in 2:
                A.fragment: float16[?, ?] fragment, at P.r.outer
                  for ax0 in ?:
                    for ax1 in ?:
                      A.fragment[? + ax0, ? + ax1] = A[? + ax0, ? + ax1]
                B.fragment: float16[?, ?] fragment, at P.r.outer
                  for ax0 in ?:
                    for ax1 in ?:
                      B.fragment[? + ax0, ? + ax1] = B[? + ax0, ? + ax1]
                for i in ?:
                  for j in ?:
                    for r.inner in 16:
                      P[? + i, ? + j] += float32(A.fragment[? + i, r.outer*16 + r.inner])*float32(B.fragment[r.outer*16 + r.inner, ? + j])
            for i.outer in 2:
              for j.inner in 2:
                C[i.outer*8 + i.inner.j.outer.fused//4, i.inner.j.outer.fused%4*2 + j.inner] = P[i.outer*8 + i.inner.j.outer.fused//4, i.inner.j.outer.fused%4*2 + j.inner]*2.0
        ->
        C: float32[16, 8] global, 128 elements, 512 bytes
          threadIdx.x for i.inner.j.outer.fused in 32:
            P: float32[16, 8] fragment, 4 elements, 16 bytes of a lane, at C.i.inner.j.outer.fused
              for r.outer in 2:
                A.fragment: float16[16, 16] fragment, 8 elements, 16 bytes of a lane, at P.r.outer
                  for ax0 in 16:
                    for ax1 in 16:
                      A.fragment[ax0, r.outer*16 + ax1] = A[ax0, r.outer*16 + ax1]
                B.fragment: float16[16, 8] fragment, 4 elements, 8 bytes of a lane, at P.r.outer
                  for ax0 in 16:
                    for ax1 in 8:
                      B.fragment[r.outer*16 + ax0, ax1] = B[r.outer*16 + ax0, ax1]
                m16n8k16.float16 for i in 16:
                  m16n8k16.float16 for j in 8:
                    m16n8k16.float16 for r.inner in 16:
                      P[i, j] += float32(A.fragment[i, r.outer*16 + r.inner])*float32(B.fragment[r.outer*16 + r.inner, j])
            for i.outer in 2:
              for j.inner in 2:
                C[i.outer*8 + i.inner.j.outer.fused//4, i.inner.j.outer.fused%4*2 + j.inner] = P[i.outer*8 + i.inner.j.outer.fused//4, i.inner.j.outer.fused%4*2 + j.inner]*2.0
    legal:    the axis is the outermost of the three innermost loops, which are m, n (spatial) and k
              (reduction), unmarked, and exactly as long as the atom's; each is a whole axis or the
              inner loop of splits by a factor.  The stage is in scope fragment.  Operands are
              fragments; those of a group asynchronous copies in shared memory, k innermost, in
              rows as long as their swizzle.  A condition beside a product depends on none of the
              three loops: where it does not hold, a warp skips the atom; a group takes none.
    """  # noqa: E501

    axis: str
    atom: str
    verb: ClassVar[str] = "tensorize"

    def apply(self, s: AnyState) -> None:
        stage = stage_of(self, s)
        place = f"tensorize({stage.name}.{self.axis}, {self.atom})"
        refuse_inlined(self, stage)
        refuse_fixed(self, stage)
        if self.atom not in ALL_ATOMS and self.atom not in INTRINSICS:
            raise ScheduleError(place, "no such atom", f"There are {names()}.")
        if stage.atom is not None:
            raise ScheduleError(place, f"{stage.name} is computed by {stage.atom[0]} already")
        if self.atom in INTRINSICS:
            self._by_statements(place, s, stage)
            return
        op = stage.op
        assert isinstance(op, ComputeOp)
        if op.combiner is None or op.num_outputs > 1:
            raise ScheduleError(
                place, f"{stage.name} is no sum of products", "Tensorize a stage that adds up."
            )
        unit = ALL_ATOMS[self.atom].unit
        if stage.scope != unit.sums:
            who = "its thread holds" if unit.lanes == 1 else "lanes hold"
            raise ScheduleError(
                place, f"{who} the sums, but the scope is {stage.scope!r}",
                f's.cache_write(.., "{unit.sums}"), or s[{stage.name}].set_scope("{unit.sums}").',
            )  # fmt: skip
        axis = leaf(self, stage, self.axis)
        inside = stage.leaf_iter_vars[-3:]
        if inside[0] is not axis or tuple(ax.kind for ax in inside) != _KINDS:
            raise ScheduleError(
                place, "the three innermost loops must be m, n (spatial) and k (reduction), and the"
                " axis the first of them",
                f"{describe(stage)}. Reorder first.",
            )  # fmt: skip
        for ax, letter in zip(inside, LETTERS, strict=True):
            self._check_loop(place, s, stage, ax, letter)
        stage.atom = self.atom, axis

    def _by_statements(self, place: str, s: AnyState, stage: StageState) -> None:
        """What the loops compute is compared when all stages are known."""
        axis = leaf(self, stage, self.axis)
        op = stage.op
        if not isinstance(op, ComputeOp) or op.num_outputs > 1:
            raise ScheduleError(place, f"{stage.name} has several results", "Give each its own.")
        for ax in stage.leaf_iter_vars[stage.leaf_iter_vars.index(axis) :]:
            if stage.mark(ax) or s.attached(stage, ax):
                what = stage.mark(ax) or f"where {s.attached(stage, ax)[0].name} is computed"
                raise ScheduleError(
                    place, f"{ax.name} is {what} already", "Leave the loops inside it as they are."
                )
        stage.atom = self.atom, axis

    def _check_loop(
        self, place: str, s: AnyState, stage: StageState, ax: IterVar, letter: str
    ) -> None:
        wanted = ALL_ATOMS[self.atom].extents[letter]
        if stage.mark(ax):
            raise ScheduleError(place, f"{ax.name} is already {stage.mark(ax)}")
        for child in s.attached(stage, ax):
            raise ScheduleError(
                place, f"{child.name} is computed at {ax.name}, which would be no loop any more",
                "Attach it further out.",
            )  # fmt: skip
        part = innermost_part(stage, ax)
        if part is None or part.size is None:
            raise ScheduleError(
                place, f"{ax.name} is not the end of a whole axis",
                f"Take an axis of the computation, or the inner loop of split(.., {wanted}).",
            )  # fmt: skip
        if isinstance(part.size, int) and part.size != wanted:
            raise ScheduleError(
                place, f"{ax.name} has {part.size} iterations, {letter} of the atom {wanted}",
                f"split(.., factor={wanted}) gives such a loop, whatever the extent.",
            )  # fmt: skip

    def python(self, names: PythonNames) -> str:
        axis = names.axis(self.stage, self.axis)
        return f'{names.stage(self.stage)}.tensorize({axis}, "{self.atom}")'
