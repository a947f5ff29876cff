"""AutoTVM's tuners, thin over the one loop: `XGBTuner(task).tune(n_trial, measure_option)`.

In: a task, a builder and a runner.  Out: the best configuration, a log line per trial on the
logger "autotvm" (level DEBUG), and the callbacks users know.  Read next: `search/loop.py`.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tilewright.base.errors import SpaceError
from tilewright.measure.database import Database
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import Record
from tilewright.schedule.space.config_space import ConfigEntity, ConfigSpace
from tilewright.schedule.task import Task
from tilewright.search.jobs import candidate_of
from tilewright.search.loop import tune
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.cost_model import Options as ModelOptions
from tilewright.search.propose.droplet import P_VALUE, DropletProposer
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.propose.proposers import (
    Candidate,
    GeneticProposer,
    GridProposer,
    Outcome,
    Proposer,
    RandomProposer,
)
from tilewright.search.report import Event, Options, Report
from tilewright.search.transfer import teach
from tilewright_tvm.autotvm.measure.measure import Runner
from tilewright_tvm.autotvm.plan_proposer import PlanProposer
from tilewright_tvm.autotvm.results import (
    MeasureInput,
    MeasureResult,
    candidate_by_values,
    measure_result,
    outcome_of,
    told,
    told_of,
)

logger = logging.getLogger("autotvm")

_POPULATION = 1 << 20  # of a genetic algorithm, at most
SI_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}

Callback = Callable[["Tuner", list[MeasureInput], list[MeasureResult]], Any]


def format_si(value: float, prefix: str) -> float:
    """`value` in units of `prefix`.  Raises SpaceError for one that is not in SI_PREFIXES."""
    if prefix not in SI_PREFIXES:
        raise SpaceError(f"si_prefix={prefix!r}", "no such prefix", f"Use one of {[*SI_PREFIXES]}.")
    return value / SI_PREFIXES[prefix]


class Tuner:
    """Searches the space of `task`.  Subclasses choose how candidates are proposed.

    Where the task has `others`, trials go to the implementation that is predicted to gain most, and
    operations per second are those of the task for each.
    best_config, best_flops: the fastest verified configuration, and its operations per second
    best_iter: trial that found it; ttl: trials of the last `tune`
    best_measure_pair: its (MeasureInput, MeasureResult)
    records_told: how many of a history `load_history` could use
    """

    name = "xgb"
    plan = 0  # results between fits; 0: by how many there are

    def __init__(self, task: Task, *, seed: int = 0) -> None:
        if seed < 0:
            raise SpaceError(f"{type(self).__name__}(seed={seed})", "it is negative", "Use seed=0.")
        self.task, self.seed = task, seed
        self.reset()

    def reset(self) -> None:
        """Forget everything that was measured."""
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self._best_seconds = float("inf")  # of every `tune` since the last `reset`
        self.best_iter = 0
        self._failures: list[str] = []
        self.ttl = 0
        self.records_told = 0
        self.error_ct = 0
        self.error_threshold = 150
        self.n_trial = 0
        self.early_stopping: int | None = None
        self.model = self.make_model()
        self.proposer = self.make_proposer(self.task)
        self._others = [(task, self.make_proposer(task)) for task in self.tried]

    def make_model(self) -> CostModel:
        """The model of our own features; tuners that rank otherwise leave it alone."""
        return CostModel(ModelOptions(seed=self.seed))

    def make_proposer(self, task: Task) -> Proposer:
        """The proposer this tuner stands for, of its task or another implementation of it."""
        return ModelProposer(task, self.seed, self.model)

    @property
    def tried(self) -> list[Task]:
        """The other implementations that `tune` tries."""
        return [task for task in self.task.others if task.sketches]

    @property
    def space(self) -> ConfigSpace:
        """What is searched."""
        return self.task.config_space

    @property
    def visited(self) -> frozenset[int]:
        """Indices of the configurations that were proposed, or told of."""
        return self.proposer.visited

    def set_error_threshold(self, threshold: int) -> None:
        """Warn once when so many trials in a row fail."""
        self.error_threshold = threshold

    def has_next(self) -> bool:
        return not self.proposer.exhausted

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """The next configurations to measure, for loops of one's own with `update`."""
        return [c.sketch.space.get(c.index) for c in self.proposer.suggest(batch_size)]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from results; those of another task are passed over."""
        outcomes = []
        for given, result in zip(inputs, results, strict=True):
            candidate = self._candidate(given)
            if candidate is not None:
                outcomes.append(outcome_of(candidate, result))
                self.note(outcomes[-1])
        self._tell(outcomes)

    def note(self, outcome: Outcome) -> None:
        """Called with each result that is told, and of each trial."""

    def load_history(self, data_set: Iterable[Any], min_seed_records: int = 0) -> None:
        """Start from earlier records: of this task, and of other tasks, shapes and devices.

        data_set: a `Database`, what `record.load_from_file` gives (TVM's logs, too), `Record`s, or
        (MeasureInput, MeasureResult) pairs.  Configurations of this very task found there are not
        measured again; all others teach the model, if there is one.  Devices of another kind, and
        what cannot be rebuilt, are skipped and counted in one warning.
        min_seed_records: with fewer records of other tasks, the model does not start from them
        """
        # Other implementations go through it again, which what is read from a file allows once.
        again = getattr(data_set, "database", None)
        if again is None:
            data_set = again = data_set if isinstance(data_set, Database) else list(data_set)
        own, past = told(self.task, data_set)
        self.records_told = len(own) + past.rows
        self.proposer.update(own)
        for task, proposer in self._others:
            proposer.update(told_of(task, again))
        enough = past.rows >= max(min_seed_records, 1)
        if enough and isinstance(self.proposer, ModelProposer):
            teach(self.model, past)
        elif enough and isinstance(self.proposer, PlanProposer):
            past.skipped += self.proposer.learn_from(past.told)
        elif own:
            self.model.fit()
        if past.skipped:
            logger.warning("%s", past.text())
        elif past.rows:
            logger.info("%s", past.text())

    def tune(
        self,
        n_trial: int,
        measure_option: Mapping[str, Any],
        early_stopping: int | None = None,
        callbacks: Sequence[Callback] = (),
        si_prefix: str = "G",
    ) -> Report:
        """Measure up to `n_trial` configurations.

        measure_option: `autotvm.measure_option(builder=, runner=)`
        early_stopping: stop after so many trials without a better one
        callbacks: called with (tuner, inputs, results) after each trial, in the order of proposals;
        `finish()` of those that have it is called at the end, which may come before `n_trial`, and
        `flush()` however it ends

        Raises SearchError where every trial failed, RecordError where a log could not be written.
        """
        try:
            return self._tune(n_trial, measure_option, early_stopping, callbacks, si_prefix)
        finally:
            for callback in callbacks:
                if hasattr(callback, "flush"):
                    callback.flush()

    def _tune(
        self, n_trial: int, measure_option: Mapping[str, Any], early_stopping: int | None,
        callbacks: Sequence[Callback], si_prefix: str,
    ) -> Report:  # fmt: skip
        format_si(0, si_prefix)
        self.n_trial, self.early_stopping, self.ttl = n_trial, early_stopping, 0
        self._callbacks, self._prefix = list(callbacks), si_prefix
        self._failures.clear()
        builder, runner = measure_option["builder"], measure_option["runner"]
        own = isinstance(runner, Runner)
        tasks, proposers = [self.task], [self.proposer]
        if not own:  # which is told of one task
            tasks += (task for task, _ in self._others)
            proposers += (proposer for _, proposer in self._others)
        self._tasks = tasks
        options = Options(
            trials=n_trial, tuner=self.name, seed=self.seed, plan=self.plan, leaders=0,
            early_stopping=None if len(tasks) > 1 else early_stopping,
            patience=early_stopping if len(tasks) > 1 else None,
            negligible=0, fruitless=0, unverified=own,
        )  # fmt: skip
        if own:
            runner.set_task(self.task)
        try:
            with Pipeline(builder, runner, Database()) as pipeline:
                report = tune(
                    tasks, pipeline, options=options, on_event=self._on_event,
                    proposers=proposers, model=self.model, verify=not own,
                )  # fmt: skip
        finally:
            self.model.close()
        if report.interrupted:
            raise KeyboardInterrupt
        for callback in callbacks:
            if hasattr(callback, "finish"):
                callback.finish()
        if self.best_config is None and self._failures:
            self._explain_failures()
        report.check()
        return report

    # -- parts -------------------------------------------------------------------------------------
    def _candidate(self, given: MeasureInput) -> Candidate | None:
        """The candidate of a configuration; None where it is of another task."""
        if given.task.key != self.task.key or str(given.target) != str(self.task.target):
            return None
        return candidate_by_values(self.task, given.config)

    def _tell(self, outcomes: list[Outcome]) -> None:
        self.proposer.update(outcomes)
        if self.model.trained or len(self.model) >= 64:
            self.model.fit()

    def _on_event(self, event: Event) -> None:
        if event.kind in ("paused", "resumed", "exhausted") and event.message:
            logger.warning("%s", event.message)
        if event.kind != "trial" or event.record is None:
            return
        record, task = event.record, self._tasks[event.task]
        found = candidate_of(task, record.origin, record.decisions)
        assert found is not None
        config = found.sketch.space.get(found.index)
        given, result = MeasureInput(task.target, task, config), measure_result(record)
        flops = self.task.flop / record.seconds if record.result.ok else 0.0
        if task is self.task:
            self.note(outcome_of(found, result))
        self.ttl += 1
        self._count_error(record)
        if event.improved and record.seconds < self._best_seconds:
            self.best_config, self.best_flops, self.best_iter = config, flops, self.ttl
            self.best_measure_pair, self._best_seconds = (given, result), record.seconds
            config.cost = record.seconds
        now, best = format_si(flops, self._prefix), format_si(self.best_flops, self._prefix)
        logger.debug(
            "No: %d\t%sFLOPS: %.2f/%.2f\tresult: %s\t%s", self.ttl, self._prefix, now, best,
            result, config,
        )  # fmt: skip
        for callback in self._callbacks:
            callback(self, [given], [result])

    def _count_error(self, record: Record) -> None:
        if record.result.ok:
            self.error_ct = 0
            return
        self.error_ct += 1
        self._failures.append(f"{record.result.error}: {record.result.message}")
        if self.error_ct == self.error_threshold + 1:
            logger.warning(
                "%d trials in a row failed; the last: %s", self.error_ct, self._failures[-1]
            )

    def _explain_failures(self) -> None:
        try:
            with tempfile.NamedTemporaryFile(
                "w", prefix="tilewright_tuning_errors_", suffix=".log", delete=False
            ) as f:
                f.write("\n\n".join(self._failures))
        except OSError:  # the last one is in the error that follows
            return
        logger.warning(
            "No trial of %s succeeded. All %d error messages are in %s",
            self.task, len(self._failures), f.name,
        )  # fmt: skip


class IndexTuner(Tuner):
    """Tuners that propose by index.

    range_idx: (first, last) index to look at, both included; None: all
    range_length, index_offset: how many those are, and the first
    begin_idx, end_idx: the first, and the one after the last
    visited_max: how many of them a filter leaves, and so are proposed at most
    counter: configurations that were proposed, or told of
    """

    def __init__(
        self, task: Task, range_idx: tuple[int, int] | None = None, *, seed: int = 0
    ) -> None:
        self.range_idx = _checked_range(task, range_idx)
        first, last = self.range_idx or (0, task.config_space.range_length - 1)
        self.range_length, self.index_offset = last - first + 1, first
        self.begin_idx, self.end_idx = first, last + 1
        super().__init__(task, seed=seed)

    @property
    def tried(self) -> list[Task]:
        """None where there is a range: it is one of the task's own indices."""
        return [] if self.range_idx is not None else super().tried

    @property
    def visited_max(self) -> int:
        return self.task.config_space.subrange_length(self.begin_idx, self.end_idx)

    @property
    def counter(self) -> int:
        return len(self.visited)


class RandomTuner(IndexTuner):
    """Uniform over the sensible configurations, none twice."""

    name = "random"

    def make_proposer(self, task: Task) -> Proposer:
        return RandomProposer(task, self.seed, self.range_idx)


class GridSearchTuner(IndexTuner):
    """Ascending index over the sensible configurations.

    index: the next that no filter leaves out; `end_idx` behind the last
    """

    name = "gridsearch"

    @property
    def index(self) -> int:
        after = max(self.visited, default=self.begin_idx - 1)
        for left in self.task.config_space._valid_chunks(after + 1, self.end_idx):
            if len(left):
                return int(left[0])
        return self.end_idx

    def make_proposer(self, task: Task) -> Proposer:
        return GridProposer(task, self.seed, self.range_idx)


class GATuner(Tuner):
    """A genetic algorithm over knobs: see `GeneticProposer`.

    pop_size: configurations of a generation: no more than there are to propose
    genes: of those that are tried now, the position of each knob
    visited: also those of the generation that are not proposed yet
    """

    name = "ga"

    def __init__(
        self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1, *,
        seed: int = 0,
    ) -> None:  # fmt: skip
        if not 0 < pop_size <= _POPULATION:
            what = "too small" if pop_size < 1 else "too large"
            raise SpaceError(
                f"GATuner(pop_size={pop_size})", f"it is {what}", f"Use 1 to {_POPULATION:,}."
            )
        if elite_num > pop_size:
            raise SpaceError(
                f"GATuner(elite_num={elite_num})", f"more than the population, {pop_size}"
            )
        self._most, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob
        super().__init__(task, seed=seed)

    def make_proposer(self, task: Task) -> GeneticProposer:
        return GeneticProposer(task, self.seed, self._most, self.elite_num, self.mutation_prob)

    @property
    def _genetic(self) -> GeneticProposer:
        assert isinstance(self.proposer, GeneticProposer)
        return self.proposer

    @property
    def pop_size(self) -> int:
        return self._genetic.first_size

    @property
    def genes(self) -> list[list[int]]:
        return [c.sketch.space.point2knob(c.index) for c in self._genetic.generation]

    @property
    def visited(self) -> frozenset[int]:
        first = self.task.sketches[0]
        planned = [c.index for c in self._genetic.generation if c.sketch is first]
        return super().visited.union(planned)


class DropletTuner(Tuner):
    """From one configuration downhill, to neighbours that are surely faster: `DropletProposer`.

    start_position: position of each knob; default: what runs untuned, or the first of each
    pvalue: chance of a faster look by luck, up to which a neighbour counts as faster

    dims: entities of each knob; best_choice: (index, position of each knob, costs) of the fastest,
    before any (-1, zeros, [inf]); next: (index, positions) of what is tried now
    step, execution: neighbours differ by step * execution positions; total_execution: the furthest
    batch: how many `next_batch` was last asked for
    """

    name = "droplet"
    step = 1

    def __init__(
        self, task: Task, start_position: Sequence[int] | None = None, pvalue: float = P_VALUE, *,
        seed: int = 0,
    ) -> None:  # fmt: skip
        if not 0 < pvalue <= 1:
            raise SpaceError(f"DropletTuner(pvalue={pvalue})", "no chance", "Use 0.05.")
        self.start_position, self.pvalue = start_position, pvalue
        self.dims = task.config_space.dims
        self.total_execution = max(self.dims, default=1)
        super().__init__(task, seed=seed)

    def reset(self) -> None:
        super().reset()
        self.batch = max(self.total_execution, 16)

    def make_proposer(self, task: Task) -> DropletProposer:
        start = self.start_position if task is self.task else None
        return DropletProposer(task, self.seed, start, self.pvalue)

    @property
    def _droplet(self) -> DropletProposer:
        assert isinstance(self.proposer, DropletProposer)
        return self.proposer

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        self.batch = batch_size
        return super().next_batch(batch_size)

    @property
    def execution(self) -> int:
        return max(self._droplet.radius, 1)

    @property
    def best_choice(self) -> tuple[int, list[int], list[float]]:
        best = self._droplet.best
        if best is None:
            return -1, [0] * len(self.dims), [float("inf")]
        index = best.candidate.index
        return index, self.space.point2knob(index), list(best.costs)

    @property
    def next(self) -> list[tuple[int, list[int]]]:
        return [(index, self.space.point2knob(index)) for index in self._droplet.waiting]


def _checked_range(task: Task, given: tuple[int, int] | None) -> tuple[int, int] | None:
    if given is None:
        return None
    first, last = given
    size = task.config_space.range_length
    if not 0 <= first <= last < size:
        raise SpaceError(f"range_idx={given}", f"not within [0, {size - 1}]", "Both ends count.")
    return given
