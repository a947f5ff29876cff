"""From a computation to its sketches: rules applied in every order that they allow.

In: a DAG, a target, rules.  Out: `Sketch`es, each with a space of its own, that the search treats
like those of templates.  Read next: the room's `search/propose/model_proposer.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.default import generic_schedule
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace, SplitSpace
from tilewright.schedule.space.trace import REFUSALS
from tilewright.schedule.sums import block_sums
from tilewright.schedule.task import Task
from tilewright.search.rules.annotate import annotate
from tilewright.search.rules.rules import (
    CPU_RULES,
    GPU_RULES,
    MALI_RULES,
    OWN_GPU_RULES,
    OWN_RULES,
    Condition,
    SketchRule,
)
from tilewright.search.rules.state import (
    USUAL,
    Application,
    Derivation,
    Hardware,
    RuleState,
    Tiling,
)
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

MAX_SKETCHES = 64  # of one computation; chains of many contractions would multiply without end
MAX_INDEX = 2**63 - 1
STEPS_PER_STAGE = 8  # that a derivation takes at most
STRIDES = (1, 2, 4, 8)


def ansor_rules(target: Target) -> tuple[SketchRule, ...]:
    """Ansor's rules for the target, in their order."""
    if target.is_mali:
        return MALI_RULES
    return GPU_RULES if target.has_threads else CPU_RULES


def rules_for(target: Target) -> tuple[SketchRule, ...]:
    """Ansor's rules for the target, and ours in front of them."""
    own = OWN_GPU_RULES if target.has_threads and not target.is_mali else OWN_RULES
    return (*own, *ansor_rules(target))


def rule_sketches(
    dag: ComputeDAG,
    target: Target,
    rules: Sequence[SketchRule] | None = None,
    hardware: Hardware | None = None,
    tiling: Tiling = USUAL,
) -> list[Sketch]:
    """The sketches that `rules` derive for `dag`; those that no device limit could fit are absent.

    rules: tried in order at every stage; default: those for the target
    """
    chosen = tuple(rules) if rules is not None else rules_for(target)
    known = hardware or Hardware.of(target)
    sketches: list[Sketch] = []
    origins: set[str] = set()
    for derivation in derive(dag, target, chosen, known, tiling):
        with suppress(*REFUSALS):
            sketches.append(_sketch(dag, target, known, tiling, derivation, origins))
    for sketch in sketches:
        sketch.repeatable = rules is None and hardware is None and tiling is USUAL
    return sketches


def with_rules(
    task: Task,
    *,
    templates: bool = True,
    rules: Sequence[SketchRule] | None = None,
    hardware: Hardware | None = None,
    tiling: Tiling = USUAL,
) -> Task:
    """The same task with the sketches that rules derive, besides those of templates if wanted.

    Where no sketch has an untuned configuration, the default schedule competes as one.
    """
    own = task.sketches if templates else []
    sketches = [*own, *rule_sketches(task.dag, task.target, rules, hardware, tiling)]
    if not any(s.has_fallback for s in own):
        sketches.append(default_sketch(task.dag, task.target))
    return replace(task, sketches=sketches)


def default_sketch(dag: ComputeDAG, target: Target) -> Sketch:
    """The schedule of an untuned network, as a sketch with nothing open."""

    def build(config: Any) -> Schedule:
        return generic_schedule(dag, target)

    return Sketch("default", dag, ConfigSpace(), build, target, fallback=lambda: 0)


def with_default(task: Task) -> Task:
    """Give `task` its default schedule as its one sketch where no template fits it."""
    if not task.sketches:
        task.sketches = [default_sketch(task.dag, task.target)]
    return task


