"""What a network will take that is built with what has been measured so far.

In: the network, what its kernels take untuned, the best of each task.  Out: seconds of a run, and
which of the tasks are in it.  It begins with the network as it runs untuned, and considers the ways
to group its operators and each layout used throughout: a kernel counts where a build would run it.
Read next: `confirm.py`, which says what the network takes in the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from tilewright.graph.passes import fuse
from tilewright.network.confirm import Trials, kernel_seconds
from tilewright.network.costs import guessed_seconds
from tilewright.network.extract import (
    FusedGroup,
    fused_groups,
    implementations,
    ungrouped,
    ways_to_group,
)
from tilewright.network.layouts import throughout
from tilewright.targets.target import Target


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
        untuned, known = trials.untuned, dict[str, float]()
        kernels = untuned.library.report.kernels
        inside = kernel_seconds(untuned) if any(k.seconds is None for k in kernels) else {}
        for k in kernels:
            known[k.group] = inside[k.group] / k.count if k.seconds is None else k.seconds
        alone = sum(k.count * known[k.group] for k in kernels)
        self._scale = trials.untuned_seconds / alone  # what runs together is not their sum
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
            seconds = self._scale * kernel.calls * min(measured.get(key, inf), kernel.otherwise)
            total += seconds
            if key and measured[key] <= kernel.otherwise:
                parts[key] = seconds
        return total, parts


def _ways(trials: Trials) -> list[list[FusedGroup]]:
    plain, last = ungrouped(trials.mod, trials.params, trials.pass_options, trials.target)
    mods = [plain, *(throughout(plain, trials.target) if last is fuse else ())]
    ways = [way["main"] for each in mods for way in ways_to_group(each, last, trials.target)]
    return [fused_groups(main) for main in (trials.usual.main, *ways)]


def _kernel(group: FusedGroup, target: Target, known: Mapping[str, float]) -> _Kernel:
    others = () if group.is_simple else implementations(group, target)
    keys = (group.key, *(o.key for o in others))
    return _Kernel(keys, len(group.calls), known.get(group.key, guessed_seconds(group)))
