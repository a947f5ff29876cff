"""The AutoTVM tutorial's conv2d on a GPU: its own template and measuring options, 200 trials.

In: the template of `tests/schedule/seed003.py`.  Out: best time, trials a second, failures, kept as
a dated result.  Compiler caches are off; racing is on.

    CUDA_CACHE_DISABLE=1 TILEWRIGHT_CACHE=off PYTHONPATH=benchmarks:tests \
      python benchmarks/h200/flagship.py
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import results_file

from schedule import seed003
from tilewright.runtime.device import device
from tilewright_tvm import autotvm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    options = parser.parse_args()
    task = autotvm.task.create("tests/conv2d_no_batching", seed003.FLAGSHIP, options.target)
    measure = autotvm.measure_option(
        builder=autotvm.LocalBuilder(),
        runner=autotvm.LocalRunner(repeat=3, min_repeat_ms=100, timeout=4),
    )
    failed, finished = 0, []

    def count(tuner, inputs, results):
        nonlocal failed
        failed += sum(r.error_no != 0 for r in results)
        finished.append(time.perf_counter())

    tuner = autotvm.tuner.XGBTuner(task)
    began = time.perf_counter()
    tuner.tune(n_trial=options.trials, measure_option=measure, callbacks=[count])
    spent = time.perf_counter() - began
    started = finished[0]  # the first result: workers and references are there
    row = {
        "trials": tuner.ttl,
        "failed": failed,
        "best_us": round(task.flop / tuner.best_flops * 1e6, 2),
        "best_gflops": round(tuner.best_flops * 1e-9, 1),
        "trials_per_second": round(tuner.ttl / spent, 2),
        "trials_per_second_once_started": round((tuner.ttl - 1) / (finished[-1] - started), 2),
        "configuration": str(tuner.best_config),
    }
    print(results_file.table([row]))
    results_file.append(
        "flagship_tutorial_template", [row], device(options.target).name, folder=options.folder
    )


if __name__ == "__main__":
    main()
