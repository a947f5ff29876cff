"""The eight named tasks of the search, each tuned by templates and rules for --seconds.

In: a target.  Out: per task trials a second and the best verified time, kept as a dated result with
--folder.  Compiler caches are off, so that runs of two versions in one session are alike:

    CUDA_CACHE_DISABLE=1 TILEWRIGHT_CACHE=off PYTHONPATH=src:benchmarks \
      python benchmarks/h200/eight_tasks.py --seconds 60
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import results_file
import search_tasks
from bench_auto_scheduler import resolved, run

from tilewright.runtime.device import device


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="", help="part of the names of the tasks to run")
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    target, rows = resolved(options.target), []
    for name in search_tasks.TASKS:
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            task = search_tasks.task(name, target)
            report, _ = run([task], Path(folder), trials=None, seconds=options.seconds)
        (found,) = report.tasks
        row = {
            "task": name,
            "trials": found.trials,
            "trials_per_second": round(found.trials / report.seconds, 2),
            "failed": found.failed,
            "best_us": None if found.best is None else round(found.best.seconds * 1e6, 2),
        }
        rows.append(row)
        print(row, flush=True)
    name = device(target.kind).name
    results_file.append("eight_tasks", rows, name, folder=options.folder, seconds=options.seconds)


if __name__ == "__main__":
    main()
