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
DEEPEST = 509  # products of bytes, of which int32 holds the sums of two digits as one number
LARGEST = 126  # of a power of two that rows are multiplied by


@dataclass(frozen=True)
class Digits(Step):
    """Rows of floats become whole numbers of `count` digits, each of which is a row of bytes.

    The largest element of `together` terms of a row decides what a whole number of these counts: it
    has 2 ** (8 * count - 2) of it, up to which elements are rounded, of 4 digits cut off.  Digits
    are from -128 to 127, and the sums of their products with integers of at most 8 bits exact,
    those of two digits put together, too.  Rows of products are digits of `abreast` terms side by
    side, with zeros for the others of these, so that few columns of a matrix unit are for nothing.
    Factors that all elements of a row have multiply the results, and roundings to narrower floats
    on the way, of elements in stages that are inlined and of sums of terms, are left out.  Where
    elements that belong together have an infinity or NaN, results are NaN.
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
        X.rows: float16[1, 2, 4] global, 8 elements, 16 bytes
          for i in 1:
            for u in 2:
              for e in 4:
                X.rows[0, u, e] = A[0, u*4 + e]
        X: inlined into nothing
        X.largest: float32[1, 2] global, 2 elements, 8 bytes
          for i in 1:
            for u in 2:
              for e in 4:
                X.largest[0, u] max= select(abs(float32(X.rows[0, u, e])) < inf, abs(float32(X.rows[0, u, e])), inf)
        X.scale: float32[1, 2] global, 2 elements, 8 bytes
          for i in 1:
            for u in 2:
              X.scale[0, u] = 16384.0/max(X.largest[0, u], 1.925929944387236e-34)
        X.unit: float32[1, 2] global, 2 elements, 8 bytes
          for i in 1:
            for u in 2:
              X.unit[0, u] = select(X.largest[0, u] < inf, max(X.largest[0, u], 1.925929944387236e-34), nan)*6.103515625e-05
        X.whole: int32[1, 2, 4] global, 8 elements, 32 bytes
          for i in 1:
            for u in 2:
              for e in 4:
                X.whole[0, u, e] = if_then_else(X.largest[0, u] < inf, int32(nearest(float32(X.rows[0, u, e])*X.scale[0, u])) + 128 ^ 128, 0)
        X.digits: int8[2, 2, 4] global, 16 elements, 16 bytes
          for r in 2:
            for u in 2:
              for e in 4:
                X.digits[r, u, e] = int8(X.whole[0, u, e] >> (1 - r%2)*8)
        X.columns: int8[2, 2, 1, 4] global, 16 elements, 16 bytes
          for r in 2:
            for l in 2:
              for q in 1:
                for k in 4:
                  X.columns[r, l, 0, k] = X.digits[r, l, k]
        W.apart: int8[3, 2, 4] global, 24 elements, 24 bytes
          for j in 3:
            for l in 2:
              for k in 4:
                W.apart[j, l, k] = W[j, l, k] & -16
        P: int32[2, 3, 2] global, 12 elements, 48 bytes
          for r in 2:
            for j in 3:
              for l in 2:
                for q in 1:
                  for k in 4:
                    P[r, j, l] += int32(X.columns[r, l, 0, k])*int32(W.apart[j, l, k])
        C.digits: float32[3, 1] global, 3 elements, 12 bytes
          for j in 3:
            for r in 1:
              for u in 2:
                C.digits[j, 0] += float32(P[0, j, u]*256 + P[1, j, u])*(S[j, u]*X.unit[0, u])
        C: float32[1, 3] global, 3 elements, 12 bytes
          for i in 1:
            for j in 3:
              for d in 1:
                C[0, j] += C.digits[j, 0]*F[0]
    legal:    a sum of products of two reads along one axis, without scheduled loops, where one is
              of a sum that nothing else reads and that has no loops either, over the same rows and
              columns, of products of a read of floats in rows and of a function of one read of
              integers of at most 8 bits, of which int8 holds all values, at most 509 of them;
              `abreast` divides the number of terms.
    """  # noqa: E501

    count: int
    together: int = 1
    abreast: int = 1
    verb: ClassVar[str] = "digits"

    def apply(self, s: AnyState) -> tuple[Tensor, ...]:
        stage = stage_of(self, s)
        place = f"digits({stage.name}, {self.count})"
        if self.count not in COUNTS:
            raise ScheduleError(place, "so many digits are not known", "Take 2, 3 or 4.")
        if min(self.together, self.abreast) < 1:
            raise ScheduleError(place, "no terms are together, or abreast", "Take 1 or more.")
        refuse_scheduled(self, s, stage, place)
        op = sum_of_products(self, stage, place).op
        found = _found(s, stage, op, place)
        if found.inner.shape[2] % self.abreast:
            why = f"{found.inner.shape[2]} terms are not {self.abreast} abreast each time"
            raise ScheduleError(place, why, "Take a number that divides them.")
        refuse_scheduled(self, s, s[found.part.attr], place)
        made = _Rows(s, found, self)
        source = s[found.part.attr]
        reads = {e.attr for e in E.walk(found.value) if e.op == "read"}
        last = max(k for k, own in enumerate(s.stages) if not reads.isdisjoint(own.tensors))
        s.insert_stage(made.rows, before=s.stages[last + 1])
        rows = (made.rows, made.largest, made.scale, made.unit, made.whole, made.digits)
        for own in (*rows[1:], made.columns, made.numbers):
            s.insert_stage(own, before=source)
        s.replace_op(source, made.products(found.inner))
        sums = made.sums(source.tensor, op, s.new_name(f"{op.name}.digits"))
        s.insert_stage(sums, before=stage)
        stage.restart(op.over(op.axis, made.total(sums.output_tensor, op)))
        stages = (sums, source.op, made.numbers, *rows, made.columns)
        return tuple(own.output_tensor for own in stages if isinstance(own, ComputeOp))

    def python(self, names: PythonNames) -> str:
        numbers = f"{self.count}, {self.together}, {self.abreast}"
        return f"s.digits({names.tensor(self.stage)}, {numbers})"


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
        if prod(sizes) > DEEPEST:
            raise _refused(place, f"a sum of {inner.name} is of more than {DEEPEST} products")
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

    A row is parts of terms that are together, whose elements are numbered by term and by place in
    it, in the order of the loops; where the last part has fewer terms, there are zeros behind.
    """

    def __init__(self, s: AnyState, found: _Found, step: Digits) -> None:
        self.found, self.count = found, step.count
        self.together, self.abreast = step.together, step.abreast
        inner = found.inner
        rows, columns, terms = inner.shape
        depth = prod(ax.size for ax in inner.reduce_axis)
        parts = -(-terms // step.together)
        self.sizes = rows, columns, terms, depth
        self.wide = step.count + step.count % 2

        def name(what: str, of: str = found.name) -> str:
            return s.new_name(f"{of}.{what}")

        def axes(*sizes: int, names: str) -> tuple[tuple[IterVar, ...], list[Expr]]:
            own = copy_axes(sizes, list(names))
            return own, [ax.var for ax in own]

        kind = FLOAT32
        size = step.together * depth  # of a part
        own, (i, u, e) = axes(rows, parts, size, names="iue")
        self.rows = ComputeOp(name("rows"), own, self._element(i, u, e))
        element = self.rows.output_tensor
        own, (i, u) = axes(rows, parts, names="iu")
        over = IterVar("e", size, "reduce")
        absolute = E.call("abs", E.cast(kind, element[i, u, over.var]))
        absolute = E.select(absolute < inf, absolute, E.const(inf, kind))  # of NaN, too
        most = reduction(builtin_combiner("max", kind), absolute, over)
        self.largest = ComputeOp(name("largest"), own, most)
        own, (i, u) = axes(rows, parts, names="iu")
        number = 2.0 ** (BITS * step.count - 2) / self._most(i, u)
        self.scale = ComputeOp(name("scale"), own, number)
        own, (i, u) = axes(rows, parts, names="iu")
        unit = E.select(self._finite(i, u), self._most(i, u), E.const(nan, kind))
        self.unit = ComputeOp(name("unit"), own, unit * 2.0 ** (2 - 2 * BITS))
        own, (i, u, e) = axes(rows, parts, size, names="iue")
        value = E.cast(kind, element[i, u, e]) * self.scale.output_tensor[i, u]
        if BITS * step.count - 2 <= NEAREST:
            value = E.call("nearest", value)
        half = sum(1 << (BITS * d - 1) for d in range(1, step.count))
        whole = E.binary("bitxor", E.cast(INT32, value) + half, half)
        whole = E.if_then_else(self._finite(i, u), whole, 0)
        self.whole = ComputeOp(name("whole"), own, whole)
        own, (r, u, e) = axes(rows * step.count, parts, size, names="rue")
        whole = self.whole.output_tensor[r // step.count, u, e]
        digit = E.binary("shr", whole, (step.count - 1 - r % step.count) * BITS)
        self.digits = ComputeOp(name("digits"), own, E.cast(INT8, digit))
        side = rows * self.wide  # of what is abreast
        shape = (step.abreast * side, terms // step.abreast, step.abreast, depth)
        own, (r, t, q, k) = axes(*shape, names="rlqk")
        term, number = t * step.abreast + q, r % self.wide
        row = r % side // self.wide * step.count + number
        at = (row, term // step.together, term % step.together * depth + k)
        there = []
        if step.abreast > 1 and rows == 1 and side & (side - 1) == 0:
            there = [E.binary("bitxor", r, q * side) < step.count]  # compilers branch on two tests
        else:
            there += [q.equal(r // side)] if step.abreast > 1 else []
            there += [number < step.count] if self.wide > step.count else []
        digit = self.digits.output_tensor[at]
        if there:
            digit = E.if_then_else(E.all_of(*there), digit, E.const(0, INT8))
        self.columns = ComputeOp(name("columns"), own, digit)
        own, (j, t, k) = axes(columns, terms, depth, names="jlk")
        number = E.cast(INT8, unwidened(self._at(found.number, j, t, k)))
        self.numbers = ComputeOp(name("apart", found.read.attr.name), own, number)

    def _element(self, row: Expr, part: Expr, number: Expr) -> Expr:
        """Of a part of a row; zero behind the last term."""
        _, _, terms, depth = self.sizes
        term = part * self.together + number // depth
        value = _unrounded(self._at(self.found.value, row, term, number % depth))
        if terms % self.together:
            value = E.if_then_else(term < terms, value, E.const(0.0, value.dtype))
        return value

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

    def _finite(self, row: Expr, part: Expr) -> Expr:
        return self.largest.output_tensor[row, part] < inf

    def _most(self, row: Expr, part: Expr) -> Expr:
        """The largest element; where all are so small that their scale would be none, a larger
        number: they count in whole numbers of the least normal float."""
        least = E.const(2.0 ** (BITS * self.count - 2 - LARGEST), FLOAT32)
        return E.maximum(self.largest.output_tensor[row, part], least)

    def products(self, old: ComputeOp) -> ComputeOp:
        """Sums of a term, exact."""
        _, columns, terms, depth = self.sizes
        own = copy_axes((self.columns.shape[0], columns, terms // self.abreast), ["r", "j", "l"])
        r, j, t = (ax.var for ax in own)
        over = tuple(IterVar(n, m, "reduce") for n, m in (("q", self.abreast), ("k", depth)))
        q, k = (ax.var for ax in over)
        digit = E.cast(INT32, self.columns.output_tensor[r, t, q, k])
        number = E.cast(INT32, self.numbers.output_tensor[j, t * self.abreast + q, k])
        body = reduction(builtin_combiner("sum", INT32), digit * number, over)
        return ComputeOp(old.name, own, body, old.tag)

    def sums(self, products: Tensor, op: ComputeOp, name: str) -> ComputeOp:
        """What is added up of all terms, of two digits at a time, with their scales and what a
        whole number counts."""
        rows, columns, terms, _ = self.sizes
        j, r = own = copy_axes((columns, self.columns.shape[0] // 2), ["j", "r"])
        t = IterVar(op.reduce_axis[0].name, terms // self.abreast, "reduce")
        side = rows * self.wide // 2
        term = t.var * self.abreast + r.var // side
        at: Mapping[Expr, Any] = {op.axis[1].var: j.var, op.reduce_axis[0].var: term}
        scale = E.cast(FLOAT32, E.substitute(self.found.scale, at))
        part = term // self.together
        if self.together % self.abreast == 0:  # all that are abreast are together
            part = t.var // (self.together // self.abreast)
        unit = self.unit.output_tensor[r.var % side // (self.wide // 2), part]
        high, low = (products[r.var * 2 + k, j.var, t.var] for k in range(2))
        value = E.cast(FLOAT32, high * (1 << BITS) + low) * (scale * unit)
        return ComputeOp(name, own, reduction(builtin_combiner("sum", FLOAT32), value, t))

    def total(self, sums: Tensor, op: ComputeOp) -> Expr:
        """The sums of digits as one number."""
        row, column = (ax.var for ax in op.axis)
        wide = self.wide // 2
        d = IterVar("d", self.abreast * wide, "reduce")
        value = sums[column, d.var // wide * (self.sizes[0] * wide) + row * wide + d.var % wide]
        if wide > 1:
            low = E.const(2.0 ** (-2 * BITS), FLOAT32)
            value = value * E.select(d.var % wide < 1, E.const(1.0, FLOAT32), low)
        if self.found.factor is not None:
            value = value * E.substitute(self.found.factor, {self.found.inner.axis[0].var: row})
        return reduction(builtin_combiner("sum", FLOAT32), value, d)
