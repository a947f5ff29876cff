"""What a network will take that is built with what has been measured so far.

In: the network, what its kernels take untuned, the best of each task.  Out: seconds of a run, and
which of the tasks are in it.  It begins with the network as it runs untuned, where each kernel has
its part of the run, and considers the ways to group its operators and each layout used throughout:
a kernel counts where a build would run it.  What a task takes by itself, repeated as trials repeat
it, is what it adds to a run, for launches of a run follow each other as closely.
Read next: `confirm.py`, which says what the network takes in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median

from tilewright.graph.passes import fuse
from tilewright.network.confirm import Trials, kernel_seconds
from tilewright.network.costs import guessed_seconds
from tilewright.network.extract import (
    FusedGroup,
    fused_groups,
    implementations,
)
from tilewright.network.layouts import throughout
from tilewright.targets.target import Target

_ROUNDS = 3  # of timing each kernel in a run
_LEAST = 0.01  # of what a kernel takes on average, which is more than nothing


@dataclass(frozen=True)
class _Kernel:
    """keys: of its implementations; calls: in a run; otherwise: seconds of a call of what none of
    them was measured of, infinite where nobody can guess"""

    keys: tuple[str, ...]
    calls: int
    otherwise: float


class Estimate:
    """trials: of the network, which was built and run untuned."""

    def __init__(self, trials: Trials) -> None:
        known = _parts(trials)
        self._ways = [[_kernel(g, trials.target, known) for g in way] for way in _ways(trials)]

    def __call__(self, best: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        """Seconds of a run, and of these what each task takes that is in it.

        best: seconds of a call by the key of a task
        """
        return min((self._of(way, best) for way in self._ways), key=lambda found: found[0])

    def _of(
        self, way: Sequence[_Kernel], best: Mapping[str, float]
    ) -> tuple[float, dict[str, float]]:
        total, parts = 0.0, dict[str, float]()
        for kernel in way:
            measured = {key: best[key] for key in kernel.keys if key in best}
            key = min(measured, key=measured.__getitem__, default="")
            seconds = kernel.calls * min(measured.get(key, inf), kernel.otherwise)
            total += seconds
            if key and measured[key] <= kernel.otherwise:
                parts[key] = seconds
        return total, parts


def _parts(trials: Trials) -> dict[str, float]:
    """Seconds of a call of each kernel in a run of the untuned network, which they add up to.

    Each is timed where it lies in a run, which costs the same for each and is taken off again.
    """
    kernels = trials.untuned.library.report.kernels
    with trials.device_free():
        rounds = [kernel_seconds(trials.untuned) for _ in range(_ROUNDS)]
    taken = {k.group: median(each[k.group] for each in rounds) for k in kernels}
    more = (sum(taken.values()) - trials.untuned_seconds) / sum(k.count for k in kernels)
    least = _LEAST * trials.untuned_seconds / len(kernels)
    parts = {k.group: max(taken[k.group] - max(more, 0.0) * k.count, least) for k in kernels}
    scale = trials.untuned_seconds / sum(parts.values())
    return {k.group: scale * parts[k.group] / k.count for k in kernels}


def _ways(trials: Trials) -> list[list[FusedGroup]]:
    known, target = trials.groupings, trials.target
    plain, last = known.ungrouped(trials.mod, trials.params, trials.pass_options, target)
    mods = [plain, *(throughout(plain, target) if last is fuse else ())]
    ways = [way["main"] for each in mods for way in known.ways(each, last, target)]
    return [fused_groups(main) for main in (trials.usual.main, *ways)]


def _kernel(group: FusedGroup, target: Target, known: Mapping[str, float]) -> _Kernel:
    others = () if group.is_simple else implementations(group, target)
    keys = (group.key, *(o.key for o in others))
    return _Kernel(keys, len(group.calls), known.get(group.key, guessed_seconds(group)))
