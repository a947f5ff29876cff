"""How a task is searched, by the auto-scheduler's names: policies, what they start from, own rules.

In: a task, a cost model, callbacks.  Out: calls of the tuning loop.  Read next:
`search/rules/derive.py`, `search/loop.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.measure.database import Database
from tilewright.schedule.schedule import Stage
from tilewright.schedule.task import Task
from tilewright.search.propose.model_proposer import neighbours
from tilewright.search.propose.named import make_proposer
from tilewright.search.propose.proposers import Candidate, Proposer
from tilewright.search.report import Options, Report
from tilewright.search.rules.derive import default_sketch, rule_sketches, rules_for, with_rules
from tilewright.search.rules.rules import Condition, SketchRule
from tilewright.search.rules.state import Copies, RuleState
from tilewright_tvm.auto_scheduler.computation import Computation
from tilewright_tvm.auto_scheduler.cost_model import (
    PythonBasedModel,
    RandomModel,
    XGBModel,
    is_own,
)
from tilewright_tvm.auto_scheduler.loop_state import State
from tilewright_tvm.auto_scheduler.measure import TuningOptions, checked_options
from tilewright_tvm.auto_scheduler.policy_params import PolicyParams
from tilewright_tvm.auto_scheduler.records import Path
from tilewright_tvm.auto_scheduler.scored_proposer import ScoredProposer
from tilewright_tvm.auto_scheduler.scoring import Scoring
from tilewright_tvm.auto_scheduler.sketch_state import SketchState
from tilewright_tvm.auto_scheduler.tuning import TrialPrinter, known_of, run, tell_unknown

PARENTS, CHILDREN = 16, 16  # of `evolutionary_search`: from how many, to how many each


class PreloadMeasuredStates:
    """Go on from a log: trials are not repeated, the model learns from them, the best counts."""

    def __init__(self, filename: Path) -> None:
        self.filename = filename
        Database.load(filename)  # a missing file is told here


class PreloadCustomSketchRule:
    """A rule of the user's, tried before the others at every stage.

    meet_condition_func: (policy, state, stage_id) -> PASS, APPLY or APPLY_AND_SKIP_REST
    apply_func:          (policy, state, stage_id) -> id of the stage to look at next; it changes
                         the state in place.  Or TVM's `[[state, id], [another, id], ...]`, of the
                         state and of copies (`state.copy()`): each becomes a sketch
    rule_name:           as it appears in the origin of records

    state: a `search.rules.state.RuleState`; `state.schedule.stages[stage_id]` is the stage, and
    `state.choose` and `state.tiles` leave decisions to the search
    """

    PASS, APPLY, APPLY_AND_SKIP_REST = 0, 1, 2

    def __init__(
        self,
        meet_condition_func: Callable[[SketchPolicy, RuleState, int], int],
        apply_func: Callable[[SketchPolicy, RuleState, int], Any],
        rule_name: str = "CustomSketchRule",
    ) -> None:
        self.meet_condition_func, self.apply_func = meet_condition_func, apply_func
        self.rule_name = rule_name


class SearchPolicy:
    """What `SearchTask.tune` takes, and what callbacks are called with."""


class SketchPolicy(SearchPolicy):
    """Sketches from rules, ranked by the machine model and `program_cost_model`, or by a user's
    `PythonBasedModel` alone.

    params:    Ansor's, by TVM's names: see `PolicyParams`; default: the search sizes itself
    seed:      the same seed proposes the same candidates for the same results
    verbose:   0: silent
    init_search_callbacks: `PreloadMeasuredStates`, `PreloadCustomSketchRule`
    templates: whether the templates that fit the computation compete with the rules' sketches
    """

    @door(SpaceError, "SketchPolicy")
    def __init__(
        self, task: Computation, program_cost_model: PythonBasedModel | None = None,
        params: Mapping[str, Any] | None = None, seed: int | None = None, verbose: int = 1,
        init_search_callbacks: Sequence[Any] | None = None, *, templates: bool = True,
    ) -> None:  # fmt: skip
        model = XGBModel(seed=seed) if program_cost_model is None else program_cost_model
        self.params = PolicyParams.of(params, task.target)
        self.search_task, self.cost_model, self.verbose = task, model, verbose
        self.seed, self.templates = seed or 0, templates
        given = init_search_callbacks or ()
        callbacks = list(given) if isinstance(given, (list, tuple)) else [given]
        self.histories = [c.filename for c in callbacks if isinstance(c, PreloadMeasuredStates)]
        custom = [c for c in callbacks if isinstance(c, PreloadCustomSketchRule)]
        if len(self.histories) + len(custom) < len(callbacks):
            raise SpaceError(
                "SketchPolicy(init_search_callbacks=)", "one of them is of no known kind",
                "Use PreloadMeasuredStates(log) and PreloadCustomSketchRule(...).",
            )  # fmt: skip
        self._drawn: dict[str, Candidate] = {}
        self.scoring = Scoring(model, task) if is_own(model) else None
        self.rules = (*(_CustomRule(c, self) for c in custom), *rules_for(task.target))

    def task(self) -> Task:
        """The task as the loop takes it: with every sketch that competes."""
        own = self.search_task
        found = with_rules(
            own.task,
            templates=self.templates,
            rules=self.rules,
            hardware=own.hardware,
            tiling=self.params.tiling,
        )
        found.weight = own.weight
        return found

    def generate_sketches(self, print_for_debug: bool = False) -> list[SketchState]:
        """The sketches that rules derive, as states; print_for_debug: show them and their
        decisions."""
        own = self.search_task
        derived = rule_sketches(
            own.compute_dag, own.target, self.rules, own.hardware, self.params.tiling
        )
        found = [SketchState(sketch) for sketch in derived]
        if print_for_debug:
            for sketch in found:
                print(f"{sketch}\n{sketch.space}")
        return found

    def sample_initial_population(self, count: int | None = None) -> list[State]:
        """States that would be measured first; count: default: as `params` say, or 50."""
        found = self.proposer(self.task()).suggest(self.params.first if count is None else count)
        return [self._state(c) for c in found]

    @door(SpaceError, "SketchPolicy.evolutionary_search")
    def evolutionary_search(self, init_populations: Sequence[State], out_size: int) -> list[State]:
        """The states that the cost model likes best among `init_populations`, what differs from one
        of them in a single decision, and what differs from the best of those, for as many
        generations as `params` say, or four.

        init_populations: as `sample_initial_population` gives them, of this policy
        """
        rng = np.random.default_rng(self.seed)
        scores: dict[Candidate, float] = {}
        ahead = [self._candidate(state) for state in init_populations]
        for _ in range(self.params.generations):
            fresh = [c for c in dict.fromkeys(ahead) if c not in scores]
            if fresh:
                told = self.cost_model.predict(self.search_task, [self._state(c) for c in fresh])
                scores |= zip(fresh, map(float, told), strict=True)
            best = sorted(scores, key=lambda c: -scores[c])[:PARENTS]
            ahead = [c for parent in best for c in self._mutations(parent, rng)]
        liked = sorted(scores, key=lambda c: -scores[c])
        chosen = [c for c in liked if scores[c] > -np.inf][: max(out_size, 0)]
        return [self._state(c) for c in chosen]

    def _state(self, candidate: Candidate) -> State:
        """That of a candidate, which is known by its steps from now on."""
        made = State(candidate.sketch.close(candidate.index))
        self._drawn[json.dumps(made.to_json())] = candidate
        return made

    def _candidate(self, state: State) -> Candidate:
        found = self._drawn.get(json.dumps(state.to_json()))
        if found is None:
            raise SpaceError(
                "SketchPolicy.evolutionary_search", "a state is not one that this policy drew",
                "Take them from sample_initial_population.",
            )  # fmt: skip
        return found

    def _mutations(self, parent: Candidate, rng: np.random.Generator) -> list[Candidate]:
        """Some that can run and differ in one decision."""
        near = neighbours(parent.sketch.space, np.array([parent.index], np.int64))
        near = rng.permutation(near[parent.sketch.legal(near)])[:CHILDREN]
        return [Candidate(parent.sketch, int(index)) for index in near]

    def proposer(self, task: Task) -> Proposer:
        """Who proposes candidates of `task`, as `task()` gives it."""
        if self.scoring is not None:
            return ScoredProposer(task, self.seed, self.scoring, self.params.breeding)
        model = self.cost_model
        return make_proposer(model.tuner, task, self.seed, model.model, self.params.plan)

    def search(self, options: TuningOptions) -> Report:
        """What `SearchTask.tune` does."""
        options = checked_options("SearchTask.tune", options)
        log = known_of(self.histories, [self.search_task.target])
        loop = Options(
            trials=options.num_measure_trials or None, seconds=options.seconds,
            early_stopping=options.early_stopping, tuner=self.cost_model.tuner, seed=self.seed,
        )  # fmt: skip
        task = self.task()
        printer = TrialPrinter(task) if self.verbose and options.verbose else None
        if printer is not None:
            tell_unknown(log, self.histories, [task])
        report = run([task], options, loop, log, self.cost_model.model, [self], printer)
        if printer is not None:
            printer.finish(report, log)
        report.check()
        return report


class EmptyPolicy(SketchPolicy):
    """Searches nothing: the untuned schedule alone is measured."""

    def __init__(
        self, task: Computation, init_search_callbacks: Sequence[Any] | None = None
    ) -> None:
        super().__init__(task, RandomModel(), init_search_callbacks=init_search_callbacks)

    def task(self) -> Task:
        own = self.search_task
        sketch = default_sketch(own.compute_dag, own.target)
        return replace(own.task, sketches=[sketch], weight=own.weight)


class _CustomRule(SketchRule):
    """The functions of a `PreloadCustomSketchRule` as a rule of the search."""

    def __init__(self, given: PreloadCustomSketchRule, policy: SketchPolicy) -> None:
        self.given, self.policy = given, policy
        self.name = re.sub(r"[^\w-]", "_", given.rule_name)  # type: ignore[misc]

    def meets(self, state: RuleState, stage: Stage) -> Condition:
        answer = self.given.meet_condition_func(self.policy, state, _number(state, stage))
        if answer not in range(3):
            raise SpaceError(
                f"rule {self.name}: meet_condition_func", f"it returned {answer!r}",
                "Return PASS, APPLY or APPLY_AND_SKIP_REST.",
            )  # fmt: skip
        return (Condition.PASS, Condition.APPLY, Condition.ONLY)[int(answer)]

    def variants(self, state: RuleState, stage: Stage) -> int:
        return len(self._tried(state, stage))

    def apply(self, state: RuleState, stage: Stage, variant: int) -> str | None:
        """The function makes all states each time; the decisions of the others are not searched."""
        tried = self._tried(state, stage)
        state.copies = Copies(tried[variant][0].line if variant < len(tried) else ())
        found = self._states(state, stage)
        if variant >= len(found) or len(found) != len(tried):
            raise SpaceError(
                f"rule {self.name}: apply_func", "it returned another number of states than before",
                "Let it depend on the state and the stage alone.",
            )  # fmt: skip
        chosen, number = found[variant]
        name = chosen.schedule.stages[number].name if number >= 0 else None
        vars(state).update(vars(chosen), copies=Copies(), line=(0,))
        return name

    def _tried(self, state: RuleState, stage: Stage) -> list[tuple[RuleState, int]]:
        """What the function gives for a copy, whose decisions nobody searches."""
        trial = replace(state.copy(), copies=Copies(), line=(0,))
        return self._states(trial, trial.stage(stage.name))

    def _states(self, state: RuleState, stage: Stage) -> list[tuple[RuleState, int]]:
        """What the function gives: states, each with the position of the stage to go on with."""
        answer = self.given.apply_func(self.policy, state, _number(state, stage))
        pairs = answer if isinstance(answer, (list, tuple)) else [(state, answer)]
        found = []
        for pair in pairs:
            match pair:
                case (State() | RuleState() as given, int() as number):
                    own = given.state_object if isinstance(given, State) else given
                    if isinstance(own, RuleState) and number < len(own.schedule.stages):
                        found.append((own, number))
        if len(found) < max(len(pairs), 1):
            raise SpaceError(
                f"rule {self.name}: apply_func", f"it returned {answer!r}",
                "Return the id of the next stage, or [[state, id]] of the state and its copies.",
            )  # fmt: skip
        return found


def _number(state: RuleState, stage: Stage) -> int:
    return state.schedule.stages.index(stage)
