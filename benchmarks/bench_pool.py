"""Networks on the CPU beside 0, 1, 2 and 4 busy processes: our thread pool and onnxruntime's.

Every engine is a process of its own and they take turns of some 100 ms, so that other work on the
machine meets all alike.  A small network of some 20 us and ResNet-18, both without tuning; a sample
is the wall time of one call from Python.  Slowdowns are against the same engine beside no process,
which tells something only on a machine that is otherwise idle: the load average is printed.

    PYTHONPATH=src python benchmarks/bench_pool.py [--threads 2] [--before ../other/checkout]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import results_file

from tilewright.models.zoo import get_network
from tilewright.models.zoo.layers import create_workload
from tilewright.network.build import build
from tilewright.runtime.device import cpu
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay

# How a network is called: for how many seconds in a turn, with which pause between two calls.
CALLS = {"small": (0.1, 0.0), "small, paused": (0.1, 2e-4), "resnet-18": (0.4, 0.0)}
BUSY = "while True: pass"
Run = Callable[[], object]


def workload(name: str) -> tuple[relay.IRModule, dict]:
    if not name.startswith("small"):
        return get_network(name)
    x = relay.var("data", shape=(8, 256))
    for k in range(4):
        x = relay.nn.relu(relay.nn.dense(x, relay.var(f"w{k}"), units=256))
    return create_workload(relay.Function(relay.free_vars(x), x))


def ours(name: str) -> Run:
    mod, params = workload(name)
    return GraphModule(build(mod, "llvm", params)["default"](cpu())).run


def onnxruntime(name: str, threads: int) -> Run:
    import onnxruntime

    mod, params = workload(name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        relay.to_onnx(mod, params).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    given = {i.name: np.ones(i.shape, np.float32) for i in session.get_inputs()}
    return lambda: session.run(None, given)


def serve(engine: str, threads: int) -> None:
    """Answer the name of each network with the seconds of every call made in its turn."""
    make = (lambda n: onnxruntime(n, threads)) if engine == "onnxruntime" else ours
    runs = {name: make(name) for name in CALLS}
    print("[]", flush=True)
    for line in sys.stdin:
        name = line.strip()
        seconds, pause = CALLS[name]
        run, times, now = runs[name], [], time.perf_counter
        run()
        end = now() + seconds
        while (began := now()) < end:
            run()
            times.append(now() - began)
            if pause:
                time.sleep(pause)
        print(json.dumps(times), flush=True)


class Engine:
    """An engine in a process of its own."""

    def __init__(self, name: str, threads: int, source: Path) -> None:
        command = [sys.executable, __file__, "--serve", name, "--threads", str(threads)]
        settings = {"PYTHONPATH": str(source), "TILEWRIGHT_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command, env={**os.environ, **settings}, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def answer(self) -> list[float]:
        assert self.process.stdout is not None
        found: list[float] = json.loads(self.process.stdout.readline())
        return found

    def calls(self, network: str) -> list[float]:
        """Seconds of each call of a turn."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{network}\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def busy_processes(number: int, stack: ExitStack) -> None:
    for _ in range(number):
        process = subprocess.Popen([sys.executable, "-c", BUSY])
        stack.callback(process.wait)
        stack.callback(process.kill)


def measure(engines: dict[str, Engine], busy: int, turns: int) -> list[dict[str, Any]]:
    """A row for each network and engine, beside `busy` busy processes."""
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        busy_processes(busy, stack)
        time.sleep(0.2)
        for _ in range(turns):
            for network in CALLS:
                for name, engine in engines.items():
                    found.setdefault((network, name), []).extend(engine.calls(network))
                    time.sleep(0.02)  # threads that wait by spinning have gone to sleep
    rows: list[dict[str, Any]] = []
    for (network, name), times in found.items():
        times.sort()
        rows.append({
            "network": network, "engine": name, "busy": busy, "calls": len(times),
            "min_us": times[0] * 1e6, "median_us": statistics.median(times) * 1e6,
            "mean_us": statistics.fmean(times) * 1e6, "p99_us": times[len(times) * 99 // 100] * 1e6,
        })  # fmt: skip
    return rows


def add_slowdowns(rows: list[dict[str, Any]]) -> None:
    """Of median and mean, against the same engine and network beside the fewest processes.

    of_onnxruntime: the slowdown of the mean over that of onnxruntime
    """
    idle: dict[tuple[str, str], dict[str, Any]] = {}
    peer: dict[tuple[str, int], float] = {}
    for row in rows:
        first = idle.setdefault((row["network"], row["engine"]), row)
        for what in ("median", "mean"):
            row[f"{what}_slowdown"] = row[f"{what}_us"] / first[f"{what}_us"]
        if row["engine"] == "onnxruntime":
            peer[row["network"], row["busy"]] = row["mean_slowdown"]
    for row in rows:
        row["of_onnxruntime"] = row["mean_slowdown"] / peer[row["network"], row["busy"]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument("--busy", default="0,1,2,4", help="numbers of busy processes")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="also append to pool.json there")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve, options.threads)
    here = Path(__file__).resolve().parent.parent
    sources = {"now": here / "src", "onnxruntime": here / "src"}
    if options.before:
        sources = {"before": options.before.resolve() / "src", **sources}
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        engines = {name: Engine(name, options.threads, path) for name, path in sources.items()}
        for engine in engines.values():
            stack.callback(engine.close)
        for engine in engines.values():
            engine.answer()  # it is ready
        for busy in map(int, options.busy.split(",")):
            rows += measure(engines, busy, options.turns)
    add_slowdowns(rows)
    rows.sort(key=lambda row: (str(row["network"]), row["busy"]))
    load = os.getloadavg()[0]
    print(results_file.table(rows))
    print(
        f"{options.threads} threads, {results_file.cpu_name()}, load average at the end {load:.1f}"
    )
    if options.folder:
        results_file.append(
            "pool", rows, folder=options.folder, threads=options.threads, load_average=load
        )


if __name__ == "__main__":
    main()
