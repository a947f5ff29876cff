"""Which operators share a kernel, and by which computation: what was measured decides.

In: a module, and the records.  Out: the function whose groups become kernels; for each group the
implementation that is fastest.  What a search confirmed of the whole network (`confirm.py`) goes
before what is measured of single kernels.
Read next: `layouts.py`, `extract.py`, `schedules.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

from tilewright.base import context
from tilewright.driver.cache import default_cache
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.passes import fuse
from tilewright.graph.printer import module_text
from tilewright.measure.record import NetworkLine
from tilewright.measure.signatures import code_key
from tilewright.network.extract import (
    FusedGroup,
    fused_groups,
    implementations,
    ungrouped,
    ways_to_group,
)
from tilewright.network.layouts import Choice as Layouts
from tilewright.network.layouts import Costs, chosen_layouts, fits, has_layouts, in_layouts
from tilewright.network.schedules import Chooser
from tilewright.schedule.template import registered_computations
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG


@dataclass(frozen=True)
class Grouped:
    """A network whose groups become kernels, and what was decided on the way.

    network:  its key, the same whatever is decided
    layouts:  of its convolutions; grouping: the number of the way to group it
    untuned:  keys of groups that are built as without a log, whatever records there are
    confirmed: the line of a log that says so; None: records of kernels decided
    """

    main: Function
    network: str
    layouts: Layouts
    grouping: int
    untuned: frozenset[str] = frozenset()
    confirmed: NetworkLine | None = None


def grouped(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    chooser: Chooser,
    target: Target,
    *,
    as_confirmed: bool = True,
) -> Grouped:
    """The network in the layouts, and in the grouping, that are faster: `as_confirmed` of the whole
    network, otherwise by the records.

    By the records a grouping is taken in place of the usual one if its kernels take less time.
    Where not all of them were measured, a log changes nothing: it is that of a build without it.
    """
    plain, last = ungrouped(mod, params)
    key = network_key(plain)
    told = chooser.confirmed(key) if as_confirmed else None
    layouts: Layouts = ()
    if last is fuse and _layouts_are_free():
        if told is not None and told.layouts is not None and fits(told.layouts, plain, target):
            layouts = tuple(told.layouts)
        elif has_layouts(plain, target, chooser.task_names()):
            layouts = _layouts(plain, target, chooser)
        plain = in_layouts(plain, layouts)
    ways = [m["main"] for m in ways_to_group(plain, last)]
    if told is not None and told.grouping is not None and told.grouping < len(ways):
        number = told.grouping
    else:
        number = _fastest_way(ways, chooser, target)
    untuned = frozenset(() if told is None else told.untuned)
    return Grouped(ways[number], key, layouts, number, untuned, told)


def network_key(ungrouped: IRModule) -> str:
    """Of a network whose operators are not grouped: by what it computes, not by its weights."""
    return hashlib.sha256(module_text(ungrouped).encode()).hexdigest()[:16]


def _fastest_way(ways: Sequence[Function], chooser: Chooser, target: Target) -> int:
    best = 0
    if len(ways) > 1:
        groups, costs = [fused_groups(way) for way in ways], _costs(chooser, target)
        without = _costs(chooser.without_log, target) if chooser.sources else costs
        for number in range(1, len(ways)):
            gained, lost = costs.difference(groups[best], groups[number])
            if lost == inf and gained < inf:  # what it is instead of was never measured
                gained, lost = without.difference(groups[best], groups[number])
            if gained < lost:
                best = number
    return best


def in_known_layouts(mod: IRModule, chooser: Chooser, target: Target) -> IRModule:
    """A network whose operators are not grouped, its convolutions in the layouts that are fastest
    by the records; unless a PassContext disables AlterOpLayout."""
    if not (_layouts_are_free() and has_layouts(mod, target, chooser.task_names())):
        return mod
    return in_layouts(mod, _layouts(mod, target, chooser))


def _layouts_are_free() -> bool:
    off = getattr(context.current("pass"), "disabled_pass", None) or ()
    return "AlterOpLayout" not in off


def _costs(chooser: Chooser, target: Target) -> Costs:
    def seconds(group: FusedGroup) -> float | None:
        return chooser.seconds(implemented(group, chooser, target).dag)

    return Costs(seconds, guess=False)


def _layouts(mod: IRModule, target: Target, chooser: Chooser) -> Layouts:
    """The choice by the records; kept on disk, since it takes as long as the rest of a build."""

    def seconds(group: FusedGroup) -> float | None:
        return chooser.expected_seconds(implemented(group, chooser, target).dag)

    if registered_computations(target):  # the user's, whose code we do not know
        return chosen_layouts(mod, target, seconds)
    key = code_key("layouts", module_text(mod), str(target), asdict(target.limits), chooser.bests())
    known = default_cache().kept(key)
    if known is not None:
        return tuple(known.decode().split("\n"))
    choice = chosen_layouts(mod, target, seconds)
    default_cache().keep(key, "\n".join(choice).encode())
    return choice


def implemented(group: FusedGroup, chooser: Chooser, target: Target) -> FusedGroup:
    """The implementation of a group that is fastest by the records; itself where none was measured.

    Of each the records of the very kernel count, else those of its anchor: what would run.  One
    that was not measured counts as slower than those that were; `uncompared` says so.
    """
    if not chooser.has_records:
        return group
    return _fastest(_every(group, target), chooser.expected_seconds) or group


def all_implemented(
    groups: Sequence[FusedGroup], chooser: Chooser, target: Target
) -> list[FusedGroup]:
    """`implemented` of each; where no implementation of one was measured, the one that is predicted
    to be the fastest, if there is a prediction for the usual one."""
    if not chooser.predictions:
        return [implemented(group, chooser, target) for group in groups]
    every = [_every(group, target) for group in groups]
    found = [_fastest(own, chooser.expected_seconds) for own in every]
    unknown = [own for own, best in zip(every, found, strict=True) if best is None]
    chooser.predictions.prefetch(g.dag for own in unknown for g in own)
    return [best or _predicted(own, chooser) for own, best in zip(every, found, strict=True)]


def _every(group: FusedGroup, target: Target) -> list[FusedGroup]:
    """All implementations of a group, itself first."""
    return [group, *(() if group.is_simple else implementations(group, target))]


def _predicted(every: Sequence[FusedGroup], chooser: Chooser) -> FusedGroup:
    """The usual one where there is no other, or nothing to compare it with."""
    usual = every[0]
    if len(every) == 1 or chooser.predicted_seconds(usual.dag) is None:
        return usual
    return _fastest(every, chooser.predicted_seconds) or usual


def _fastest(
    every: Sequence[FusedGroup], seconds: Callable[[ComputeDAG], float | None]
) -> FusedGroup | None:
    """The first of those that take least; None where nothing is known of any."""
    known = {g: t for g in every if (t := seconds(g.dag)) is not None}
    return min(known, key=lambda g: known[g], default=None)


def uncompared(
    usual: Sequence[FusedGroup], taken: Sequence[FusedGroup], chooser: Chooser
) -> list[str]:
    """A note where another implementation is taken because the usual one was never measured.

    taken: for each of `usual`, the implementation that is built
    """
    pairs = [
        own
        for own, other in zip(usual, taken, strict=True)
        if other is not own and chooser.expected_seconds(other.dag) is not None
    ]
    alone = [g for g in pairs if chooser.seconds(g.dag) is chooser.seconds_of_anchor(g.dag) is None]
    if not alone:
        return []
    shown = ", ".join(sorted({g.name for g in alone}))
    return [
        f"{len(alone)} kernels are computed by Winograd's transforms, since of the direct ones "
        f"({shown}) there is no record; tune them to have both compared"
    ]
