"""The step that moves a divisor of all terms of a sum behind the sum.

In: a sum of products of which a factor is a quotient.  Out: a stage of the sums without it, which
the stage itself divides.  Read next: `products.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.state import StageState, narrowed
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.products import Product, refuse_scheduled, sum_of_products
from tilewright.schedule.steps.stages import copy_axes
from tilewright.schedule.steps.step import AnyState, Step, stage_of
from tilewright.te.tensor import ComputeOp, Tensor


@dataclass(frozen=True)
class DivideLast(Step):
    """What divides all terms of a sum of products divides the sum.

    sum_k (a[k] / t) * b[k] = (sum_k a[k] * b[k]) * (1 / t), so a factor need not wait for its
    divisor, and there is one quotient for all sums that share it.  The factor itself is stored
    undivided, in the type that it has.  Where terms are quotients or zero, as a mask chooses, a sum
    of nothing stays zero, whatever its divisor.

    rewrite:  s.divide_last(C)
        P: float16[2, 4] global, 8 elements, 16 bytes
          for i in 2:
            for j in 4:
              P[i, j] = float16(float32(A[i, j])/T[i])
        C: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for j in 3:
              for r in 4:
                C[i, j] += float32(P[i, r])*float32(B[r, j])
        ->
        P: float16[2, 4] global, 8 elements, 16 bytes
          for i in 2:
            for j in 4:
              P[i, j] = float16(float32(A[i, j]))
        C.undivided: float32[2, 3] global, 6 elements, 24 bytes
          for i.d in 2:
            for j.d in 3:
              for r in 4:
                C.undivided[i.d, j.d] += float32(P[i.d, r])*float32(B[r, j.d])
        C: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for j in 3:
              C[i, j] = C.undivided[i, j]*(1.0/T[i])
    legal:    a sum of products of two reads, without scheduled loops; one of the factors is a
              computed stage that nothing else reads, a quotient whose divisor is what no reduction
              axis of the sum moves, and no other factor is.  1 / t must not overflow, which is for
              whoever takes the step to know: of a sum of exponentials that has a term of 1, it does
              not.
    """

    verb: ClassVar[str] = "divide_last"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        place = f"divide_last({stage.name})"
        refuse_scheduled(self, s, stage, place)
        product = sum_of_products(self, stage, place)
        found = [q for read in product.reads if (q := _quotient(s, stage, read)) is not None]
        if len(found) != 1:
            raise ScheduleError(
                place, "one factor must be a quotient that nothing else reads",
                "Inline what lies between the quotient and the product.",
            )  # fmt: skip
        (quotient,) = found
        op, factor = product.op, quotient.stage.op
        assert isinstance(factor, ComputeOp)
        at = {ax.var: i for ax, i in zip(factor.axis, quotient.read.args, strict=True)}
        divisor = E.substitute(quotient.divisor, at)
        moving = {ax.var for ax in op.reduce_axis} & set(E.free_variables(divisor))
        if moving:
            names = ", ".join(str(v) for v in moving)
            raise ScheduleError(
                place, f"the divisor differs from term to term, along {names}",
                "A divisor of all terms is the same for each of them.",
            )  # fmt: skip
        quotient.stage.set_body(quotient.body)
        return _divided(s, stage, product, divisor, quotient.chosen)

    def python(self, names: PythonNames) -> str:
        return f"s.divide_last({names.tensor(self.stage)})"


@dataclass(frozen=True)
class _Quotient:
    """read: where the sum reads it; body: of its stage, without the divisor; chosen: whether it may
    be zero instead"""

    stage: StageState
    read: Expr
    body: Expr
    divisor: Expr
    chosen: bool


def _quotient(s: AnyState, reader: StageState, read: Expr) -> _Quotient | None:
    """The factor, if it is a quotient that only `reader` reads."""
    stage = s[read.attr]
    op = stage.op
    if not isinstance(op, ComputeOp) or op.why_fixed or op.num_outputs > 1 or stage.is_output:
        return None
    if op.combiner is not None or s.readers(stage) != [reader]:
        return None
    value, casts = _uncast(whole_body(s, op.body))
    test: Expr | None = None
    if value.op in ("select", "if_then_else") and _is_zero(value.args[2]):
        test, value, _ = value.args
        value, inner = _uncast(value)
        casts += inner
    if value.op != "div" or not value.dtype.is_float:
        return None
    body, divisor = value.args
    if test is not None:
        body = E.select(test, body, E.const(0.0, body.dtype))
    for kind in reversed(casts):
        body = E.cast(kind, body)
    return _Quotient(stage, read, body, divisor, test is not None)


def _uncast(value: Expr) -> tuple[Expr, list[DType]]:
    """A value before it was cast, and to which types, the last first."""
    casts = []
    while value.op == "cast":
        casts.append(value.dtype)
        (value,) = value.args
    return value, casts


def _is_zero(value: Expr) -> bool:
    return value.op == "const" and value.attr == 0


def whole_body(s: AnyState, body: Expr) -> Expr:
    """An expression after its inlined producers took their places."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "read" or s[node.attr].attach_kind != "inline":
            return None
        op = s[node.attr].op
        if not isinstance(op, ComputeOp) or op.num_outputs > 1:
            return None
        at = {ax.var: i for ax, i in zip(op.axis, node.args, strict=True)}
        return E.substitute(whole_body(s, op.body), at)

    return E.transform(body, rule)


def _divided(
    s: AnyState, stage: StageState, product: Product, divisor: Expr, chosen: bool
) -> Tensor:
    """The sums in a stage of their own, which `stage` reads and divides."""
    op = product.op
    spatial = copy_axes(op.shape, [f"{ax.name}.d" for ax in op.axis])
    mapping: dict[Expr, Any] = {a.var: b.var for a, b in zip(op.axis, spatial, strict=True)}
    _, body = product.sums(spatial, op.reduce_axis, mapping)
    sums = ComputeOp(s.new_name(f"{stage.name}.undivided"), spatial, body, op.tag, op.attrs)
    total = sums.output_tensor[tuple(ax.var for ax in op.axis)]
    once = E.const(1.0, total.dtype) / E.cast(total.dtype, divisor)
    divided = total * once
    if chosen:
        zero = E.const(0.0, total.dtype)
        divided = E.select(total.equal(zero), zero, divided)
    stage.restart(ComputeOp(op.name, op.axis, narrowed(op, divided)))
    s.insert_stage(sums, before=stage)
    return sums.output_tensor
