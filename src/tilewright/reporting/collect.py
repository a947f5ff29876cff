"""From a log to what a report says: tasks, their trials, what is known of the device.

In: a `Database`, perhaps a network, a comparison, what `bench` measured.  Out: a `Report`.
Read next: `trials.py`, `kernels.py`, `detail.py`.
"""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tilewright.base.errors import ModelError, RecordError, TargetError, TilewrightError
from tilewright.cost.ceilings import Ceilings, ceilings_of, from_json, work_of
from tilewright.measure.database import Database
from tilewright.measure.record import Record, RunLine, TaskId, layers_told, task_label
from tilewright.reporting.compare import compared
from tilewright.reporting.detail import add_details
from tilewright.reporting.kernels import Known, kernels_of_network, kernels_of_tasks
from tilewright.reporting.knobs import knobs_of
from tilewright.reporting.lanes import lanes_of
from tilewright.reporting.measured import ceilings_here
from tilewright.reporting.model import Bench, Choice, Refusal, Report, TaskPart, Whole
from tilewright.reporting.trials import Told, Trials, trials_of
from tilewright.runtime.device import local_target
from tilewright.search.progress import duration
from tilewright.targets.target import Target

MOST_REFUSALS = 20
MOST_EXAMPLE = 1200  # characters
LEADERS, KNOBS = 5, 6
# Architectures whose ceilings the project measured itself; others are from data sheets.
_MEASURED = {"sm_90": "H200"}


def collect(
    path: Path,
    network: Any = None,
    against: Path | None = None,
    bench: Bench | None = None,
    tasks: Sequence[int] = (),
    measure: bool = False,
) -> Report:
    """Read a log, and all that a report needs.

    network: a `front.Network`, whose kernels the rows are
    tasks:   numbers of those that are told in full, and no others; none: those that take longest
    measure: what the device can do is measured, which must be here
    Raises RecordError for a log of which no line can be read, ModelError for a network that cannot
    be built.
    """
    database = Database.load(path)
    place = f"log {str(path)!r}"
    database.check_readable(place)
    if not len(database.records):
        raise RecordError(place, "it holds no record", "`tilewright tune` writes some.")
    runs = database.runs
    trials = trials_of(database, runs)
    report = Report(path.name, path.name, _digest(path), bench=bench, devices=trials.devices)
    report.notes += [f"Skipped in the log: {told}." for told in database.skipped.told()]
    if trials.every > 1:
        report.notes.append(
            f"Of {len(database.records):,} records every {trials.every}th is drawn and counted in "
            "figures of trials; the best of each task is of all."
        )
    main = _most_frequent(trials)
    ceilings, report.ceilings_told = _ceilings(main, runs, measure)
    report.ceilings = ceilings
    report.tasks = [_task(told, database, runs, ceilings) for told in trials.tasks.values()]
    report.trials = sum(len(part.trials) for part in report.tasks)
    report.refused = sum(part.refused for part in report.tasks)
    known = Known(database, main, report.tasks, ceilings)
    if network is not None:
        report.kernels, notes = kernels_of_network(network, known)
        if bench is None and not any(k.task is not None for k in report.kernels):
            raise ModelError(
                f"report of {network.name!r}",
                f"{place} has none of its {len(report.kernels)} kernels for {main.target}",
                "Give the model that was tuned, with the same options.",
            )  # fmt: skip
        report.shares_of, report.title = "the network's kernels", network.name
        report.notes += notes if bench is None else []
    else:
        report.kernels, notes = kernels_of_tasks(known)
        report.notes += notes
        if len(report.tasks) == 1:
            report.title = report.kernels[0].name
        report.shares_of = "the sum of all rows"
    if bench is not None:
        report.kernels = bench.timed(report.kernels)
    report.refusals, report.more_refusals = _refusals(trials, database)
    report.lanes, report.length = lanes_of(trials, report.tasks, _devices(runs)), trials.length
    report.whole = _whole(database)
    report.facts = _facts(report, main, trials, runs)
    report.commands = _commands(path, network, main, runs)
    if against is not None:
        other = Database.load(against)
        other.check_readable(f"log {str(against)!r}")
        ids = [told.task for told in trials.tasks.values()]
        report.comparison = compared(against.name, report.tasks, ids, other)
    if tasks:
        report.tasks = _chosen(report.tasks, tasks, place)
    by_number = {told.number: told.task for told in trials.tasks.values()}
    add_details(report, database, by_number)
    return report


