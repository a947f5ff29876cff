"""Which operators share a kernel, and by which computation: what was measured decides.

In: a module, and the records.  Out: the function whose groups become kernels; for each group the
implementation that is fastest.
Read next: `extract.py`, `schedules.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any

from tilewright.relay.compile.extract import (
    FusedGroup,
    fused_groups,
    groupings,
    implementations,
)
from tilewright.relay.compile.schedules import Chooser
from tilewright.relay.graph.expr import Function, IRModule
from tilewright.targets.target import Target


def grouped(
    mod: IRModule | Function, params: Mapping[str, Any] | None, chooser: Chooser
) -> Function:
    """The grouping that is faster by the records: the usual one, unless every kernel that another
    one has in its place was measured, and all together take less time.

    A kernel of the usual one that was not measured counts as slower.
    """
    usual, *others = [m["main"] for m in groupings(mod, params)]
    best, known = usual, {g.key: g for g in fused_groups(usual)} if others else {}
    for other in others:
        groups = {g.key: g for g in fused_groups(other)}
        more = Counter({k: len(g.calls) for k, g in groups.items()})
        more.subtract({k: len(g.calls) for k, g in known.items()})
        every: dict[str, FusedGroup] = {**known, **groups}
        costs = {k: chooser.seconds(every[k].dag) for k, n in more.items() if n}
        gained = sum(n * _or(costs[k], inf) for k, n in more.items() if n > 0)
        lost = sum(-n * _or(costs[k], inf) for k, n in more.items() if n < 0)
        if gained < lost:
            best = other
    return best


def implemented(group: FusedGroup, chooser: Chooser, target: Target) -> FusedGroup:
    """The implementation of a group that is fastest by the records; itself where none was measured.

    Records of the very kernel are compared first, then those of its anchor.
    """
    if not chooser.has_records:
        return group
    others = implementations(group, target) if not group.is_simple else []
    for seconds in (chooser.seconds, chooser.seconds_of_anchor):
        known = {g: t for g in (group, *others) if (t := seconds(g.dag)) is not None}
        if others and known:
            return min(known, key=lambda g: known[g])
    return group


def _or(seconds: float | None, default: float) -> float:
    return default if seconds is None else seconds
