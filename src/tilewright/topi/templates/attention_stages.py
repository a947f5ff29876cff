"""The stages of an attention, which its templates schedule: softmax(a b) c.

In: an anchor, the product whose first operand is a softmax.  Out: the stages of the softmax and of
the product before it, with what stands in between inlined; the axes of the result.
Read next: `attention.py`, `attention_atoms.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.template import Anchored
from tilewright.schedule.vectors import inlined_body
from tilewright.te.tensor import ComputeOp, IterVar, Tensor

PRODUCT, SUM = "batch_matmul", "comm_reduce"


@dataclass(frozen=True)
class Attention:
    """scores: the first product; largest, total: of its softmax; probability: what the second
    product reads; kept: the stage of exponentials, which the total and the probabilities read;
    queries: rows of the first product that are made of several tensors, as those are that were
    turned by their position"""

    scores: Stage
    largest: Stage
    total: Stage
    kept: Stage
    probability: Stage
    queries: Stage | None = None

    @property
    def all(self) -> tuple[Stage, ...]:
        return (self.scores, self.largest, self.kept, self.total, self.probability)


def attention_of(at: Anchored, *, moved: bool = False, whole: bool = True) -> Attention:
    """The stages of an attention; what stands between them is inlined.

    moved: whether operands of the products that are computed, not only moved, keep a stage
    whole: whether a block, or a core, keeps whole rows of scores
    Raises ScheduleError for any other computation.
    """
    s, anchor = at.schedule, at.anchor.op
    assert isinstance(anchor, ComputeOp)
    ops = s.dag.compute_ops
    products = [op for op in ops if op.tag == PRODUCT]
    sums = [op for op in ops if op.tag == SUM]
    computed, values = anchor.input_tensors[0], anchor.input_tensors[-1]
    exponentials = [op for op in ops if op.name == "T_softmax_exp"]
    if (
        [len(products), len(sums), len(exponentials)] != [2, 2, 1]
        or products[1] is not anchor
        or not s.reaches(s[exponentials[0]], s[computed])
        or s.reaches(s[products[0]], s[values])
    ):
        raise ScheduleError(
            f"template for {anchor.name}", "it is no product with a softmax of a product",
            "Other templates take it.",
        )  # fmt: skip
    first = s[products[0].input_tensors[0]]
    queries = first if len(_sources(s, first)) > 1 else None
    own = (s[op] for op in (products[0], *sums, exponentials[0]))
    scores, largest, total, kept = own
    found = Attention(scores, largest, total, kept, s[computed], queries)
    limits = at.target.limits
    room = limits.shared_bytes_per_block if at.target.has_threads else limits.max_stack_bytes
    row = len(found.all) * products[0].shape[-1] * products[0].dtype.compute.bytes
    if whole and row > room:
        raise ScheduleError(
            f"template for {anchor.name}", f"a row of scores takes {row} of {room} bytes",
            "It compiles with its default schedule.",
        )  # fmt: skip
    ends = [*found.all, s[anchor], s[s.dag.outputs[0]], queries]
    if moved:
        operands = (*products[0].input_tensors, values)
        ends += [s[t] for t in operands if _is_computed(s, s[t])]
    for stage in s.stages:
        if isinstance(stage.op, ComputeOp) and stage not in ends:
            stage.compute_inline()
    return found


def _sources(s: Schedule, stage: Stage) -> set[Stage]:
    """The inputs of which a stage is computed."""
    if not isinstance(stage.op, ComputeOp):
        return {stage}
    return {source for tensor in stage.op.input_tensors for source in _sources(s, s[tensor])}


def _is_computed(s: Schedule, stage: Stage) -> bool:
    """Whether the elements of a stage are more than those of another tensor."""
    value = stage.op.body if isinstance(stage.op, ComputeOp) else None
    while value is not None and value.op == "read":
        source = s[value.attr]
        value = source.op.body if isinstance(source.op, ComputeOp) else None
    return value is not None


def result_of(at: Anchored) -> tuple[Stage, list[IterVar], IterVar, IterVar]:
    """The stage of the result; its axes that follow batch, rows and columns of the second product.

    Raises ScheduleError where the result is more than transposed.
    """
    s = at.schedule
    out = s[s.dag.outputs[0]]
    axes = list(out.op.axis)
    if out is s[at.anchor]:
        return out, axes[:-2], axes[-2], axes[-1]
    reads = [n for n in E.walk(inlined_body(s, out)) if n.op == "read" and n.attr is at.anchor]
    simple = Simplifier({ax.var: (0, ax.size - 1) for ax in axes})
    found = []
    for index in (reads[0].args[-2], reads[0].args[-1]) if len(set(reads)) == 1 else ():
        found += [ax for ax in axes if simple(index) is ax.var]
    if len(found) != 2:
        raise ScheduleError(
            f"template for {at.anchor.op.name}", "its result is moved in another way than rows",
            "It compiles with its default schedule.",
        )  # fmt: skip
    return out, [ax for ax in axes if ax not in found], found[0], found[1]


def divided_last(s: Schedule, product: Tensor) -> Tensor | None:
    """The sums before their division; None where probabilities are more than quotients, such as
    zero where a row has no key."""
    try:
        return s.divide_last(product)
    except ScheduleError:
        return None


def keep_wide(s: Schedule, anchor: Tensor) -> None:
    """What lies between the two products is rounded once, where the second one reads it."""
    op = s[anchor].op
    assert isinstance(op, ComputeOp)
    (first, *_) = (other for other in s.dag.compute_ops if other.tag == PRODUCT)
    last = s[op.input_tensors[0]]
    for stage in s.stages:
        between = stage is s[first] or s.reaches(s[first], stage)
        if stage is last or not between or not s.reaches(stage, last):
            continue
        own = stage.op
        if isinstance(own, ComputeOp) and own.dtype.is_float and own.dtype is not own.dtype.compute:
            s.widen(stage.tensor)
