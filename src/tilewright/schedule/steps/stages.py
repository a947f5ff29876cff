"""Steps that make a stage: cache_read, cache_write, rfactor.

In: a state.  Out: one more stage in it, whose tensor the step returns; readers are redirected.
Read next: `layouts.py` (stages in another layout or of another shape).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.dtype import DType, join
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import may_hold, number, ranges, symbols_of
from tilewright.ir.tuples import together
from tilewright.schedule.space.decision import ceil_div
from tilewright.schedule.state import FuseRelation, StageState, narrowed, renamed_body
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.step import (
    AnyState,
    Step,
    check_scope,
    describe,
    leaf,
    refuse_fixed,
    refuse_host,
    refuse_opaque,
    stage_of,
)
from tilewright.te.tensor import ComputeOp, IterVar, Tensor, reduction_of


@dataclass(frozen=True)
class CacheRead(Step):
    """A copy of a tensor in `scope` that the named readers use.

    rewrite:  s.cache_read(A, "global", [C])
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:
            for k in 10:
              C[i] += A[i, k]
        ->
        A.global: float32[4, 10] global, 40 elements, 160 bytes
          for ax0 in 4:
            for ax1 in 10:
              A.global[ax0, ax1] = A[ax0, ax1]
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:
            for k in 10:
              C[i] += A.global[i, k]
    legal:    every reader does read the tensor, the stage's one of number `value`; `dtype`, the
              type of the copy ("": as it is), holds all that the tensor's type holds.
    """

    scope: str
    readers: tuple[str, ...]
    dtype: str = ""
    value: int = 0
    verb: ClassVar[str] = "cache_read"

    def apply(self, s: AnyState) -> Tensor:
        source = s.find(self.stage)
        place = f"cache_read({source.name}, {self.scope})"
        check_scope(place, self.scope)
        if not self.readers:
            raise ScheduleError(place, "no readers given", "Pass the tensors that read it.")
        if not 0 <= self.value < len(source.tensors):
            raise ScheduleError(place, f"it has no tensor {self.value}", "Count from 0.")
        tensor = source.tensors[self.value]
        readers = [stage_of(self, s, name) for name in dict.fromkeys(self.readers)]
        for reader in readers:
            refuse_opaque(self, reader)
            if tensor not in reader.op.input_tensors:
                raise ScheduleError(
                    place, f"{reader.name} does not read {source.name}", "Name its readers only."
                )
        kind = DType(self.dtype or tensor.dtype, place)
        if kind is not tensor.dtype and join(kind, tensor.dtype, place) is not kind:
            raise ScheduleError(
                place, f"{kind} does not hold what {tensor.dtype} does",
                f"Use a wider type, for example {str(tensor.dtype.compute)!r}.",
            )  # fmt: skip
        axes = copy_axes(tensor.shape, [f"ax{k}" for k in range(tensor.ndim)])
        copied = E.cast(kind, tensor[tuple(ax.var for ax in axes)])
        name = f"{source.buffer_names[self.value]}.{self.scope}"
        op = ComputeOp(s.new_name(name), axes, copied)
        for reader in readers:
            assert isinstance(reader.op, ComputeOp)
            reader.set_body(redirected(reader.op.body, tensor, op.output_tensor))
        cache = s.insert_stage(op, after=source)
        cache.scope = self.scope
        return op.output_tensor

    def python(self, names: PythonNames) -> str:
        readers = ", ".join(names.tensor(name, 0) for name in self.readers)
        kind = f', dtype="{self.dtype}"' if self.dtype else ""
        tensor = names.tensor(self.stage, self.value)
        return f's.cache_read({tensor}, "{self.scope}", [{readers}]{kind})'


@dataclass(frozen=True)
class CacheWrite(Step):
    """The computation moves to a new stage in `scope`; the tensor itself becomes a copy of it.

    The new stage has the type of partial results, where that is a wider one.

    rewrite:  s.cache_write(C, "global")
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:
            for k in 10:
              C[i] += A[i, k]
        ->
        C.global: float32[4] global, 4 elements, 16 bytes
          for i.c in 4:
            for k in 10:
              C.global[i.c] += A[i.c, k]
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:
            C[i] = C.global[i]
    legal:    the stage has no scheduled loops yet, and no stage is computed in one.
    """

    scope: str
    verb: ClassVar[str] = "cache_write"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        place = f"cache_write({stage.name}, {self.scope})"
        check_scope(place, self.scope)
        if stage.is_scheduled or stage.attach_kind != "root":
            raise ScheduleError(
                place, "the stage already has scheduled loops", "Call cache_write first."
            )
        refuse_fixed(self, stage)
        refuse_host(self, s, stage)
        old = stage.op
        assert isinstance(old, ComputeOp)
        spatial = copy_axes(old.shape, [f"{ax.name}.c" for ax in old.axis])
        body = renamed_body(old, spatial, old.reduce_axis)
        node = reduction_of(body)
        body = body if node is None else node  # partial results keep their own type
        op = ComputeOp(s.new_name(f"{stage.name}.{self.scope}"), spatial, body, old.tag, old.attrs)
        at = tuple(ax.var for ax in old.axis)
        copied = together([tensor[at] for tensor in op.outputs])
        stage.restart(ComputeOp(old.name, old.axis, narrowed(old, copied)))
        cache = s.insert_stage(op, before=stage)
        cache.scope = self.scope
        return op.output_tensor

    def python(self, names: PythonNames) -> str:
        return f's.cache_write({names.tensor(self.stage)}, "{self.scope}")'


def copy_axes(shape: tuple[int, ...], names: list[str]) -> tuple[IterVar, ...]:
    return tuple(IterVar(n, d) for n, d in zip(names, shape, strict=True))


def redirected(body: Expr, old: Tensor, new: Tensor) -> Expr:
    """`body` reading `new` in place of `old`, without conversions there and back."""

    def rule(node: Expr) -> Expr | None:
        if node.op == "read" and node.attr is old:
            return E.cast(old.dtype, new[node.args])
        inner = node.args[0] if node.op == "cast" else node
        if inner is not node and inner.op == "cast" and node.dtype is new.dtype:
            source = inner.args[0]
            return source if source.op == "read" and source.attr is new else None
        return None

    return E.transform(body, rule)


@dataclass(frozen=True)
class RFactor(Step):
    """A reduction loop becomes a spatial axis of a new partial stage, which this one combines.

    rewrite:  s.rfactor(C, k_inner)
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:
            for k.outer in 5:
              for k.inner in 2:
                C[i] += A[i, k.outer*2 + k.inner]
        ->
        C.rf: float32[2, 4] global, 8 elements, 32 bytes
          for k.inner in 2:
            for i.rf in 4:
              for k.outer in 5:
                C.rf[k.inner, i.rf] += A[i.rf, k.outer*2 + k.inner]
        C: float32[4] global, 4 elements, 16 bytes
          for i in 4:
            for k.inner.v in 2:
              C[i] += C.rf[k.inner.v, i]
    legal:    the axis is a reduction loop whose split factors are known; no spatial loop is
              scheduled yet, and no stage is computed in a loop.
    """

    axis: str
    factor_axis: int
    verb: ClassVar[str] = "rfactor"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        place = f"rfactor({stage.name}.{self.axis})"
        op = stage.op
        assert isinstance(op, ComputeOp)
        axis = leaf(self, stage, self.axis)
        if op.combiner is None or axis.kind != "reduce":
            raise ScheduleError(place, "not a reduction axis", f"{describe(stage)}.")
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
        refuse_host(self, s, stage)
        values, extents, guards = _leaf_values(stage)
        spatial = copy_axes(op.shape, [f"{ax.name}.rf" for ax in op.axis])
        kept = [ax for ax in stage.leaf_iter_vars if ax.kind == "reduce" and ax is not axis]
        partial = IterVar(axis.name, extents[axis])
        reduce = tuple(
            ax if ax in op.reduce_axis else IterVar(ax.name, extents[ax], "reduce") for ax in kept
        )
        mapping: dict[Expr, Any] = {a.var: b.var for a, b in zip(op.axis, spatial, strict=True)}
        leaves = {ax.var: r.var for ax, r in zip(kept, reduce, strict=True)} | {
            axis.var: partial.var
        }
        for root in op.reduce_axis:
            mapping[root.var] = E.substitute(values[root], leaves)
        value = E.substitute(op.reduced, mapping)
        if guards:
            test = E.all_of(*(E.substitute(g, leaves) for g in guards))
            value = op.combiner.only(test, value)
        axes = (*spatial[: self.factor_axis], partial, *spatial[self.factor_axis :])
        if reduce:
            value = E.make("reduce", (value,), (op.combiner, reduce), value.dtype)
        part = ComputeOp(s.new_name(f"{stage.name}.rf"), axes, value, op.tag, op.attrs)
        k = IterVar(f"{axis.name}.v", extents[axis], "reduce")
        index = [ax.var for ax in op.axis]
        index.insert(self.factor_axis, k.var)
        read = together([tensor[tuple(index)] for tensor in part.outputs])
        combined = E.make("reduce", (read,), (op.combiner, (k,)), read.dtype)
        stage.restart(ComputeOp(op.name, op.axis, narrowed(op, combined)))
        s.insert_stage(part, before=stage)
        return part.output_tensor

    def python(self, names: PythonNames) -> str:
        axis = names.axis(self.stage, self.axis)
        return f"s.rfactor({names.tensor(self.stage)}, {axis}, {self.factor_axis})"


def _leaf_values(
    stage: StageState,
) -> tuple[dict[IterVar, Expr], dict[IterVar, int], list[Expr]]:
    """Root reduction axes as expressions of leaf variables, extents of all axes, guards of uneven
    splits."""
    assert isinstance(stage.op, ComputeOp)
    extents: dict[IterVar, int] = {ax: ax.size for ax in stage.op.reduce_axis}
    uneven: list[IterVar] = []
    for r in stage.relations:
        if isinstance(r, FuseRelation):
            if r.outer.kind == "reduce":
                extents[r.fused] = extents[r.outer] * extents[r.inner]
        elif r.parent.kind == "reduce":
            n = extents[r.parent]
            # a decision asked for here becomes part of the structure: extents of stages are fixed
            factor = int(r.factor) if r.factor is not None else ceil_div(n, int(r.nparts))  # type: ignore[arg-type]
            extents[r.inner], extents[r.outer] = factor, ceil_div(n, factor)
            if r.nparts is not None:
                extents[r.outer] = int(r.nparts)
            short = Simplifier(ranges(symbols_of([n])))
            extents[r.outer] = number(extents[r.outer], short)
            if may_hold(extents[r.outer] * factor != n, short):
                uneven.append(r.parent)
    values = stage.axis_values({ax: ax.var for ax in stage.leaf_iter_vars}, extents)
    return values, extents, [values[ax] < extents[ax] for ax in uneven]
