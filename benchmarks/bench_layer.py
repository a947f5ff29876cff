"""A convolution + bias + ReLU on a device: a minute of tuning in every implementation, then peers.

The default is the flagship, 7 x 7 x 512 with 512 filters of 3 x 3, on the CPU.  Engines take turns,
since a shared machine is now fast and now slow; the median of an engine's quietest turn counts.
`direct` is the same build from the records of the direct convolution alone.

    PYTHONPATH=src python benchmarks/bench_layer.py [--seconds 60]
    PYTHONPATH=src python benchmarks/bench_layer.py --channels 64 --size 56 --target cuda
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import results_file

from tilewright.measure.database import Database
from tilewright.measure.record import task_label
from tilewright.models.peers.engines import onnxruntime_benchmark, torch_benchmark
from tilewright.models.zoo.layers import create_workload
from tilewright.network.build import build
from tilewright.network.tune import as_described, tasks_of, tune
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.search.report import Options
from tilewright.targets.target import Target
from tilewright_tvm import relay

TURNS = 5
FLAGSHIP = (512, 7)


def layer(channels: int, size: int) -> tuple[relay.IRModule, dict]:
    """One channels x size x size layer, as many filters of 3 x 3, bias and ReLU, as a network."""
    data = relay.var("data", shape=(1, channels, size, size))
    conv = relay.nn.conv2d(
        data, relay.var("weight"), channels=channels, kernel_size=(3, 3), padding=(1, 1)
    )
    out = relay.nn.relu(relay.nn.bias_add(conv, relay.var("bias", shape=(channels,))))
    return create_workload(relay.Function(relay.free_vars(out), out))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--channels", type=int, default=FLAGSHIP[0])
    parser.add_argument("--size", type=int, default=FLAGSHIP[1])
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    target = as_described(Target(options.target))
    dev = device(target.kind)
    mod, params = layer(options.channels, options.size)
    tasks = tasks_of([mod], params, target)
    database = Database()
    report = tune(tasks, database, Options(seconds=options.seconds, seed=options.seed))
    direct = Database()
    for task in report.tasks:
        if not task.task.instead_of and task.best is not None:
            direct.append(task.best, task.task.dag.to_json())
    modules = {
        name: GraphModule(build(mod, target, params, schedules=records)["default"](dev))
        for name, records in (("untuned", []), ("direct", direct), ("tuned", database))
    }
    medians: dict[str, float | None] = {}
    for _ in range(TURNS):
        turn: dict[str, float | None] = {
            name: module.benchmark(dev, repeat=20, number=20).median
            for name, module in modules.items()
        }
        for peer in (onnxruntime_benchmark, torch_benchmark):
            found = peer(mod, params, target)
            turn[found.engine] = None if found.result is None else found.result.median
        for name, median in turn.items():
            known = medians.get(name)
            medians[name] = median if known is None or median is None else min(known, median)
    kernels = [
        {
            "implementation": task_label(t.task), "trials": t.trials, "failed": t.failed,
            "best_us": t.best_seconds and round(t.best_seconds * 1e6, 2),
            "by": t.best.origin if t.best else "",
        }
        for t in report.tasks
    ]  # fmt: skip
    rows: list[dict[str, Any]] = [
        {"engine": name, "median_us": None if median is None else round(median * 1e6, 2)}
        for name, median in medians.items()
    ]
    print(f"{report.trials} trials in {report.seconds:.0f} s")
    print(results_file.table(kernels))
    print(results_file.table(rows))
    flagship = (options.channels, options.size) == FLAGSHIP
    what = "flagship" if flagship else f"layer_{options.channels}x{options.size}"
    results_file.append(
        f"{what}_{target.kind}" if target.kind != "llvm" else f"cpu_{what}", rows, dev.name,
        folder=options.folder, trials=report.trials, tuning_seconds=options.seconds,
        kernels=kernels,
    )  # fmt: skip


if __name__ == "__main__":
    main()
