"""One row and few rows times weights on a GPU, the weights cold and warm; and the same by cuBLAS.

In: rows, inputs and outputs of dense layers with bias, in halves.  Each is tuned for some seconds
with weights that come from memory, as in a language model's step; what is best was verified against
the reference.  It and PyTorch's are then timed in the same process: cold, by turns on copies of the
weights that no cache holds; ours likewise where each launch may begin before the one before it has
ended; and warm, on the same weights again and again.  Out: a table, and an entry in
`results/rows_cuda.json`.

    PYTHONPATH=src:benchmarks python benchmarks/h200/rows.py --seconds 8 --only "1x,16x"

share: of the bytes of weights per second that the device's memory is said to give, cold
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import search_tasks
from kernels import replayed
from results_file import append, table

from tilewright.base.environment import DEPENDENT_LAUNCH
from tilewright.driver.build import build_artifact
from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import Record
from tilewright.runtime.cold import MOST_COPIES
from tilewright.runtime.device import Device, device
from tilewright.runtime.trial import trial
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.loop import Options, tune
from tilewright.search.rules.derive import with_rules
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import random_inputs

COLD_BYTES = 268 << 20  # several times what the second-level cache holds
BANDWIDTH = 4.8e12  # bytes per second, of the data sheet
CASES = [
    (rows, inputs, outputs)
    for inputs, outputs in ((4096, 4096), (2048, 8192), (8192, 2048), (2048, 128256))
    for rows in (1, 4, 16)
]
WAYS = {"cold": (COLD_BYTES, False), "early": (COLD_BYTES, True), "warm": (0, False)}


def ours_us(task: Task, best: Record, on: Device) -> dict[str, float]:
    """Microseconds of the best candidate in each of `WAYS`."""
    inputs = random_inputs(task.dag, 0)
    given = [t for t in task.dag.args if t not in task.dag.outputs]
    constants = [k for k, t in enumerate(given) if getattr(t.op, "constant", False)]
    taken = {}
    for way, (cold, early) in WAYS.items():
        os.environ[DEPENDENT_LAUNCH] = "early" if early else "off"
        schedule = Schedule.replay(task.dag, best.steps)
        artifact = build_artifact(
            schedule, task.target, "rows", chained="early" if early else False
        )
        found = trial(artifact, on, inputs, number=16, repeat=5, min_repeat_ms=5,
                      constants=constants, cold_bytes=cold)  # fmt: skip
        taken[way] = statistics.median(found.costs) * 1e6 if found.costs else float("nan")
    os.environ[DEPENDENT_LAUNCH] = "off"
    return taken


def peer_us(rows: int, inputs: int, outputs: int, dtype: str) -> dict[str, float]:
    """Microseconds of PyTorch's linear layer, cold and warm, in graphs."""
    try:
        import torch
    except ImportError:
        return {}
    draw = partial(torch.randn, device="cuda", dtype=getattr(torch, dtype))
    data, weight, bias = draw(rows, inputs), draw(outputs, inputs), draw(outputs)
    copies = min(max(-(-COLD_BYTES // (weight.numel() * weight.element_size())), 2), MOST_COPIES)
    several = itertools.cycle([weight, *(weight.clone() for _ in range(copies - 1))])
    linear = torch.nn.functional.linear
    cold = replayed(torch, lambda: linear(data, next(several), bias), calls=2 * copies)
    return {"cold": cold, "warm": replayed(torch, lambda: linear(data, weight, bias))}


def row_of(name: str, sizes: tuple[int, int, int], dtype: str, task: Task, found: Any,
           on: Device) -> dict[str, Any]:  # fmt: skip
    _, inputs, outputs = sizes
    ours = ours_us(task, found.best, on) if found.best is not None else {}
    peer = peer_us(*sizes, dtype)
    floor = 1e6 * inputs * outputs * 2 / BANDWIDTH
    nothing = "none verified"
    return {
        "operator": name, "type": dtype, **{f"{w}_us": ours.get(w, nothing) for w in WAYS},
        "torch_cold_us": peer.get("cold", "no torch"), "torch_warm_us": peer.get("warm", ""),
        "share": floor / ours["cold"] if ours else "",
        "share_early": floor / ours["early"] if ours else "",
        "torch_share": floor / peer["cold"] if peer else "",
        "trials": found.trials, "failed": found.failed,
        "won_by": found.best.origin if found.best else "",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0, help="of tuning, per operator")
    parser.add_argument("--limit", type=float, default=500.0, help="seconds for all; then it ends")
    parser.add_argument("--only", default="", help="beginnings of names, comma-separated")
    parser.add_argument("--types", default="float16,bfloat16")
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    began, rows = time.monotonic(), list[dict[str, Any]]()
    wanted = [part for part in options.only.split(",") if part]
    on = device("cuda")
    with tempfile.TemporaryDirectory() as scratch:
        database = Database(Path(scratch) / "rows.jsonl")
        runner = LocalRunner(
            timeout=20, number=4, repeat=3, min_repeat_ms=10, cold_bytes=COLD_BYTES
        )
        with Pipeline(LocalBuilder(), runner, database) as pipeline:
            for sizes, dtype in itertools.product(CASES, options.types.split(",")):
                name = "x".join(map(str, sizes))
                if (wanted and not any(name.startswith(p) for p in wanted)) or (
                    time.monotonic() - began > options.limit
                ):
                    continue
                dag = ComputeDAG(search_tasks.dense_bias(*sizes, dtype=dtype))
                task = with_rules(task_of_dag(dag, on.target, f"{name} {dtype}"))
                report = tune([task], pipeline, database, Options(seconds=options.seconds))
                (found,) = report.tasks
                rows.append(row_of(name, sizes, dtype, task, found, on))
                print(rows[-1], flush=True)
                if found.best is None:
                    print(f"  {found.failure[:1500]}", flush=True)
    print(table(rows))
    append("rows_cuda", rows, on.name, folder=options.folder, seconds=options.seconds)


if __name__ == "__main__":
    main()
