"""A network on a device: the figures of `tilewright bench`, kept as a dated result.

Tuning and timing are separate, resumable commands:

    tilewright tune resnet-18-v1 --target cuda --minutes 7 --log r18.jsonl
    python benchmarks/network.py resnet-18-v1 --log r18.jsonl
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

import results_file

from tilewright.cli.bench import bench_network
from tilewright.cli.network import load_model, real_target
from tilewright.cli.tables import print_bench
from tilewright.measure.database import Database
from tilewright.targets.target import Target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--log", required=True)
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    mod, params = load_model(options.model)
    database = Database.load(options.log)
    target = real_target(Target(options.target))
    report = bench_network(options.model, mod, params, target, database)
    print_bench(report)
    rows = [
        {
            "engine": x.engine,
            "median_us": round(statistics.median(x.seconds) * 1e6, 2) if x.seconds else None,
            "std_us": round(statistics.pstdev(x.seconds) * 1e6, 2) if x.seconds else None,
            "note": x.note,
        }
        for x in report.latencies
    ]
    kernels = [
        {
            "kernel": k.name,
            "calls": k.calls,
            "source": k.source,
            "us": round(k.seconds * 1e6, 2) if k.seconds else None,
        }
        for k in report.kernels
    ]
    counts = database.counts()
    results_file.append(
        f"network_{options.model}_{target.kind}", rows, report.device, folder=options.folder,
        trials=counts.records, failed=counts.failed, relative_error=report.relative_error,
        kernels=kernels,
    )  # fmt: skip


if __name__ == "__main__":
    main()
