"""Convolutions of ResNet-18 on a GPU's matrix units, by the layout of their images: in halves, or
in float32 with --precision tf32 or 3xtf32.

In: its layers with bias and relu, in NCHW, NHWC and NCHW2c.  Of each template on matrix units the
machine model's best --members out of --drawn, no more than a third of them with one `split_k`, are
compiled, verified on both cases of the reference, and timed.  Out: a table in microseconds, and an
entry in `results/conv_layouts.json` (--folder).

    PYTHONPATH=src:benchmarks python benchmarks/h200/conv_layouts.py --members 18

first: the member that the model likes best, model: what it says of it
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import results_file
from copies import Member, compile_all, predicted, timed
from resnet18_layers import LAYERS, Layer

from tilewright import te, topi
from tilewright.runtime.device import device
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_sketches
from tilewright.te.cases import cases
from tilewright.te.dag import ComputeDAG

LAYOUTS = ("NCHW", "NHWC", "NCHW2c")


def dag_of(layer: Layer, layout: str, dtype: str = "float16") -> ComputeDAG:
    """Arguments: data, weight, bias, output."""
    ci, co, n, k = layer.ci, layer.co, layer.size, layer.kernel
    shapes: dict[str, tuple[tuple[int, ...], ...]] = {
        "NCHW": ((1, ci, n, n), (co, ci, k, k), (1, co, 1, 1)),
        "NHWC": ((1, n, n, ci), (k, k, ci, co), (co,)),
        "NCHW2c": (
            (1, ci // 2, n, n, 2), (co // 2, ci // 2, k, k, 2, 2), (1, co // 2, 1, 1, 2),
        ),
    }  # fmt: skip
    data, weight, bias = (
        te.placeholder(shape, dtype, name, constant=name != "data")
        for shape, name in zip(shapes[layout], ("data", "weight", "bias"), strict=True)
    )
    sums = topi.nn.conv2d(data, weight, layer.stride, layer.padding, data_layout=layout)
    return ComputeDAG([data, weight, bias, topi.nn.relu(topi.add(sums, bias))])


def chosen(sketch: Sketch, drawn: int, count: int) -> list[Member]:
    some = sketch.space.sample(drawn, np.random.default_rng(0))
    seconds = predicted(sketch, some)
    found: list[Member] = []
    splits = Counter[int]()
    for row in np.argsort(seconds, kind="stable").tolist():
        if len(found) == count or not np.isfinite(seconds[row]):
            break
        split = int(sketch.space.get(int(some[row]))["split_k"].val)
        if splits[split] < max(count // 3, 1):
            splits[split] += 1
            found.append(Member(sketch, int(some[row]), 0, float(seconds[row]) * 1e6))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=18)
    parser.add_argument("--drawn", type=int, default=2048)
    parser.add_argument("--precision", choices=["tf32", "3xtf32"], help="of float32, not of halves")
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    on = device("cuda")
    target, dtype = on.target, "float16"
    if options.precision:
        target, dtype = target.with_precision(options.precision), "float32"
    rows: list[dict[str, Any]] = []
    for layer in LAYERS:
        pairs = layer.ci % 2 == 0 and dtype == "float16"
        for layout in LAYOUTS if pairs else LAYOUTS[:2]:
            dag = dag_of(layer, layout, dtype)
            given = cases(dag, precision=target.precision)
            for sketch in anchor_sketches(dag, target):
                if not sketch.origin.endswith((".slab", ".tensor")):
                    continue
                made = chosen(sketch, options.drawn, options.members)
                compile_all(made, target)
                for member in (m for m in made if not m.failed):
                    timed(member, on, given, verify=True)
                right = sorted((m for m in made if not m.failed), key=lambda m: m.best_us)
                for failed in (m for m in made if m.failed):
                    print(f"  FAILED {sketch.origin} {failed.index}: {failed.failed}")
                if not right:
                    continue
                first = min(right, key=lambda m: m.model_us)
                rows.append(
                    {
                        "layer": str(layer), "layout": layout, "sketch": sketch.origin,
                        "us": round(right[0].best_us, 2), "first": round(first.best_us, 2),
                        "model": round(first.model_us, 2), "failed": len(made) - len(right),
                        "best": str(sketch.space.get(right[0].index)),
                    }
                )  # fmt: skip
                print(rows[-1], flush=True)
    print(results_file.table(rows))
    results_file.append("conv_layouts", rows, on.name, folder=options.folder,
                        members=options.members, precision=options.precision or dtype)  # fmt: skip


if __name__ == "__main__":
    main()
