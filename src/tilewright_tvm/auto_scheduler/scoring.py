"""A user's cost model in the search: trials are told to it, and it is asked which states are best.

In: a `PythonBasedModel`, a task, what logs know of it.  Out: a proposer.
Read next: `scored_proposer.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base.errors import SpaceError
from tilewright.measure.database import Database
from tilewright.schedule.schedule import Schedule
from tilewright.search.jobs import task_id
from tilewright_tvm.auto_scheduler.computation import Computation
from tilewright_tvm.auto_scheduler.cost_model import PythonBasedModel, Scores
from tilewright_tvm.auto_scheduler.loop_state import State
from tilewright_tvm.auto_scheduler.measure import MeasureInput, MeasureResult
from tilewright_tvm.auto_scheduler.records import trials_of


class Scoring:
    """What a model was not told yet, and its scores."""

    def __init__(self, model: PythonBasedModel, task: Computation) -> None:
        self.model, self.task = model, task
        self._waiting: list[tuple[MeasureInput, MeasureResult]] = []

    def recall(self, log: Database) -> None:
        """Trials of earlier runs."""
        key = task_id(self.task.task).key
        for record in trials_of(log):
            if (record.task.dag, record.task.target) == (key.dag, key.target):
                given = MeasureInput.of(record, self.task.compute_dag, self.task)
                self.note(given, MeasureResult.of(record))

    def note(self, given: MeasureInput, result: MeasureResult) -> None:
        """One trial is over."""
        self._waiting.append((given, result))

    def learn(self) -> None:
        """Tell the model what it does not know yet."""
        told, self._waiting = self._waiting, []
        if told:
            self.model.update([given for given, _ in told], [result for _, result in told])

    def __call__(self, states: Sequence[Schedule]) -> Scores:
        """Scores of states.  Raises SpaceError where the model does not give one for each."""
        self.learn()
        answer = self.model.predict(self.task, [State(state) for state in states])
        place = f"{type(self.model).__name__}.predict"
        try:
            scores = np.asarray(answer, np.float64)
        except (TypeError, ValueError):
            raise SpaceError(
                place, "it returned no numbers", "Return one for each state."
            ) from None
        if scores.shape != (len(states),):
            raise SpaceError(
                place, f"it returned {scores.size} scores in {scores.ndim} dimensions for "
                f"{len(states)} states", "Return one for each state.",
            )  # fmt: skip
        if np.isnan(scores).any():
            raise SpaceError(place, "a score is NaN", "Minus infinity leaves a state out.")
        return scores
