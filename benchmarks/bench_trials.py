"""What the trials of a search take of the host: a device that answers at once stands for the real.

In: two tasks of float16 on matrix units, with the knowledge that ships.  Candidates are proposed,
closed, built by NVRTC in worker processes and recorded as in any search for CUDA; what a trial
would say is drawn from what its search expects of it.  No cache is used.  With `--network`: the
tasks of a network in TF32, of which nothing is built, until each has had its first trials.
Out: seconds until the first record, CPU seconds a trial of the process that proposes and of those
that build, and how many trials a second so many cores could make of that; an entry in
`benchmarks/results/trials.json`.  Of a network: CPU seconds until there are first trials.

    PYTHONPATH=src:tests:benchmarks python benchmarks/bench_trials.py
    PYTHONPATH=src:tests:benchmarks python benchmarks/bench_trials.py --network resnet-18
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import zlib
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import results_file

from replay import ReplayRunner
from tilewright import front
from tilewright.measure.jobs import Built, Job, RunResult
from tilewright.measure.local import LocalBuilder
from tilewright.measure.pipeline import Pipeline
from tilewright.schedule.task import task_of_dag
from tilewright.search.loop import Options, tune
from tilewright.search.report import Event
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

sys.path.insert(0, str(Path(__file__).resolve().parent / "h200"))
from first_trials import KNOWN

TASKS = "conv 256x14x14 3x3", "dense 128x768x3072"
SPREAD = 0.7, 1.5  # of what a trial takes, by what was expected


def answer(job: Job) -> RunResult:
    """The same for the same candidate."""
    drawn = zlib.crc32(repr((job.origin, sorted(job.decisions.items()))).encode()) / 2**32
    least, most = SPREAD
    return RunResult(((job.predicted or 1e-5) * (least + drawn * (most - least)),), verified=True)


def measure(name: str, trials: int, processes: int, cores: int) -> dict[str, Any]:
    task = with_rules(task_of_dag(ComputeDAG(KNOWN[name]()), Target("cuda -arch=sm_90"), name))
    began, used, children = time.monotonic(), time.process_time(), _of_children()
    records: list[tuple[float, float]] = []

    def heard(event: Event) -> None:
        if event.kind == "trial":
            records.append((time.monotonic() - began, time.process_time() - used))

    runner = ReplayRunner(answer)
    with LocalBuilder(n_parallel=processes) as builder, Pipeline(builder, runner) as pipeline:
        tune(
            [task], pipeline, None, Options(trials=trials, leaders=0), on_event=heard, verify=False
        )
    runner.close()
    time.sleep(0.5)  # until those that build were waited for, whose time is known then
    first, last = records[0], records[-1]
    mine = (last[1] - first[1]) / (len(records) - 1)
    builds = (_of_children() - children) / len(records)
    return {
        "task": name,
        "trials": len(records),
        "first after, s": round(first[0], 2),
        "own CPU until then, s": round(first[1], 2),
        "own CPU a trial, ms": round(mine * 1e3, 1),
        "builders' CPU a trial, ms": round(builds * 1e3),
        f"trials/s of {cores} cores, at most": round(min(1 / mine, cores / (mine + builds)), 1),
    }


class Unbuilt(LocalBuilder):
    """Its processes look at spaces; nothing is built."""

    def submit(self, job: Job) -> Future[Built]:
        done: Future[Built] = Future()
        done.set_result(Built())
        return done


def measure_network(name: str, processes: int, cores: int) -> dict[str, Any]:
    """What begins a search of a network: predictions, and looks at the spaces of its tasks."""
    target = Target("cuda -arch=sm_90 -precision=tf32")
    tasks = front.tasks_of(front.load(name), target, "xgb", True, Options(seconds=60.0))
    used, children = time.process_time(), _of_children()
    first: dict[int, float] = {}

    def heard(event: Event) -> None:
        if event.kind == "trial":
            first.setdefault(event.task, time.process_time() - used)

    runner, trials = ReplayRunner(answer), 4 * len(tasks)
    with Unbuilt(n_parallel=processes) as builder, Pipeline(builder, runner) as pipeline:
        tune(tasks, pipeline, None, Options(trials=trials, leaders=0), on_event=heard, verify=False)
    runner.close()
    time.sleep(0.5)
    looks = _of_children() - children
    return {
        "network": name,
        "tasks": len(tasks),
        "with a trial": len(first),
        "own CPU until the first, s": round(min(first.values()), 2),
        "own CPU until all, s": round(max(first.values()), 2),
        "CPU of looks, s": round(looks, 1),
        f"of {cores} cores, s": round(looks / cores, 1),
    }


def _of_children() -> float:
    told = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told.ru_utime + told.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=200, help="of each task")
    parser.add_argument(
        "--processes", type=int, default=None, help="that build; default: one a core"
    )
    parser.add_argument("--cores", type=int, default=16, help="of the machine to tell about")
    parser.add_argument("--network", help="its tasks' first trials instead, as networks are named")
    parser.add_argument("--no-save", action="store_true", help="only print")
    options = parser.parse_args()
    os.environ["TILEWRIGHT_CACHE"] = "off"
    processes = options.processes or len(os.sched_getaffinity(0))
    if options.network:
        rows = [measure_network(options.network, processes, options.cores)]
    else:
        rows = [measure(name, options.trials, processes, options.cores) for name in TASKS]
    print(results_file.table(rows))
    if not options.no_save:
        results_file.append("trials", rows, results_file.cpu_name(), processes=processes)


if __name__ == "__main__":
    main()
