"""The cheapest choice for each of many, where the cost of two depends on both.

In: costs of each one's choices, and of pairs where two are neighbours.  Out: a choice for each.
One after another is eliminated: its cheapest choice becomes a table over its neighbours.  That is
exact while tables stay small; where they would not, one choice is fixed by what it costs at best.
Read next: `layouts.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]
Factor = tuple[tuple[int, ...], Table]  # for whom, and the cost of all their choices together

PAIRS = 2  # neighbours of one that is eliminated exactly, where nothing else is said


def cheapest(
    costs: Sequence[Sequence[float]],
    pairs: Mapping[tuple[int, int], Any],
    most: int | None = None,
) -> tuple[list[int], bool]:
    """Give a choice for each, and whether no other costs less.

    costs: of each choice alone; infinite: it is none
    pairs: (i, j) -> the cost of each choice of i with each of j
    most:  entries of a table at most; None: tables over two neighbours, of any size
    """
    factors: list[Factor] = [((k,), np.asarray(c, float)) for k, c in enumerate(costs)]
    factors += [((i, j), np.asarray(table, float)) for (i, j), table in pairs.items()]
    left, decided, exact = set(range(len(costs))), {}, True
    tables: list[tuple[int, tuple[int, ...], NDArray[np.intp]]] = []
    while left:
        near = {v: _neighbours(v, factors) for v in left}
        one = min(left, key=lambda v: (len(near[v]), v))
        entries = math.prod(len(costs[v]) for v in near[one])
        if len(near[one]) > PAIRS if most is None else entries > most:
            one = max(left, key=lambda v: (len(near[v]), -v))
            decided[one] = _at_best(one, factors)
            factors, exact = [_fixed(f, one, decided[one]) for f in factors], False
        else:
            own = [f for f in factors if one in f[0]]
            joined = _sum((*near[one], one), own, costs)
            tables.append((one, near[one], joined.argmin(-1)))
            factors = [f for f in factors if one not in f[0]]
            factors.append((near[one], joined.min(-1)))
        left.remove(one)
    for one, given, best in reversed(tables):
        decided[one] = int(best[tuple(decided[v] for v in given)])
    return [decided[k] for k in range(len(costs))], exact


def total(
    chosen: Sequence[int],
    costs: Sequence[Sequence[float]],
    pairs: Mapping[tuple[int, int], Any],
) -> float:
    """Give what the choices cost together."""
    alone = sum(costs[k][c] for k, c in enumerate(chosen))
    return float(alone + sum(t[chosen[i]][chosen[j]] for (i, j), t in pairs.items()))


def _neighbours(one: int, factors: Sequence[Factor]) -> tuple[int, ...]:
    return tuple(sorted({v for names, _ in factors if one in names for v in names} - {one}))


def _sum(names: tuple[int, ...], factors: Sequence[Factor], costs: Sequence[Any]) -> Table:
    found = np.zeros([len(costs[v]) for v in names])
    for own, table in factors:
        order = sorted(range(len(own)), key=lambda k: names.index(own[k]))
        shape = [len(costs[v]) if v in own else 1 for v in names]
        found = found + table.transpose(order).reshape(shape)
    return found


def _at_best(one: int, factors: Sequence[Factor]) -> int:
    """The choice that costs least if each neighbour takes what suits it."""
    found: Any = 0.0
    for names, table in factors:
        if one in names:
            others = tuple(k for k, v in enumerate(names) if v != one)
            found = found + table.min(others)
    return int(np.argmin(found))


def _fixed(factor: Factor, one: int, choice: int) -> Factor:
    names, table = factor
    if one not in names:
        return factor
    left = np.asarray(np.take(table, choice, names.index(one)))
    return tuple(v for v in names if v != one), left
