"""A network tuned as somebody asked for it: which of its tasks, from what history, with a display.

In: modules as `conversion.py` gives them, options of a user.  Out: records in the database; what a
`Progress` shows.  The command line and `tvmc.tune` are two spellings of `tune_network`.
Read next: `tune.py`, `search/progress.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.base.errors import ModelError, TilewrightError
from tilewright.farm.address import Devices
from tilewright.graph.expr import IRModule
from tilewright.measure.database import Database
from tilewright.measure.record import NetworkLine, task_label
from tilewright.network import tune as tuning
from tilewright.network.confirm import Trials, loading
from tilewright.network.estimate import Estimate
from tilewright.network.helpers import Helpers
from tilewright.network.tune import Measuring
from tilewright.runtime.timing import show_seconds
from tilewright.schedule.task import Task
from tilewright.search.jobs import task_id
from tilewright.search.progress import Progress, TaskRow
from tilewright.search.report import Event, Options, Report
from tilewright.search.transfer import read_history
from tilewright.targets.target import Target

RULES = "auto-scheduler"  # the tuner that needs no template
SHORT = 3.0  # seconds of a search that has no time to begin with the network as it is untuned


def network_tasks(
    mods: Sequence[IRModule], params: Mapping[str, Any], target: Target, tuner: str,
    templates: bool = True, options: Options | None = None, place: str = "tune",
    simple: bool = True,
) -> list[Task]:  # fmt: skip
    """Give the tasks of the network, see `tune_network`; with options, in the layouts that the
    budget allows to compare, see `with_layouts`.

    tuner:  `RULES` tunes every kernel, by rules; others those that have a template
    templates: whether templates compete with rules
    simple: with rules: also kernels without a reduction
    Raises ModelError where there is none.
    """
    found = tuning.tasks_of(mods, params, target, tuner == RULES, templates, simple)
    if not found and not tuning.tasks_of(mods, params, target, True):
        raise ModelError(
            place, "the network has no kernel to tune", "Tune one that computes something."
        )
    if not found:
        raise ModelError(
            place, "no kernel of the network has a template to tune",
            f'tuner="{RULES}" needs none.', command=f"--tuner {RULES} needs none.",
        )  # fmt: skip
    if options is None:
        return found
    return tuning.with_layouts(found, mods, params, target, options, tuner == RULES, templates)


def task_lines(tasks: Sequence[Task]) -> list[str]:
    """Write a line for each task, with the number that `chosen_tasks` takes."""
    return [
        f"{k:3d}  {task_label(task)}  x{task.weight}  "
        f"{sum(s.space.range_length for s in task.sketches):,} candidates"
        for k, task in enumerate(tasks)
    ]


def chosen_tasks(text: str, count: int | None) -> list[int]:
    """Read numbers of tasks, as "all", "3" or "0,2-4" say it.

    count: how many there are, None: not known yet.  Raises ValueError for what is no such list
    """
    if text in ("all", "list"):
        return list(range(count or 0))
    chosen: list[int] = []
    for part in text.replace(" ", ",").split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(part) > 12:
            raise ValueError(f"{text!r} is no list such as 0,2-4, all or list")
        end = int(last) if dash else int(first)
        if end < int(first):
            raise ValueError(f"{part!r} ends before it begins")
        if count is not None and end >= count:
            raise ValueError(f"{part!r}: there are tasks 0 to {count - 1}")
        chosen += range(int(first), min(end, 10**6) + 1)
    return list(dict.fromkeys(chosen))


def tune_network(
    tasks: Sequence[Task],
    database: Database,
    options: Options,
    *,
    networks: Sequence[IRModule] = (),
    params: Mapping[str, Any] | None = None,
    history: Sequence[Path] = (),
    history_of: Sequence[Task] | None = None,
    measuring: Measuring | None = None,
    farm: Devices | None = None,
    progress: Progress,
) -> Report:
    """Tune `tasks` until the budget of `options` is spent, and show how it goes.

    networks, params: what the tasks are of: how long it takes untuned is measured first, where
                there is time, and what the log makes of it is confirmed in the end
    history:    logs of other networks or devices to start from
    history_of: tasks whose computations those logs may name; default: `tasks`
    farm:       where candidates are timed, instead of this machine's device
    Raises SearchError where every trial failed, KeyboardInterrupt where somebody stopped it.
    Calls `progress.start(rows)` once, `progress.record(index, record)` for each result, and
    `progress.again()` for each leader that is timed again.
    """
    past = read_history(history, list(history_of or tasks)) if history else None
    target, rows = tasks[0].target, [task_row(task, database) for task in tasks]
    begun = False

    def meanwhile(helpers: Helpers) -> None:
        nonlocal begun
        if networks and (options.seconds is None or options.seconds >= SHORT):
            show_untuned(networks, params, target, farm, progress, helpers)
        progress.start(rows)
        begun = True

    def on_event(event: Event) -> None:
        if not begun and not event.message:
            return
        if event.kind == "trial" and event.record is not None:
            progress.record(event.task, event.record)
        elif event.message:
            progress.note(event.message)
        elif event.kind == "final":
            progress.again()
        else:
            progress.redraw()

    report = tuning.tune(
        tasks, database, options, on_event, lambda e: progress.note(str(e)), farm, progress.note,
        past, measuring, meanwhile,
    )  # fmt: skip
    progress.settle([told.best_seconds for told in report.tasks])
    for told in report.tasks:
        if told.fruitless:
            label = task_label(told.task)
            progress.note(
                f"{label} keeps its default: none of {told.trials} candidates was valid.  "
                f"The last: {told.failure}"
            )
    if report.interrupted:
        raise KeyboardInterrupt
    report.check()
    if all(t.exhausted for t in report.tasks):
        progress.note("Every sensible candidate of every task has been measured.")
    if networks:
        confirm(networks, params, target, database, farm, progress)
    return report


def show_untuned(
    networks: Sequence[IRModule], params: Mapping[str, Any] | None, target: Target,
    farm: Devices | None, progress: Progress, helpers: Helpers | None = None,
) -> None:  # fmt: skip
    """Show what the networks take untuned, and have the display estimate from there.

    helpers: of the search that follows
    """
    progress.note("building it untuned ...")
    estimates: list[Estimate] = []
    try:
        with loading(target, farm) as load:
            for network in networks:
                trials = Trials(network, params, target, load, helpers=helpers)
                kernels = len(trials.untuned.library.report.kernels)
                of = f"{kernels} kernel" + "s" * (kernels != 1)
                told = f"untuned: {show_seconds(trials.untuned_seconds)} a run, {of}"
                progress.note(_which(network, params, len(networks)) + told)
                estimates.append(Estimate(trials))
                progress.untuned = (progress.untuned or 0.0) + trials.untuned_seconds
    except TilewrightError as error:
        progress.untuned = None
        progress.note(f"What it takes untuned is not known: {error}")
        return

    def of_all(best: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        found = [estimate(best) for estimate in estimates]
        parts: Counter[str] = Counter()
        for _, own in found:
            parts.update(own)
        return sum(seconds for seconds, _ in found), dict(parts)

    progress.estimate = of_all


def confirm(
    networks: Sequence[IRModule], params: Mapping[str, Any] | None, target: Target,
    database: Database, farm: Devices | None, progress: Progress,
) -> None:  # fmt: skip
    """Run the networks as wholes, and write down how each is fastest."""
    progress.note("running the whole network with the log and without it ...")
    total = before = 0.0
    try:
        with loading(target, farm) as load:
            for network in networks:
                line = Trials(network, params, target, load).confirm(database)
                total, before = total + line.seconds, before + line.untuned_seconds
                progress.confirmed(total, before)
                progress.note(_which(network, params, len(networks)) + _told(line))
    except TilewrightError as error:
        progress.note(f"What the log gains in the whole network is not confirmed: {error}")


def _which(network: IRModule, params: Mapping[str, Any] | None, of: int) -> str:
    """The shapes of its inputs, where there are several networks."""
    inputs = [p for p in network["main"].params if p.name_hint not in (params or {})]
    shapes = ", ".join("x".join(map(str, p.shape)) for p in inputs)
    return f"{shapes}: " if of > 1 else ""


def _told(line: NetworkLine) -> str:
    kept = len(line.untuned)
    took = f"network {show_seconds(line.seconds)} a run"
    if line.seconds == line.untuned_seconds:
        return f"{took}, as untuned: nothing that was measured makes it faster, so nothing is used"
    return (
        f"{took}, {show_seconds(line.untuned_seconds)} untuned: "
        f"{line.untuned_seconds / line.seconds:.2f} times as fast"
        + (f"; {kept} of its kernels stay untuned, whose records made it slower" if kept else "")
    )


def task_row(task: Task, database: Database) -> TaskRow:
    """Give a task with what earlier runs left in the log; leaders timed again count once, what
    other programs measured does not.
    """
    identity = task_id(task)
    known = [r for r in database.query(identity) if not r.result.final and not r.is_imported]
    best = database.best(identity)
    failed = sum(r.result.error is not None for r in known)
    seconds = None if best is None else best.seconds
    return TaskRow(
        task_label(task), task.weight, task.flop, len(known), failed, seconds, task.family,
        task.key, task.layers,
    )  # fmt: skip
