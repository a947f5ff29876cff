"""How fast a farm is: trials a second by devices, what a trial costs beside one here, what faults
cost, how two tuners share.

Trackers and servers are processes of this machine; kernels sleep, so that many of them fit on few
cores.  Writes `results/farm.json` with --keep.

PYTHONPATH=src:benchmarks:tests python benchmarks/bench_farm.py [rate overhead kills frozen share]

On a host with several GPUs, `--gpus 2` starts one server per GPU, each with one of them in
CUDA_VISIBLE_DEVICES, and compares one with all of them on a real search.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from results_file import append, table

from farm.processes import Farm
from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.driver.compilers import compile_source
from tilewright.farm.runner import FarmRunner
from tilewright.measure.jobs import Job, RunJob, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import TaskId
from tilewright.runtime.device import device
from tilewright.search.loop import tune
from tilewright.search.report import Options
from tilewright.targets.target import Target

GPU_TASK = "conv 3x3 64x56x56"
SLEEP = """
define void @sleep(ptr %a, ptr %b) {{
  %r = call i32 @usleep(i32 {microseconds})
  store float 1.0, ptr %b
  ret void
}}
declare i32 @usleep(i32)"""


def sleeper(seconds: float, number: int) -> RunJob:
    """A kernel that sleeps; its trial runs it three times.  number: makes it another program"""
    specs = tuple(BufferSpec(n, "float32", (1,), r) for n, r in (("a", "input"), ("b", "output")))
    text = f"; {number}{SLEEP.format(microseconds=int(seconds * 1e6))}"
    source = Source("llvm", text, "sleep", specs, (KernelInfo("sleep", (0, 1)),))
    artifact: Artifact = compile_source(source, device("cpu").target)
    job = Job(TaskId("sleep", [], "sleep", "llvm"), {}, None, target=Target("llvm"))
    return RunJob(job, artifact, race=False)


@contextmanager
def started(devices: int) -> Iterator[Farm]:
    with tempfile.TemporaryDirectory() as folder:
        farm = Farm(Path(folder))
        try:
            farm.serve(*["k"] * devices)
            yield farm
        finally:
            farm.stop()


def runner_of(farm: Farm) -> FarmRunner:
    return FarmRunner(
        "k", "127.0.0.1", farm.port, timeout=60, number=1, repeat=1, race=False,
        on_notice=lambda text: None,
    )  # fmt: skip


def seconds_of(runner: Any, jobs: list[RunJob]) -> float:
    """Of all of them, after the runner's processes have started."""
    began = time.perf_counter()
    futures: list[Future[RunResult]] = [runner.submit(job) for job in jobs]
    for future in futures:
        assert future.result().error is None, future.result()
    return time.perf_counter() - began


def warm(runner: Any, devices: int) -> None:
    seconds_of(runner, [sleeper(0.2, -1)] * (4 * devices))


def rate() -> list[dict[str, Any]]:
    """Trials a second of kernels that sleep 50 ms.  ideal: those of this machine, times devices."""
    jobs = [sleeper(0.05, n) for n in range(20)]
    with LocalRunner(timeout=60, number=1, repeat=1, race=False) as local:
        warm(local, 1)
        alone = len(jobs) / seconds_of(local, jobs)
    rows = []
    for devices in (1, 2, 4, 8):
        with started(devices) as farm, runner_of(farm) as runner:
            warm(runner, devices)
            many = [replace(j) for _ in range(2 * devices) for j in jobs]
            found = len(many) / seconds_of(runner, many)
        ideal = alone * devices
        rows.append(
            {
                "devices": devices,
                "trials/s": round(found, 1),
                "of ideal": f"{found / ideal:.1%}",
                "local trials/s": round(alone, 1),
            }
        )
    return rows


def overhead() -> list[dict[str, Any]]:
    """What one trial after another costs, beside the same on this machine."""
    jobs = [sleeper(0.0, n) for n in range(100)]
    with (
        started(1) as farm,
        runner_of(farm) as far,
        LocalRunner(timeout=60, number=1, repeat=1, race=False) as local,
    ):
        warm(local, 1)
        warm(far, 1)
        pairs = [(seconds_of(local, [job]), seconds_of(far, [job])) for job in jobs]
    here, there = (statistics.median(column) for column in zip(*pairs, strict=True))
    return [
        {
            "local ms": round(here * 1e3, 2),
            "farm ms": round(there * 1e3, 2),
            "overhead ms": round((there - here) * 1e3, 2),
        }
    ]


