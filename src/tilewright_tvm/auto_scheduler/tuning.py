"""From the auto-scheduler's options to a call of the tuning loop, and what is said on the way.

In: tasks with their sketches, `TuningOptions`, what is known.  Out: records in files, lines on the
terminal, callbacks, a `Report`.  Read next: `search/loop.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from tilewright.base.errors import TargetError
from tilewright.base.terminal import say
from tilewright.measure.database import Database
from tilewright.measure.jobs import Builder, Runner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.sources import check_history
from tilewright.schedule.task import Task
from tilewright.search.jobs import task_id
from tilewright.search.loop import tune
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.model_proposer import rows_key
from tilewright.search.report import Event, Options, Report
from tilewright.targets.target import Target
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureInput,
    MeasureResult,
    TuningOptions,
)
from tilewright_tvm.auto_scheduler.records import Log, Path, RecordToFile

OnEvent = Callable[[Event], None]


def known_of(histories: Sequence[Path], targets: Sequence[Target]) -> Log:
    """What logs hold.  Raises RecordError for one from which nothing can be resumed."""
    for path in histories:
        one = Log.load(path)
        for target in dict.fromkeys(targets):
            check_history(one, path, target)
    return Log.load(*histories)


def tell_unknown(log: Log, histories: Sequence[Path], tasks: Sequence[Task]) -> None:
    """Say so where the logs to go on from know none of the tasks."""
    if histories and not any(log.query(task_id(task)) for task in tasks):
        names = ", ".join(os.fspath(path) for path in histories)
        what = "this task" if len(tasks) == 1 else "these tasks"
        say(f"No trial of {what} is in {names}: the search starts from nothing.")


def run(
    tasks: Sequence[Task],
    options: TuningOptions,
    loop: Options,
    log: Log,
    model: CostModel,
    policies: Sequence[Any],
    on_event: OnEvent | None = None,
    history: Database | None = None,
) -> Report:
    """Tune; policies: of each task: who proposes, what callbacks are told; history: of other tasks,
    see `search.loop.tune`.  Raises KeyboardInterrupt on Ctrl-C."""
    callbacks = list(options.measure_callbacks or ())
    log.files = [c.database for c in callbacks if isinstance(c, RecordToFile)]
    dags = [ComputeDAG(task.dag) for task in tasks]
    told = [getattr(c, "callback", c) for c in callbacks if not isinstance(c, RecordToFile)]
    scorings = [policy.scoring for policy in policies if policy.scoring is not None]
    proposers = None
    if scorings:
        for scoring in scorings:
            scoring.recall(log)
        proposers = [p.proposer(task) for p, task in zip(policies, tasks, strict=True)]
    for task in tasks:
        if log.query(task_id(task)):
            model.forget(rows_key(task))  # the loop tells it again

    def tell(event: Event) -> None:
        if event.kind == "trial" and event.record is not None:
            policy = policies[event.task]
            given = MeasureInput.of(event.record, dags[event.task], policy.search_task)
            for callback in told:
                callback(policy, [given], [MeasureResult.of(event.record)])
            if policy.scoring is not None:
                policy.scoring.note(given, MeasureResult.of(event.record))
        if on_event is not None:
            on_event(event)

    most = options.num_measures_per_round
    if loop.trials is not None:
        most = min(most, max(1, loop.trials // len(tasks)))
    with _measuring(options) as (builder, runner), Pipeline(builder, runner, log) as pipeline:
        _check_arch(runner, tasks[0].target)
        try:
            report = tune(
                tasks, pipeline, log, replace(loop, batch_most=most), on_event=tell, model=model,
                history=history, proposers=proposers,
            )  # fmt: skip
            for scoring in scorings:
                scoring.learn()
        finally:
            model.finish_fit()
            model.close()
            log.flush_files()
    if report.interrupted:
        raise KeyboardInterrupt
    return report


@contextmanager
def _measuring(options: TuningOptions) -> Iterator[tuple[Builder, Runner]]:
    """Builder and runner; those made here are closed."""
    builder, runner = options.builder, options.runner
    with ExitStack() as own:
        if builder == "local":
            builder = own.enter_context(LocalBuilder())
        if runner == "local":
            runner = own.enter_context(LocalRunner())
        yield builder, runner


def _check_arch(runner: Runner, target: Target) -> None:
    """Kernels for another architecture would fail one by one."""
    arch = runner.describe(target).arch
    if arch and arch != target.arch and not target.option("arch"):
        raise TargetError(
            f"target {target}", f"the device is {arch}, but code is for {target.arch}",
            f"Use Target('{target.kind} -arch={arch}').",
        )  # fmt: skip


class TrialPrinter:
    """A line per trial of a task, and what came of it at the end."""

    def __init__(self, task: Task) -> None:
        self.task, self.number = task, 0

    def __call__(self, event: Event) -> None:
        if event.message:
            say(event.message)
        if event.kind == "start" and event.best is not None:
            say(f"Resuming: the best of earlier runs takes {event.best * 1e3:.4f} ms")
        if event.kind != "trial" or event.record is None:
            return
        self.number += 1
        best = self._gflops(event.best) if event.best else 0.0
        now = self._gflops(event.record.seconds) if event.record.result.ok else 0.0
        result = MeasureResult.of(event.record)
        say(f"No: {self.number}\tGFLOPS: {now:.2f} / {best:.2f}\tresults: {result}")

    def finish(self, report: Report, log: Log) -> None:
        (found,) = report.tasks
        failed = f", {found.failed} failed" if found.failed else ""
        spent = f"{found.trials} trials{failed}, {report.seconds:.0f} s"
        if found.best is not None:
            seconds = found.best.seconds
            say(
                f"Best: {seconds * 1e3:.4f} ms, {self._gflops(seconds):.2f} GFLOPS, "
                f"by {found.best.origin} ({spent})"
            )
            return
        say(f"No trial succeeded ({spent}).")
        print_failures(log)

    def _gflops(self, seconds: float) -> float:
        return self.task.flop / seconds * 1e-9


def print_failures(log: Log, most: int = 5) -> None:
    """Why trials failed, most frequent reasons first."""
    for failure in log.failures()[:most]:
        say(f"  {failure.count} x {failure.kind}: {failure.reason}")
