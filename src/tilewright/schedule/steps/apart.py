"""The step that makes a stage of what is computed inside a product.

In: a sum of products of which one factor is a function of a small integer that is read.  Out: the
same sum of two reads, which matrix units know.  Read next: `products.py`, `ir/atoms.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from math import prod
from typing import Any, ClassVar

import numpy as np

from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.products import refuse_scheduled
from tilewright.schedule.steps.stages import copy_axes
from tilewright.schedule.steps.step import AnyState, Step, stage_of
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import ComputeOp, Tensor, placeholder, reduction_of

_BITS = 8  # of the integers of which all are tried
_PLACES = 64  # of axes, for each of which they are


@dataclass(frozen=True)
class Apart(Step):
    """A factor of a sum of products that is computed of one read becomes a stage of its own.

    dtype: of the stage; it holds every value that the factor can have, so that nothing changes
    rewrite:  s.apart(C, "float16")
        C: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for j in 3:
              for k in 4:
                C[i, j] += float32(A[i, k])*float32(W[j, k] & -16)
        ->
        W.apart: float16[3, 4] global, 12 elements, 24 bytes
          for j in 3:
            for k in 4:
              W.apart[j, k] = float16(W[j, k] & -16)
        C: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for j in 3:
              for k in 4:
                C[i, j] += float32(A[i, k])*float32(W.apart[j, k])
    legal:    a sum, without scheduled loops, of products of a read of floats and of a function of
              one read of integers of at most 8 bits, of which dtype, a float, holds all values.
    """

    dtype: str
    verb: ClassVar[str] = "apart"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        place = f"apart({stage.name}, {self.dtype})"
        refuse_scheduled(self, s, stage, place)
        kind = DType(self.dtype) if self.dtype in TYPES else None
        op = stage.op
        assert isinstance(op, ComputeOp)
        factor, read = computed_factor(op, place)
        if kind is None or not kind.is_float or not holds(kind, factor, read, op):
            raise ScheduleError(
                place, f"{self.dtype} does not hold every value of {str(factor)[:80]}",
                "Name a float of more digits, or more exponents.",
            )  # fmt: skip
        used = E.free_variables(factor)
        axes = [ax for ax in (*op.axis, *op.reduce_axis) if ax.var in used]
        own = copy_axes(tuple(ax.size for ax in axes), [ax.name for ax in axes])
        new = {a.var: b.var for a, b in zip(axes, own, strict=True)}
        value = E.substitute(unwidened(factor), new)
        made = ComputeOp(s.new_name(f"{read.attr.name}.apart"), own, E.cast(kind, value))
        s.insert_stage(made, before=stage)
        at = made.output_tensor[tuple(ax.var for ax in axes)]
        stage.set_body(E.substitute(op.body, {factor: E.cast(factor.dtype, at)}))
        return made.output_tensor

    def python(self, names: PythonNames) -> str:
        return f's.apart({names.tensor(self.stage)}, "{self.dtype}")'


def computed_factor(op: ComputeOp, place: str) -> tuple[Expr, Expr]:
    """The factor that is computed, and what it is computed of."""
    reduced = reduction_of(op.body)
    value = reduced.args[0] if reduced is not None and reduced.attr[0].name == "sum" else None
    factors = value.args if value is not None and value.op == "mul" else ()
    found = [f for f in factors if (n := uncast(f)).op != "read" or not n.dtype.is_float]
    reads = [n for f in found for n in E.walk(f) if n.op == "read"]
    if len(factors) != len(found) + 1 or len(set(reads)) != 1:
        raise ScheduleError(
            place, "it is no sum of products of a float and of what is computed of an integer",
            "Only a factor that is a function of small integers becomes a stage.",
        )  # fmt: skip
    return found[0], reads[0]


def uncast(value: Expr) -> Expr:
    while value.op == "cast":
        value = value.args[0]
    return value


def unwidened(value: Expr) -> Expr:
    """`value` without a last conversion of integers to another float."""
    inner = value.args[0] if value.op == "cast" else value
    return value if inner.dtype.is_float else inner


def holds(kind: DType, factor: Expr, read: Expr, op: ComputeOp) -> bool:
    """Whether all values of `factor` are numbers of `kind`."""
    given = read.attr.dtype
    if given.kind not in ("int", "uint") or given.bits > _BITS:
        return False
    number = _variable("number", str(given))
    body = E.substitute(factor, {read: number})
    axes = [ax for ax in (*op.axis, *op.reduce_axis) if ax.var in E.free_variables(body)]
    if any(not isinstance(ax.extent, int) for ax in axes):
        return False
    sizes = [ax.size for ax in axes]
    if prod(sizes) > _PLACES:
        return False
    named = {ax.var: _variable(f"a{d}") for d, ax in enumerate(axes)}
    return _exact(kind, E.substitute(body, named), number, tuple(sizes))


@cache
def _variable(name: str, dtype: str = "int32") -> Expr:
    """The same for the same name, so that equal factors are known to be."""
    return E.var(name, dtype)


@lru_cache(256)
def _exact(kind: DType, body: Expr, number: Expr, sizes: tuple[int, ...]) -> bool:
    """Whether `body` is a number of `kind` for every `number` and all of a0, a1, .. below sizes."""
    given = number.dtype
    every = np.arange(int(given.least), int(given.greatest) + 1).astype(given.storage)
    numbers = placeholder(every.shape, str(given), "numbers")
    axes = copy_axes((*sizes, len(every)), [f"a{d}" for d in range(len(sizes) + 1)])
    own: dict[Expr, Any] = {_variable(ax.name): ax.var for ax in axes}
    value = E.substitute(body, {**own, number: numbers[axes[-1].var]})
    (found,) = evaluate(ComputeDAG([numbers, ComputeOp("values", axes, value).outputs[0]]), [every])
    wide = np.asarray(found, np.float64)
    with np.errstate(over="ignore"):
        return bool((wide.astype(kind.storage).astype(np.float64) == wide).all())
