"""Few rows times cold weights of a byte or less: `dense.narrow.few` and `dense.narrow` untuned, and
their best of N members, beside `dense.rows` in bfloat16.

Every member is compared with numpy on the unpacked weights and timed with weights that come from
memory.  A line for each shape, kind and template: microseconds, the share of 4.8 TB/s that its
bytes are.

    PYTHONPATH=src python3.12 benchmarks/h200/narrow.py --samples 16 --shapes 1x2048x16384
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
from typing import Any

import ml_dtypes
import numpy as np

from tilewright import te, topi
from tilewright.driver.build import build_payload, payload_of
from tilewright.graph.narrow import USUAL_GROUP, packed, unpacked
from tilewright.runtime.device import device
from tilewright.runtime.trial import trial
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

SHAPES = "1x2048x3072,1x2048x16384,1x8192x2048,1x4096x4096,4x4096x4096,16x4096x4096"
BANDWIDTH = 4.8e12  # bytes a second
COLD = 268 << 20  # bytes read between two reads of the same weights
TOLERANCE = 2.0**-6  # of the largest result


def computation(m: int, k: int, n: int, kind: str) -> tuple[list[te.Tensor], list[np.ndarray]]:
    """The tensors, and values of the inputs."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((m, k), np.float32).astype(ml_dtypes.bfloat16)
    floats = rng.standard_normal((n, k), np.float32).astype(ml_dtypes.bfloat16)
    data = te.placeholder((m, k), "bfloat16", "data")
    if kind == "bfloat16":
        weight = te.placeholder((n, k), "bfloat16", "weight", constant=True)
        return [data, weight, topi.nn.dense(data, weight)], [rows, floats]
    made = packed(floats, kind, USUAL_GROUP[kind])
    weight = te.placeholder(made.weight.shape, "int8", "weight", constant=True)
    scale = te.placeholder(made.scale.shape, "bfloat16", "scale", constant=True)
    product = topi.nn.dense_narrow(data, weight, scale, kind)
    return [data, weight, scale, product], [rows, made.weight, made.scale]


def compiled(job: tuple[Any, str]) -> tuple[Any, str]:
    try:
        return build_payload(*job), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=16, help="members beside the untuned one")
    parser.add_argument("--shapes", default=SHAPES, help="rows x depth x columns")
    parser.add_argument("--kinds", default="bfloat16,int8,int4,float8")
    arguments = parser.parse_args()
    target, on = Target("cuda -arch=sm_90"), device("cuda")
    with mp.get_context("spawn").Pool(os.cpu_count()) as pool:
        for shape in arguments.shapes.split(","):
            for kind in arguments.kinds.split(","):
                measure(shape, kind, arguments.samples, target, on, pool)


def measure(shape: str, kind: str, samples: int, target: Target, on: Any, pool: Any) -> None:
    m, k, n = map(int, shape.split("x"))
    tensors, values = computation(m, k, n, kind)
    dag = ComputeDAG(tensors)
    wanted = ("dense.rows",) if kind == "bfloat16" else ("dense.narrow.few", "dense.narrow")
    rows, *weights = (v.astype(np.float32) if v.dtype != np.int8 else v for v in values)
    floats = weights[0] if kind == "bfloat16" else unpacked(weights[0], weights[1], kind)
    exact = rows.astype(np.float64) @ floats.T.astype(np.float64)
    for template in anchor_templates(dag, target):
        if template.name in wanted:
            sketch = sketch_of_anchor(template, dag, target)
            times = timed(sketch, samples, (values, exact), on, pool)
            floor = sum(v.nbytes for v in values[1:]) / BANDWIDTH
            shown = [f"{s * 1e6:7.2f} us {floor / s:4.0%}" for s in times if s]
            print(f"{shape:>14} {kind:>8} {template.name:>16}  {'  best '.join(shown)}", flush=True)


def timed(
    sketch: Sketch, samples: int, case: tuple[list[np.ndarray], np.ndarray], on: Any, pool: Any
) -> tuple[float | None, float | None]:
    """Seconds of the untuned member, and of the best; tells of members that fail."""
    (values, exact), target = case, sketch.target
    drawn = sketch.space.sample(4 * samples, np.random.default_rng(0))
    members = [sketch.fallback(), *drawn[sketch.legal(drawn)][:samples].tolist()]
    jobs = [(payload_of(sketch.close(i), "main", chained="early"), str(target)) for i in members]
    tolerance = np.float64(TOLERANCE * np.abs(exact).max())
    found, untuned = [], None
    for number, (artifact, error) in enumerate(pool.imap(compiled, jobs)):
        result = None if error else trial(
            artifact, on, values, [exact], [tolerance], number=16, repeat=3, min_repeat_ms=1.0,
            constants=range(1, len(values)), cold_bytes=COLD,
        )  # fmt: skip
        if result is None or result.error:
            print(f"{members[number]} failed: {error or result.message}", flush=True)
            continue
        found.append(float(np.median(result.costs)))
        untuned = found[-1] if number == 0 else untuned
    return untuned, min(found, default=None)


if __name__ == "__main__":
    main()
