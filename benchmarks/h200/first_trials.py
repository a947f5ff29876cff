"""How near the first 32 trials of a search come to the best of 800, in halves on matrix units.

In: twelve operators, six of shapes that the shipped knowledge was measured on, six of others.
Each is tuned alone, by templates and rules, with the knowledge that ships: its trees, and records
where a network had the very same computation.  Out: per task trials a second, failures, the best of
the whole log over the best of its first 32 trials, the trials until within 5% of the best;
`results/first_trials_cuda.json`.

    CUDA_CACHE_DISABLE=1 TILEWRIGHT_CACHE=off PYTHONPATH=src:benchmarks \
      python benchmarks/h200/first_trials.py --trials 800 --seconds 40
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import results_file
import search_tasks
from bench_auto_scheduler import FIRST, NEAR, resolved, run

from tilewright import te, topi
from tilewright.runtime.device import device
from tilewright.schedule.task import task_of_dag
from tilewright.search.rules.derive import with_rules
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor


def _conv(
    channels: int, size: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1
) -> list[Tensor]:
    """NHWC, padded to keep its size before the stride, with bias and ReLU."""
    data = te.placeholder((1, size, size, channels), "float16", "data")
    weight = te.placeholder((kernel, kernel, channels, outputs), "float16", "kernel", constant=True)
    padding = dilation * (kernel // 2)
    conv = topi.nn.conv2d_nhwc(data, weight, stride, padding, dilation, out_dtype="float32")
    bias = te.placeholder((1, 1, 1, outputs), "float16", "bias", constant=True)
    return [data, weight, bias, topi.nn.relu(topi.add(topi.cast(conv, "float16"), bias))]


def _dense(rows: int, inner: int, columns: int) -> list[Tensor]:
    data = te.placeholder((rows, inner), "float16", "data")
    weight = te.placeholder((columns, inner), "float16", "weight", constant=True)
    bias = te.placeholder((columns,), "float16", "bias", constant=True)
    product = topi.nn.dense(data, weight, out_dtype="float32")
    return [data, weight, bias, topi.add(topi.cast(product, "float16"), bias)]


KNOWN: dict[str, Callable[[], list[Tensor]]] = {
    "conv 64x56x56 3x3": lambda: _conv(64, 56, 64, 3),
    "conv 256x14x14 3x3": lambda: _conv(256, 14, 256, 3),
    "conv 256x14x14 1x1 to 1024": lambda: _conv(256, 14, 1024, 1),
    "dense 1024x1024x1024": lambda: _dense(1024, 1024, 1024),
    "dense 128x768x3072": lambda: _dense(128, 768, 3072),
    "attention 12x197x64": lambda: search_tasks.attention(12, 197, 197, 64, "float16"),
}
OTHERS: dict[str, Callable[[], list[Tensor]]] = {
    "conv 80x40x40 3x3 to 112": lambda: _conv(80, 40, 112, 3),
    "conv 192x27x27 5x5": lambda: _conv(192, 27, 192, 5),
    "conv 96x33x33 3x3 / 2 to 160": lambda: _conv(96, 33, 160, 3, 2),
    "conv 128x24x24 3x3 dilated": lambda: _conv(128, 24, 128, 3, 1, 2),
    "dense 300x1100x700": lambda: _dense(300, 1100, 700),
    "batch_matmul 20x300x80x300": lambda: search_tasks.batch_matmul(20, 300, 80, 300, "float16"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trials", type=int, default=800)
    parser.add_argument("--seconds", type=float, default=None, help="at most, per task")
    parser.add_argument("--only", default="", help="part of the names of the tasks to run")
    parser.add_argument("--folder", type=Path, default=None, help="where logs and results go")
    options = parser.parse_args()
    target, rows = resolved("cuda"), []
    for name, make in {**KNOWN, **OTHERS}.items():
        if options.only not in name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            logs = options.folder or Path(scratch)
            logs.mkdir(parents=True, exist_ok=True)
            task = with_rules(task_of_dag(ComputeDAG(make()), target, name))
            report, database = run(
                [task], logs, trials=options.trials, seconds=options.seconds, leaders=0
            )
            records = sorted(
                database.query((task.key, str(task.target))), key=lambda record: record.trial
            )
        rows.append({"task": name, "shapes": "known" if name in KNOWN else "others",
                     **row(report, [record.seconds for record in records])})  # fmt: skip
        print(rows[-1], flush=True)
        results_file.append(
            "first_trials_cuda", rows, device("cuda").name, folder=options.folder,
            again=len(rows) > 1, trials=options.trials, seconds=options.seconds,
        )  # fmt: skip
    print(results_file.table(rows))
    if len(rows) > 1:
        print("median of first:", statistics.median(row["first"] for row in rows))


def row(report: Any, seconds: list[float]) -> dict[str, Any]:
    """first: the best over the best of the first 32; near: trials until within 5% of it."""
    (found,) = report.tasks
    so_far = np.minimum.accumulate(seconds)
    return {
        "trials": found.trials,
        "failed": found.failed,
        "trials_per_second": round(found.trials / report.seconds, 2),
        "best_us": round(so_far[-1] * 1e6, 2),
        "first": round(float(so_far[-1] / so_far[min(FIRST, len(seconds)) - 1]), 3),
        "near": int(np.argmax(so_far <= so_far[-1] * NEAR)) + 1,
        "won_by": found.best.origin if found.best else "",
    }


if __name__ == "__main__":
    main()