def _chosen(parts: Sequence[TaskPart], numbers: Sequence[int], place: str) -> list[TaskPart]:
    known = {part.number: part for part in parts}
    missing = [n for n in numbers if n not in known]
    if missing:
        raise RecordError(
            f"{place}, task {missing[0]}", "there is none of that number",
            f"It has tasks 0 to {max(known)}.",
        )  # fmt: skip
    return [known[n] for n in dict.fromkeys(numbers)]


def bench_alone(bench: Bench, title: str, network: Any, measure: bool) -> Report:
    """What `bench` measured where there is no log.  network: None of one computation"""
    report = Report(title, bench=bench, shares_of="the network's kernels")
    main = TaskId("", [], "", bench.target)
    report.ceilings, report.ceilings_told = _ceilings(main, (), measure)
    if network is not None:
        rows, _ = kernels_of_network(network, Known(Database(), main, (), report.ceilings))
        report.kernels = bench.timed(rows)
    report.facts = [("target", bench.target), ("device", bench.device)]
    report.devices = [bench.device]
    return report


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _most_frequent(trials: Trials) -> TaskId:
    """A task of the target and device of which there are most trials."""
    counts: Counter[tuple[str, str]] = Counter()
    for told in trials.tasks.values():
        counts[told.task.target, told.task.fingerprint] += len(told.trials) + 1
    (target, fingerprint), _ = counts.most_common(1)[0]
    return next(
        told.task for told in trials.tasks.values()
        if (told.task.target, told.task.fingerprint) == (target, fingerprint)
    )  # fmt: skip


def _ceilings(task: TaskId, runs: Sequence[RunLine], measure: bool) -> tuple[Ceilings | None, str]:
    """What is known of the device, and where that is from."""
    if measure:
        found = ceilings_here(task.target, task.fingerprint)
        return found, (
            "measured on this device as far as bytes and the start of a kernel go; its rates of "
            f"arithmetic are what the machine model knows of it{_measured(task)}"
        )
    for run in reversed(runs):
        told = from_json(run.options.get("ceilings"))
        if told is not None:
            return told, f"what the search knew of its device{_measured(task)}"
    try:
        target = Target(task.target)
        here, device = local_target(target)
    except TilewrightError:
        return None, "nothing is known of a device of this target"
    if device is not None and task.fingerprint in ("", device.spec.fingerprint):
        return ceilings_of(here), f"what the machine model knows of this device{_measured(task)}"
    if target.has_threads:
        return ceilings_of(target), f"what the machine model knows of {target}{_measured(task)}"
    return None, "the log does not tell what its device can do, and it is not this one"


def _measured(task: TaskId) -> str:
    try:
        arch = Target(task.target).arch
    except TargetError:
        arch = ""
    measured = _MEASURED.get(arch)
    if measured is None:
        return ", assumed and not measured"
    if measured in task.fingerprint:
        return ", measured on such a device"
    return f", measured on an {measured} and not on this device"


def _task(
    told: Told, database: Database, runs: Sequence[RunLine], ceilings: Ceilings | None
) -> TaskPart:
    """One task, without its loops and source."""
    task = told.task
    best = database.best(task)
    tried = [t for t in told.trials if not t.final]
    part = TaskPart(
        task.dag, told.number, task_label(task), task.target, task.fingerprint,
        layers_told(runs).get(task.dag, ()), calls_of(runs).get(task.dag, 0),
        _instead_of(runs).get(task.dag, ""), told.trials, len(tried),
        sum(bool(t.error) for t in tried),
    )  # fmt: skip
    dag = database.computation(task.dag)
    if dag is not None and not dag.symbols:
        part.work = work_of(dag)
        part.bound = None if ceilings is None else ceilings.bound(part.work)
    if best is None:
        return part
    part.best = _choice(best)
    part.leaders = [_choice(r) for r in database.leaders(task, LEADERS)]
    of_sketch = told.decisions.get(best.origin, [])
    part.sketch_trials = len(of_sketch)
    part.knobs = knobs_of(of_sketch, part.best.decisions, KNOBS)
    return part


