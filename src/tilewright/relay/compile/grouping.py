"""Which operators share a kernel, and by which computation: what was measured decides.

In: a module, and the records.  Out: the function whose groups become kernels; for each group the
implementation that is fastest.
Read next: `layouts.py`, `extract.py`, `schedules.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from tilewright.base import context
from tilewright.driver.cache import default_cache
from tilewright.measure.signatures import code_key
from tilewright.relay.compile.extract import (
    FusedGroup,
    fused_groups,
    implementations,
    ungrouped,
    ways_to_group,
)
from tilewright.relay.compile.layouts import (
    Choice,
    Costs,
    Seconds,
    chosen_layouts,
    has_layouts,
    in_layouts,
)
from tilewright.relay.compile.schedules import Chooser
from tilewright.relay.graph.expr import Function, IRModule
from tilewright.relay.graph.printer import module_text
from tilewright.relay.passes import fuse
from tilewright.schedule.template import registered_computations
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG


def grouped(
    mod: IRModule | Function, params: Mapping[str, Any] | None, chooser: Chooser, target: Target
) -> Function:
    """The network in the layouts, and in the grouping, that are faster by the records.

    A grouping is the usual one, unless every kernel that another one has in its place was measured,
    and all together take less time.  A kernel of the usual one that was not measured counts as
    slower.
    """

    plain, last = ungrouped(mod, params)
    if last is fuse:
        plain = in_known_layouts(plain, chooser, target)
    usual, *others = [m["main"] for m in ways_to_group(plain, last)]
    best, known = usual, fused_groups(usual) if others else []
    costs = Costs(partial(_seconds, chooser, target), guess=False)
    for other in others:
        gained, lost = costs.difference(known, fused_groups(other))
        if gained < lost:
            best = other
    return best


def in_known_layouts(mod: IRModule, chooser: Chooser, target: Target) -> IRModule:
    """A network whose operators are not grouped, its convolutions in the layouts that are fastest
    by the records; unless a PassContext disables AlterOpLayout."""
    off = getattr(context.current("pass"), "disabled_pass", None) or ()
    if "AlterOpLayout" in off or not has_layouts(mod, target, chooser.task_names()):
        return mod

    def about(group: FusedGroup) -> float | None:
        return chooser.expected_seconds(implemented(group, chooser, target).dag)

    return in_layouts(mod, _layouts(mod, target, chooser, about))


def _seconds(chooser: Chooser, target: Target, group: FusedGroup) -> float | None:
    return chooser.seconds(implemented(group, chooser, target).dag)


def _layouts(mod: IRModule, target: Target, chooser: Chooser, seconds: Seconds) -> Choice:
    """The choice by the records; kept on disk, since it takes as long as the rest of a build."""
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
