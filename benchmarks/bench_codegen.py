"""From template to CUDA source: milliseconds for random legal configurations of a conv2d.

One warm process.  The template's Python, bounds, legality, lowering and printing are inside the
time; verification and compiling are not.  Processor time of the one thread counts, so that a busy
machine does not.

    PYTHONPATH=src:tests python benchmarks/bench_codegen.py [--count 200]
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
from results_file import append, table

from schedule import seed003
from tilewright.driver.build import generate_source
from tilewright.schedule.task import create


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=200)
    count = parser.parse_args().count
    task = create("tests/conv2d_no_batching", seed003.FLAGSHIP, "cuda -arch=sm_90")
    sketch = task.sketches[0]
    indices = sketch.space.sample(count * 30, np.random.default_rng(0))
    indices = indices[sketch.legal(indices)][: count + 10]
    spent, sizes = [], []
    for index in indices:
        start = time.process_time()
        source = generate_source(sketch.close(int(index)), task.target, "conv2d")
        spent.append((time.process_time() - start) * 1e3)
        sizes.append(len(source.text))
    warm = sorted(spent[10:])
    row = {
        "configurations": len(warm),
        "median_ms": round(statistics.median(warm), 2),
        "p95_ms": round(warm[int(0.95 * len(warm))], 2),
        "max_ms": round(warm[-1], 2),
        "median_characters": int(statistics.median(sizes)),
    }
    print(table([row]))
    append("codegen", [row])


if __name__ == "__main__":
    main()
