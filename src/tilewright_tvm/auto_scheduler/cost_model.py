"""How candidates are ranked, by the auto-scheduler's names; a user's own model among them.

In: logs, saved models, trials.  Out: scores of states, the greater the better; for the models that
are here also a `search.CostModel`, which the search asks directly.  Read next: `scoring.py` (how a
user's model takes part), `search/propose/cost_model.py`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.concurrency import cached_property
from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.measure.database import Database
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.search.propose.cost_model import CostModel, Options
from tilewright.search.propose.model_proposer import evaluate, rows_key
from tilewright.search.transfer import recall, teach
from tilewright_tvm.auto_scheduler.computation import Computation
from tilewright_tvm.auto_scheduler.loop_state import State, schedule_of
from tilewright_tvm.auto_scheduler.measure import MeasureInput, MeasureResult
from tilewright_tvm.auto_scheduler.records import read_log, trials_of

__path__: list[str] = []  # TVM has a package here: `elsewhere.py` finds its modules

Path = str | os.PathLike[str]
Scores = npt.NDArray[np.float64]


class PythonBasedModel(ABC):
    """Subclass it, define `update` and `predict`, and give it to `SketchPolicy`: candidates are
    then measured in the order of its scores.  One model may serve several tasks."""

    door_words = ("a cost model", "Use XGBModel(), RandomModel(), or a subclass.")

    tuner = "random"

    @cached_property
    def model(self) -> CostModel:
        """What the search learns by itself; of a user's model nothing."""
        return CostModel()

    def update(  # noqa: B027
        self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
    ) -> None:
        """Learn from trials, which are told before the next `predict`; by itself a model does not
        learn."""

    @abstractmethod
    def predict(self, task: Computation, states: Sequence[State | Schedule]) -> Any:
        """A score for each state, the greater the better; `state.schedule` is the schedule.

        Minus infinity: it is not measured.
        """

    def predict_stages(self, task: Computation, states: Sequence[State | Schedule]) -> Any:
        """Not asked for by the search.  Raises SpaceError unless a subclass defines it."""
        raise SpaceError(
            f"{type(self).__name__}.predict_stages", "programs are scored as a whole",
            "Use predict.",
        )  # fmt: skip


class RandomModel(PythonBasedModel):
    """Candidates are measured in random order."""

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learned."""

    @door(SpaceError, "RandomModel.predict")
    def predict(self, task: Computation, states: Sequence[State | Schedule]) -> Scores:
        """Random numbers from 0 to 1."""
        return np.random.default_rng().random(len(states))


class XGBModel(PythonBasedModel):
    """The machine model, and boosted trees that learn what it misses.

    seed: of the trees; model_file: what `save` wrote
    verbose_eval, num_warmup_sample and adaptive_training are accepted and not needed: the model is
    useful from the first trial on, and is fitted again as results come in.
    """

    tuner = "xgb"

    def __init__(
        self, verbose_eval: int = 25, num_warmup_sample: int = 100, seed: int | None = None,
        model_file: Path | None = None, adaptive_training: bool = False,
    ) -> None:  # fmt: skip
        self.model = CostModel(Options(seed=seed or 0))
        self._fastest: dict[str, float] = {}
        if model_file is not None:
            self.load(model_file)

    @door(SpaceError, "XGBModel.update")
    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from trials.  Raises SpaceError unless there is one result for each input."""
        if len(inputs) != len(results):
            raise SpaceError(
                "XGBModel.update", f"{len(inputs)} inputs and {len(results)} results",
                "Pass pairs as load_records gives them.",
            )  # fmt: skip
        for given, result in zip(inputs, results, strict=True):
            key = rows_key(given.task.task)
            seconds = float(np.mean(result.costs)) if result.error_no == 0 else np.inf
            self._fastest[key] = min(seconds, self._fastest.get(key, np.inf))
            rows, machine = _described(given.task, given.state)
            self.model.add(key, rows, machine, np.array([seconds]))
        self.model.fit()

    @door(SpaceError, "XGBModel.predict")
    def predict(self, task: Computation, states: Sequence[State | Schedule]) -> Scores:
        """Predicted speed of each state, that of the fastest trial told to `update` as 1; without
        one that of the fastest among them.  Minus infinity for what the device cannot run."""
        logs = np.full(len(states), np.inf)
        for at, state in enumerate(states):
            found = _sketch(task, state)
            if found.legal(np.zeros(1, np.int64), sensible=False)[0]:
                logs[at] = self.model.predict(*_described(task, state))[0]
        fastest = self._fastest.get(rows_key(task.task), np.inf)
        least = np.log(fastest) if np.isfinite(fastest) else min(logs, default=np.inf)
        fits = np.isfinite(logs)
        return np.where(fits, np.exp(least - np.where(fits, logs, 0.0)), -np.inf)

    def update_from_file(self, file_name: Path, n_lines: int | None = None) -> int:
        """Learn from a log, whatever tasks it is of, TVM's too; returns from how many trials.

        n_lines: of the first so many trials only
        Raises RecordError for a log that is missing, or of which no line can be read.
        """
        database = read_log(file_name)
        if n_lines is not None:
            database = _first(database, n_lines)
        before, history = len(self.model), recall(database)
        for past in history.told:
            self.model.forget(rows_key(past.task))
        teach(self.model, history)
        return len(self.model) - before

    def save(self, file_name: Path) -> None:
        """Write the trees.  Raises ModelError where there are none yet."""
        self.model.save(file_name)

    def load(self, file_name: Path) -> None:
        """Go on with trees that `save` wrote; what they learned from is not in the file."""
        self.model.load(file_name)


def is_own(model: PythonBasedModel) -> bool:
    """Whether a user wrote how the model scores or learns."""
    made = (XGBModel, RandomModel)
    return not any(
        type(model).predict is known.predict and type(model).update is known.update
        for known in made
    )


def _sketch(task: Computation, state: State | Schedule) -> Sketch:
    """`state` as a sketch with nothing open."""
    made = schedule_of(state)

    def build(config: Any) -> Schedule:
        return Schedule.replay(made.dag, made.steps)

    return Sketch("state", made.dag, ConfigSpace(), build, task.target)


def _described(task: Computation, state: State | Schedule) -> tuple[Any, Any]:
    """Features and machine seconds, [1, features] and [1]."""
    return evaluate(_sketch(task, state), np.zeros(1, np.int64))


def _first(database: Database, count: int) -> Database:
    some = Database()
    for record in trials_of(database, count):
        some.append(record, database.dag(record.task.dag))
    return some
