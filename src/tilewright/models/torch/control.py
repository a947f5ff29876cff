"""Branches and loops whose conditions the network computes: `torch.cond`, `while_loop`, and the
`if` of a scripted module.

In: a call, and what gives the results of a body for values of its inputs.  Out: graph values that
wait until the network runs.  Read next: `graph/functions/dynamic.py`, `importer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graph.deferred import branch
from tilewright.graph.expr import Expr, Tuple, TupleGetItem
from tilewright.graph.functions.dynamic import while_loop
from tilewright.graph.leaves import const, var
from tilewright.graph.traversal import unpacked
from tilewright.models.torch.node import Node
from tilewright.models.torch.program import Program

Expanded = Callable[[Program, Sequence[Any]], list[Expr]]


def _cond(expanded: Expanded, n: Node) -> list[Expr]:
    """One of two bodies: (condition, one body, the other, what they read)."""
    condition, one, other, given = n.args.values()
    if isinstance(condition, bool):
        return expanded(one if condition else other, given)
    made = branch(condition, *(Tuple(expanded(body, given)) for body in (one, other)))
    return [unpacked(TupleGetItem(made, k)) for k in range(len(n.results))]


def _while(expanded: Expanded, n: Node) -> list[Expr]:
    """(whether there is another trip, a trip, its state, what both read besides)."""
    condition, body, state, more = n.args.values()
    values = [v if isinstance(v, Expr) else const(v) for v in (*state, *more)]
    for part in (condition, body):  # what blocks them is told at import
        if all(isinstance(m, int) for _, spec in part.inputs for m in spec.shape):
            expanded(part, [var(k, shape=s.shape, dtype=s.dtype) for k, s in part.inputs])

    def goes_on(*now: Expr) -> Expr:
        return expanded(condition, now)[0]

    def trip(*now: Expr) -> list[Expr]:
        return [*expanded(body, now), *now[len(state) :]]

    names = [var(f"state{k}", shape=()) for k in range(len(values))]  # only how many counts
    made = while_loop(goes_on, names, trip)(*values)
    return [unpacked(TupleGetItem(made, k)) for k in range(len(n.results))]


CONTROL: dict[str, Callable[[Expanded, Node], list[Expr]]] = {"cond": _cond, "while_loop": _while}
__all__ = ["CONTROL"]