def kills(tries: int = 50) -> list[dict[str, Any]]:
    """One of four servers is killed at a random moment, and another one started."""
    rng, lost, wrong = random.Random(0), 0, 0
    jobs = [sleeper(0.02, n) for n in range(40)]
    with started(4) as farm, runner_of(farm) as runner:
        servers = [p for p in farm.started if p.name == "rpc_server"]
        warm(runner, 4)
        for _ in range(tries):
            futures = [runner.submit(job) for job in jobs]
            time.sleep(rng.uniform(0, 0.5))
            victim = servers.pop(rng.randrange(len(servers)))
            victim.kill()
            results = [future.result(300) for future in futures]
            lost += sum(r.cause == "machine" for r in results)
            wrong += sum(r.error is not None for r in results)
            servers += farm.serve("k")
    return [{"kills": tries, "trials": tries * len(jobs), "lost": lost, "wrong": wrong}]


def frozen(tries: int = 5) -> list[dict[str, Any]]:
    """Seconds until the tuner knows that a device says nothing."""
    found = []
    with started(2) as farm, runner_of(farm) as runner:
        warm(runner, 2)
        victim = farm.started[-1]
        for _ in range(tries):
            victim.send(signal.SIGSTOP)
            began = time.perf_counter()
            while runner._dispatch.total == 2:
                time.sleep(0.01)
            found.append(time.perf_counter() - began)
            victim.send(signal.SIGCONT)
            while runner._dispatch.total == 1:
                time.sleep(0.01)
    return [{"freezes": tries, "noticed after s": f"{min(found):.1f} to {max(found):.1f}"}]


def share() -> list[dict[str, Any]]:
    """Two tuners on three devices, alike and one with trials twice as long: who gets how much."""
    rows = []
    for lengths in ((0.03, 0.03), (0.03, 0.06)):
        with started(3) as farm, runner_of(farm) as one, runner_of(farm) as two:
            warm(one, 3)
            jobs = [[sleeper(s, n) for n in range(150)] for s in lengths]
            futures = [[r.submit(j) for j in js] for r, js in zip((one, two), jobs, strict=True)]
            while not any(all(f.done() for f in fs) for fs in futures):
                time.sleep(0.01)
            done = [sum(f.done() for f in fs) for fs in futures]
            times = [sum(f.result().seconds for f in fs if f.done()) for fs in futures]
        rows.append(
            {
                "trials ms": " and ".join(f"{3e3 * s:g}" for s in lengths),
                "done": " and ".join(map(str, done)),
                "share of time": " and ".join(f"{t / sum(times):.1%}" for t in times),
            }
        )
    return rows


def gpus(count: int, trials: int = 200) -> list[dict[str, Any]]:
    """A search on one GPU, and on all of them: each server sees one GPU."""
    from search_tasks import task

    rows = []
    for number in (1, count):
        with tempfile.TemporaryDirectory() as folder:
            farm = Farm(Path(folder))
            try:
                for index in range(number):
                    os.environ["CUDA_VISIBLE_DEVICES"] = str(index)
                    farm.serve("gpu")
                os.environ.pop("CUDA_VISIBLE_DEVICES")
                with (
                    FarmRunner("gpu", "127.0.0.1", farm.port, min_repeat_ms=20) as runner,
                    LocalBuilder() as builder,
                    Pipeline(builder, runner) as pipeline,
                ):
                    target = Target("cuda")
                    chosen = task(GPU_TASK, target.on(runner.describe(target)))
                    began = time.perf_counter()
                    report = tune([chosen], pipeline, None, Options(trials=trials, leaders=0))
                    spent = time.perf_counter() - began
            finally:
                farm.stop()
        done = report.tasks[0].trials
        rows.append({"GPUs": number, "trials": done, "trials/s": round(done / spent, 1)})
    for row in rows:
        row["against one"] = round(row["trials/s"] / rows[0]["trials/s"], 2)
    return rows


PARTS = {"rate": rate, "overhead": overhead, "kills": kills, "frozen": frozen, "share": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; or all")
    parser.add_argument("--gpus", type=int, help="compare one GPU with so many instead")
    parser.add_argument("--keep", action="store_true", help="write the results down, too")
    given = parser.parse_args()
    parts = {"gpus": lambda: gpus(given.gpus)} if given.gpus else PARTS
    for name in given.parts or parts:
        rows = parts[name]()
        print(f"{name}\n{table(rows)}\n", flush=True)
        if given.keep:
            append("farm", [{"part": name, **row} for row in rows])


if __name__ == "__main__":
    main()
