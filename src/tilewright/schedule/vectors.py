"""What makes a loop a vector: how many lanes, and how far apart they read.

In: operations and scheduled stages.  Out: numbers, expressions after inlining; partial results of a
reduction side by side.  Read next: `row_reductions.py`, `default.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, inf, prod

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.tuples import parts
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.thread_loops import Wide
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp

MIN_PARALLEL_WORK = 1 << 14  # elements or reduction steps below which threads of a CPU cost more
NARROWEST = 8  # bytes of an access of a GPU that is worth being a vector
BUSY = 128  # threads for each core of a GPU, below which vectors have fewer lanes
FULL = 2048  # threads that a core of a GPU has at most
MAX_STRIDE = 4  # elements between lanes up to which a vector is read by wide loads and shuffles


def inlined_body(s: Schedule, stage: Stage) -> Expr:
    """The expression of a stage after its inlined producers took their places."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "read":
            return None
        source = s[node.attr]
        if source.attach_kind != "inline" or not isinstance(source.op, ComputeOp):
            return None
        axes = {ax.var: i for ax, i in zip(source.op.axis, node.args, strict=True)}
        values = parts(inlined_body(s, source))
        return E.substitute(values[source.tensors.index(node.attr)], axes)

    assert isinstance(stage.op, ComputeOp)
    return E.transform(stage.op.body, rule)


def lane_axis(op: ComputeOp) -> int:
    """Return the axis that vectors run along: the last with several elements.  Axes of one behind
    it, such as a block of one channel, leave its neighbours side by side in memory."""
    return max((d for d, n in enumerate(op.shape) if n > 1), default=len(op.shape) - 1)


def lanes_inside(partial: Stage) -> None:
    """The last axis of a stage of partial results becomes a vector inside its reduction."""
    op = partial.op
    assert isinstance(op, ComputeOp)
    *spatial, lane = op.axis
    partial.reorder(*spatial, *op.reduce_axis, lane)
    partial.vectorize(lane)


def lanes_of(op: ComputeOp, extent: int, target: Target) -> int:
    """Lanes of a vector over `extent` elements: those of the target, fewer for a short extent."""
    lanes = target.limits.vector_bytes // op.dtype.bytes
    while lanes > 1 and lanes >= 2 * extent:
        lanes //= 2
    return lanes if extent > 1 else 1


def stride_along(body: Expr, variable: Expr) -> float:
    """The largest distance between what neighbours along `variable` read; infinite if unknown."""
    worst: float = 0
    for n in E.walk(body):
        if n.op != "read":
            continue
        step = 1
        for index, extent in zip(reversed(n.args), reversed(n.attr.shape), strict=True):
            if variable in E.free_variables(index):
                form = Simplifier({}).linear(index)
                rest = [
                    a for a in form.terms if a is not variable and variable in E.free_variables(a)
                ]
                worst = max(worst, inf if rest else abs(form.terms.get(variable, 0)) * step)
            step *= extent
    return worst


def flat_from(s: Schedule, stage: Stage, end: int) -> int:
    """The first of the axes before `end` that can be one axis with all up to there: every tensor
    is read along all of them, in their order and with their extents, or along none.  Axes from
    `end` on have one element."""
    op = stage.op
    assert isinstance(op, ComputeOp)
    body = inlined_body(s, stage)
    reads = [n for n in E.walk(body) if n.op == "read"]
    inside = {ax.var for ax in op.axis[end - 1 : end]}
    first = end - 1
    while first > 0:
        own = [ax.var for ax in op.axis[first - 1 :]]
        inside = set(own[: end - first + 1])
        for n in reads:
            tail, rest = n.args[-len(own) :], n.args[: -len(own)]
            along = len(tail) == len(own) and all(a is v for a, v in zip(tail, own, strict=True))
            if along and n.attr.shape[-len(own) :] == op.shape[first - 1 :]:
                if inside & E.free_variables(*rest):
                    return first
            elif inside & E.free_variables(*n.args):
                return first
        if _used_outside_reads(body, inside):
            return first
        first -= 1
    return first


