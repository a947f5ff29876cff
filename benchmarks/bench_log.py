"""How long a long log takes to load, how much memory, and how a search bears many trials.

    PYTHONPATH=src:benchmarks python benchmarks/bench_log.py [--records 1000000] [--trials 100000]
        [--folder FOLDER] [--keep]

The log has records of rules for a convolution on a CPU, under 100 hashes, with other figures each.
Every figure is of a fresh process: the first load of a log, a later one, the best of every task,
all records of one task.  Searches get made-up figures, so that what a trial costs is what
the search itself does: proposing, learning, replaying a schedule, writing a record.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from results_file import append, table
from search_tasks import conv2d_bias_relu

from tilewright.measure.database import Database
from tilewright.measure.jobs import Job
from tilewright.measure.record import Record, Result, TaskId, encode, make_record
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.jobs import Measurer, make_job
from tilewright.search.loop import tune
from tilewright.search.propose.proposers import RandomProposer
from tilewright.search.report import Event, Options
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

TASKS = 100
LOADS = ("first load", "later load", "best of every task", "records of one task")
TUNERS = ("xgb", "ga", "random", "grid")
MARKS = (1_000, 3_000, 10_000, 30_000, 100_000)  # trials


def convolution() -> Task:
    dag = ComputeDAG(conv2d_bias_relu(64, 56, 64, 3))
    return with_rules(task_of_dag(dag, Target("llvm"), "conv2d"), templates=False)


def lines(records: int) -> Iterator[bytes]:
    """A log of so many records, a thousandth of them wrong, some final, some failed."""
    task = convolution()
    jobs = [
        make_job(task, candidate, None, 0, n)
        for n, candidate in enumerate(RandomProposer(task).suggest(300))
    ]
    rng = np.random.default_rng(0)
    for n in range(records):
        job, seconds = jobs[n % len(jobs)], float(rng.lognormal(-7, 1))
        result = Result(costs=(seconds,) * 3, verified=True, build_s=0.3, run_s=0.2)
        if n % 11 == 9:
            kind = "wrong" if n % 1001 == 9 else "compile"
            result = Result(error=kind, message="it did not " * 20, build_s=0.3)
        elif n % 2001 == 0:
            result = msgspec.structs.replace(result, final=True)
        identity = TaskId("conv2d", [n % TASKS], f"{n % TASKS:032x}", "llvm", "cpu of a benchmark")
        decisions = {**job.decisions, "number": n // TASKS}
        yield encode(
            make_record(
                identity, result, origin=job.origin, decisions=decisions, steps=job.steps,
                device="cpu", trial=n // TASKS, timestamp=1.7e9 + n,
            )
        )  # fmt: skip


def load(what: str, path: str) -> dict[str, Any]:
    """One line of the table, in this process."""
    base = _peak()
    began, spent = time.perf_counter(), time.process_time()
    database = Database.load(path)
    loaded, loading = time.perf_counter(), time.process_time()
    if what == "best of every task":
        found = [database.best(task) for task in database.tasks()]
        assert all(found) and len(found) == TASKS
    elif what == "records of one task":
        assert len(database.query(database.tasks()[0])) >= len(database) // TASKS
    done, doing = time.perf_counter(), time.process_time()
    if "load" not in what:
        began, spent = loaded, loading
    return {
        "what": what, "records": len(database), "seconds": done - began,
        "CPU seconds": doing - spent, "peak MB": _peak(), "of it libraries MB": base,
    }  # fmt: skip


class MadeUp(Measurer):
    """Measures nothing: figures are drawn, and records go to a log, as in a search."""

    def __init__(self, database: Database) -> None:
        self._database, self._jobs = database, deque[Job]()
        self._rng = np.random.default_rng(0)

    @property
    def database(self) -> Database:
        return self._database

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def next(self) -> Record:
        job = self._jobs.popleft()
        result = Result(costs=(float(self._rng.lognormal(-7, 1)),), verified=True)
        record = make_record(
            job.task, result, origin=job.origin, decisions=job.decisions, steps=job.steps,
            seed=job.seed, trial=job.trial,
        )  # fmt: skip
        self._database.append(record, job.dag)
        return record


def search(tuner: str, trials: int) -> list[dict[str, Any]]:
    """A search: its trials per second of CPU time before the marks, and bytes that stay."""
    rows: list[dict[str, Any]] = []
    windows = {n: min(n // 2, 2_000) for n in MARKS if n <= trials} or {trials: trials // 2}
    begins = {n - window: n for n, window in windows.items()}
    began: dict[str, float] = {}

    def watch(event: Event) -> None:
        if event.kind != "trial":
            return
        if event.trial in begins:
            began.setdefault("bytes", _resident())
            began.setdefault("trials", event.trial)
            began["seconds"] = time.process_time()
        if event.trial in windows:
            spent = time.process_time() - began["seconds"]
            grown = _resident() - began["bytes"]
            row = {
                "tuner": tuner, "trials": event.trial,
                "trials per CPU second": windows[event.trial] / spent,
                "KB per trial": max(grown, 0) / (event.trial - began["trials"]) / 1e3,
            }  # fmt: skip
            rows.append(row)
            print(row, file=sys.stderr, flush=True)

    options = Options(trials=trials, tuner=tuner, leaders=0, negligible=0)
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder) / "log") as database:
        tune([convolution()], MadeUp(database), database, options, on_event=watch, verify=False)
    return rows


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * float(resource.getpagesize())


def _fresh(*arguments: str) -> Any:
    """What this script prints with these arguments in a process of its own."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--trials", type=int, default=100_000, help="0: no search")
    parser.add_argument("--tuners", nargs="*", default=["xgb", "random"], choices=TUNERS)
    parser.add_argument("--folder", type=Path, help="where the log is written; default: temporary")
    parser.add_argument(
        "--keep", action="store_true", help="append the results to results/log.json"
    )
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        what, argument = options.one
        found = search(what, int(argument)) if what in TUNERS else load(what, argument)
        print(json.dumps(found))
        return
    rows = []
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        log = Path(folder) / "long.jsonl"
        if options.records:
            with log.open("wb") as f:
                f.writelines(lines(options.records))
            print(f"{options.records:,} records, {log.stat().st_size / 1e9:.2f} GB")
            rows = [_fresh("--one", what, str(log)) for what in LOADS]
            print(table(rows))
    tuners = options.tuners if options.trials else []
    searches = [row for t in tuners for row in _fresh("--one", t, str(options.trials))]
    print(table(searches))
    if options.keep:
        command = f"bench_log.py --records {options.records} --trials {options.trials}"
        append("log", rows + searches, command=command)


if __name__ == "__main__":
    main()
