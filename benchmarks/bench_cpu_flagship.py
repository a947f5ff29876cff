"""The flagship convolution + bias + ReLU on a CPU: a minute of tuning, then the peers.

Engines take turns, since a shared machine is now fast and now slow; the median of an engine's
quietest turn counts.

PYTHONPATH=src python benchmarks/bench_cpu_flagship.py [--seconds 60]
"""

from __future__ import annotations

import argparse

import results_file

from tilewright import relay
from tilewright.cli.network import task_label
from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.relay.compile.build import build
from tilewright.relay.compile.extract import fused_tasks
from tilewright.relay.peers.engines import onnxruntime_benchmark, torch_benchmark
from tilewright.relay.testing import create_workload
from tilewright.runtime.device import cpu
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.search.loop import Options, tune
from tilewright.search.rules.derive import with_rules

TURNS = 5


def layer() -> tuple[relay.IRModule, dict]:
    """One 512 x 7 x 7 layer, 512 filters of 3 x 3, with bias and ReLU, as a network."""
    data = relay.var("data", shape=(1, 512, 7, 7))
    conv = relay.nn.conv2d(
        data, relay.var("weight"), channels=512, kernel_size=(3, 3), padding=(1, 1)
    )
    out = relay.nn.relu(relay.nn.bias_add(conv, relay.var("bias", shape=(512,))))
    return create_workload(relay.Function(relay.free_vars(out), out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    seconds = parser.parse_args().seconds
    mod, params = layer()
    (task,) = fused_tasks(mod, params, "llvm")
    database = Database()
    runner = LocalRunner(min_repeat_ms=20)
    with Pipeline(LocalBuilder(), runner, database) as pipeline:
        report = tune([with_rules(task)], pipeline, database, Options(seconds=seconds))
    modules = {
        name: GraphModule(build(mod, "llvm", params, schedules=records)["default"](cpu()))
        for name, records in (("untuned", []), ("tuned", database))
    }
    medians: dict[str, float | None] = {}
    for _ in range(TURNS):
        turn: dict[str, float | None] = {
            name: module.benchmark(cpu(), repeat=20, number=20).median
            for name, module in modules.items()
        }
        for peer in (onnxruntime_benchmark(mod, params), torch_benchmark(mod, params)):
            turn[peer.engine] = None if peer.result is None else peer.result.median
        for name, median in turn.items():
            known = medians.get(name)
            medians[name] = median if known is None or median is None else min(known, median)
    rows = [
        {"engine": name, "median_ms": None if median is None else round(median * 1e3, 3)}
        for name, median in medians.items()
    ]
    print(f"{task_label(task)}: {report.trials} trials in {report.seconds:.0f} s")
    print(results_file.table(rows))
    results_file.append("cpu_flagship", rows, trials=report.trials, tuning_seconds=seconds)


if __name__ == "__main__":
    main()