def _choice(record: Record) -> Choice:
    try:
        decisions = record.decisions
    except RecordError:  # damaged
        decisions = {}
    result = record.result
    return Choice(
        record.seconds, result.costs, record.origin, decisions, record.trial, result.predicted
    )


# -- what runs tell of tasks -----------------------------------------------------------------------


def calls_of(runs: Sequence[RunLine]) -> dict[str, int]:
    """How often a run of the network calls a computation; of the last search that tells."""
    found: dict[str, int] = {}
    for run in runs:
        tasks, calls = run.options.get("tasks"), run.options.get("calls")
        if isinstance(tasks, list) and isinstance(calls, list) and len(tasks) == len(calls):
            pairs = zip(tasks, calls, strict=True)
            found |= {str(t): n for t, n in pairs if isinstance(n, int) and 0 < n < 10**6}
    return found


def _devices(runs: Sequence[RunLine]) -> int:
    told = (run.options.get("devices") for run in runs)
    return max((n for n in told if isinstance(n, int) and 0 < n < 10**4), default=1)


def _instead_of(runs: Sequence[RunLine]) -> dict[str, str]:
    found: dict[str, str] = {}
    for run in runs:
        told = run.options.get("instead_of")
        found |= {str(k): str(v) for k, v in told.items()} if isinstance(told, dict) else {}
    return found


# -- the head --------------------------------------------------------------------------------------


def _facts(
    report: Report, main: TaskId, trials: Trials, runs: Sequence[RunLine]
) -> list[tuple[str, str]]:
    devices = [name for name in report.devices if name]
    refused = f", {report.refused:,} refused" if report.refused else ", none refused"
    rows = [
        ("target", main.target), ("device", ", ".join(devices) or "not told"),
        ("make", main.fingerprint),
        ("trials", f"{report.trials:,}, of {len(report.tasks):,} tasks{refused}"),
        ("searched", f"{duration(trials.length)} in {len(runs) or 1} "
                     f"run{'s' * (len(runs) > 1)}, {_date(trials.first)} to {_date(trials.last)}"),
        ("versions", ", ".join(f"{name} {v}" for name, v in sorted(trials.versions.items()))),
        ("seeds", ", ".join(map(str, sorted({_seed(run) for run in runs})))),
        ("log", f"{report.log}, sha256 {report.digest}…"),
    ]  # fmt: skip
    return [(name, value) for name, value in rows if value]


def _seed(run: RunLine) -> int:
    seed = run.options.get("seed")
    return seed if isinstance(seed, int) else 0


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M") + " UTC"


def _commands(path: Path, network: Any, main: TaskId, runs: Sequence[RunLine]) -> list[str]:
    """What tunes it again, with the options that the log tells, and builds from it."""
    model = "MODEL" if network is None else network.name
    base = [model, "--target", main.target, "--log", path.name]
    last: Mapping[str, Any] = runs[-1].options if runs else {}
    more: list[str] = []
    for name in ("trials", "seed", "tuner"):
        if isinstance(last.get(name), int | str) and last[name] not in (0, "xgb"):
            more += [f"--{name}", str(last[name])]
    seconds = last.get("seconds")
    if isinstance(seconds, int | float):
        more += ["--minutes", f"{seconds / 60:.3g}"]
    return [
        shlex.join(["tilewright", "tune", *base, *more]),
        shlex.join(["tilewright", "bench", *base]),
    ]


def _whole(database: Database) -> list[Whole]:
    last = {(n.network, n.target, n.fingerprint): n for n in database.networks}
    return [
        Whole(n.seconds, n.untuned_seconds, len(n.untuned)) for n in last.values()
        if n.seconds and n.untuned_seconds
    ]  # fmt: skip


def _refusals(trials: Trials, database: Database) -> tuple[list[Refusal], int]:
    """Why candidates were refused, the most frequent first, and how many rows are left out."""
    if not any(t.error for told in trials.tasks.values() for t in told.trials):
        return [], 0
    found = database.failures()
    shown = [
        Refusal(
            f.kind, f.reason, f.count, f.example.result.message[:MOST_EXAMPLE],
            task_label(f.example.task),
        )
        for f in found[:MOST_REFUSALS]
    ]  # fmt: skip
    return shown, len(found) - len(shown)
