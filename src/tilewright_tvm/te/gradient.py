"""`te.gradient`: the derivative of a tensor by those it is computed from.

In: tensors.  Out: tensors, which are scheduled and built as any.  Stages are walked from the output
to the inputs; what an element of an input adds to the elements that read it is gathered, with the
indices of the reads solved for the axes (`solving.py`), so that little is summed that is zero.
Read next: `partials.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.tuples import parts, together
from tilewright.te import reductions
from tilewright.te.axis import IterVar, reduce_axis
from tilewright.te.opaque import OpaqueOp
from tilewright.te.recurrence import ScanOp
from tilewright.te.tensor import Combiner, ComputeOp, Tensor, compute
from tilewright_tvm.te.partials import partials, times
from tilewright_tvm.te.solving import Solution, solve

__all__ = ["gradient"]


@door(ExpressionError, "te.gradient")
def gradient(
    output: Tensor, inputs: Tensor | Sequence[Tensor], head: Tensor | None = None
) -> list[Tensor]:
    """The derivatives of `output` by each of `inputs`, in their types.

    head: [..., *output.shape], the derivatives of something by `output`; the derivatives are then
          those of that something, [..., *input.shape].  Without one they are all derivatives of the
          elements: [*output.shape, *input.shape].

    An input may be any tensor that `output` is computed from; of one that it is not, the derivative
    is zero.  Where there is no derivative (equal values under a maximum, a step), that of one side
    is given.  Raises ExpressionError for tensors of integers, and where the way to an input leads
    through te.scan, te.extern or a stage of several tensors.
    """
    given = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for tensor in (output, *given):
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_float:
            raise ExpressionError(
                "te.gradient", f"{tensor!r} is no tensor of floating point",
                "Give tensors that hold real numbers.",
            )  # fmt: skip
    if head is None:
        head = compute(
            (*output.shape, *output.shape),
            lambda *i: E.cast(
                output.dtype,
                E.all_of(
                    True,
                    *(a.equal(b) for a, b in zip(i[: output.ndim], i[output.ndim :], strict=True)),
                ),
            ),
            name=f"{output.op.name}_head",
        )
    ahead = head.ndim - output.ndim
    if ahead < 0 or tuple(head.shape[ahead:]) != tuple(output.shape):
        raise ExpressionError(
            "te.gradient(head=)", f"its shape {list(head.shape)} does not end with "
            f"{list(output.shape)}, that of the output", "Give a derivative for each element.",
        )  # fmt: skip
    found = _Walk(set(given), head.shape[:ahead])
    found.run(output, head)
    return [found.total(t) for t in given]


class _Walk:
    """adjoints: tensor -> what its readers add to its derivative."""

    def __init__(self, inputs: set[Tensor], ahead: tuple[Any, ...]) -> None:
        self.inputs, self.ahead = inputs, ahead
        self.adjoints: dict[Tensor, list[Tensor]] = {}

    def run(self, output: Tensor, head: Tensor) -> None:
        order = _order(output, self.inputs)
        needed = set(order)
        self.adjoints[output] = [head]
        for tensor in reversed(order):
            if not isinstance(tensor.op, ComputeOp) or tensor not in self.adjoints:
                continue
            before = [t for t in tensor.op.input_tensors if t in needed and t.dtype.is_float]
            if not before:
                continue
            total = self.total(tensor)
            _check(tensor)
            for source in before:
                self.adjoints.setdefault(source, [])
                self.adjoints[source] += _added(tensor.op, source, total, self.ahead)

    def total(self, tensor: Tensor) -> Tensor:
        """The derivative by `tensor`, when all its readers are behind."""
        terms = self.adjoints.get(tensor, [])
        if len(terms) != 1:
            zero = E.const(0.0, tensor.dtype)
            terms = [
                compute(
                    (*self.ahead, *tensor.shape),
                    lambda *i: sum((t[i] for t in terms[1:]), terms[0][i]) if terms else zero,
                    name=f"{tensor.op.name}_grad",
                )
            ]
            self.adjoints[tensor] = terms
        return terms[0]


def _order(output: Tensor, inputs: set[Tensor]) -> list[Tensor]:
    """Tensors on a way from an input to `output`, producers first."""
    reaches: dict[Tensor, bool] = {}
    waiting = [(output, False)]
    order = []
    while waiting:
        tensor, entered = waiting.pop()
        if tensor in reaches:
            continue
        if not entered:
            waiting.append((tensor, True))
            waiting += [(t, False) for t in reversed(tensor.op.input_tensors)]
            continue
        reaches[tensor] = tensor in inputs or any(reaches[t] for t in tensor.op.input_tensors)
        if reaches[tensor]:
            order.append(tensor)
    return order


def _check(tensor: Tensor) -> None:
    op = tensor.op
    assert isinstance(op, ComputeOp)
    what = {
        "a te.extern": isinstance(op, OpaqueOp),
        "a te.scan": isinstance(op, ScanOp),
        "a stage of several tensors": op.num_outputs > 1,
    }
    for name, is_one in what.items():
        if is_one:
            raise ExpressionError(
                "te.gradient", f"{op.name} is {name}, which has no derivative here",
                "Declare its derivative with te.compute, and go on from there with head=.",
            )  # fmt: skip


def _added(op: ComputeOp, source: Tensor, total: Tensor, ahead: tuple[Any, ...]) -> list[Tensor]:
    """What `op` adds to the derivative by `source`, a tensor for each of its reads.

    total: the derivative by the tensor of `op`
    """
    combiner = op.combiner
    if combiner is not None and combiner.name not in ("sum", "max", "min"):
        return [_through_pairs(op, source, total, ahead)]
    value = op.body if combiner is None else op.reduced
    reads = partials(value, lambda n: n.op == "read" and n.attr.dtype.is_float)
    chosen = None
    if combiner is not None and combiner.name in ("max", "min"):
        chosen = _position(op, value, combiner)
    terms = []
    for read, factor in reads.items():
        if read.attr is not source:
            continue
        if chosen is not None:
            indices = tuple(ax.var for ax in op.axis)
            own = _flat(op.reduce_axis).equal(chosen[indices])
            factor = E.if_then_else(own, factor, E.const(0.0, factor.dtype))
        terms.append(_gathered(op, read, factor, total, ahead))
    return terms


def _gathered(
    op: ComputeOp, read: Expr, factor: Expr, total: Tensor, ahead: tuple[Any, ...]
) -> Tensor:
    """The sum over all axes of `op` where it reads the element, of `factor` times `total`."""
    source: Tensor = read.attr

    def element(*i: Expr) -> Expr:
        before, indices = i[: len(ahead)], i[len(ahead) :]
        sizes = dict(zip(indices, source.shape, strict=True))
        solution = solve(read.args, sizes, (*op.axis, *op.reduce_axis))
        at = tuple(solution.value(ax.var) for ax in op.axis)
        own = E.substitute(factor, {ax.var: solution.value(ax.var) for ax in _axes(op)})
        product = E.cast(source.dtype, times(E.cast(total.dtype, own), total[(*before, *at)]))
        return _summed(solution, product)

    return compute((*ahead, *source.shape), element, name=f"{source.op.name}_grad")


def _axes(op: ComputeOp) -> tuple[IterVar, ...]:
    return (*op.axis, *op.reduce_axis)


def _summed(solution: Solution, value: Expr) -> Expr:
    """`value` where the conditions hold, over the axes that nothing decides."""
    if solution.conditions:
        test = E.all_of(*solution.conditions)
        value = E.if_then_else(test, value, E.const(0.0, value.dtype))
    if not solution.left:
        return value
    axes = [reduce_axis((0, ax.size), name=ax.name) for ax in solution.left]
    renamed = {old.var: new.var for old, new in zip(solution.left, axes, strict=True)}
    return reductions.sum(E.substitute(value, renamed), axis=axes)


def _flat(axes: Sequence[IterVar]) -> Expr:
    index = E.const(0)
    for ax in axes:
        index = index * ax.size + ax.var
    return index


def _position(op: ComputeOp, value: Expr, combiner: Combiner) -> Tensor:
    """Where the first of the greatest (least) values is, counted over all reduction axes."""
    kind = combiner.lhs.dtype
    own, other = ((E.var("v", kind), E.var("k")) for _ in range(2))
    beats = other[0] > own[0] if combiner.name == "max" else other[0] < own[0]
    first = E.all_of(other[0].equal(own[0]), other[1] < own[1])
    better = E.any_of(beats, first)
    result = together([E.select(better, b, a) for a, b in zip(own, other, strict=True)])
    identity = together([combiner.identity, E.const(prod(ax.size for ax in op.reduce_axis))])
    pair = Combiner(f"first_{combiner.name}", together(own), together(other), result, identity)
    axes = [reduce_axis((0, ax.size), name=ax.name) for ax in op.reduce_axis]

    def element(*i: Expr) -> Expr:
        known = dict(zip((ax.var for ax in op.axis), i, strict=True))
        known |= {old.var: new.var for old, new in zip(op.reduce_axis, axes, strict=True)}
        both = together([E.cast(kind, value), _flat(op.reduce_axis)])
        return reductions.reduction(
            pair, together([E.substitute(v, known) for v in parts(both)]), axes
        )

    pairs: Any = compute(op.shape, element, name=f"{op.name}_position")
    position: Tensor = pairs[1]
    return position


def _through_pairs(op: ComputeOp, source: Tensor, total: Tensor, ahead: tuple[Any, ...]) -> Tensor:
    """Of any reduction: values are reduced together with their derivatives, for each element of
    `source` apart; the derivatives are then summed over the elements of `op`."""
    combiner = op.combiner
    assert combiner is not None
    kind = combiner.lhs.dtype
    reads = partials(E.cast(kind, op.reduced), lambda n: n.op == "read" and n.attr is source)
    slope = partials(combiner.result, lambda n: n is combiner.lhs or n is combiner.rhs)
    zero = E.const(0.0, kind)
    by = [E.var("d", kind) for _ in range(2)]
    moved = zero
    for variable, d in zip((combiner.lhs, combiner.rhs), by, strict=True):
        if variable in slope:
            moved = moved + slope[variable] * d
    pair = Combiner(
        f"{combiner.name}_grad", together([combiner.lhs, by[0]]), together([combiner.rhs, by[1]]),
        together([combiner.result, moved]), together([combiner.identity, zero]),
    )  # fmt: skip
    axes = [reduce_axis((0, ax.size), name=ax.name) for ax in op.reduce_axis]
    count = len(op.axis)

    def element(*i: Expr) -> Expr:
        known = dict(zip((ax.var for ax in op.axis), i[:count], strict=True))
        known |= {old.var: new.var for old, new in zip(op.reduce_axis, axes, strict=True)}
        change = zero
        for read, factor in reads.items():
            here = E.all_of(True, *(a.equal(x) for a, x in zip(read.args, i[count:], strict=True)))
            change = change + E.if_then_else(here, E.cast(kind, factor), zero)
        both = (E.substitute(v, known) for v in (E.cast(kind, op.reduced), change))
        return reductions.reduction(pair, together(list(both)), axes)

    pairs: Any = compute((*op.shape, *source.shape), element, name=f"{op.name}_{source.op.name}")
    changes: Tensor = pairs[1]
    over = [reduce_axis((0, ax.size), name=ax.name) for ax in op.axis]
    here = tuple(ax.var for ax in over)

    def added(*i: Expr) -> Expr:
        before, indices = i[: len(ahead)], i[len(ahead) :]
        product = total[(*before, *here)] * E.cast(total.dtype, changes[(*here, *indices)])
        product = E.cast(source.dtype, product)
        return reductions.sum(product, axis=over) if over else product

    return compute((*ahead, *source.shape), added, name=f"{source.op.name}_grad")
