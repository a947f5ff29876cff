"""What sketch rules ask about operations and stages: who reads whom, and in what pattern.

In: operations, and schedules whose stages may already be inlined or cached.  Out: predicates.
Source: Zheng et al., "Ansor", OSDI 2020, section 4.1.  Read next: `rules.py`.
"""

from __future__ import annotations

from math import prod

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.schedule.default import reads_elementwise
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.te.tensor import CONSTANTS_ATTR, ComputeOp

UNROLL_INNER_ATTR = "auto_scheduler_always_unroll_inner"
OUTER_ONLY_ATTR = "auto_scheduler_no_split_at_inner"


def is_compute(stage: Stage) -> bool:
    return isinstance(stage.op, ComputeOp)


def compute_op(stage: Stage) -> ComputeOp:
    assert isinstance(stage.op, ComputeOp)
    return stage.op


def reads(op: ComputeOp) -> list[Expr]:
    return [n for n in E.walk(op.body) if n.op == "read"]


def attribute(op: ComputeOp, name: str) -> tuple[str, ...]:
    """Axis names listed under an attribute of the operation."""
    value = op.attrs.get(name, ())
    return (value,) if isinstance(value, str) else tuple(str(v) for v in value)


def needs_tiling(op: ComputeOp) -> bool:
    """Whether values are reused: two producers, or one of a reduction, whose reads do not depend
    on some spatial axis."""
    if attribute(op, CONSTANTS_ATTR):
        return False
    spatial = {ax.var for ax in op.axis if ax.size > 1}
    used: dict[object, set[Expr]] = {}
    for n in reads(op):
        used.setdefault(n.attr, set()).update(E.free_variables(*n.args))
    reused = sum(bool(spatial - own) for own in used.values())
    return reused >= (1 if op.combiner is not None else 2)


def strictly_inlineable(op: ComputeOp) -> bool:
    """Whether repeating the operation at every reader is nearly free: it reads elements at its own
    axes, in their order, each once, plus constants; no choice, no function call."""
    own = {ax.var: k for k, ax in enumerate(op.axis)}
    if any(n.op in ("if_then_else", "select", "call") for n in E.walk(op.body)):
        return not op.input_tensors
    for n in reads(op):
        places = []
        for index in n.args:
            form = Simplifier({}).linear(index)
            if any(v not in own or c != 1 for v, c in form.terms.items()) or len(form.terms) > 1:
                return False
            places += [own[v] for v in form.terms]
        if places != sorted(set(places)):
            return False
    return True


def is_reduction(stage: Stage) -> bool:
    return isinstance(stage.op, ComputeOp) and stage.op.combiner is not None


def lengths(stage: Stage) -> tuple[int, int]:
    """Points of the spatial axes and steps of the reduction."""
    op = compute_op(stage)
    steps = prod(ax.size for ax in op.reduce_axis)
    return prod(op.shape), steps


def producers(s: Schedule, stage: Stage) -> list[Stage]:
    """Stages whose tensors its own body reads."""
    return [s[t] for t in stage.op.input_tensors]


def consumers(s: Schedule, stage: Stage) -> list[Stage]:
    """Stages that need `stage`, looking through inlined ones; in order."""
    found: dict[Stage, None] = {}
    for reader in s.readers(stage):
        if reader.attach_kind == "inline":
            found |= dict.fromkeys(consumers(s, reader))
        else:
            found[reader] = None
    return list(found)


def matched_consumer(s: Schedule, stage: Stage) -> Stage | None:
    """The only consumer, if it takes element for element and can share the tiles of `stage`.

    None for an output: it is stored as a whole, so it cannot be a tile of its consumer.
    """
    found = consumers(s, stage)
    if stage.is_output or len(found) != 1 or found[0].scope == "shared":
        return None
    both = compute_op(stage).combiner is not None and compute_op(found[0]).combiner is not None
    if both or found[0].op.shape != stage.op.shape:
        return None
    if not reads_elementwise(s, found[0], stage):
        return None
    return found[0]


def common_outer_axes(s: Schedule, stage: Stage, consumer: Stage) -> int:
    """How many leading axes `stage` and its consumer have in common: every read between them uses
    the consumer's first axes as its first indices."""
    count = min(len(stage.op.axis), len(consumer.op.axis))
    todo = [stage]
    while todo:
        source = todo.pop()
        for user in s.readers(source):
            op = compute_op(user)
            for n in reads(op):
                if n.attr not in source.tensors:
                    continue
                along = [a is ax.var for a, ax in zip(n.args, op.axis, strict=False)]
                count = min(count, along.index(False) if False in along else len(along))
            if user is not consumer and user.attach_kind == "inline":
                todo.append(user)
    shapes = zip(stage.op.shape, consumer.op.shape, strict=False)
    same = [a == b for a, b in shapes]
    return min(count, same.index(False) if False in same else len(same))
