"""What a build decides of a network: layouts, which operators share a kernel, by which computation.

In: a module, and what is known of its kernels (`Evidence`).  Out: the function whose groups become
kernels; for each group the computation that is fastest, and its schedules.

All three are decided alike.  What there is to choose from is stated elsewhere (`layouts.py`,
`extract.py`), and the first of it is the usual one.  Another is taken in its place if the kernels
in which they differ take less time, by records of this device; so the choice is a function of the
log, and found again from it.  What a search confirmed of the whole network (`confirm.py`) goes
before what is measured of single kernels.
Read next: `evidence.py`, `costs.py`, `schedules.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from typing import Any

import numpy as np

from tilewright.driver.cache import default_cache
from tilewright.graph.expr import Expr, Function, IRModule
from tilewright.graph.pass_options import USUAL, PassOptions
from tilewright.graph.passes import fuse
from tilewright.graph.printer import module_text
from tilewright.measure.record import NetworkLine
from tilewright.measure.signatures import code_key
from tilewright.network.assignment import cheapest
from tilewright.network.costs import Costs, Seconds, modelled_seconds
from tilewright.network.evidence import Evidence
from tilewright.network.extract import (
    FEW_ROWS,
    FusedGroup,
    Groupings,
    fused_groups,
    groups_of,
    implementations,
)
from tilewright.network.layouts import Choice as Layouts
from tilewright.network.layouts import (
    Unit,
    candidate_layouts,
    convolutions,
    fits,
    has_layouts,
    in_layouts,
    layouts_throughout,
    transformed,
    units_of,
    usual_layouts,
)
from tilewright.network.schedules import DEFAULT, Choice, choices
from tilewright.schedule.template import (
    anchor_sketches,
    registered_computations,
    without_norms,
)
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

ATTENTION = ("template:attention.tensor", FEW_ROWS)
NEAR = 0.9  # of what the model says of fewer kernels: it knows nothing of the time between two
CLEARLY = 0.98  # of the time in the usual layouts: what takes longer may seem faster by luck

# Of two ways to build a network: seconds of the kernels that only the second has, only the first.
Difference = Callable[[Sequence[FusedGroup], Sequence[FusedGroup]], tuple[float, float]]


@dataclass(frozen=True)
class Decision:
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


def decide(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    evidence: Evidence,
    target: Target,
    pass_options: PassOptions = USUAL,
    *,
    as_confirmed: bool = True,
    known: Groupings | None = None,
) -> Decision:
    """Give the network in the layouts, and in the grouping, that are faster: `as_confirmed` of the
    whole network, otherwise by the records.

    Where not all kernels of a grouping were measured, a log changes nothing: it is that of a build
    without it.  known: see `extract.groupings`
    """
    known = known or Groupings()
    plain, last = known.ungrouped(mod, params, pass_options, target)
    key = network_key(plain)
    told = evidence.confirmed(key) if as_confirmed else None
    layouts: Layouts = ()
    if last is fuse and pass_options.layouts:
        if told is not None and told.layouts is not None and fits(told.layouts, plain, target):
            layouts = tuple(told.layouts)
        else:
            layouts = known_layouts(plain, evidence, target)
        plain = in_layouts(plain, layouts)
    ways = [m["main"] for m in known.ways(plain, last, target)]
    if told is not None and told.grouping is not None and told.grouping < len(ways):
        number = told.grouping
    else:
        number = _fastest_way(ways, evidence, target)
    untuned = frozenset(() if told is None else told.untuned)
    return Decision(ways[number], key, layouts, number, untuned, told)


def network_key(ungrouped: IRModule) -> str:
    """Give the key of a network whose operators are not grouped: by what it computes, not by its
    weights."""
    return hashlib.sha256(module_text(ungrouped).encode()).hexdigest()[:16]


def _best(
    ways: Sequence[Sequence[FusedGroup]], difference: Difference, clearly: float = 1.0
) -> int:
    """The number of the way to build a network that gains most over the first, the usual one.

    clearly: of the time of what it replaces it takes less than so much
    """
    best, least = 0, 0.0
    for number, way in enumerate(ways[1:], 1):
        more, less = difference(ways[0], way)
        if more < clearly * less and more - less < least:
            best, least = number, more - less
    return best


# -- which operators share a kernel ----------------------------------------------------------------


def _fastest_way(ways: Sequence[Function], evidence: Evidence, target: Target) -> int:
    if len(ways) == 1:
        return 0
    costs = _measured_costs(evidence, target)
    without = _measured_costs(evidence.without_log, target) if evidence.sources else costs
    modelled = Costs(lambda group: _of_one_kernel(group, target), guess=False)

    def difference(usual: Sequence[FusedGroup], other: Sequence[FusedGroup]) -> tuple[float, float]:
        more, less = costs.difference(usual, other)
        if less == inf and more < inf:  # what it is instead of was never measured
            more, less = without.difference(usual, other)
        if (more, less) == (inf, inf) and target.atoms:  # of neither all was measured
            more, less = modelled.difference(usual, other)
            more *= NEAR if len(other) < len(usual) else 1.0
        return more, less

    return _best([fused_groups(way) for way in ways], difference)


def _of_one_kernel(group: FusedGroup, target: Target) -> float | None:
    """What the machine model says of a kernel; None of an attention that has more than a few rows
    and that matrix units do not run: of such it knows too little to take it for several kernels."""
    if group.name == "attention" and not any(
        sketch.origin in ATTENTION for sketch in anchor_sketches(group.dag, target)
    ):
        return None
    return modelled_seconds(group.dag, target)


def _measured_costs(evidence: Evidence, target: Target) -> Costs:
    def seconds(group: FusedGroup) -> float | None:
        known = evidence.seconds(implemented(group, evidence, target).dag)
        return _with_norms(group.dag, evidence) if known is None else known

    return Costs(seconds, guess=False)


def _with_norms(dag: ComputeDAG, evidence: Evidence) -> float | None:
    """What a product takes with the norms behind it: as it was measured without, and what trees
    predict to come to that; None where that is not known, or there are none."""
    apart = without_norms(dag)
    if apart is None or (known := evidence.seconds(apart)) is None:
        return None
    before, after = (evidence.predicted_seconds(d) for d in (apart, dag))
    return None if before is None or after is None else known + max(after - before, 0.0)


# -- layouts ---------------------------------------------------------------------------------------


def known_layouts(mod: IRModule, evidence: Evidence, target: Target) -> Layouts:
    """Give the layouts of convolutions that are fastest by the records, the usual ones where there
    are none; () where that is the network as it is.  Kept on disk, since choosing takes as long as
    the rest of a build.

    mod: before its operators are grouped
    """
    usual = usual_layouts(mod, target)
    as_usual = not any(usual) and not has_layouts(mod, target, evidence.task_names())
    if as_usual or not evidence.has_records:
        return usual if any(usual) else ()

    def seconds(group: FusedGroup) -> float | None:
        return evidence.expected_seconds(implemented(group, evidence, target).dag)

    if registered_computations(target):  # the user's, whose code we do not know
        return chosen_layouts(mod, target, seconds)
    limits = asdict(target.limits)
    key = code_key("layouts", module_text(mod), str(target), limits, evidence.bests())
    known = default_cache().kept(key)
    if known is not None:
        return tuple(known.decode().split("\n"))
    choice = chosen_layouts(mod, target, seconds)
    default_cache().keep(key, "\n".join(choice).encode())
    return choice


def chosen_layouts(mod: IRModule, target: Target, seconds: Seconds) -> Layouts:
    """Give the layouts that are clearly fastest by `seconds`, of one call of a kernel: the usual
    ones, those of the network, one throughout, or the mixture that kernels and transformations make
    cheapest.

    A contraction that was not measured rules a candidate out.
    """
    costs = Costs(seconds)
    usual, own = usual_layouts(mod, target), ("",) * len(convolutions(mod))
    others = (*layouts_throughout(mod, target), _mixture(mod, target, costs), own)
    candidates = [usual, *(c for c in dict.fromkeys(others) if c != usual)]
    ways = [groups_of(in_layouts(mod, choice)) for choice in candidates]
    return candidates[_best(ways, costs.difference, CLEARLY)]


def _mixture(mod: IRModule, target: Target, costs: Costs) -> Layouts:
    """Every convolution in the layout that is cheapest with those of its neighbours, by the costs
    of kernels and of transformations between them."""
    units = units_of(mod, candidate_layouts(target, mod))
    own = [[costs.of_body(o.body) for o in unit.options] for unit in units]
    # As it is costs what is known, or what nobody knows: then it is left only for what is known.
    own = [[1.0 if c == inf and k == 0 else c for k, c in enumerate(each)] for each in own]
    chosen, _ = cheapest(own, transformation_costs(units, costs))
    layouts = {
        step: unit.options[k].layout for unit, k in zip(units, chosen, strict=True)
        for step in unit.steps
    }  # fmt: skip
    return tuple(layouts.get(node, "") for node in convolutions(mod))


def transformation_costs(
    units: Sequence[Unit], costs: Costs
) -> dict[tuple[int, int], list[list[float]]]:
    """Give what it costs to bring the value of a unit to another, by the options of both."""
    made: dict[Expr, int] = {unit.steps[-1]: k for k, unit in enumerate(units)}
    found: dict[tuple[int, int], list[list[float]]] = {}
    for j, unit in enumerate(units):
        for value in dict.fromkeys(v for o in unit.options for v in o.forms):
            i = made.get(value)
            if i is None:
                continue
            table = [
                [costs.of_body(transformed(value, a.result, b.forms[value])) for b in unit.options]
                for a in units[i].options
            ]
            known = found.setdefault((i, j), [[0.0] * len(unit.options) for _ in table])
            found[i, j] = (np.asarray(known) + np.asarray(table)).tolist()
    return found


# -- by which computation --------------------------------------------------------------------------


def implemented(group: FusedGroup, evidence: Evidence, target: Target) -> FusedGroup:
    """Give the implementation of a group that is fastest by the records; itself where none was
    measured.

    Of each the records of the very kernel count, else those of its anchor: what would run.  One
    that was not measured counts as slower than those that were; `uncompared` says so.
    """
    if not evidence.has_records:
        return group
    return _fastest(_every(group, target), evidence.expected_seconds) or group


def all_implemented(
    groups: Sequence[FusedGroup], evidence: Evidence, target: Target
) -> list[FusedGroup]:
    """Give `implemented` of each; where no implementation of one was measured, the one that is
    predicted to be the fastest, if there is a prediction for the usual one."""
    if not evidence.predictions:
        return [implemented(group, evidence, target) for group in groups]
    every = [_every(group, target) for group in groups]
    found = [_fastest(own, evidence.expected_seconds) for own in every]
    unknown = [own for own, best in zip(every, found, strict=True) if best is None]
    evidence.predictions.prefetch(g.dag for own in unknown for g in own)
    return [best or _predicted(own, evidence) for own, best in zip(every, found, strict=True)]


def _every(group: FusedGroup, target: Target) -> list[FusedGroup]:
    """All implementations of a group, itself first."""
    return [group, *(() if group.is_simple else implementations(group, target))]


def _predicted(every: Sequence[FusedGroup], evidence: Evidence) -> FusedGroup:
    """The usual one where there is no other, or nothing to compare it with."""
    usual = every[0]
    if len(every) == 1 or evidence.predicted_seconds(usual.dag) is None:
        return usual
    return _fastest(every, evidence.predicted_seconds) or usual


def _fastest(
    every: Sequence[FusedGroup], seconds: Callable[[ComputeDAG], float | None]
) -> FusedGroup | None:
    """The first of those that take least; None where nothing is known of any."""
    known = {g: t for g in every if (t := seconds(g.dag)) is not None}
    return min(known, key=lambda g: known[g], default=None)


def uncompared(
    usual: Sequence[FusedGroup], taken: Sequence[FusedGroup], evidence: Evidence
) -> list[str]:
    """Give a note where another implementation is taken because the usual one was never measured.

    taken: for each of `usual`, the implementation that is built
    """
    pairs = [
        own
        for own, other in zip(usual, taken, strict=True)
        if other is not own and evidence.expected_seconds(other.dag) is not None
    ]
    alone = [
        g for g in pairs if evidence.seconds(g.dag) is evidence.seconds_of_anchor(g.dag) is None
    ]
    if not alone:
        return []
    shown = ", ".join(sorted({g.name for g in alone}))
    return [
        f"{len(alone)} kernels are computed by Winograd's transforms, since of the direct ones "
        f"({shown}) there is no record; tune them to have both compared"
    ]


# -- of all networks of a build --------------------------------------------------------------------


class KernelChoices:
    """Decides for the kernels of several networks: which computation each is, by which schedules.

    decided, each: the networks, and the groups of each
    """

    def __init__(
        self, decided: Sequence[Decision], each: Sequence[Sequence[FusedGroup]],
        evidence: Evidence, target: Target,
    ) -> None:  # fmt: skip
        self._evidence, self._target = evidence, target
        pairs = [(d, g.key) for d, groups in zip(decided, each, strict=True) for g in groups]
        lost = {key for d, key in pairs if key in d.untuned}
        # in which records lost, in every network that has them
        self._untuned = lost - {key for d, key in pairs if key not in d.untuned}

    def _known(self, group: FusedGroup) -> Evidence:
        """What counts for a group: without the log, where that lost in the whole network."""
        lost = (group.instead_of or group.key) in self._untuned
        return self._evidence.without_log if lost else self._evidence

    def implemented(self, groups: Sequence[FusedGroup]) -> list[FusedGroup]:
        """Give the implementation of each."""
        found: dict[str, FusedGroup] = {}
        for evidence in (self._evidence, self._evidence.without_log):
            part = [g for g in groups if self._known(g) is evidence]
            taken = all_implemented(part, evidence, self._target)
            found |= {g.key: t for g, t in zip(part, taken, strict=True)}
        return [found[g.key] for g in groups]

    def with_schedules(
        self, usual: Sequence[FusedGroup], taken: Sequence[FusedGroup]
    ) -> list[FusedGroup]:
        """Give `taken`, and the usual one instead of another implementation that has only its
        default schedule, though something was known of its time."""

        def has_none(group: FusedGroup) -> bool:
            if not group.instead_of:
                return False
            first = next(choices(self._known(group), group.dag, self._target))
            return first.kind is DEFAULT

        return [own if has_none(g) else g for own, g in zip(usual, taken, strict=True)]

    def schedules(self, groups: Sequence[FusedGroup]) -> list[Iterator[Choice]]:
        """Give the schedules for each, preferred first."""
        if self._evidence.predictions:
            unknown = (g.dag for g in groups if self._known(g).expected_seconds(g.dag) is None)
            self._evidence.predictions.prefetch(unknown)
        return [choices(self._known(g), g.dag, self._target) for g in groups]
