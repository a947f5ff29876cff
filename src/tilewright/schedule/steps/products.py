"""Sums of products of two reads, and the step pad: their extents rounded up.

In: a stage that is such a sum.  Out: a stage of the same sums over larger axes, which the stage
itself then only reads, and factors to match, zero beyond: both, since zero times an infinity is not
zero.  Read next: `matrices.py` (as_product), `layouts.py` (factors that are constants).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

from tilewright.base.artifact import Packing
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import MOST, last, ranges, symbols_of
from tilewright.schedule.state import StageState, narrowed
from tilewright.schedule.steps.layouts import filled_up, moving
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.stages import copy_axes
from tilewright.schedule.steps.step import (
    AnyState,
    Step,
    refuse_fixed,
    refuse_host,
    stage_of,
)
from tilewright.te.tensor import ComputeOp, IterVar, Tensor

Axes = Sequence[IterVar]


@dataclass(frozen=True)
class Product:
    """A sum of products of two reads.

    axes:  of the stage, by name; reads: both factors, without the casts around them
    """

    op: ComputeOp
    axes: Mapping[str, IterVar]
    reads: tuple[Expr, Expr]

    @property
    def extents(self) -> dict[IterVar, int]:
        return {ax: ax.size for ax in self.axes.values()}

    def sums(self, spatial: Axes, reduce: Axes, mapping: Mapping[Expr, Any]) -> tuple[Axes, Expr]:
        """Axes and body of a stage of such sums, its axes and reads replaced as `mapping` says; it
        has the type of partial results."""
        assert self.op.combiner is not None
        value = E.substitute(self.op.reduced, mapping)
        return spatial, E.make("reduce", (value,), (self.op.combiner, tuple(reduce)), value.dtype)


def sum_of_products(step: Step, stage: StageState, place: str) -> Product:
    """The sum of products that a stage is.  Raises ScheduleError for any other."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    combiner = op.combiner
    if (
        combiner is None
        or op.num_outputs > 1
        or combiner.result.op != "add"
        or set(combiner.result.args) != {combiner.lhs, combiner.rhs}
    ):
        _no_product(place, "it is no sum")
    assert combiner is not None
    value = op.reduced
    if value.op == "if_then_else" and value.args[2] is combiner.identity:
        test, value, _ = value.args
        if any(n.op == "read" for n in E.walk(test)):
            _no_product(place, "data decide which terms count")
    factors = [_without_casts(f) for f in value.args] if value.op == "mul" else []
    if [f.op for f in factors] != ["read", "read"]:
        _no_product(place, f"it sums {str(op.reduced)[:80]}")
    left, right = factors
    return Product(op, {ax.name: ax for ax in (*op.axis, *op.reduce_axis)}, (left, right))


def _no_product(place: str, why: str) -> NoReturn:
    raise ScheduleError(place, why, "Only sums of products of two reads can be so changed.")


def _without_casts(node: Expr) -> Expr:
    while node.op == "cast":
        node = node.args[0]
    return node


def refuse_scheduled(step: Step, s: AnyState, stage: StageState, place: str) -> None:
    if stage.is_scheduled or stage.attach_kind != "root":
        raise ScheduleError(
            place, "the stage already has scheduled loops", f"Call {step.verb} first."
        )
    refuse_fixed(step, stage)
    refuse_host(step, s, stage)


def root_axes(
    product: Product, names: Iterable[str], among: Axes, place: str, what: str
) -> list[IterVar]:
    chosen = [product.axes.get(name) for name in names]
    known = " ".join(map(repr, among))
    for name, axis in zip(names, chosen, strict=True):
        if axis is None or axis not in among:
            raise ScheduleError(place, f"{name} is no {what} of it", f"There are {known}.")
        if symbols_of([axis.extent]):
            raise ScheduleError(place, f"the extent of {name} is a variable", "Leave it out.")
    if len(set(chosen)) < len(chosen):
        raise ScheduleError(place, "an axis is named twice", "Name each axis once.")
    return [axis for axis in chosen if axis is not None]


def refuse_large(extents: Iterable[int], place: str) -> None:
    if max(extents) > MOST:
        raise ScheduleError(
            place, f"an extent would be {max(extents)}", f"Extents are at most {MOST}."
        )


def read_instead(s: AnyState, stage: StageState, op: ComputeOp, at: Sequence[Expr]) -> Tensor:
    """`op` in a stage of its own, which `stage` reads at indices over its axes."""
    old = stage.op
    assert isinstance(old, ComputeOp)
    stage.restart(ComputeOp(old.name, old.axis, narrowed(old, op.output_tensor[tuple(at)])))
    s.insert_stage(op, before=stage)
    return op.output_tensor