def _used_outside_reads(node: Expr, variables: set[Expr]) -> bool:
    waiting, seen = [node], {node}
    while waiting:
        here = waiting.pop()
        if here in variables:
            return True
        new = [a for a in here.args if a not in seen] if here.op != "read" else []
        seen.update(new)  # inlined stages are read several times, each by its readers
        waiting += new
    return False


def gpu_vector(s: Schedule, stage: Stage, target: Target) -> Wide | None:
    """The widest vectors in which a thread of a GPU may compute an elementwise stage.

    Each access is of one element for all lanes, or of neighbours that begin at a multiple of the
    lanes and have 8 bytes up to those of the target's vectors.  There are at least `BUSY` threads
    for each core.  None where there are no such vectors.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    if op.combiner is not None or not op.axis or op.why_fixed or s.dag.symbols:
        return None
    body = inlined_body(s, stage)
    nodes = list(E.walk(body))
    if any(n.op == "if_then_else" for n in nodes):  # its loads are not to be made where it is false
        return None
    end = lane_axis(op) + 1
    first = flat_from(s, stage, end)
    inner = [ax.var for ax in op.axis[first:end]]
    reads = [n for n in nodes if n.op == "read"]
    found = [_line(n, inner, op.shape[first:end]) for n in reads]
    lines = [line for line in found if line is not None]
    if len(lines) < len(reads):
        return None
    moved = [n.attr.dtype.bytes for n, line in zip(reads, lines, strict=True) if line[1]]
    sizes = [*moved, *(kind.bytes for kind in op.dtypes)]
    extent, points = prod(op.shape[first:end]), prod(op.shape)
    lanes = target.limits.vector_bytes // max(sizes)
    while lanes > 1 and lanes * min(sizes) >= NARROWEST:
        apart = all(line[0] % lanes == 0 for line in lines if line[1])
        busy = points >= lanes * BUSY * target.limits.cores
        if extent % lanes == 0 and apart and busy:
            return Wide(first, end, lanes)
        lanes //= 2
    return None


def gpu_write(s: Schedule, stage: Stage, target: Target) -> Wide | None:
    """Neighbours for a thread of a GPU that keeps elements of what it may lie in the memory of.

    Whoever keeps its elements there only asks where it is (`codegen/kept_in_place.py`), so a large
    one has as few threads as there can be.  None for other stages and for few elements.
    """
    op = stage.op
    assert isinstance(op, ComputeOp)
    if not target.waits or op.combiner is not None or not op.axis or s.dag.symbols:
        return None
    if not all(_keeps(value, op) for value in parts(inlined_body(s, stage))):
        return None
    lanes = target.limits.vector_bytes // max(kind.bytes for kind in op.dtypes)
    many = prod(op.shape) > FULL * target.limits.cores and op.axis[-1].size % lanes == 0
    return Wide(len(op.axis) - 1, len(op.axis), lanes) if many and lanes > 1 else None


def _keeps(value: Expr, op: ComputeOp) -> bool:
    """Whether it is a new element or that of another tensor in the same place."""
    if value.op not in ("select", "if_then_else"):
        return False
    own = tuple(ax.var for ax in op.axis)
    return any(e.op == "read" and e.args == own for e in value.args[1:])


def _line(read: Expr, inner: Sequence[Expr], shape: Sequence[int]) -> tuple[int, bool] | None:
    """Of a read along the line of variables `inner`: what all else in its address is a multiple of,
    and whether it follows the line, element for element; None where it does something else."""
    flat: Expr = E.const(0)
    for index, extent in zip(read.args, read.attr.shape, strict=True):
        flat = flat * extent + index
    form = Simplifier({}).linear(flat)
    apart, step = gcd(form.constant), 1
    steps = []
    for variable, extent in zip(reversed(inner), reversed(shape), strict=True):
        if extent > 1:
            steps.append((form.terms.get(variable, 0), step))
        step *= extent
    for atom, factor in form.terms.items():
        if atom in inner:
            continue
        if E.free_variables(atom).intersection(inner):
            return None
        apart = gcd(apart, factor)
    if all(own == 0 for own, _ in steps):
        return apart, False
    return (apart, True) if all(own == wanted for own, wanted in steps) else None
