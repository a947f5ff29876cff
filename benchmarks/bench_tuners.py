"""All tuners beside the default: the same eight tasks, the same number of trials each.

In: a target.  Out: a table and an entry in `results/tuners_TARGET.json`: for each task and tuner
the best after 100 and after all trials, and the trial that came within 5% of the best known; then,
for each tuner, on how many tasks none was better.  Tasks with a template are searched by it alone,
as AutoTVM does; the others (softmax, max pool) by rules.  No knowledge that ships is used.

    PYTHONPATH=src python benchmarks/bench_tuners.py --target cuda --trials 1000 --minutes 9

Each pair has a log in --folder, so the command started again goes on where it was; --report makes
the table of what is there.  --part 1/4 takes every fourth pair, for several devices at once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import results_file
import search_tasks

from tilewright.measure.database import Database
from tilewright.measure.jobs import Builder, Runner
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.network.tune import as_described
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.loop import tune
from tilewright.search.propose.named import tuner_name, tuners
from tilewright.search.report import Options
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

NEAR = 1.05  # of the best known
EARLY = 100
EQUAL = 1.02  # what timing cannot tell apart


def task_for(name: str, target: Target) -> Task:
    """By its templates, or by rules where there is none."""
    found = task_of_dag(ComputeDAG(search_tasks.TASKS[name]()), target, name)
    return found if found.sketches else search_tasks.task(name, target)


def log_of(folder: Path, task: str, tuner: str, seed: int) -> Path:
    return folder / f"{task.replace(' ', '_')}.{tuner}.{seed}.jsonl"


def measure(
    task: Task, tuner: str, path: Path, trials: int, seconds: float, seed: int,
    builder: Builder, runner: Runner,
) -> None:  # fmt: skip
    """Search until there are `trials` in the log, or no time is left."""
    with Database(path) as database:
        left = trials - len(database)
        if left < 1:
            return
        options = Options(
            trials=left, seconds=seconds, tuner=tuner, seed=seed, leaders=0, negligible=0,
            fruitless=0, knowledge=False,
        )  # fmt: skip
        with Pipeline(builder, runner, database) as pipeline:
            tune([task], pipeline, database, options)


def curve(path: Path) -> list[float]:
    """The best verified seconds after each trial."""
    found, best = [], float("inf")
    for record in sorted(Database.load(path), key=lambda r: (r.timestamp, r.trial)):
        if record.result.verified:
            best = min(best, record.seconds)
        found.append(best)
    return found


def rows_of(folder: Path, seed: int, trials: int) -> list[dict[str, Any]]:
    """A row for each task and tuner with a log."""
    rows = []
    for task in search_tasks.TASKS:
        paths = {t: log_of(folder, task, t, seed) for t in tuners()}
        curves = {t: curve(path)[:trials] for t, path in paths.items() if path.exists()}
        curves = {t: c for t, c in curves.items() if c}
        known = min((c[-1] for c in curves.values()), default=float("inf"))
        for tuner, found in curves.items():
            near = next((k + 1 for k, s in enumerate(found) if s <= NEAR * known), None)
            rows.append({
                "task": task, "tuner": tuner, "trials": len(found),
                "trials_to_5_percent": near, "best_after_100_us": found[:EARLY][-1] * 1e6,
                "best_us": found[-1] * 1e6, "best_known_us": known * 1e6,
            })  # fmt: skip
    return rows


def best_on(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each tuner: on how many tasks none was better, by each measure."""
    tuners = dict.fromkeys(row["tuner"] for row in rows)
    counts = {t: {"tuner": t, "to_5_percent": 0, "after_100": 0, "in_the_end": 0} for t in tuners}
    never = max((row["trials"] for row in rows), default=0) + 1
    for task in dict.fromkeys(row["task"] for row in rows):
        mine = [row for row in rows if row["task"] == task]
        for key, name, equal in (
            ("trials_to_5_percent", "to_5_percent", 1.0), ("best_after_100_us", "after_100", EQUAL),
            ("best_us", "in_the_end", EQUAL),
        ):  # fmt: skip
            least = min(row[key] or never for row in mine)
            for row in mine:
                counts[row["tuner"]][name] += (row[key] or never) <= least * equal
    return list(counts.values())


def report(folder: Path, options: argparse.Namespace) -> None:
    rows = rows_of(folder, options.seed, options.trials)
    if not rows:
        print("no results yet")
        return
    print(results_file.table(rows))
    print("\nOn how many tasks no other tuner was better:")
    print(results_file.table(best_on(rows)))
    if not options.no_save:
        logs = map(Database.load, folder.glob("*.jsonl"))
        known = (record.device for log in logs for record in log if record.device)
        device = next(known, "unknown")
        notes = {
            "trials": options.trials,
            "seed": options.seed,
            "min_repeat_ms": options.min_repeat_ms,
            "best_on": best_on(rows),
        }
        print(results_file.append(f"tuners_{folder.name}", rows, device, **notes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--tuners", default=",".join(tuners()))
    parser.add_argument("--tasks", default=",".join(search_tasks.TASKS), help="names, by commas")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir(), "tilewright-tuners")
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--min-repeat-ms", type=int, default=20, help="of each timing, three a trial"
    )
    parser.add_argument("--part", default="0/1", help="which pairs, and of how many parts")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--no-save", action="store_true", help="only print")
    options = parser.parse_args()
    folder = options.folder / Target(options.target).kind
    folder.mkdir(parents=True, exist_ok=True)
    if options.report:
        report(folder, options)
        return
    target = as_described(Target(options.target))
    names = [name for name in search_tasks.TASKS if name in options.tasks.split(",")]
    chosen = [tuner_name(name) for name in options.tuners.split(",")]
    part, parts = map(int, options.part.split("/"))
    pairs = [(task, tuner) for task in names for tuner in chosen][part::parts]
    ends = time.monotonic() + options.minutes * 60
    with (
        LocalBuilder() as builder,
        LocalRunner(number=4, repeat=3, min_repeat_ms=options.min_repeat_ms) as runner,
    ):
        for task, tuner in pairs:
            left = ends - time.monotonic()
            if left <= 0:
                print("time is up; the same command goes on")
                break
            path = log_of(folder, task, tuner, options.seed)
            measure(
                task_for(task, target), tuner, path, options.trials, left, options.seed,
                builder, runner,
            )  # fmt: skip
            found = curve(path)
            best = f"{found[-1] * 1e6:.4g} us" if found else "nothing"
            print(f"{task:26} {tuner:24} {len(found):5} trials: {best}", flush=True)
    report(folder, options)


if __name__ == "__main__":
    main()
