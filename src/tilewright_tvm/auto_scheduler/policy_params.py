"""Ansor's parameters of a search, as `SketchPolicy(params=)` takes them.

In: TVM's names with values.  Out: how candidates are proposed, and what tiles may be.
Read next: `search_policy.py`, `search/propose/model_proposer.py`, `search/rules/state.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import SpaceError
from tilewright.search.propose.model_proposer import EXPLOIT, NEIGHBOURS, Plan
from tilewright.search.rules.state import USUAL, Tiling
from tilewright.targets.target import Target
from tilewright_tvm.auto_scheduler.scored_proposer import Breeding

FIRST, GENERATIONS = 50, 4  # of `SketchPolicy.sample_initial_population`, `evolutionary_search`


@dataclass(frozen=True)
class _Number:
    """What a parameter may be: a share, or a whole number from `least` on."""

    least: int | None = None
    most: int = 1 << 20

    def check(self, name: str, value: Any) -> None:
        whole = isinstance(value, int) and not isinstance(value, bool)
        if self.least is not None:
            fits = whole and self.least <= value <= self.most
            wanted = f"a whole number from {self.least} to {self.most}"
        else:
            fits = (whole or isinstance(value, float)) and 0 <= value <= 1
            wanted = "a share from 0 to 1"
        if not fits:
            raise _refusal(name, value, "out of range", f"Give {wanted}.")


@dataclass(frozen=True)
class _Structure:
    """Levels of loops, S: spatial, R: reduction, outermost first."""

    gpu: bool

    def check(self, name: str, value: Any) -> None:
        lead = "SSS" if self.gpu else "SS"
        fits = isinstance(value, str) and re.fullmatch(f"{lead}[SR]{{0,7}}S", value)
        if not fits or not 0 < value.count("R") < value.count("S"):
            raise _refusal(
                name, value, "no structure of tiles",
                f"Begin with {lead}, end with S, and have fewer R than S, but one at least; usual "
                f"is {Tiling().levels(Target('cuda' if self.gpu else 'llvm'))}.",
            )  # fmt: skip


_SHARE, _SWITCH = _Number(), _Number(0, 1)
PARAMETERS: dict[str, _Number | _Structure] = {
    "eps_greedy": _SHARE,
    "retry_search_one_round_on_empty": _SWITCH,
    "sample_init_min_population": _Number(1),
    "sample_init_use_measured_ratio": _SHARE,
    "evolutionary_search_population": _Number(1),
    "evolutionary_search_num_iters": _Number(1, 1000),
    "evolutionary_search_mutation_prob": _SHARE,
    "cpu_multi_level_tiling_structure": _Structure(gpu=False),
    "gpu_multi_level_tiling_structure": _Structure(gpu=True),
    "max_innermost_split_factor": _Number(1),
    "max_vectorize_size": _Number(1),
    "disable_change_compute_location": _SWITCH,
}


@dataclass(frozen=True)
class PolicyParams:
    """plan, breeding: of proposals with a model of ours, and with one of the user's
    tiling:      of sketches that rules derive
    first:       states of an initial population
    generations: of `evolutionary_search`
    """

    plan: Plan
    breeding: Breeding
    tiling: Tiling
    first: int
    generations: int

    @staticmethod
    def of(given: Mapping[str, Any] | None, target: Target) -> PolicyParams:
        """What is given, and the search's own for the rest.  Raises SpaceError.

        A structure for the other kind of device waits for its turn.  Two say what is so anyway:
        `retry_search_one_round_on_empty`, since a round is empty only when nothing is left, and
        `disable_change_compute_location`, since stages are computed where rules put them.
        """
        given = dict(given or {})
        for name, value in given.items():
            if name not in PARAMETERS:
                raise _refusal(name, value, "no such parameter", f"Known: {', '.join(PARAMETERS)}.")
            PARAMETERS[name].check(name, value)
        plan: dict[str, Any] = {}
        breeding: dict[str, Any] = {}
        if "eps_greedy" in given:
            greedy = 1.0 - given["eps_greedy"]
            plan["exploit"] = greedy * EXPLOIT / (EXPLOIT + NEIGHBOURS)
            plan["neighbours"] = greedy - plan["exploit"]
            breeding["greedy"] = greedy
        if "evolutionary_search_population" in given:
            size = given["evolutionary_search_population"]
            plan |= {"first": size, "drawn": size, "children": size}
            breeding |= {"drawn": size, "children": size}
        if "evolutionary_search_num_iters" in given:
            plan["generations"] = breeding["generations"] = given["evolutionary_search_num_iters"]
        if "evolutionary_search_mutation_prob" in given:
            chance = given["evolutionary_search_mutation_prob"]
            plan["mutated"] = breeding["mutated"] = chance
        if "sample_init_use_measured_ratio" in given:
            plan["measured"] = given["sample_init_use_measured_ratio"]
        kind = "gpu" if target.has_threads else "cpu"
        tiling = Tiling(
            given.get(f"{kind}_multi_level_tiling_structure", ""),
            given.get("max_innermost_split_factor", USUAL.innermost),
            given.get("max_vectorize_size", 0),
        )
        return PolicyParams(
            Plan(**plan), Breeding(**breeding), tiling,
            given.get("sample_init_min_population", FIRST),
            given.get("evolutionary_search_num_iters", GENERATIONS),
        )  # fmt: skip


def _refusal(name: str, value: Any, reason: str, hint: str) -> SpaceError:
    return SpaceError(f"SketchPolicy(params={{{name!r}: {value!r}}})", reason, hint)
