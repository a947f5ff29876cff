"""Which integer inputs of a computation say where something is: indices, and what is compared with
positions.

In: a DAG.  Out: how far each such input may go, so that inputs drawn at random are valid.
Read next: `evaluate.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr, walk
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, PlaceholderOp, Tensor

UNKNOWN = 8  # positions that an index computed from inputs is supposed to reach


@dataclass(frozen=True)
class Position:
    """size: of the smallest dimension that is meant
    limited: whether the computation itself keeps within it, whatever the number is
    """

    size: int
    limited: bool

    def meet(self, other: Position) -> Position:
        return Position(min(self.size, other.size), self.limited and other.limited)


def positions(dag: ComputeDAG) -> dict[Tensor, Position]:
    """The inputs that positions are computed from."""
    found: dict[Tensor, list[Position]] = {}
    for op in dag.compute_ops:
        for value, position in _uses(op):
            for source in _sources(value):
                found.setdefault(source, []).append(position)
    return {source: reduce(Position.meet, uses) for source, uses in found.items()}


def _uses(op: ComputeOp) -> Iterator[tuple[Expr, Position]]:
    """Expressions of the stage that are positions."""
    axes = (*op.axis, *op.reduce_axis)
    simple = Simplifier({ax.var: (ax.begin, ax.begin + ax.size - 1) for ax in axes})
    for node in walk(op.body):
        if node.op == "read":
            for index, size in zip(node.args, node.attr.shape, strict=True):
                if any(n.op == "read" for n in walk(index)):
                    yield index, _of_index(index, size, simple)
        if node.op == "eq":
            for value, place in (node.args, node.args[::-1]):
                least, most = simple.interval(place)
                if most - least >= 1 and not any(n.op == "read" for n in walk(place)):
                    yield value, Position(int(min(most - least, 1 << 30)) + 1, limited=True)
        if node.op in ("eq", "sub"):
            for value, place in (node.args, node.args[::-1]):
                last = _last_counted(place)
                if last > 0 and not _last_counted(value):
                    yield value, Position(last + 1, limited=False)


def _last_counted(place: Expr) -> int:
    """The last number of a table that counts, which a stage works out of its axes alone; 0 for
    anything else."""
    if place.op != "read" or not isinstance(place.attr.op, ComputeOp):
        return 0
    op = place.attr.op
    if op.reduce_axis or any(n.op == "read" for n in walk(op.body)) or not op.dtype.is_int:
        return 0
    simple = Simplifier({ax.var: (ax.begin, ax.begin + ax.size - 1) for ax in op.axis})
    return int(min(max(simple.interval(op.body)[1], 0), 1 << 30))


def _of_index(index: Expr, size: int, simple: Simplifier) -> Position:
    least, most = simple.interval(index)
    if least >= 0 and most < size:
        return Position(size, limited=True)
    direct = index.args[0] if index.op == "cast" else index
    return Position(size if direct.op == "read" else min(size, UNKNOWN), limited=False)


def _sources(value: Expr) -> Iterator[Tensor]:
    """The integer inputs whose numbers `value` is made of: what only decides a comparison is not
    among them."""
    waiting, seen = list(_read(value)), set(_read(value))
    while waiting:
        here = waiting.pop()
        if isinstance(here.op, PlaceholderOp):
            yield here
            continue
        new = [t for t in _read(here.op.body) if t not in seen]
        seen.update(new)
        waiting += new


def _read(value: Expr) -> Iterator[Tensor]:
    waiting, seen = [value], {value}
    while waiting:
        node = waiting.pop()
        if node.op == "read" and node.dtype.is_int:
            yield node.attr
        if node.op == "read" or node.dtype == "bool":
            continue
        new = [a for a in node.args if a not in seen]
        seen.update(new)
        waiting += new
