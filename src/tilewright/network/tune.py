"""Tuning of a network: its tasks, and the search over them all.

In: a network for one or several shapes, its parameters, a target, a database.  Out: tasks; records
in the database, a `Report`.  Read next: `extract.py`, `search/loop.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import inf, prod
from typing import Any

from tilewright.base.errors import RecordError
from tilewright.farm.address import Devices
from tilewright.farm.builder import FarmBuilder
from tilewright.farm.runner import FarmRunner
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.pass_options import USUAL, PassOptions
from tilewright.graph.passes import Pass, fuse
from tilewright.knowledge import records
from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner, started
from tilewright.measure.pipeline import Pipeline
from tilewright.network.chains import as_they_run, chained
from tilewright.network.decide import known_layouts
from tilewright.network.evidence import Evidence
from tilewright.network.extract import Groupings, fused_groups, fused_tasks
from tilewright.network.helpers import Helpers
from tilewright.network.layouts import can_choose, in_layouts, rivals
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.jobs import References
from tilewright.search.loop import tune as search
from tilewright.search.predictions import Predictions
from tilewright.search.report import Event, Options, Report
from tilewright.search.rules.derive import with_default, with_rules
from tilewright.targets.precision import check_used
from tilewright.targets.target import Target

# Of each task, before other layouts are measured as well.
TRIALS_EACH, SECONDS_EACH = 16, 2.0


@dataclass(frozen=True)
class Measuring:
    """number, repeat, min_repeat_ms: of a candidate that may set a record, see `LocalRunner`
    timeout:  seconds for building a candidate, and for all its runs together
    parallel: candidates built at once; None: one per core
    """

    number: int = 4
    repeat: int = 3
    min_repeat_ms: float = 20.0
    timeout: float = 10.0
    parallel: int | None = None


def tasks_of(
    mods: Sequence[IRModule | Function],
    params: Mapping[str, Any] | None,
    target: Target,
    rules: bool = True,
    templates: bool = True,
    simple: bool = True,
    pass_options: PassOptions = USUAL,
    known: Groupings | None = None,
) -> list[Task]:
    """Give the distinct kernels of all of `mods` that can be tuned, each in every implementation;
    weight: how often they run in all.

    rules:     all kernels, by rules; else those that a template fits
    templates: with rules: whether templates compete with them
    simple:    with rules: also kernels without a reduction
    known:     see `groupings`
    """
    check_used("tune", target)
    found: dict[str, Task] = {}
    every: list[Task] = []
    for mod in mods:
        own = fused_tasks(
            mod, params, target, rules and simple, every_implementation=True,
            pass_options=pass_options, known=known,
        )  # fmt: skip
        as_they_run(own)
        every += own
    for task in every:
        first = found.setdefault(task.key, task)
        if first is not task:
            first.weight += task.weight
            first.layers = tuple(dict.fromkeys((*first.layers, *task.layers)))
            first.chained = first.chained or task.chained
    tasks = list(found.values())
    if rules:
        tasks = [with_rules(t, templates=templates) for t in tasks]
    return [t for t in tasks if t.sketches]


def with_layouts(
    tasks: Sequence[Task],
    mods: Sequence[IRModule | Function],
    params: Mapping[str, Any] | None,
    target: Target,
    options: Options,
    rules: bool = False,
    templates: bool = True,
    simple: bool = True,
    pass_options: PassOptions = USUAL,
    known: Groupings | None = None,
) -> list[Task]:
    """Give `tasks`, and what has to be measured so that a build can choose groupings and layouts;
    the latter where the budget has a batch and more for each of them.  Else those of the network
    in the layouts that are known to be fastest on devices of this class, as it is built without a
    log.

    Convolutions in other layouts compete with what they are instead of; what has no template is
    measured in its default schedule, which is one trial.  known: see `groupings`
    """
    known = known or Groupings()
    plain = [known.ungrouped(mod, params, pass_options, target) for mod in mods]
    tasks = [*tasks, *_grouping_tasks({t.key for t in tasks}, plain, target, known)]
    keys = {t.key for t in tasks}
    more = [t for t in _layout_tasks(plain, target, rules) if t.key not in keys]
    once = [t for t in more if t.sketches[0].origin == "default"]
    several = len(tasks) + len(more) - len(once)
    trials = inf if options.trials is None else options.trials
    seconds = inf if options.seconds is None else options.seconds
    if trials < TRIALS_EACH * several + len(once) or seconds < SECONDS_EACH * several:
        more = []
        if pass_options.layouts:
            more = _known_tasks(plain, target, rules, templates, simple, pass_options)
        return more or tasks
    return [*tasks, *more]


Ungrouped = tuple[IRModule, Pass]  # what `ungrouped` gives


def _known_tasks(
    plain: Sequence[Ungrouped],
    target: Target,
    rules: bool,
    templates: bool,
    simple: bool,
    pass_options: PassOptions,
) -> list[Task]:
    """Of the networks in the layouts that are known to be fastest; none where they have them."""
    evidence = Evidence((), (str(target),), target.fingerprint, records(target))
    known = [
        in_layouts(mod, known_layouts(mod, evidence, target)) if last is fuse else mod
        for mod, last in plain
    ]
    if all(k is m for k, (m, _) in zip(known, plain, strict=True)):
        return []
    return tasks_of(known, None, target, rules, templates, simple, pass_options)


def _grouping_tasks(
    keys: Collection[str], plain: Sequence[Ungrouped], target: Target, known: Groupings
) -> list[Task]:
    """The kernels in which ways to group the operators differ; without those that have `keys`."""
    found: dict[str, Task] = {}
    for mod, last in plain:
        ways = [fused_groups(way["main"]) for way in known.ways(mod, last, target)]
        common = set.intersection(*({g.key for g in groups} for groups in ways))
        begun = chained(ways[0]) if target.waits else ""
        for g in (g for groups in ways for g in groups if g.key not in {*common, *keys}):
            task = task_of_dag(g.dag, target, g.name, g.args, len(g.calls))
            task.chained = begun if begun == "early" else ""
            found.setdefault(g.key, with_default(task))
    return list(found.values())


def _layout_tasks(plain: Sequence[Ungrouped], target: Target, rules: bool) -> list[Task]:
    found: dict[str, Task] = {}
    for mod, last in plain:
        if last is not fuse or not can_choose(mod, target):
            continue
        for rival in rivals(mod, target):
            g = rival.group
            task = task_of_dag(g.dag, target, g.name, g.args, 1, rival.instead_of)
            if rules and not g.is_simple:
                task = with_rules(task)
            found.setdefault(task.key, with_default(task))
    return list(found.values())


def tune(
    tasks: Sequence[Task],
    database: Database,
    options: Options,
    on_event: Callable[[Event], None] | None = None,
    on_error: Callable[[RecordError], None] | None = None,
    farm: Devices | None = None,
    on_notice: Callable[[str], object] | None = None,
    history: Database | None = None,
    measuring: Measuring | None = None,
    meanwhile: Callable[[Helpers], Callable[[], float] | None] | None = None,
    helpers: Helpers | None = None,
) -> Report:
    """Measure candidates of `tasks` until a budget is spent, on the device of this machine or on
    those of a farm.

    Started again with the same log, it goes on where it was.  on_error: told
    when the log cannot be written; on_notice: told of devices of the farm that come and go;
    history: of other tasks and devices; meanwhile: what is done while others look at the spaces, by
    processes of the search, too; what it returns goes on beside the trials where these are on a
    device of their own, see `search.loop.tune`.  helpers: what `begun` gives
    Raises DeviceError without the device.
    """
    chosen, given = measuring or Measuring(), helpers or Helpers()
    beside = ThreadPoolExecutor(1, thread_name_prefix="beside")
    with (
        _builder(farm, on_notice, chosen, given.builder) as builder,
        _runner(farm, on_notice, chosen, cold_bytes(tasks), given.runner) as runner,
        Pipeline(builder, runner, database, on_error=on_error) as pipeline,
    ):
        here = builder if isinstance(builder, LocalBuilder) else None
        device = runner if isinstance(runner, LocalRunner) else None

        def first(
            predictions: Predictions | None, references: References | None
        ) -> Future[float] | None:
            if meanwhile is None:
                return None
            apart = device is not None and not device.describe(tasks[0].target).shares_host
            rest = meanwhile(
                Helpers(
                    here, predictions, references, device, pipeline.device_free, given.groupings,
                    apart,
                )
            )  # fmt: skip
            if rest is None:
                return None
            if apart:
                return beside.submit(rest)
            done: Future[float] = Future()
            done.set_result(rest())
            return done

        try:
            return search(
                list(tasks), pipeline, database, options, on_event=on_event, history=history,
                meanwhile=first,
            )  # fmt: skip
        finally:
            beside.shutdown(wait=False)  # of a search that was stopped it loses its processes


@contextmanager
def begun(
    target: Target, farm: Devices | None = None, measuring: Measuring | None = None,
    early: tuple[LocalBuilder, LocalRunner] | None = None,
) -> Iterator[Helpers]:  # fmt: skip
    """Begin what a search takes long to begin, while the caller does other things: opening the
    device, starting processes that build.  Give them for a search and for what is built before and
    after it; they end with the block.

    With devices of a farm nothing is begun.  early: what `measure.local.started` gave before
    """
    if farm is not None:
        yield Helpers()
        return
    chosen = measuring or Measuring()
    there = nullcontext(early) if early else started(target, chosen.timeout, chosen.parallel)
    with there as (builder, runner):
        yield Helpers(builder, runner=runner)


def as_described(
    target: Target, farm: Devices | None = None, helpers: Helpers | None = None
) -> Target:
    """Give `target` with what its device reports.  helpers: what `begun` gives
    Raises TargetError or DeviceError without one."""
    with _runner(farm, shared=None if helpers is None else helpers.runner) as runner:
        return target.on(runner.describe(target))


def cold_bytes(tasks: Sequence[Task]) -> int:
    """Count the bytes of constants that must go by before one of them is read again, where the
    network has so many that they do not stay in the caches of its processor; 0 where they do.

    Each implementation is timed as the direct one: weights of another size are as far away.
    """
    target = tasks[0].target
    cache = max(target.limits.l2_bytes, target.limits.l3_bytes)
    weights = sum(t.weight * _constant_bytes(t) for t in tasks if not t.instead_of)
    return 2 * cache if weights > cache else 0


def _constant_bytes(task: Task) -> int:
    held = [op for op in task.dag.placeholders if op.constant]
    return sum(prod(op.shape) * op.dtype.bytes for op in held)


@contextmanager
def _builder(
    farm: Devices | None, on_notice: Callable[[str], object] | None, chosen: Measuring,
    shared: LocalBuilder | None = None,
) -> Iterator[LocalBuilder | FarmBuilder]:  # fmt: skip
    """shared: whose processes build, where they are of this machine"""
    if farm is not None and farm.builders is not None:
        with FarmBuilder(
            farm.builders, farm.host, farm.port, timeout=chosen.timeout, on_notice=on_notice
        ) as there:
            yield there
    elif shared is not None:
        yield shared.sharing(chosen.timeout)
    else:
        with LocalBuilder(chosen.timeout, chosen.parallel) as here:
            yield here


@contextmanager
def _runner(
    farm: Devices | None,
    on_notice: Callable[[str], object] | None = None,
    measuring: Measuring | None = None,
    cold: int = 0,
    shared: LocalRunner | None = None,
) -> Iterator[LocalRunner | FarmRunner]:
    """shared: which has the device open, where it is of this machine"""
    chosen = measuring or Measuring()
    timing: dict[str, Any] = {
        "timeout": chosen.timeout, "number": chosen.number, "repeat": chosen.repeat,
        "min_repeat_ms": chosen.min_repeat_ms, "cold_bytes": cold,
    }  # fmt: skip
    if farm is not None:
        with FarmRunner(farm.key, farm.host, farm.port, on_notice=on_notice, **timing) as there:
            yield there
    elif shared is not None:
        yield shared.sharing(**timing)
    else:
        with LocalRunner(**timing) as here:
            yield here
