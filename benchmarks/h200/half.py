"""Half precision on a GPU without matrix units: each operator's best in float32 and in other types.

In: ResNet-18's convolutions, and depthwise convolution, dense, batch_matmul, softmax, pooling and
addition, small ones as networks have them and large ones that memory bounds.  Every type of an
operator is tuned for some seconds by templates and rules, in turns with the others; what is best
was verified against the reference, and the leaders of all types are timed again in turn at the end.
Out: a table, and an entry in `results/half_KIND.json`.

    PYTHONPATH=src python benchmarks/h200/half.py --seconds 4.5 --limit 330

bound_us: the time that the bytes of all arguments take, each moved once: from the second-level
          cache where they fit into it, otherwise from memory
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import search_tasks
from resnet18_layers import LAYERS
from results_file import append, table

from tilewright.base.dtype import FLOAT32, DType
from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.runtime.device import device
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.loop import Options, tune
from tilewright.search.report import TaskReport
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

HALF = ("float32", "float16")
FLOATS = (*HALF, "bfloat16")
ALL = (*FLOATS, "int8")

# name -> (tensors of an element type, types)
Make = Callable[..., list[Tensor]]
OPERATORS: dict[str, tuple[Make, tuple[str, ...]]] = {
    "softmax 4096x1024": (partial(search_tasks.softmax, 4096, 1024), FLOATS),
    "add + relu 8x64x112x112": (partial(search_tasks.add_relu, 8, 64, 112, 112), ALL),
    "depthwise 16x128x56x56": (partial(search_tasks.depthwise_relu, 128, 56, 16), ALL),
    "dense 1x4096-4096": (partial(search_tasks.dense_bias, 1, 4096, 4096), ALL),
    "max_pool 64x112x112": (partial(search_tasks.max_pool, 64, 112), HALF),
    "softmax 1536x128": (partial(search_tasks.softmax, 1536, 128), HALF),
    "depthwise 512x14x14": (partial(search_tasks.depthwise_relu, 512, 14), HALF),
    "dense 1x2048-1000": (partial(search_tasks.dense_bias, 1, 2048, 1000), HALF),
    "dense 256x1024-1024": (partial(search_tasks.dense_bias, 256, 1024, 1024), ALL),
    "batch_matmul 12x128x64": (partial(search_tasks.batch_matmul, 12, 128, 64, 128), FLOATS),
    "batch_matmul 16x512x64": (partial(search_tasks.batch_matmul, 16, 512, 64, 512), HALF),
    **{
        f"conv {layer}": (
            partial(
                search_tasks.conv2d_bias_relu,
                layer.ci, layer.size, layer.co, layer.kernel, layer.stride,
            ),
            ALL if number == 1 else HALF,
        )
        for number, layer in enumerate(LAYERS)
    },
}  # fmt: skip


def task_of(name: str, dtype: str, target: Target) -> Task:
    make, _ = OPERATORS[name]
    return with_rules(task_of_dag(ComputeDAG(make(dtype=dtype)), target, f"{name} {dtype}"))


def bound_us(task: Task) -> float:
    limits = task.target.limits
    moved = sum(t.dtype.bytes * _elements(t) for t in task.dag.args)
    fits = moved < limits.l2_bytes
    return 1e6 * moved / (limits.l2_bandwidth if fits else limits.memory_bandwidth)


def _elements(tensor: Tensor) -> int:
    count = 1
    for extent in tensor.shape:
        count *= int(extent)
    return count


def row_of(name: str, dtype: str, found: TaskReport, whole: float | None) -> dict[str, Any]:
    """whole: microseconds in float32"""
    us = None if found.best_seconds is None else found.best_seconds * 1e6
    return {
        "operator": name,
        "type": dtype,
        "us": "none verified" if us is None else us,
        "times_float32": "" if us is None or whole is None else whole / us,
        "bound_us": bound_us(found.task),
        "trials": found.trials,
        "failed": found.failed,
        "won_by": found.best.origin.split(":")[0] if found.best else "",
    }


def measured(name: str, types: list[str], target: Target, pipeline: Pipeline, database: Database,
             seconds: float) -> list[dict[str, Any]]:  # fmt: skip
    tasks = [task_of(name, dtype, target) for dtype in types]
    options = Options(seconds=seconds * len(tasks), order="turns", leaders=2, negligible=0.0)
    report = tune(tasks, pipeline, database, options)
    best = {dtype: found.best_seconds for dtype, found in zip(types, report.tasks, strict=True)}
    whole = best.get(FLOAT32)
    for dtype, found in zip(types, report.tasks, strict=True):
        if found.best is None:
            print(f"  {name} {dtype}: {found.failure[:600]}", flush=True)
    return [
        row_of(name, dtype, found, whole and whole * 1e6)
        for dtype, found in zip(types, report.tasks, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cuda", help="cuda or opencl")
    parser.add_argument("--seconds", type=float, default=4.5, help="of tuning, per type")
    parser.add_argument("--limit", type=float, default=330.0, help="seconds for all; then it ends")
    parser.add_argument("--operators", default="", help="parts of names, comma-separated")
    parser.add_argument("--types", default=",".join(ALL))
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    began = time.monotonic()
    wanted = [part for part in options.operators.split(",") if part]
    names = [n for n in OPERATORS if not wanted or any(part in n for part in wanted)]
    allowed = {DType(t) for t in options.types.split(",")}
    rows: list[dict[str, Any]] = []
    skipped = []
    with tempfile.TemporaryDirectory() as scratch:
        database = Database(Path(scratch) / "trials.jsonl")
        runner = LocalRunner(timeout=10, number=4, repeat=3, min_repeat_ms=20)
        with Pipeline(LocalBuilder(), runner, database) as pipeline:
            asked = Target(options.target)
            target = asked.on(runner.describe(asked))
            for name in names:
                if time.monotonic() - began > options.limit:
                    skipped.append(name)
                    continue
                types = [t for t in OPERATORS[name][1] if t in allowed]
                rows += measured(name, types, target, pipeline, database, options.seconds)
                print(f"{time.monotonic() - began:.0f} s\n{table(rows[-len(types) :])}", flush=True)
    print(table(rows))
    if skipped:
        print(f"no time was left for {', '.join(skipped)}")
    notes = {"target": str(target), "seconds_per_type": options.seconds, "skipped": skipped}
    path = append(f"half_{target.kind}", rows, device(options.target).name,
                  folder=options.folder, **notes)  # fmt: skip
    print(f"{time.monotonic() - began:.0f} s in all; written to {path}")


if __name__ == "__main__":
    main()
