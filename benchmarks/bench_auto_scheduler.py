"""The template-free search: how fast it judges, how soon it finds, what it finds in a minute.

    PYTHONPATH=src python benchmarks/bench_auto_scheduler.py judge
    PYTHONPATH=src python benchmarks/bench_auto_scheduler.py minute --target cuda
    PYTHONPATH=src python benchmarks/bench_auto_scheduler.py logs --target cuda --trials 1000
    PYTHONPATH=src python benchmarks/bench_auto_scheduler.py quality --target cuda

judge:   candidates a second through masks, features and model, one core
minute:  the flagship convolution with Ansor's rules alone, for --seconds
logs:    --trials of each of eight tasks, kept as results/trials.KIND.csv.gz
quality: from these logs: the machine model's first picks, trials until nearly the best
"""

from __future__ import annotations

import argparse
import csv
import gzip
import time
from pathlib import Path
from typing import Any

import numpy as np
import results_file
import search_tasks

from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.runtime.device import device
from tilewright.schedule.task import Task
from tilewright.search.loop import Options, Report, tune
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.model_proposer import evaluate

FLAGSHIP = "conv 3x3 512x7x7"
FIRST = 32  # candidates that the machine model chooses before anything was measured
NEAR = 1.05


def run(
    tasks: list[Task], folder: Path, *, trials: int | None, seconds: float | None, **options: Any
) -> tuple[Report, Database]:
    """Tune with racing on; the log is `folder/trials.jsonl`."""
    database = Database(folder / "trials.jsonl")
    runner = LocalRunner(timeout=10, number=4, repeat=3, min_repeat_ms=20)
    with Pipeline(LocalBuilder(), runner, database) as pipeline:
        report = tune(tasks, pipeline, database, Options(trials=trials, seconds=seconds, **options))
    return report, database


def minute(target: str, seconds: float, folder: Path) -> None:
    task = search_tasks.task(FLAGSHIP, resolved(target), ansor_alone=True)
    report, _ = run([task], folder, trials=None, seconds=seconds)
    (found,) = report.tasks
    row = {
        "task": FLAGSHIP,
        "seconds": round(report.seconds, 1),
        "trials": found.trials,
        "trials_per_second": round(found.trials / report.seconds, 2),
        "failed": found.failed,
        "best_us": round((found.best_seconds or np.inf) * 1e6, 2),
        "sketch": found.best.origin if found.best else "none",
    }
    print(results_file.table([row]))
    results_file.append(
        f"auto_scheduler_minute_{task.target.kind}", [row], device(target).name, folder=folder
    )


def resolved(target: str) -> Any:
    from tilewright.targets.target import Target

    with LocalRunner() as runner:
        return Target(target).on(runner.describe(Target(target)))


def logs(target: str, trials: int, folder: Path, only: list[str]) -> None:
    rows: list[dict[str, Any]] = []
    known = resolved(target)
    file = folder / f"trials.{known.kind}.csv.gz"
    file.unlink(missing_ok=True)
    for name in only or search_tasks.TASKS:
        task = search_tasks.task(name, known)
        began = time.perf_counter()
        report, database = run([task], folder, trials=trials, seconds=None, leaders=0)
        spent = time.perf_counter() - began
        records = database.query((task.key, str(task.target)))
        with gzip.open(file, "at", newline="") as out:  # what is there survives a run that is cut
            table = csv.writer(out)
            if not rows:
                table.writerow(["task", "trial", "sketch", "seconds", "error"])
            for r in sorted(records, key=lambda r: r.trial):
                table.writerow([name, r.trial, r.origin, f"{r.seconds:.4g}", r.result.error or ""])
        found = report.tasks[0]
        rows.append({
            "task": name, "trials": found.trials, "failed": found.failed,
            "illegal": sum(r.result.error in ("instantiate", "compile") for r in records),
            "trials_per_second": round(found.trials / spent, 2),
            "best_us": round((found.best_seconds or np.inf) * 1e6, 2),
            "sketch": found.best.origin if found.best else "none",
        })  # fmt: skip
        print(results_file.table(rows[-1:]), flush=True)
    results_file.append(
        f"auto_scheduler_trials_{known.kind}", rows, device(target).name, folder=folder
    )


def quality(kind: str, folder: Path) -> None:
    """first: the best of the whole log over the best of its first trials, at most 1
    near: trials until within 5% of the best of the log"""
    trials: dict[str, list[float]] = {}
    with gzip.open(folder / f"trials.{kind}.csv.gz", "rt", newline="") as file:
        for row in csv.DictReader(file):
            trials.setdefault(row["task"], []).append(float(row["seconds"]))
    rows = []
    for name, seconds in trials.items():
        best = min(seconds)
        so_far = np.minimum.accumulate(seconds)
        rows.append({
            "task": name, "trials": len(seconds), "best_us": round(best * 1e6, 2),
            "first": round(best / so_far[min(FIRST, len(seconds)) - 1], 3),
            "near": int(np.argmax(so_far <= best * NEAR)) + 1,
        })  # fmt: skip
    middle = {
        "task": "median", "trials": "", "best_us": "",
        "first": float(np.median([r["first"] for r in rows])),
        "near": float(np.median([r["near"] for r in rows])),
    }  # fmt: skip
    print(results_file.table([*rows, middle]))


def judge(target: str, population: int) -> None:
    rows = []
    for name in (FLAGSHIP, "conv 3x3 64x56x56"):
        task = search_tasks.task(name, target, ansor_alone=True)
        sketch = max(task.sketches, key=lambda s: len(s.space))
        rng = np.random.default_rng(0)
        model = CostModel()
        sample = sketch.space.sample(512, rng)
        rows_, machine = evaluate(sketch, sample)
        model.add("bench", rows_, machine, machine * np.exp(rng.standard_normal(512) * 0.3))
        model.fit()
        drawn = sketch.space.sample(population, rng)
        best = [np.inf, np.inf]
        for _ in range(3):
            began = time.perf_counter()
            legal = drawn[sketch.legal(drawn)]
            masked = time.perf_counter()
            model.predict(*evaluate(sketch, legal))
            ended = time.perf_counter()
            best = [min(best[0], masked - began), min(best[1], (ended - masked) / len(legal))]
        # what a search pays per candidate: a mask for all that are drawn, a score for legal ones
        rows.append({
            "task": name, "legal": round(len(legal) / len(drawn), 4),
            "masked_per_second": round(len(drawn) / best[0]),
            "scored_per_second": round(1 / (best[1] + best[0] / len(drawn))),
        })  # fmt: skip
    print(results_file.table(rows))
    results_file.append("auto_scheduler_judge", rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["judge", "minute", "logs", "quality"])
    parser.add_argument("--target", default="cuda -arch=sm_90")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--population", type=int, default=32768)
    parser.add_argument("--task", action="append", default=[], help="one of the eight (repeatable)")
    parser.add_argument("--folder", type=Path, default=results_file.RESULTS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.what == "judge":
        judge(options.target, options.population)
    elif options.what == "minute":
        minute(options.target, options.seconds, options.folder)
    elif options.what == "logs":
        logs(options.target, options.trials, options.folder, options.task)
    else:
        quality(options.target.split()[0], options.folder)


if __name__ == "__main__":
    main()
