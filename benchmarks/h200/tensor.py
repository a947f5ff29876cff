"""Products and convolutions on a GPU with matrix units beside PyTorch's: in halves, bytes, TF32,
3xTF32.

In: convolutions of ResNet-18, matrix products, attention.  Each is tuned for some seconds by
templates and rules, convolutions in both layouts; what is best was verified against the reference.
PyTorch computes the same in the same process, from CUDA graphs, in each memory format it has, of
which the fastest counts: beside 3xTF32 in float32, and of bytes products only.  Out: a table, and
an entry in `results/tensor_cuda.json`.

    PYTHONPATH=src python benchmarks/h200/tensor.py --seconds 20 --only conv,1024
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import search_tasks
from half import bound_us
from kernels import replayed
from results_file import append, table

from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.runtime.device import device
from tilewright.schedule.task import task_of_dag
from tilewright.search.loop import Options, tune
from tilewright.search.rules.derive import with_rules
from tilewright.targets.precision import PRECISIONS
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG


def _conv(torch: Any, layout: str, channels: int, size: int, batch: int, dtype: Any) -> Any:
    data, outputs = torch.randn(batch, channels, size, size, device="cuda", dtype=dtype), channels
    weight = torch.randn(outputs, channels, 3, 3, device="cuda", dtype=dtype)
    bias = torch.randn(outputs, device="cuda", dtype=dtype)
    if layout == "NHWC":
        data, weight = (t.to(memory_format=torch.channels_last) for t in (data, weight))
    return lambda: torch.relu_(torch.nn.functional.conv2d(data, weight, bias, padding=1))


def _dense(torch: Any, layout: str, rows: int, inner: int, columns: int, dtype: Any) -> Any:
    data = torch.randn(rows, inner, device="cuda", dtype=dtype)
    weight = torch.randn(columns, inner, device="cuda", dtype=dtype)
    bias = torch.randn(columns, device="cuda", dtype=dtype)
    return lambda: torch.nn.functional.linear(data, weight, bias)


def _of_bytes(torch: Any, layout: str, rows: int, inner: int, columns: int, dtype: Any) -> Any:
    """PyTorch wants more than 16 rows."""
    shapes = (max(rows, 17), inner), (columns, inner)
    data, weight = (torch.randint(-128, 128, s, device="cuda", dtype=dtype) for s in shapes)
    return lambda: torch._int_mm(data, weight.t())


def _products(torch: Any, layout: str, batch: int, rows: int, inner: int, columns: int,
              dtype: Any) -> Any:  # fmt: skip
    left = torch.randn(batch, rows, inner, device="cuda", dtype=dtype)
    right = torch.randn(batch, columns, inner, device="cuda", dtype=dtype)
    return lambda: torch.bmm(left, right.transpose(1, 2))


def _attention(torch: Any, layout: str, heads: int, rows: int, keys: int, depth: int,
               dtype: Any) -> Any:  # fmt: skip
    q = torch.randn(1, heads, rows, depth, device="cuda", dtype=dtype)
    k, v = (torch.randn(1, heads, keys, depth, device="cuda", dtype=dtype) for _ in "kv")
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)


def convolution(channels: int, size: int, batch: int, last: bool, dtype: str) -> ComputeDAG:
    """3x3 with bias and ReLU, as many channels as before."""
    return ComputeDAG(
        search_tasks.conv2d_bias_relu(channels, size, channels, 3, 1, dtype, batch, last)
    )


def product(make: Callable[..., Any], *sizes: int, dtype: str) -> ComputeDAG:
    return ComputeDAG(make(*sizes, dtype=dtype))


@dataclass(frozen=True)
class Case:
    """ours: what may be tuned, of which the fastest counts; peer: what PyTorch calls for `sizes`"""

    ours: tuple[Callable[..., ComputeDAG], ...]
    peer: Callable[..., Any]
    sizes: tuple[int, ...]


def _of_conv(channels: int, size: int, batch: int = 1) -> Case:
    both = tuple(partial(convolution, channels, size, batch, last) for last in (False, True))
    return Case(both, _conv, (channels, size, batch))


def _of_product(make: Callable[..., Any], peer: Callable[..., Any], *sizes: int) -> Case:
    return Case((partial(product, make, *sizes),), peer, sizes)


CASES = {
    **{f"conv {c}x{n}x{n}": _of_conv(c, n) for c, n in ((512, 7), (256, 14), (128, 28), (64, 56))},
    "conv 64x56x56, batch 32": _of_conv(64, 56, 32),
    **{
        f"dense {m}x{k}x{n}": _of_product(search_tasks.dense_bias, _dense, m, k, n)
        for m, k, n in ((1024, 1024, 1024), (16, 4096, 4096), (128, 768, 3072), (4096, 4096, 4096))
    },
    "batch_matmul 12x128x64": _of_product(search_tasks.batch_matmul, _products, 12, 128, 64, 128),
    **{
        f"attention 12x{n}x64": _of_product(search_tasks.attention, _attention, 12, n, n, 64)
        for n in (128, 197, 1024)
    },
}


def peer_us(
    make: Callable[..., Any], sizes: tuple[int, ...], dtype: str, tf32: bool
) -> float | str:
    """Microseconds of a call in PyTorch's fastest format, in a graph of 20."""
    try:
        import torch
    except ImportError:
        return "no torch"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    best = float("inf")
    if dtype == "int8":
        if make is not _dense:
            return "none"
        make = _of_bytes
    for layout in ("NCHW", "NHWC"):
        call = make(torch, layout, *sizes, dtype=getattr(torch, dtype))
        best = min(best, replayed(torch, call))
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of tuning, per operator")
    parser.add_argument("--limit", type=float, default=500.0, help="seconds for all; then it ends")
    parser.add_argument("--only", default="", help="parts of names, comma-separated")
    parser.add_argument(
        "--dtype", default="float16", help="tf32, 3xtf32: float32 in that precision; int8"
    )
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    began, rows = time.monotonic(), []
    wanted = [part for part in options.only.split(",") if part]
    folder = options.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "tensor.jsonl"
    with Pipeline(
        LocalBuilder(), LocalRunner(timeout=10, number=4, repeat=3, min_repeat_ms=20), Database(log)
    ) as pipeline:
        fewer = options.dtype in PRECISIONS
        dtype = "float32" if fewer else options.dtype
        asked = Target("cuda").with_precision(options.dtype) if fewer else Target("cuda")
        target = asked.on(LocalRunner().describe(asked))
        for name, case in CASES.items():
            if (wanted and not any(p in name for p in wanted)) or (
                time.monotonic() - began > options.limit
            ):
                continue
            dags = [make(dtype=dtype) for make in case.ours]
            tasks = [with_rules(task_of_dag(dag, target, f"{name} {dtype}")) for dag in dags]
            # One family: the seconds go to whichever is faster.
            report = tune(tasks, pipeline, Database(log), Options(seconds=options.seconds))
            found = min(report.tasks, key=lambda t: t.best_seconds or math.inf)
            us = None if found.best_seconds is None else found.best_seconds * 1e6
            peer = peer_us(case.peer, case.sizes, dtype, options.dtype == "tf32")
            rows.append(
                {
                    "operator": name, "type": options.dtype, "us": us or "none verified",
                    "torch_us": peer,
                    "speed": peer / us if us and isinstance(peer, float) else "",
                    "bound_us": bound_us(tasks[0]), "trials": report.trials,
                    "failed": sum(t.failed for t in report.tasks),
                    "won_by": found.best.origin if found.best else "",
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
            if found.best is None:
                print(f"  {found.failure[:1500]}", flush=True)
    print(table(rows))
    append("tensor_cuda", rows, device("cuda").name, folder=options.folder, seconds=options.seconds)


if __name__ == "__main__":
    main()
