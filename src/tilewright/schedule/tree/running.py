"""Sums that follow a maximum which is not complete yet: what is added up, and by what factor.

In: a reduction that goes along with a loop of another stage (`steps.AccumulateAt`).  Out: the
stages that add up terms of it in that loop.  Which terms may follow it says `exponentials.py`.
Read next: `lowering/running.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.schedule.exponentials import proportional
from tilewright.te.tensor import reduction_of

if TYPE_CHECKING:
    from tilewright.schedule.tree.structure import Node


@dataclass(frozen=True, eq=False)
class Scaled:
    """A stage of sums that depend on a maximum, and where it would read the maximum."""

    node: Node
    read: Expr


def running(node: Node, host: Node, children: Sequence[Node]) -> tuple[Scaled, ...]:
    """The sums of a loop that read what `node` has so far; () where none do.

    children: the stages computed in loops of `host`
    Raises ScheduleError where they would not be right in the end.
    """
    assert host.parent is not None
    place = f"accumulate_at({node.name}, {host.name}.{node.attach_axis.name})"  # type: ignore[union-attr]
    if all(read.reader is host.parent for read in node.reads):
        return ()
    combiner = node.op.combiner
    if combiner is None or combiner.name != "max" or not node.op.dtype.is_float:
        raise ScheduleError(
            place, f"{node.name} is read before it is complete, and is no maximum",
            "Only sums can follow a maximum; read it behind the loop.",
        )  # fmt: skip
    between: dict[Node, Expr] = {}  # stages that pass it on -> where they read it
    for read in node.reads:
        reader = read.reader
        if reader is host or reader.stage.along is not None:
            continue
        if reader is host.parent or reader.op.combiner is not None or reader in between:
            raise ScheduleError(
                place, f"{reader.name} reads it as it is so far",
                "Terms of sums along the same loop may read it so, each at one place.",
            )  # fmt: skip
        between[reader] = read.expression
    found: list[Scaled] = []
    for summed in (host, *(c for c in children if c.stage.along is not None and c is not node)):
        term = reduction_of(summed.body)
        assert term is not None
        at = _read_by(summed, term.args[0], node, between)
        if at is None:
            continue
        added = summed.op.combiner is not None and summed.op.combiner.name == "sum"
        if not added or not _follows(term.args[0], node, between):
            raise ScheduleError(
                place, f"what {summed.name} adds up is not proportional to exp(-{node.name})",
                f"Compute {node.name} at once, by compute_at.",
            )  # fmt: skip
        if any(ax.var in E.free_variables(at) for ax in summed.op.reduce_axis):
            raise ScheduleError(
                place, f"{summed.name} adds up terms of several maxima",
                "Each sum follows the maximum of its row.",
            )  # fmt: skip
        found.append(Scaled(summed, at))
    reached = {n for n, _ in between.items() if not any(r.reader is host for r in n.reads)}
    if reached or host not in [scaled.node for scaled in found]:
        raise ScheduleError(
            place, f"{host.name} does not add up all that reads it",
            f"Compute {node.name} at once, by compute_at.",
        )  # fmt: skip
    return tuple(found)


def _read_by(node: Node, term: Expr, largest: Node, between: dict[Node, Expr]) -> Expr | None:
    """The read of `largest` that a term depends on, over the axes of its stage."""
    for e in E.walk(term):
        if e.op != "read":
            continue
        if e.attr in largest.stage.tensors:
            return e
        for other, read in between.items():
            if e.attr in other.stage.tensors:
                at = {ax.var: i for ax, i in zip(other.op.axis, e.args, strict=True)}
                return E.substitute(read, at)
    return None


def _follows(term: Expr, largest: Node, between: dict[Node, Expr]) -> bool:
    """Whether a term is proportional to exp(-largest)."""
    passed = {t: node.body for node in between for t in node.stage.tensors}
    return proportional(term, largest.stage.tensors, passed)