def derive(
    dag: ComputeDAG, target: Target, rules: Sequence[SketchRule], hardware: Hardware,
    tiling: Tiling = USUAL,
) -> list[Derivation]:  # fmt: skip
    """Breadth first over the choices that rules leave; stages from the last to the first.

    With MAX_SKETCHES of them on their way, each goes on in the first way there is.
    """
    start = RuleState(Schedule(dag), ConfigSpace(), target, hardware, tiling=tiling)
    todo = deque([(Derivation((), start.schedule.stages[-1].name), start)])
    done: list[Derivation] = []
    while todo and len(done) < MAX_SKETCHES:
        derivation, state = todo.popleft()
        if derivation.cursor is None:
            done.append(derivation)
            continue
        stage = state.stage(derivation.cursor)
        room = MAX_SKETCHES - len(todo) - len(done)
        for rule, variant in _ways(rules, state, stage)[: max(room, 1)]:
            applied = (*derivation.applied, Application(rule, stage.name, variant))
            if len(applied) > STEPS_PER_STAGE * len(state.schedule.stages):
                raise ScheduleError(
                    f"rule {rule.name or type(rule).__name__} at {stage.name}",
                    "the rules do not come to an end",
                    "apply() returns the stage to go on with: state.before(stage), in the end.",
                )
            trial = RuleState(Schedule(dag), ConfigSpace(), target, hardware, tiling=tiling)
            cursor = Derivation(applied).run(trial)
            todo.append((Derivation(applied, cursor), trial))
    return done


def _ways(
    rules: Sequence[SketchRule], state: RuleState, stage: Stage
) -> list[tuple[SketchRule, int]]:
    """The rules that apply to a stage, in each of their variants."""
    ways: list[tuple[SketchRule, int]] = []
    for rule in rules:
        condition = rule.meets(state, stage)
        if condition is not Condition.PASS:
            ways += [(rule, variant) for variant in range(rule.variants(state, stage))]
        if condition is Condition.ONLY:
            break
    return ways


def _sketch(
    dag: ComputeDAG, target: Target, hardware: Hardware, tiling: Tiling, derivation: Derivation,
    taken: set[str],
) -> Sketch:  # fmt: skip
    """With every value of every choice, or with as many as leave the members countable; rings are
    the first that is left out."""
    for stride, rings in product(STRIDES, (True, False)):

        def build(config: Any, stride: int = stride, rings: bool = rings) -> Schedule:
            state = RuleState(
                Schedule(dag), config, target, hardware, stride=stride, tiling=tiling, rings=rings
            )
            derivation.run(state)
            annotate(state)
            block_sums(state.schedule)
            return state.schedule

        space = ConfigSpace()
        build(space)
        if space.range_length <= MAX_INDEX:
            break
    else:
        raise ScheduleError(
            f"sketch {derivation}", "it has more members than can be counted",
            "Split the computation into several tasks.",
        )  # fmt: skip
    if target.has_threads:
        _limit_blocks(space, hardware, tiling.levels(target).count("S"))

    def outline() -> Schedule:
        state = RuleState(Schedule(dag), ConfigSpace(), target, hardware, tiling=tiling)
        derivation.run(state)
        return state.schedule

    return Sketch(_origin(derivation, taken), dag, space, build, target, outline=outline)


def _limit_blocks(space: ConfigSpace, hardware: Hardware, levels: int) -> None:
    """Blocks of tiled stages have at least a warp of threads and few virtual ones.

    levels: of their spatial axes
    """
    tiled: dict[str, dict[str, int]] = {}  # stage -> knobs of its spatial axes, their extents
    for name, knob in space.space_map.items():
        if isinstance(knob, SplitSpace) and knob.num_output == levels:
            tiled.setdefault(name.rpartition(":")[0], {})[name] = knob.product
    for names in tiled.values():
        least = hardware.least_threads(prod(names.values()))

        def fits(cfg: Any, names: Iterable[str] = tuple(names), least: int = least) -> Any:
            virtual = prod(cfg[n].size[1] for n in names)
            threads = prod(cfg[n].size[2] for n in names)
            return (virtual <= hardware.max_vthread_extent) & (threads >= least)

        space.multi_filter(fits)


def _origin(derivation: Derivation, taken: set[str]) -> str:
    """A name from the rules that did something; numbered where several sketches share them."""
    words = [
        f"{a.rule.name}{a.variant or ''}"
        for a in derivation.applied
        if a.rule.name not in ("", "inline")
    ]
    name, k = "rules:" + ("+".join(words) or "plain"), 1
    while (name if k == 1 else f"{name}#{k}") in taken:
        k += 1
    name = name if k == 1 else f"{name}#{k}"
    taken.add(name)
    return name