@dataclass(frozen=True)
class Pad(Step):
    """Extents of axes of a sum of products are rounded up; its operands are zero beyond.

    The sum moves to a new stage, which has the type of partial results; the stage reads of it what
    it had before.  A factor that would be read beyond its shape, or that a rounded reduction would
    read beyond its end, is read through a stage that is zero there, or, if it is a padding stage
    already, becomes larger.  Where nothing is to be rounded, nothing changes.

    rewrite:  s.pad(C, {j: 4, r: 3})
        C: float32[2, 6] global, 12 elements, 48 bytes
          for i in 2:
            for j in 6:
              for r in 4:
                C[i, j] += A[i, r]*B[r, j]
        ->
        A.padded: float32[2, 6] global, 12 elements, 48 bytes
          for ax0 in 2:
            for ax1 in 6:
              A.padded[ax0, ax1] = if_then_else(ax1 < 4, A[ax0, ax1], 0.0)
        B.padded: float32[6, 8] global, 48 elements, 192 bytes
          for ax0 in 6:
            for ax1 in 8:
              B.padded[ax0, ax1] = if_then_else(ax0 < 4 and ax1 < 6, B[ax0, ax1], 0.0)
        C.padded: float32[2, 8] global, 16 elements, 64 bytes
          for i.p in 2:
            for j.p in 8:
              for r in 6:
                C.padded[i.p, j.p] += A.padded[i.p, r]*B.padded[r, j.p]
        C: float32[2, 6] global, 12 elements, 48 bytes
          for i in 2:
            for j in 6:
              C[i, j] = C.padded[i, j]
    legal:    a sum of products of two reads, without scheduled loops.  A reduction axis that is
              rounded has a dimension of its own in both factors: a product with what is zero in one
              of them alone may be no number.
    """

    axes: tuple[str, ...]
    multiples: tuple[int, ...]
    verb: ClassVar[str] = "pad"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        pairs = ", ".join(f"{a}: {m}" for a, m in zip(self.axes, self.multiples, strict=False))
        place = f"pad({stage.name}, {{{pairs}}})"
        if len(self.axes) != len(self.multiples) or any(m < 1 for m in self.multiples):
            raise ScheduleError(place, "each axis needs a multiple of at least 1", "Try {i: 16}.")
        refuse_scheduled(self, s, stage, place)
        product = sum_of_products(self, stage, place)
        op = product.op
        axes = root_axes(product, self.axes, (*op.axis, *op.reduce_axis), place, "axis")
        rounded = {
            ax: -(-ax.size // m) * m
            for ax, m in zip(axes, self.multiples, strict=True) if ax.size % m
        }  # fmt: skip
        if not rounded:
            return stage.tensor
        refuse_large(rounded.values(), place)
        needs = [_Need.of(s, read, product, rounded, place) for read in product.reads]
        made = {need: _zero_beyond(s, stage, need) for need in dict.fromkeys(needs) if need.cuts}
        mapping: dict[Expr, Any] = {}
        for read, need in zip(product.reads, needs, strict=True):
            if need in made:
                mapping[read] = made[need][read.args]
        return self._summed(s, stage, product, rounded, mapping)

    def _summed(
        self, s: AnyState, stage: StageState, product: Product,
        rounded: Mapping[IterVar, int], factors: Mapping[Expr, Expr],
    ) -> Tensor:  # fmt: skip
        op = product.op
        spatial = [IterVar(f"{ax.name}.p", rounded.get(ax, ax.size)) for ax in op.axis]
        reduce = [
            IterVar(ax.name, rounded[ax], "reduce") if ax in rounded else ax
            for ax in op.reduce_axis
        ]
        old = (*op.axis, *op.reduce_axis)
        new = {a.var: b.var for a, b in zip(old, (*spatial, *reduce), strict=True)}
        reads = {read: E.substitute(other, new) for read, other in factors.items()}
        body = product.sums(spatial, reduce, {**new, **reads})[1]
        padded = ComputeOp(
            s.new_name(f"{stage.name}.padded"), tuple(spatial), body, op.tag, op.attrs
        )
        return read_instead(s, stage, padded, [ax.var for ax in op.axis])

    def python(self, names: PythonNames) -> str:
        axes = [names.axis(self.stage, name) for name in self.axes]
        pairs = ", ".join(f"{a}: {m}" for a, m in zip(axes, self.multiples, strict=True))
        return f"s.pad({names.tensor(self.stage)}, {{{pairs}}})"


@dataclass(frozen=True)
class _Need:
    """What a factor must be: of this shape, and zero from an index on in some dimensions.

    cuts: dimension and first index that is zero; none: the tensor does as it is
    """

    tensor: Tensor
    shape: tuple[int, ...]
    cuts: tuple[tuple[int, int], ...]

    @staticmethod
    def of(
        s: AnyState, read: Expr, product: Product, rounded: Mapping[IterVar, int], place: str
    ) -> _Need:
        tensor: Tensor = read.attr
        simple = Simplifier(
            ranges(s.dag.extent_symbols)
            | {ax.var: (0, rounded.get(ax, last(n) + 1) - 1) for ax, n in product.extents.items()}
        )
        grown = {ax.var: ax for ax in rounded}
        shape, cuts, ended = list(tensor.shape), dict[int, int](), set[IterVar]()
        for d, index in enumerate(read.args):
            axes = [grown[v] for v in E.free_variables(index) if v in grown]
            if not axes:
                continue
            low, high = simple.interval(index)
            if low < 0 or high == float("inf") or symbols_of([tensor.shape[d]]):
                raise ScheduleError(
                    place, f"{tensor.name} would be read before its first element at {index}",
                    "Leave that axis as it is, or call as_product first.",
                )  # fmt: skip
            form, size = simple.linear(index), tensor.shape[d]
            if len(form.terms) == 1 and axes[0].kind == "reduce" and axes[0].var in form.terms:
                cuts[d] = form.terms[axes[0].var] * (axes[0].size - 1) + form.constant + 1
                ended.add(axes[0])
            elif high >= size:
                cuts[d] = size
            if d in cuts:
                shape[d] = int(high) + 1
        for axis in rounded:
            if axis.kind == "reduce" and axis not in ended:
                raise ScheduleError(
                    place, f"no dimension of {tensor.name} is that of {axis.name} alone",
                    "Call as_product first: its factors have one.",
                )  # fmt: skip
        return _Need(tensor, tuple(shape), tuple(cuts.items()))


def _zero_beyond(s: AnyState, stage: StageState, need: _Need) -> Tensor:
    """A tensor as `need` says, which `stage` is to read."""
    source, tensor = s[need.tensor], need.tensor
    packing = filled_up(tensor.shape, need.shape) if _keeps(need) else None
    if _is_movement(s, source, stage):
        return _extended(s, source, need, packing)
    axes = copy_axes(need.shape, [f"ax{d}" for d in range(tensor.ndim)])
    inside = E.all_of(*(axes[d].var < cut for d, cut in need.cuts))
    value = E.if_then_else(inside, tensor[tuple(ax.var for ax in axes)], E.const(0, tensor.dtype))
    tag, attrs = moving(s, tensor, packing)
    op = ComputeOp(s.new_name(f"{source.name}.padded"), axes, value, tag, attrs)
    s.insert_stage(op, after=source)
    return op.output_tensor


def _keeps(need: _Need) -> bool:
    """Whether it only adds zeros behind what there is."""
    kept = all(cut == need.tensor.shape[d] for d, cut in need.cuts)
    return kept and not symbols_of(need.shape)


def _is_movement(s: AnyState, source: StageState, reader: StageState) -> bool:
    """Whether `source` only moves elements, perhaps with zeros between them, for one reader."""
    op = source.op
    if not isinstance(op, ComputeOp) or op.why_fixed or op.num_outputs > 1 or source.is_output:
        return False
    if source.is_scheduled or source.attach is not None or s.attached(source) or source.scope:
        return False
    test, value = _guarded(op)
    plain = value.op == "read" and all(n.op != "read" for n in E.walk(*value.args, test))
    reads = [n for n in E.walk(reader.op.body) if n.op == "read" and n.attr is source.tensor]  # type: ignore[union-attr]
    return plain and s.readers(source) == [reader] and len(reads) == 1


def _guarded(op: ComputeOp) -> tuple[Expr, Expr]:
    """The test under which an element is not zero, and what it then is."""
    body, zero = op.body, E.const(0, op.dtype)
    if body.op == "if_then_else" and body.args[2] is zero:
        return body.args[0], body.args[1]
    return E.const(True), body


def _extended(s: AnyState, source: StageState, need: _Need, packing: Packing | None) -> Tensor:
    """The stage itself, of another shape."""
    op = source.op
    assert isinstance(op, ComputeOp)
    axes = copy_axes(need.shape, [ax.name for ax in op.axis])
    new = {a.var: b.var for a, b in zip(op.axis, axes, strict=True)}
    test, value = (E.substitute(node, new) for node in _guarded(op))
    known = Simplifier({ax.var: (0, ax.size - 1) for ax in axes}).assuming(test)
    tests = [known(axes[d].var < cut) for d, cut in need.cuts]
    inside = E.all_of(test, *tests)
    first = op.attrs.get("packing")
    attrs = {k: v for k, v in op.attrs.items() if k != "packing"}
    tag = op.tag
    if first is not None and packing is not None:
        attrs["packing"] = first.followed_by(packing)
    elif first is not None:  # it is no longer what a packing does
        tag = ""
    body = E.if_then_else(inside, value, E.const(0, op.dtype))
    grown = ComputeOp(source.name, axes, body, tag, attrs)
    s.replace_op(source, grown)
    return grown.output_tensor
