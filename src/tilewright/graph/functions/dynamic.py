"""Loops of a graph, and what is different in an array.

In: graph values.  Out: nodes that wait until the network runs, or constants.  Networks with them
run under `relay.create_executor("vm")` and `relay.vm`.
Read next: `graph/deferred.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import check_arguments
from tilewright.base.errors import ModelError
from tilewright.graph.deferred import WAY_OUT, Deferred, NotYet, holds
from tilewright.graph.expr import Array, Expr, Tuple, Var, free_vars
from tilewright.graph.traversal import substitute


def unique_of(
    array: Array, is_sorted: bool, axis: int | None = None
) -> tuple[Array, Array, Array, Array]:
    """Different elements or slices, where each is first, which each is, how often each is there."""
    values, first, which, often = np.unique(array, True, True, True, axis=axis)
    which = which.reshape(-1)
    if is_sorted:
        return values, first, which, often
    order = np.argsort(first, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return np.take(values, order, axis or 0), first[order], place[which], often[order]


def while_loop(
    cond: Callable[..., Expr], loop_vars: Sequence[Var], loop_bodies: Callable[..., Sequence[Any]]
) -> Callable[..., Expr]:
    """A function of as many values as there are `loop_vars`, which gives a tuple of as many.

    cond: of the values: one element, whether there is another trip
    loop_bodies: of the values: the values behind a trip, of which shapes may change
    """
    for function, what in ((cond, "cond"), (loop_bodies, "loop_bodies")):
        check_arguments(function, loop_vars, f"while_loop({what}=)", ModelError)
    error = ModelError("relay.loops.while_loop", "values decide how often it runs", WAY_OUT)
    outside = _read_besides(loop_vars, cond, loop_bodies)
    count = len(loop_vars) + 1

    def trip(values: Sequence[Expr], others: Sequence[Expr]) -> Expr:
        def goes_on(parts: Sequence[Expr]) -> Expr:
            if not holds(parts[0], "relay.loops.while_loop"):
                return Tuple(parts[1:count])
            try:
                after = list(loop_bodies(*parts[1:count]))
            except NotYet as wait:
                return Deferred(parts, wait.among(parts), goes_on, error)
            if len(after) != len(loop_vars):
                raise ModelError(
                    "relay.loops.while_loop",
                    f"loop_bodies gives {len(after)} values, there are {len(loop_vars)}",
                    "Give the values behind a trip, in order.",
                )  # fmt: skip
            there: dict[Expr, Expr] = dict(zip(outside, parts[count:], strict=True))
            return trip([substitute(a, there) for a in after], parts[count:])

        there: dict[Expr, Expr] = dict(zip(outside, others, strict=True))
        goes = substitute(cond(*values), there)
        return Deferred([goes, *values, *others], (0,), goes_on, error, trip=True)

    def loop(*values: Expr) -> Expr:
        if len(values) != len(loop_vars):
            raise ModelError(
                "relay.loops.while_loop", f"{len(values)} values, there are {len(loop_vars)}",
                "Give the first value of each.",
            )  # fmt: skip
        return trip(values, outside)

    return loop


def _read_besides(
    loop_vars: Sequence[Var], cond: Callable[..., Expr], loop_bodies: Callable[..., Sequence[Any]]
) -> list[Var]:
    """The variables that functions of a loop read and are not given, as far as that is known
    before it runs."""
    try:
        made = [cond(*loop_vars), *loop_bodies(*loop_vars)]
    except ModelError:
        return []
    read = dict.fromkeys(v for m in made if isinstance(m, Expr) for v in free_vars(m))
    return [v for v in read if v not in loop_vars]
