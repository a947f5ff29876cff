"""How fast a farm is: trials a second by devices, what a trial costs beside one here, what faults
cost, how two tuners share.

Trackers and servers are processes of this machine; kernels sleep, so that many of them fit on few
cores.  Writes `results/farm.json` with --keep.

PYTHONPATH=src:benchmarks:tests python benchmarks/bench_farm.py \
    [rate overhead kills lossy frozen share search]

On a host with several GPUs, `--gpus 2` starts one server per GPU, each with one of them in
CUDA_VISIBLE_DEVICES, and compares one with all of them on a real search.  `search` is that search
with devices whose kernels sleep: what the tuner's process keeps up with.
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
from itertools import count
from pathlib import Path
from typing import Any

from results_file import append, table

from farm.processes import Farm, Process
from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.driver.compilers import compile_source
from tilewright.farm.runner import FarmRunner
from tilewright.measure.jobs import Built, Job, RunJob, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import TaskId
from tilewright.runtime.device import device
from tilewright.search.loop import tune
from tilewright.search.report import Options
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

GPU_TASK = "conv 3x3 64x56x56"
OPENING = 30.0  # seconds in which every GPU should have been opened
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


def kills(tries: int = 50, loss: float = 0.0) -> list[dict[str, Any]]:
    """One of four servers is killed at a random moment, and another one started."""
    rng, lost, wrong, seeds = random.Random(0), 0, 0, count()
    jobs = [sleeper(0.02, n) for n in range(40)]

    def served(farm: Farm) -> Process:
        if not loss:
            return farm.serve("k")[0]
        return farm.serve_behind("k", loss=loss, seed=2 * next(seeds))[0]

    with started(0) as farm, runner_of(farm) as runner:
        servers = [served(farm) for _ in range(4)]
        warm(runner, 4)
        for _ in range(tries):
            futures = [runner.submit(job) for job in jobs]
            time.sleep(rng.uniform(0, 0.5))
            victim = servers.pop(rng.randrange(len(servers)))
            victim.kill()
            results = [future.result(300) for future in futures]
            lost += sum(r.cause == "machine" for r in results)
            wrong += sum(r.error is not None for r in results)
            servers.append(served(farm))
        packets = sum(proxy.lost for proxy in farm.proxies)
    row = {"kills": tries, "trials": tries * len(jobs), "lost": lost, "wrong": wrong}
    return [row | ({"packets lost": packets} if loss else {})]


def lossy() -> list[dict[str, Any]]:
    """The same, and of the packets between devices, tracker and tuner 1% is lost."""
    return kills(loss=0.01)


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


def gpus(most: int, trials: int) -> list[dict[str, Any]]:
    """A search on one GPU, and on all of them: each server sees one GPU."""
    rows = []
    for number in (1, most):
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
                    spec = runner.describe(Target("cuda"))
                    ends = time.monotonic() + OPENING
                    while len(runner._known) < number and time.monotonic() < ends:
                        time.sleep(0.01)  # until every GPU has been opened
                    rows.append({"GPUs": number, **searched(pipeline, spec, trials, True)})
            finally:
                farm.stop()
    return against_one(rows)


def search(trials: int = 400, seconds: float = 0.013) -> list[dict[str, Any]]:
    """The same search for devices whose kernels sleep, three times a trial; builds cost nothing."""
    rows = []
    spec = DeviceSpec("cuda", "sleeper", "sleeper", "sm_90")
    for number in (1, 2, 4):
        with started(number) as farm, runner_of(farm) as runner, _Sleepers(seconds) as builder:
            warm(runner, number)
            with Pipeline(builder, _AsGpus(runner, spec)) as pipeline:
                rows.append({"devices": number, **searched(pipeline, spec, trials, False)})
    return against_one(rows)


class _AsGpus:
    """Devices of a farm that say they are others."""

    def __init__(self, runner: FarmRunner, spec: DeviceSpec) -> None:
        self._runner, self._spec = runner, spec
        self.n_parallel, self.probe, self.close = runner.n_parallel, runner.probe, runner.close

    def describe(self, target: Target) -> DeviceSpec:
        return self._spec

    def submit(self, run: RunJob) -> Future[RunResult]:
        return self._runner.submit(replace(run, job=replace(run.job, target=Target("llvm"))))


class _Sleepers:
    """A builder whose artefacts sleep."""

    n_parallel = 8

    def __init__(self, seconds: float) -> None:
        self.seconds, self._numbers = seconds, count()

    def submit(self, job: Job) -> Future[Built]:
        made = sleeper(self.seconds, next(self._numbers)).artifact
        future: Future[Built] = Future()
        future.set_result(Built(made))
        return future

    def probe(self, target: Target) -> None:
        pass

    def __enter__(self) -> _Sleepers:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def searched(pipeline: Pipeline, spec: DeviceSpec, trials: int, verify: bool) -> dict[str, Any]:
    """A search of the task of GPUs: trials a second in all, and after its first result."""
    from search_tasks import task

    chosen, times = task(GPU_TASK, Target("cuda").on(spec)), [time.perf_counter()]
    tune(
        [chosen], pipeline, verify=verify,
        options=Options(trials=trials, leaders=0, fruitless=0, negligible=0),
        on_event=lambda e: times.append(time.perf_counter()) if e.kind == "trial" else None,
    )  # fmt: skip
    done = len(times) - 1
    return {
        "trials": done,
        "trials/s": round(done / (times[-1] - times[0]), 1),
        "after the first": round((done - 1) / (times[-1] - times[1]), 1),
    }


def against_one(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [r | {"against one": round(r["trials/s"] / rows[0]["trials/s"], 2)} for r in rows]


PARTS = {
    "rate": rate, "overhead": overhead, "kills": kills, "lossy": lossy, "frozen": frozen,
    "share": share, "search": search,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; or all")
    parser.add_argument("--gpus", type=int, help="compare one GPU with so many instead")
    parser.add_argument("--trials", type=int, default=1000, help="of each search of --gpus")
    parser.add_argument("--keep", action="store_true", help="write the results down, too")
    given = parser.parse_args()
    parts = {"gpus": lambda: gpus(given.gpus, given.trials)} if given.gpus else PARTS
    for name in given.parts or parts:
        rows = parts[name]()
        print(f"{name}\n{table(rows)}\n", flush=True)
        if given.keep:
            append("farm", [{"part": name, **row} for row in rows])


if __name__ == "__main__":
    main()
