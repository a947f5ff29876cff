"""Steps on where a stage is computed and where its buffer lives.

In: a state.  Out: another place, scope or layout of a stage.  Read next: `stages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import ALL_ATOMS
from tilewright.ir.swizzle import SWIZZLES
from tilewright.schedule.scopes import FRAGMENT
from tilewright.schedule.space.decision import Size
from tilewright.schedule.state import SplitRelation, StageState
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
from tilewright.te.tensor import ComputeOp, IterVar


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
        self.apply_to(s, stage, parent, place, reads=True)

    def apply_to(
        self, s: AnyState, stage: StageState, parent: StageState, place: str, *, reads: bool
    ) -> None:
        """Attach `stage` to a loop of `parent`, which `reads` it."""
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
        if reads and not s.reaches(stage, parent):
            raise ScheduleError(
                place, f"{parent.name} does not use {stage.name}", "Attach to a reader."
            )
        stage.attach_to("scope", (parent, axis))

    def python(self, names: PythonNames) -> str:
        host, axis = names.stage(self.parent), names.axis(self.parent, self.axis)
        return f"{names.stage(self.stage)}.compute_at({host}, {axis})"


@dataclass(frozen=True)
class AccumulateAt(Step):
    """The stage reduces along with a reader: each iteration of a loop adds the part it is about.

    The loop is the outermost one of the reader, over its reduction axis; the stage's own reduction
    axis means the same.  What reads the stage behind the loop finds the whole.  What reads it
    inside finds what there is so far, of a maximum, and what it adds up must be proportional to
    exp(-maximum): where the maximum grows by d, all that was added up so far is multiplied by
    exp(-d), and in the end each term has the factor that it would have had at once.  So

        m = max_k s[k];  t = sum_k exp(s[k] - m);  o = sum_k exp(s[k] - m) * v[k]
        ->   for parts of k: {m' = max(m, s[k]); t *= exp(m - m'); o *= exp(m - m'); m = m';
                              t += sum exp(s[k] - m); o += sum exp(s[k] - m) * v[k]}

    for which the terms s[k] need not be kept.  The maximum begins with the least finite number, so
    that a part of nothing but -inf adds nothing.

    rewrite:  s[M].accumulate_at(s[O], x_outer)
        # stage M: a fragment buffer ends with its kernel, but the stage is computed on its own. Attach it with compute_at, or use scope global.
        M: float32[16] fragment
          for i in 16:
            for j in 32:
              M[i] max= S[i, j]
        C: float32[16, 8] global
          threadIdx.x for i.inner.c.outer.fused in 32:
            O: float32[?, ?] fragment, at C.i.inner.c.outer.fused
              for x.outer in 2:
                S: float32[?, ?] fragment, at O.x.outer
                  for c.outer in ?:
                    Q.fragment: float16[?, ?] fragment, at S.c.outer
                      for ax0 in ?:
                        for ax1 in ?:
                          Q.fragment[? + ax0, ? + ax1] = Q[? + ax0, ? + ax1]
                    K.fragment: float16[?, ?] fragment, at S.c.outer
                      for ax0 in ?:
                        for ax1 in ?:
                          K.fragment[? + ax0, ? + ax1] = K[? + ax0, ? + ax1]
                    m16n8k16.float16 for i in ?:
                      m16n8k16.float16 for c.inner in 8:
                        m16n8k16.float16 for r in 16:
                          S[? + i, ? + c.outer*8 + c.inner] += float32(Q.fragment[? + i, r])*float32(K.fragment[? + c.outer*8 + c.inner, r])
                P: float16[?, ?] fragment, at O.x.outer
                  for i in ?:
                    for c in ?:
                      P[? + i, ? + c] = float16(exp(S[? + i, ? + c] - M[? + i]))
                V.fragment: float16[?, ?] fragment, at O.x.outer
                  for ax0 in ?:
                    for ax1 in ?:
                      V.fragment[? + ax0, ? + ax1] = V[? + ax0, ? + ax1]
                T: float32[?] fragment, added up along O.x.outer
                  for i in ?:
                    for g in 32:
                      T[? + i] += exp(S[? + i, g] - M[? + i])
                m16n8k16.float16 for i in ?:
                  m16n8k16.float16 for c in ?:
                    m16n8k16.float16 for x.inner in 16:
                      O[? + i, ? + c] += float32(P[? + i, x.outer*16 + x.inner])*float32(V.fragment[x.outer*16 + x.inner, ? + c])
            for i.outer in 2:
              for c.inner in 2:
                C[i.outer*8 + i.inner.c.outer.fused//4, i.inner.c.outer.fused%4*2 + c.inner] = O[i.outer*8 + i.inner.c.outer.fused//4, i.inner.c.outer.fused%4*2 + c.inner]/T[i.outer*8 + i.inner.c.outer.fused//4]
        ->
        C: float32[16, 8] global, 128 elements, 512 bytes
          threadIdx.x for i.inner.c.outer.fused in 32:
            O: float32[16, 8] fragment, 4 elements, 16 bytes of a lane, at C.i.inner.c.outer.fused
              for x.outer in 2:
                S: float32[16, 16] fragment, 8 elements, 32 bytes of a lane, at O.x.outer
                  for c.outer in 2:
                    Q.fragment: float16[16, 16] fragment, 8 elements, 16 bytes of a lane, at S.c.outer
                      for ax0 in 16:
                        for ax1 in 16:
                          Q.fragment[ax0, ax1] = Q[ax0, ax1]
                    K.fragment: float16[8, 16] fragment, 4 elements, 8 bytes of a lane, at S.c.outer
                      for ax0 in 8:
                        for ax1 in 16:
                          K.fragment[x.outer*16 + c.outer*8 + ax0, ax1] = K[x.outer*16 + c.outer*8 + ax0, ax1]
                    m16n8k16.float16 for i in 16:
                      m16n8k16.float16 for c.inner in 8:
                        m16n8k16.float16 for r in 16:
                          S[i, x.outer*16 + c.outer*8 + c.inner] += float32(Q.fragment[i, r])*float32(K.fragment[x.outer*16 + c.outer*8 + c.inner, r])
                M: float32[16] fragment, 2 elements, 8 bytes of a lane, added up along O.x.outer
                  for i in 16:
                    for j in 16:
                      M[i] max= S[i, j + x.outer*16]
                P: float16[16, 16] fragment, 8 elements, 16 bytes of a lane, at O.x.outer
                  for i in 16:
                    for c in 16:
                      P[i, x.outer*16 + c] = float16(exp(S[i, x.outer*16 + c] - M[i]))
                V.fragment: float16[16, 8] fragment, 4 elements, 8 bytes of a lane, at O.x.outer
                  for ax0 in 16:
                    for ax1 in 8:
                      V.fragment[x.outer*16 + ax0, ax1] = V[x.outer*16 + ax0, ax1]
                T: float32[16] fragment, 2 elements, 8 bytes of a lane, added up along O.x.outer
                  for i in 16:
                    for g in 16:
                      T[i] += exp(S[i, g + x.outer*16] - M[i])
                m16n8k16.float16 for i in 16:
                  m16n8k16.float16 for c in 8:
                    m16n8k16.float16 for x.inner in 16:
                      O[i, c] += float32(P[i, x.outer*16 + x.inner])*float32(V.fragment[x.outer*16 + x.inner, c])
            for i.outer in 2:
              for c.inner in 2:
                C[i.outer*8 + i.inner.c.outer.fused//4, i.inner.c.outer.fused%4*2 + c.inner] = O[i.outer*8 + i.inner.c.outer.fused//4, i.inner.c.outer.fused%4*2 + c.inner]/T[i.outer*8 + i.inner.c.outer.fused//4]
    legal:    a reduction of rows in scope fragment, over one axis, no longer than the reader's.
    """  # noqa: E501

    parent: str
    axis: str
    verb: ClassVar[str] = "accumulate_at"

    def apply(self, s: AnyState) -> None:
        stage, parent = stage_of(self, s), stage_of(self, s, self.parent)
        place = f"accumulate_at({stage.name}, {parent.name}.{self.axis})"
        ComputeAt(self.stage, self.parent, self.axis).apply_to(s, stage, parent, place, reads=False)
        axis = leaf(self, parent, self.axis)
        op, host = stage.op, parent.op
        assert isinstance(op, ComputeOp)
        own = (len(op.reduce_axis) == 1 and op.reduce_axis[0]) or None
        root = root_of(parent, axis)
        if own is None or op.combiner is None or root not in host.reduce_axis:
            raise ScheduleError(
                place, "both must reduce over one axis, and the loop be a part of the reader's",
                "compute_at computes it at once.",
            )  # fmt: skip
        assert root is not None
        if own.size > root.size or stage.scope != FRAGMENT:
            raise ScheduleError(
                place, f"{own.name} has {own.size} terms, {root.name} {root.size}; the scope is"
                f" {stage.scope!r}",
                f'Lanes of a warp reduce rows in scope "{FRAGMENT}", of as many terms.',
            )  # fmt: skip
        if s.reaches(parent, stage):
            raise ScheduleError(
                place, f"{stage.name} reads what {parent.name} adds up", "Attach it further out."
            )
        s.move_before(stage, parent)
        stage.attach_to("scope", (parent, axis), root)

    def python(self, names: PythonNames) -> str:
        host, axis = names.stage(self.parent), names.axis(self.parent, self.axis)
        return f"{names.stage(self.stage)}.accumulate_at({host}, {axis})"


def root_of(stage: StageState, loop: IterVar) -> IterVar | None:
    """The axis that a loop is an outermost part of; None where it is a part of another kind."""
    made = {r.outer: r.parent for r in stage.relations if isinstance(r, SplitRelation)}
    while loop in made:
        loop = made[loop]
    return loop if loop in (*stage.op.axis, *stage.op.reduce_axis) else None


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
        atom = ALL_ATOMS.get(stage.atom[0]) if stage.atom is not None else None
        if atom is not None and self.scope != atom.unit.sums:
            raise ScheduleError(
                f"set_scope({stage.name}, {self.scope})",
                f"{atom} computes it, in the registers of a {atom.unit.name}",
                f"Leave it in scope {atom.unit.sums}; s.cache_write makes a stage of that before.",
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
