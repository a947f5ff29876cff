"""The step that computes a product of exponentials in pieces, which blocks can share.

In: sums whose terms are relative to a maximum.  Out: stages of pieces, each relative to a maximum
of its own, and of what puts them together.  Read next: `joins.py`, `../exponentials.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.exponentials import proportional
from tilewright.schedule.state import StageState, narrowed
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.products import refuse_scheduled, sum_of_products
from tilewright.schedule.steps.quotients import whole_body
from tilewright.schedule.steps.stages import copy_axes
from tilewright.schedule.steps.step import AnyState, Step, stage_of
from tilewright.te.tensor import ComputeOp, IterVar, Tensor

MAXIMUM, TOTAL, PLACES = 1, 0, 2  # columns behind those of the sums


@dataclass(frozen=True)
class SplitSoftmax(Step):
    """Sums of exponentials relative to a maximum become sums over pieces, each relative to a
    maximum of its own.

    sum_k exp(x[k] - m) * b[k] = sum_p (sum_k in p exp(x[k] - m[p]) * b[k]) * exp(m[p] - m), where m
    is the largest m[p]; so a piece needs no other one.  The sum of the exponentials themselves, by
    which these sums are divided in the end, is in pieces, too.  What a piece has found lies side by
    side, in rows of one stage: the sums, that of the exponentials, the maximum.

    rewrite:  s.split_softmax(O, 2)
        S: float32[2, 8] global, 16 elements, 64 bytes
          for i in 2:
            for c in 8:
              for r in 16:
                S[i, c] += float32(Q[i, r])*float32(K[c, r])
        M: float32[2] global, 2 elements, 8 bytes
          for i in 2:
            for j in 8:
              M[i] max= S[i, j]
        P: float16[2, 8] global, 16 elements, 32 bytes
          for i in 2:
            for c in 8:
              P[i, c] = float16(exp(S[i, c] - M[i]))
        O: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for c in 3:
              for x in 8:
                O[i, c] += float32(P[i, x])*float32(V[x, c])
        T: float32[2] global, 2 elements, 8 bytes
          for i in 2:
            for g in 8:
              T[i] += exp(S[i, g] - M[i])
        C: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for c in 3:
              C[i, c] = O[i, c]/T[i]
        ->
        S: float32[2, 8] global, 16 elements, 64 bytes
          for i in 2:
            for c in 8:
              for r in 16:
                S[i, c] += float32(Q[i, r])*float32(K[c, r])
        M.piece: float32[2, 2] global, 4 elements, 16 bytes
          for p in 2:
            for i.p in 2:
              for j.inner in 4:
                M.piece[p, i.p] max= max(S[i.p, p*4 + j.inner], -3.4028234663852886e+38)
        P: float16[2, 2, 4] global, 16 elements, 32 bytes
          for p in 2:
            for i.p in 2:
              for c.inner in 4:
                P[p, i.p, c.inner] = float16(exp(S[i.p, p*4 + c.inner] - M.piece[p, i.p]))
        T.piece: float32[2, 2] global, 4 elements, 16 bytes
          for p in 2:
            for i.p in 2:
              for g.inner in 4:
                T.piece[p, i.p] += exp(S[i.p, p*4 + g.inner] - M.piece[p, i.p])
        O.piece: float32[2, 2, 3] global, 12 elements, 48 bytes
          for p in 2:
            for i.p in 2:
              for c.p in 3:
                for x.inner in 4:
                  O.piece[p, i.p, c.p] += float32(P[p, i.p, x.inner])*float32(V[p*4 + x.inner, c.p])
        O.pieces: float32[2, 2, 5] global, 20 elements, 80 bytes
          for p in 2:
            for i.q in 2:
              for c.q in 5:
                O.pieces[p, i.q, c.q] = if_then_else(c.q < 3, O.piece[p, i.q, c.q], if_then_else(c.q < 4, T.piece[p, i.q], M.piece[p, i.q]))
        M: float32[2] global, 2 elements, 8 bytes
          for i in 2:
            for p in 2:
              M[i] max= O.pieces[p, i, 4]
        T: float32[2] global, 2 elements, 8 bytes
          for i in 2:
            for p in 2:
              T[i] += O.pieces[p, i, 3]*exp(O.pieces[p, i, 4] - M[i])
        O: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for c in 3:
              for p in 2:
                O[i, c] += O.pieces[p, i, c]*exp(O.pieces[p, i, 4] - M[i])
        C: float32[2, 3] global, 6 elements, 24 bytes
          for i in 2:
            for c in 3:
              C[i, c] = O[i, c]/T[i]
    legal:    a sum of products of two reads, without scheduled loops, over one axis of a multiple
              of as many terms; one of the factors is a computed stage that nothing else reads,
              proportional to exp(-maximum) of a maximum over as many terms; what else reads the
              maximum is one sum of as many terms of that kind, of the same rows.
    """  # noqa: E501

    parts: int
    verb: ClassVar[str] = "split_softmax"

    def apply(self, s: AnyState) -> tuple[Tensor, ...]:
        stage = stage_of(self, s)
        place = f"split_softmax({stage.name}, {self.parts})"
        refuse_scheduled(self, s, stage, place)
        found = _exponentials(self, s, stage, self.parts, place)
        return _in_pieces(s, found, self.parts)

    def python(self, names: PythonNames) -> str:
        return f"s.split_softmax({names.tensor(self.stage)}, {self.parts})"


@dataclass(frozen=True)
class _Exponentials:
    """sums: the product; factor: the stage of exponentials; depth: the axis of that along the terms

    largest, total: stages of the maximum and of the sum of exponentials
    rows:           for each axis of these, the axis of `sums` that is the same; None: it has one
    column:         position of the axis of `sums` that the other factor alone has
    """

    sums: StageState
    factor: StageState
    depth: IterVar
    largest: StageState
    total: StageState
    rows: tuple[IterVar | None, ...]
    column: int


def _refused(place: str, why: str) -> ScheduleError:
    return ScheduleError(
        place, why, "It computes softmax(x) b, of rows, after divide_last has divided the sums."
    )


def _exponentials(
    step: Step, s: AnyState, stage: StageState, parts: int, place: str
) -> _Exponentials:
    product = sum_of_products(step, stage, place)
    op = product.op
    terms = op.reduce_axis[0].size
    for read in product.reads:
        factor = s[read.attr]
        largest = _largest(s, factor, terms)
        if largest is not None:
            break
    else:
        raise _refused(place, "neither factor reads a maximum of as many terms")
    if len(op.reduce_axis) != 1 or s.readers(factor) != [stage] or factor.is_output:
        raise _refused(place, f"{factor.name} is read by others, or there are several sums in one")
    assert isinstance(factor.op, ComputeOp)
    k = op.reduce_axis[0].var
    along = [d for d, i in enumerate(read.args) if k in E.free_variables(i)]
    plain = all(read.args[d] is k and factor.op.shape[d] == terms for d in along)
    at = {ax.var: i for ax, i in zip(factor.op.axis, read.args, strict=True)}
    places = {_place(e) for e in E.walk(whole_body(s, factor.op.body)) if _reads(e, largest)}
    totals = [st for st in _readers(s, largest) if st is not factor]
    if len(along) != 1 or not plain or len(places) != 1 or len(totals) != 1:
        raise _refused(place, f"{largest.name} is not read by it and by one sum, at one place each")
    (index,), (total,) = places, totals
    own = {ax.var: ax for ax in op.axis}
    inside = [E.substitute(i, at) for i in index]
    rows = tuple(own.get(i) for i in inside)
    sizes = tuple(1 if row is None else row.size for row in rows)
    used = [row for row in rows if row is not None]
    fixed = all(i in own or i.op == "const" for i in inside)
    if not fixed or sizes != largest.op.shape or len(set(used)) != len(used):
        raise _refused(place, f"{largest.name} is not read by rows of {stage.name}")
    others = [ax for ax in op.axis if ax not in rows and ax.var not in E.free_variables(*read.args)]
    _check_total(s, largest, total, terms, place)
    if s.reaches(total, stage):
        raise _refused(place, f"{total.name} divides its terms")
    exponential = proportional(whole_body(s, factor.op.body), largest.tensors)
    if not exponential or len(others) != 1 or op.dtype is not largest.op.dtype:
        raise _refused(place, f"{factor.name} is not proportional to exp(-{largest.name})")
    if not 1 < parts < terms or terms % parts:
        raise ScheduleError(
            place, f"{terms} terms are not so many pieces of several", "Give a divisor of them."
        )
    depth = factor.op.axis[along[0]]
    return _Exponentials(stage, factor, depth, largest, total, rows, op.axis.index(others[0]))


def _reads(e: Expr, stage: StageState) -> bool:
    return e.op == "read" and e.attr in stage.tensors


def _place(read: Expr) -> tuple[Expr, ...]:
    return read.args


def _largest(s: AnyState, factor: StageState, terms: int) -> StageState | None:
    """The maximum that a stage reads, inlined stages between them or not."""
    op = factor.op
    if not isinstance(op, ComputeOp) or op.combiner is not None or op.num_outputs > 1:
        return None
    for e in E.walk(whole_body(s, op.body)):
        found = s[e.attr] if e.op == "read" else None
        if found is not None and _reduces(found, "max", terms):
            return found
    return None


def _reduces(stage: StageState, how: str, terms: int) -> bool:
    op = stage.op
    if not isinstance(op, ComputeOp) or op.combiner is None or op.num_outputs > 1:
        return False
    alone = stage.attach_kind == "root" and not stage.is_scheduled and not stage.is_output
    sizes = [ax.size for ax in op.reduce_axis]
    return alone and op.combiner.name == how and op.dtype.is_float and sizes == [terms]


def _readers(s: AnyState, stage: StageState) -> list[StageState]:
    """Stages that read another, those that are inlined as what reads them."""
    found: dict[StageState, None] = {}
    waiting = list(s.readers(stage))
    for reader in waiting:
        if reader.attach_kind == "inline":
            waiting += s.readers(reader)
        else:
            found[reader] = None
    return list(found)


def _check_total(
    s: AnyState, largest: StageState, total: StageState, terms: int, place: str
) -> None:
    op = total.op
    if not _reduces(total, "sum", terms) or op.shape != largest.op.shape:
        raise _refused(place, f"{total.name}, which reads {largest.name}, is no sum of its rows")
    assert isinstance(op, ComputeOp)
    body = whole_body(s, op.reduced)
    own = tuple(ax.var for ax in op.axis)
    plain = all(e.args == own for e in E.walk(body) if _reads(e, largest))
    if not plain or not proportional(body, largest.tensors):
        raise _refused(place, f"{total.name} is not proportional to exp(-{largest.name})")


def _in_pieces(s: AnyState, found: _Exponentials, parts: int) -> tuple[Tensor, ...]:
    """The stages: (maxima, sums of exponentials, sums of pieces; what a piece has found)."""
    op, most, total = found.sums.op, found.largest.op, found.total.op
    assert isinstance(op, ComputeOp) and isinstance(most, ComputeOp)
    assert isinstance(total, ComputeOp)
    length = op.reduce_axis[0].size // parts
    factor, least = found.factor, E.const(most.dtype.least, most.dtype)
    instead: dict[Tensor, Tensor] = {}  # of all terms -> of a piece

    def part(own: ComputeOp, body: Expr, name: str, k: IterVar) -> ComputeOp:
        """A stage of pieces; k: the axis along the terms."""
        axes = copy_axes((parts, *own.shape), ["p", *(f"{a.name}.p" for a in own.axis)])
        at: dict[Expr, Any] = {a.var: b.var for a, b in zip(own.axis, axes[1:], strict=True)}
        inner = IterVar(f"{k.name}.inner", length, k.kind)
        at[k.var] = axes[0].var * length + inner.var

        def rule(e: Expr) -> Expr | None:
            if e.op != "read" or e.attr not in instead:
                return None
            index = (inner.var if i is at[k.var] else i for i in e.args)
            return instead[e.attr][(axes[0].var, *index)]

        value = E.transform(E.substitute(body, at), rule)
        if k.kind == "reduce":
            value = E.make("reduce", (value,), (own.combiner, (inner,)), value.dtype)
        own_axes = (inner if a is k else b for a, b in zip(own.axis, axes[1:], strict=True))
        return ComputeOp(name, (axes[0], *own_axes), value, own.tag, own.attrs)

    def name(of: StageState) -> str:
        return s.new_name(f"{of.name}.piece")

    # The least number stands where a piece has no term, so that nothing is infinity less infinity.
    largest = part(most, E.maximum(most.reduced, least), name(found.largest), most.reduce_axis[0])
    maxima = instead[found.largest.tensor] = largest.output_tensor
    totals = part(total, whole_body(s, total.reduced), name(found.total), total.reduce_axis[0])
    assert isinstance(factor.op, ComputeOp)
    terms = part(factor.op, whole_body(s, factor.op.body), factor.name, found.depth)
    instead[factor.tensor] = terms.output_tensor
    s.replace_op(factor, terms)
    sums = part(op, op.reduced, name(found.sums), op.reduce_axis[0])

    shape = [n + PLACES * (d == found.column) for d, n in enumerate(op.shape)]
    axes = copy_axes((parts, *shape), ["p", *(f"{a.name}.q" for a in op.axis)])
    p, *own = axes
    at = [own[op.axis.index(row)].var if row is not None else E.const(0) for row in found.rows]
    column, columns = own[found.column].var, op.shape[found.column]
    kind = sums.dtype
    rest = E.if_then_else(
        column < columns + MAXIMUM, E.cast(kind, totals.output_tensor[(p.var, *at)]),
        E.cast(kind, maxima[(p.var, *at)]),
    )  # fmt: skip
    value = E.if_then_else(column < columns, sums.output_tensor[tuple(ax.var for ax in axes)], rest)
    pieces = ComputeOp(s.new_name(f"{found.sums.name}.pieces"), axes, value)

    s.insert_stage(largest, before=found.largest)
    for stage in (found.largest, found.total):  # which come behind the pieces now
        s.put_before(stage, found.sums)
    for made in (totals, sums, pieces):
        s.insert_stage(made, before=found.largest)
    _put_together(found, pieces.output_tensor, parts)
    return largest.output_tensor, totals.output_tensor, sums.output_tensor, pieces.output_tensor


def _put_together(found: _Exponentials, pieces: Tensor, parts: int) -> None:
    """What read all terms reads what pieces have found of them."""
    op, columns = found.sums.op, found.sums.op.shape[found.column]

    def row(own: tuple[IterVar, ...], column: Any) -> list[Any]:
        """Where `pieces` has a row of a maximum, whose axes these are."""
        at: list[Any] = [E.const(0)] * len(op.axis)
        for ax, of in zip(own, found.rows, strict=True):
            if of is not None:
                at[op.axis.index(of)] = ax.var
        at[found.column] = E.const(column)
        return at

    def reduced(of: StageState, value: Any, largest: Any) -> None:
        own = of.op
        assert isinstance(own, ComputeOp) and own.combiner is not None
        p = IterVar("p", parts, "reduce")
        term = value(p.var)
        if largest is not None:
            term = term * E.call("exp", largest(p.var))
        body = E.make("reduce", (term,), (own.combiner, (p,)), term.dtype)
        of.restart(ComputeOp(own.name, own.axis, narrowed(own, body)))

    largest, total = found.largest, found.total
    axes = largest.op.axis
    top = largest.tensor
    reduced(largest, lambda p: pieces[(p, *row(axes, columns + MAXIMUM))], None)
    axes_of_total = total.op.axis

    def apart(p: Expr, own: tuple[IterVar, ...], at: list[Any]) -> Expr:
        return pieces[(p, *at)] - top[tuple(ax.var for ax in own)]

    reduced(
        total, lambda p: pieces[(p, *row(axes_of_total, columns + TOTAL))],
        lambda p: apart(p, axes_of_total, row(axes_of_total, columns + MAXIMUM)),
    )  # fmt: skip
    own = [ax.var for ax in op.axis]
    of_row = [own[k] if k != found.column else E.const(columns + MAXIMUM) for k in range(len(own))]
    at = tuple(E.const(0) if ax is None else ax.var for ax in found.rows)
    reduced(found.sums, lambda p: pieces[(p, *own)], lambda p: pieces[(p, *of_row)] - top[at])
