"""`XGBModel` and `RandomModel`: how candidates are ranked, by the auto-scheduler's names.

In: logs, or saved models.  Out: a `search.CostModel` to start a search with.
Read next: `search/propose/cost_model.py`.
"""

from __future__ import annotations

import os

from tilewright.auto_scheduler.records import trials_of
from tilewright.measure.database import Database, readable
from tilewright.search.propose.cost_model import CostModel, Options
from tilewright.search.propose.model_proposer import rows_key
from tilewright.search.transfer import recall, teach

Path = str | os.PathLike[str]


class RandomModel:
    """Candidates are measured in random order."""

    tuner = "random"

    def __init__(self) -> None:
        self.model = CostModel()


class XGBModel:
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
        if model_file is not None:
            self.load(model_file)

    def update_from_file(self, file_name: Path, n_lines: int | None = None) -> int:
        """Learn from a log, whatever tasks it is of; returns from how many trials.

        n_lines: of the first so many trials only
        Raises RecordError for a log that is missing, or of which no line can be read.
        """
        database = readable(file_name)
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


def _first(database: Database, count: int) -> Database:
    some = Database()
    for record in trials_of(database, count):
        some.append(record, database.dag(record.task.dag))
    return some
