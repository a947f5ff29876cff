"""The step that keeps what a stage computes in the type of its arithmetic.

In: a stage of a narrow float type.  Out: the same stage in the wider type, without the roundings in
between.  Read next: `stages.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.products import refuse_scheduled
from tilewright.schedule.steps.stages import redirected
from tilewright.schedule.steps.step import AnyState, Step, stage_of
from tilewright.te.reductions import builtin_combiner
from tilewright.te.tensor import ComputeOp, Tensor

_ARITHMETIC = ("add", "sub", "mul", "div", "min", "max")
_BUILTIN = ("max", "min")


@dataclass(frozen=True)
class Widen(Step):
    """The values of a stage are not rounded to its type, but kept in that of its arithmetic.

    Readers convert what they read, unless that is at once widened again: what is left of a chain
    of such stages has one rounding at its end.  Results differ by the roundings that are left out.

    rewrite:  s.widen(B)
        B: float16[2, 4] global, 8 elements, 16 bytes
          for i in 2:
            for j in 4:
              B[i, j] = A[i, j] + 1.0
        M: float16[2] global, 2 elements, 4 bytes
          for i in 2:
            for k in 4:
              M[i] max= B[i, k]
        C: float16[2] global, 2 elements, 4 bytes
          for i in 2:
            C[i] = M[i]*2.0
        ->
        B: float32[2, 4] global, 8 elements, 32 bytes
          for i in 2:
            for j in 4:
              B[i, j] = float32(A[i, j]) + 1.0
        M: float16[2] global, 2 elements, 4 bytes
          for i in 2:
            for k in 4:
              M[i] max= float16(B[i, k])
        C: float16[2] global, 2 elements, 4 bytes
          for i in 2:
            C[i] = M[i]*2.0
    legal:    a stage of floats with a wider compute type, no output, without scheduled loops.
    """

    verb: ClassVar[str] = "widen"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        place = f"widen({stage.name})"
        refuse_scheduled(self, s, stage, place)
        op = stage.op
        assert isinstance(op, ComputeOp)
        kind = op.dtype.compute
        if stage.is_output or op.num_outputs > 1 or not op.dtype.is_float or kind is op.dtype:
            raise ScheduleError(
                place, f"it is an output, or of several tensors, or {op.dtype} is computed in"
                f" {kind}",
                "Only a stage of narrow floats that others read can be kept wider.",
            )  # fmt: skip
        wider = ComputeOp(stage.name, op.axis, _wider(op.body, kind), op.tag, op.attrs)
        readers, tensor = s.readers(stage), stage.tensor
        s.replace_op(stage, wider)
        for reader in readers:
            assert isinstance(reader.op, ComputeOp)
            reader.set_body(redirected(reader.op.body, tensor, stage.tensor))
        return stage.tensor

    def python(self, names: PythonNames) -> str:
        return f"s.widen({names.tensor(self.stage)})"


def _wider(value: Expr, kind: DType) -> Expr:
    """`value` in the type `kind`, rounded to no narrower one on the way."""
    if value.dtype is kind:
        return _unrounded(value, kind)
    if value.op == "cast" and value.args[0].dtype is kind:
        return _unrounded(value.args[0], kind)
    if value.op in _ARITHMETIC:
        a, b = (_wider(arg, kind) for arg in value.args)
        return E.binary(value.op, a, b)
    if value.op in ("select", "if_then_else"):
        test, *both = value.args
        return E.make(value.op, (test, *(_wider(arg, kind) for arg in both)), value.attr, kind)
    if value.op == "reduce" and value.attr[0].name in _BUILTIN:
        combiner = builtin_combiner(value.attr[0].name, kind)
        body = _wider(value.args[0], kind)
        return E.make("reduce", (body,), (combiner, *value.attr[1:]), kind)
    return E.cast(kind, value)


def _unrounded(value: Expr, kind: DType) -> Expr:
    """`value` without conversions of `kind` to a narrower type and back."""

    def rule(node: Expr) -> Expr | None:
        inner = node.args[0] if node.op == "cast" and node.dtype is kind else node
        narrow = inner is not node and inner.op == "cast" and inner.dtype.compute is kind
        if narrow and inner.dtype is not kind and inner.args[0].dtype is kind:
            return _unrounded(inner.args[0], kind)
        return None

    return E.transform(value, rule)
