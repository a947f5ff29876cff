"""The step by which floats meet small integers digit by digit, as whole numbers.

In: sums of products of rows of floats and of what is computed of bytes, times scales.  Out: sums of
products of bytes, which matrix units add up exactly.  Read next: `apart.py`, `groups.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf, nan, prod
from operator import mul
from typing import Any, ClassVar

from tilewright.base.dtype import FLOAT32, INT32, DType
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import symbols_of
from tilewright.schedule.state import StageState
from tilewright.schedule.steps.apart import computed_factor, holds, unwidened
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.products import refuse_scheduled, sum_of_products
from tilewright.schedule.steps.quotients import whole_body
from tilewright.schedule.steps.stages import copy_axes
from tilewright.schedule.steps.step import AnyState, Step, stage_of
from tilewright.te.reductions import builtin_combiner, reduction
from tilewright.te.tensor import ComputeOp, IterVar, Tensor, reduction_of

BITS = 8  # of a digit
INT8 = DType("int8")
COUNTS = (2, 3, 4)
NEAREST = 22  # bits of what is rounded, not cut off
LARGEST = 126  # of a power of two that rows are multiplied by


@dataclass(frozen=True)
class Digits(Step):
    """Rows of floats become whole numbers of `count` digits, each of which is a row of bytes.

    The largest element of a row decides what a whole number counts: it has 2 ** (8 * count - 2) of
    it, up to which elements are rounded, of 4 digits cut off.  Digits are from -128 to 127, and the
    sums of their products with integers of at most 8 bits exact.  Factors that all elements of a
    row have multiply the results, and roundings of elements to narrower floats on the way, in
    stages that are inlined, are left out.  Where a row has an infinity or NaN, results are NaN.
    rewrite:  s.digits(C, 2)
        X: inlined into P
        P: float32[1, 3, 2] global, 6 elements, 24 bytes
          for i in 1:
            for j in 3:
              for q in 2:
                for k in 4:
                  P[0, j, q] += float32(float16(float32(A[0, q*4 + k])*F[0]))*float32(W[j, q, k] & -16)
        C: float32[1, 3] global, 3 elements, 12 bytes
          for i in 1:
            for j in 3:
              for u in 2:
                C[0, j] += P[0, j, u]*S[j, u]
        ->
        X: inlined into nothing
        X.largest: float32[1] global, 1 element, 4 bytes
          for i in 1:
            for l in 2:
              for k in 4:
                X.largest[0] max= select(abs(float32(A[0, l*4 + k])) < inf, abs(float32(A[0, l*4 + k])), inf)
        X.scale: float32[1] global, 1 element, 4 bytes
          for i in 1:
            X.scale[0] = 16384.0/max(X.largest[0], 1.925929944387236e-34)
        X.whole: int32[1, 2, 4] global, 8 elements, 32 bytes
          for i in 1:
            for l in 2:
              for k in 4:
                X.whole[0, l, k] = if_then_else(X.largest[0] < inf, int32(nearest(float32(A[0, l*4 + k])*X.scale[0])) + 128 ^ 128, 0)
        X.digits: int8[2, 2, 4] global, 16 elements, 16 bytes
          for r in 2:
            for l in 2:
              for k in 4:
                X.digits[r, l, k] = int8(X.whole[0, l, k] >> (1 - r%2)*8)
        W.apart: int8[3, 2, 4] global, 24 elements, 24 bytes
          for j in 3:
            for l in 2:
              for k in 4:
                W.apart[j, l, k] = W[j, l, k] & -16
        P: int32[2, 3, 2] global, 12 elements, 48 bytes
          for r in 2:
            for j in 3:
              for l in 2:
                for k in 4:
                  P[r, j, l] += int32(X.digits[r, l, k])*int32(W.apart[j, l, k])
        C.digits: float32[2, 3] global, 6 elements, 24 bytes
          for r in 2:
            for j in 3:
              for u in 2:
                C.digits[r, j] += float32(P[r, j, u])*S[j, u]
        C: float32[1, 3] global, 3 elements, 12 bytes
          for i in 1:
            for j in 3:
              for d in 2:
                C[0, j] += C.digits[d, j]*select(d <= 0, 1.0, 0.00390625)*(select(X.largest[0] < inf, max(X.largest[0], 1.925929944387236e-34)*0.015625, nan)*F[0])
    legal:    a sum of products of two reads along one axis, without scheduled loops, where one is
              of a sum that nothing else reads and that has no loops either, over the same rows and
              columns, of products of a read of floats in rows and of a function of one read of
              integers of at most 8 bits, of which int8 holds all values; so many of these that
              int32 holds the sum.
    """  # noqa: E501

    count: int
    verb: ClassVar[str] = "digits"

    def apply(self, s: AnyState) -> tuple[Tensor, ...]:
        stage = stage_of(self, s)
        place = f"digits({stage.name}, {self.count})"
        if self.count not in COUNTS:
            raise ScheduleError(place, "so many digits are not known", "Take 2, 3 or 4.")
        refuse_scheduled(self, s, stage, place)
        op = sum_of_products(self, stage, place).op
        found = _found(s, stage, op, place)
        refuse_scheduled(self, s, s[found.part.attr], place)
        made = _Rows(s, found, self.count)
        source = s[found.part.attr]
        for own in (made.largest, made.scale, made.whole, made.digits, made.numbers):
            s.insert_stage(own, before=source)
        s.replace_op(source, made.products(found.inner))
        sums = made.sums(source.tensor, op, s.new_name(f"{op.name}.digits"))
        s.insert_stage(sums, before=stage)
        stage.restart(op.over(op.axis, made.total(sums.output_tensor, op)))
        rows = (made.largest, made.scale, made.whole, made.digits)
        stages = (sums, source.op, made.numbers, *rows)
        return tuple(own.output_tensor for own in stages if isinstance(own, ComputeOp))

    def python(self, names: PythonNames) -> str:
        return f"s.digits({names.tensor(self.stage)}, {self.count})"


@dataclass(frozen=True)
class _Found:
    """part, scale: what the stage reads, of which `inner` computes the former

    name:   of the floats; value: of one of them, but for `factor`, that of its whole row
    number: the factor that is computed of `read`
    """

    part: Expr
    scale: Expr
    inner: ComputeOp
    name: str
    value: Expr
    factor: Expr | None
    number: Expr
    read: Expr


def _found(s: AnyState, stage: StageState, op: ComputeOp, place: str) -> _Found:
    if len(op.reduce_axis) != 1 or len(op.axis) != 2 or op.dtype is not FLOAT32:
        raise _refused(place, "it is no matrix of float32, or adds up along several axes")
    if op.reduced.op != "mul":
        raise _refused(place, "some of its terms do not count")
    row, column, term = (ax.var for ax in (*op.axis, *op.reduce_axis))
    for factor, scale in (op.reduced.args, op.reduced.args[::-1]):
        part = _unrounded(factor)
        if part.op != "read":
            continue
        source = s[part.attr]
        inner = source.op
        plain = part.args == (row, column, term) and row not in E.free_variables(*scale.args)
        if not plain or not isinstance(inner, ComputeOp) or s.readers(source) != [stage]:
            continue
        reduced = reduction_of(inner.body)
        if reduced is not inner.body or reduced.attr[0].name != "sum" or source.is_output:
            continue
        number, read = computed_factor(inner, place)
        (data,) = (_unrounded(f) for f in reduced.args[0].args if f is not number)
        own, across, _ = (ax.var for ax in inner.axis)
        if own in E.free_variables(number) or across in E.free_variables(data):
            continue
        if data.op != "read" or not data.dtype.is_float:
            continue
        if not holds(INT8, number, read, inner):
            raise _refused(place, f"int8 does not hold every value of {str(number)[:80]}")
        sizes = [ax.size for ax in inner.reduce_axis]
        if symbols_of(sizes):
            raise _refused(place, f"the extent of a sum of {inner.name} is a variable")
        if prod(sizes) << 2 * (BITS - 1) > 1 << 30:
            raise _refused(place, f"int32 does not hold a sum of {inner.name}")
        inside = {ax.var for ax in (*inner.axis[2:], *inner.reduce_axis)}
        value, common = _row_apart(whole_body(s, data), inside)
        return _Found(part, scale, inner, data.attr.name, value, common, number, read)
    why = "neither factor is a sum that nothing else reads, of floats, in rows, times numbers"
    raise _refused(place, f"{why} of columns")


def _unrounded(value: Expr) -> Expr:
    """`value` without conversions of floats to others: one to integers cuts off, and stays."""
    while value.op == "cast" and value.dtype.is_float and value.args[0].dtype.is_float:
        value = value.args[0]
    return value


def _row_apart(value: Expr, inside: set[Expr]) -> tuple[Expr, Expr | None]:
    """What is left of an element without the factors that all elements of its row have, and their
    product; both in float32, without roundings to other types between."""
    value = _unrounded(value)
    if value.op == "mul":
        parts = [_row_apart(factor, inside) for factor in value.args]
        left = [part for part, _ in parts if E.free_variables(part) & inside]
        common = [part for part, _ in parts if not E.free_variables(part) & inside]
        common += [factor for _, factor in parts if factor is not None]
        if left:
            return _times(left), _times(common) if common else None
    return E.cast(FLOAT32, value), None


def _times(factors: Sequence[Expr]) -> Expr:
    return reduce(mul, factors)


def _refused(place: str, why: str) -> ScheduleError:
    way = "C[i, j] += P[i, j, l] * S[j, l], where P[i, j, l] += float32(A[i, l, k]) * W[j, l, k]."
    return ScheduleError(place, why, way)


class _Rows:
    """The stages: of the rows of floats, and of what they are multiplied by.

    Elements of a row are numbered by term and by place in it, in the order of the loops.
    """

    def __init__(self, s: AnyState, found: _Found, count: int) -> None:
        self.found, self.count = found, count
        inner = found.inner
        rows, columns, terms = inner.shape
        depth = prod(ax.size for ax in inner.reduce_axis)
        self.sizes = rows, columns, terms, depth

        def name(what: str, of: str = found.name) -> str:
            return s.new_name(f"{of}.{what}")

        kind = FLOAT32
        (i,) = own = copy_axes((rows,), ["i"])
        over = tuple(IterVar(n, size, "reduce") for n, size in (("l", terms), ("k", depth)))
        size = E.call("abs", self._at(found.value, i.var, *(ax.var for ax in over)))
        size = E.select(size < inf, size, E.const(inf, kind))  # of NaN, too
        most = reduction(builtin_combiner("max", kind), size, over)
        self.largest = ComputeOp(name("largest"), own, most)
        (i,) = own = copy_axes((rows,), ["i"])
        self.scale = ComputeOp(name("scale"), own, 2.0 ** (BITS * count - 2) / self._most(i.var))
        i, g, k = own = copy_axes((rows, terms, depth), ["i", "l", "k"])
        value = self._at(found.value, i.var, g.var, k.var) * self.scale.output_tensor[i.var]
        if BITS * count - 2 <= NEAREST:
            value = E.call("nearest", value)
        half = sum(1 << (BITS * d - 1) for d in range(1, count))
        whole = E.binary("bitxor", E.cast(INT32, value) + half, half)
        whole = E.if_then_else(self.largest.output_tensor[i.var] < inf, whole, 0)
        self.whole = ComputeOp(name("whole"), own, whole)
        r, g, k = own = copy_axes((rows * count, terms, depth), ["r", "l", "k"])
        whole = self.whole.output_tensor[r.var // count, g.var, k.var]
        digit = E.binary("shr", whole, (count - 1 - r.var % count) * BITS)
        self.digits = ComputeOp(name("digits"), own, E.cast(INT8, digit))
        j, g, k = own = copy_axes((columns, terms, depth), ["j", "l", "k"])
        number = E.cast(INT8, unwidened(self._at(found.number, j.var, g.var, k.var)))
        self.numbers = ComputeOp(name("apart", found.read.attr.name), own, number)

    def _at(self, value: Expr, line: Expr, term: Expr, place: Expr) -> Expr:
        """What is computed for a place of a row, or of a column."""
        inner, at = self.found.inner, dict[Expr, Any]()
        at |= dict.fromkeys((ax.var for ax in inner.axis[:2]), line)
        at[inner.axis[2].var] = term
        size = 1
        for ax in reversed(inner.reduce_axis):
            number = place // size
            at[ax.var] = number if ax is inner.reduce_axis[0] else number % ax.size
            size *= ax.size
        return E.substitute(value, at)

    def _most(self, row: Expr) -> Expr:
        """The largest element; of rows so small that their scale would be none, a larger number:
        they count in whole numbers of the least normal float."""
        least = E.const(2.0 ** (BITS * self.count - 2 - LARGEST), FLOAT32)
        return E.maximum(self.largest.output_tensor[row], least)

    def products(self, old: ComputeOp) -> ComputeOp:
        """Sums of a term, exact."""
        rows, columns, terms, depth = self.sizes
        own = copy_axes((rows * self.count, columns, terms), ["r", "j", "l"])
        r, j, g = (ax.var for ax in own)
        k = IterVar("k", depth, "reduce")
        digit = E.cast(INT32, self.digits.output_tensor[r, g, k.var])
        value = digit * E.cast(INT32, self.numbers.output_tensor[j, g, k.var])
        body = reduction(builtin_combiner("sum", INT32), value, k)
        return ComputeOp(old.name, own, body, old.tag)

    def sums(self, products: Tensor, op: ComputeOp, name: str) -> ComputeOp:
        """What is added up of all terms, with their scales."""
        rows, columns, terms, _ = self.sizes
        r, j = own = copy_axes((rows * self.count, columns), ["r", "j"])
        g = IterVar(op.reduce_axis[0].name, terms, "reduce")
        at: Mapping[Expr, Any] = {op.axis[1].var: j.var, op.reduce_axis[0].var: g.var}
        scale = E.cast(FLOAT32, E.substitute(self.found.scale, at))
        value = E.cast(FLOAT32, products[r.var, j.var, g.var]) * scale
        return ComputeOp(name, own, reduction(builtin_combiner("sum", FLOAT32), value, g))

    def total(self, sums: Tensor, op: ComputeOp) -> Expr:
        """The sums of digits as one number."""
        row, column = (ax.var for ax in op.axis)
        d = IterVar("d", self.count, "reduce")
        most = self.largest.output_tensor[row]
        unit = E.select(most < inf, self._most(row) * 2.0 ** (2 - BITS), E.const(nan, FLOAT32))
        if self.found.factor is not None:
            unit = unit * E.substitute(self.found.factor, {self.found.inner.axis[0].var: row})
        weight: Expr = E.const(2.0 ** (-BITS * (self.count - 1)), FLOAT32)
        for n in reversed(range(self.count - 1)):
            weight = E.select(d.var <= n, E.const(2.0 ** (-BITS * n), FLOAT32), weight)
        value = sums[row * self.count + d.var, column] * weight * unit
        return reduction(builtin_combiner("sum", FLOAT32), value, d)
