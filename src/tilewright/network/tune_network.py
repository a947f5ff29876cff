"""A network tuned as somebody asked for it: which of its tasks, from what history, with a display.

In: modules as `conversion.py` gives them, options of a user.  Out: records in the database; what a
`Progress` shows.  The command line and `tvmc.tune` are two spellings of `tune_network`.
Read next: `tune.py`, `search/progress.py`.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
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
from tilewright.network.extract import Groupings
from tilewright.network.helpers import Helpers
from tilewright.network.narrow import Cost, cost_of
from tilewright.network.tune import Measuring
from tilewright.runtime.timing import show_seconds
from tilewright.schedule.task import Task
from tilewright.search.jobs import task_id
from tilewright.search.progress import Progress, TaskRow
from tilewright.search.report import Event, Options, Report
from tilewright.search.transfer import read_history
from tilewright.targets.target import Target

RULES = "auto-scheduler"  # the tuner that needs no template
BEFORE = 0.25  # of a budget of seconds: what comes before a search counts so much of it at most
AFTER = 0.6  # of what the untuned build took beside trials: to confirm the log with nothing beside
SHORT = 3.0  # seconds of a search that has no time to begin with the network as it is untuned


def network_tasks(
    mods: Sequence[IRModule], params: Mapping[str, Any], target: Target, tuner: str,
    templates: bool = True, options: Options | None = None, place: str = "tune",
    simple: bool = True, known: Groupings | None = None,
) -> list[Task]:  # fmt: skip
    """Give the tasks of the network, see `tune_network`; with options, in the layouts that the
    budget allows to compare, see `with_layouts`.

    tuner:  `RULES` tunes every kernel, by rules; others those that have a template
    templates: whether templates compete with rules
    simple: with rules: also kernels without a reduction
    known:  see `extract.groupings`
    Raises ModelError where there is none.
    """
    found = tuning.tasks_of(
        mods, params, target, tuner == RULES, templates, simple, known=known
    )  # fmt: skip
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
    return tuning.with_layouts(
        found, mods, params, target, options, tuner == RULES, templates, known=known
    )  # fmt: skip


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
    helpers: Helpers | None = None,
    progress: Progress,
) -> Report:
    """Tune `tasks` until the budget of `options` is spent, and show how it goes.  Seconds count
    from the start of `progress`, a quarter of them at most before the search.

    networks, params: what the tasks are of: how long it takes untuned is measured first, where
                there is time, and what the log makes of it is confirmed in the end
    history:    logs of other networks or devices to start from
    history_of: tasks whose computations those logs may name; default: `tasks`
    farm:       where candidates are timed, instead of this machine's device
    helpers:    what `tune.begun` gives, of the same target
    Raises SearchError where every trial failed, KeyboardInterrupt where somebody stopped it.
    Calls `progress.start(rows)` once, `progress.record(index, record)` for each result, and
    `progress.again()` for each leader that is timed again.
    """
    past = read_history(history, list(history_of or tasks)) if history else None
    target, rows = tasks[0].target, [task_row(task, database) for task in tasks]
    begun = over = False
    untuned: list[Trials] = []
    costs: list[Cost] = []  # of narrow weights, until they are told

    def say(text: str) -> None:
        if not over:
            progress.note(text)

    def tell_costs(tell: Callable[[str], None]) -> None:
        while costs:
            tell(str(costs.pop().measure()))

    def meanwhile(known: Helpers) -> Callable[[], float] | None:
        nonlocal begun
        progress.start(rows)
        begun = True
        if not networks or (options.seconds is not None and options.seconds < SHORT):
            return None

        def beside() -> float:
            since = time.monotonic()
            found = show_untuned(networks, params, target, farm, progress, known, say)
            untuned.extend(found)
            left = AFTER * (time.monotonic() - since)
            if known.apart:  # else it would take what trials are timed on, or come before them
                tell_costs(say)
            return left

        return beside

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

    with ExitStack() as stack:
        own = helpers or stack.enter_context(tuning.begun(target, farm, measuring))
        cost = cost_of(networks, params, target, own.groupings)
        costs += [] if cost is None else [cost]
        if options.seconds is not None:
            spent = min(progress.elapsed, BEFORE * options.seconds)
            options = replace(options, seconds=options.seconds - spent)
        try:
            report = tuning.tune(
                tasks, database, options, on_event, lambda e: progress.note(str(e)), farm,
                progress.note, past, measuring, meanwhile, helpers=own,
            )  # fmt: skip
        finally:
            over = True
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
        tell_costs(progress.note)
        if networks:
            confirm(networks, params, target, database, farm, progress, own, untuned)
    return report


def show_untuned(
    networks: Sequence[IRModule], params: Mapping[str, Any] | None, target: Target,
    farm: Devices | None, progress: Progress, helpers: Helpers | None = None,
    say: Callable[[str], None] | None = None,
) -> list[Trials]:  # fmt: skip
    """Show what the networks take untuned, and have the display estimate from there.

    helpers: of the search that goes on beside it; say: what tells the user
    Returns the networks as they were built, for `confirm`; none of a device of a farm.
    """
    say = say or progress.note
    say("building it untuned ...")
    estimates: list[Estimate] = []
    built: list[Trials] = []
    try:
        with loading(target, farm) as load:
            for network in networks:
                trials = Trials(network, params, target, load, helpers=helpers)
                kernels = len(trials.untuned.library.report.kernels)
                of = f"{kernels} kernel" + "s" * (kernels != 1)
                told = f"untuned: {show_seconds(trials.untuned_seconds)} a run, {of}"
                say(_which(network, params, len(networks)) + told)
                estimates.append(Estimate(trials))
                built.append(trials)
                trials.set_aside()
    except TilewrightError as error:
        say(f"What it takes untuned is not known: {error}")
        return []

    def of_all(best: Mapping[str, float]) -> tuple[float, dict[str, float]]:
        found = [estimate(best) for estimate in estimates]
        parts: Counter[str] = Counter()
        for _, own in found:
            parts.update(own)
        return sum(seconds for seconds, _ in found), dict(parts)

    progress.estimate = of_all
    progress.untuned = sum(trials.untuned_seconds for trials in built)
    return built if farm is None else []


def confirm(
    networks: Sequence[IRModule], params: Mapping[str, Any] | None, target: Target,
    database: Database, farm: Devices | None, progress: Progress, helpers: Helpers | None = None,
    untuned: Sequence[Trials] = (),
) -> None:  # fmt: skip
    """Run the networks as wholes, and write down how each is fastest.

    helpers: of the search, which has ended; untuned: what `show_untuned` gave
    """
    progress.note("running the whole network with the log and without it ...")
    total = before = 0.0
    try:
        with loading(target, farm) as load:
            for number, network in enumerate(networks):
                if untuned:
                    trials = untuned[number]
                    trials.search_ended()
                else:
                    trials = Trials(network, params, target, load, helpers=helpers)
                line = trials.confirm(database)
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
