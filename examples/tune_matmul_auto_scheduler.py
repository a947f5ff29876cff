"""Tuning a product of matrices without a template, after the auto-scheduler's first tutorial.

The computation alone is declared; where its loops go is what the search finds out.

    python examples/tune_matmul_auto_scheduler.py
    python examples/tune_matmul_auto_scheduler.py --size 512 --trials 1000
"""

import argparse

import numpy as np

import tilewright
from tilewright import te
from tilewright_tvm import auto_scheduler, nd, testing
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="llvm, opencl or cuda, with options")
parser.add_argument("--size", type=int, default=1024, help="rows and columns of the matrices")
parser.add_argument("--trials", type=int, default=10, help="schedules to measure")
parser.add_argument("--more", type=int, default=5, help="schedules to measure after resuming")
parser.add_argument("--log", default="matmul.json", help="file of records, appended to")
options = parser.parse_args()


@auto_scheduler.register_workload
def matmul_add(N, L, M, dtype):
    A = te.placeholder((N, L), name="A", dtype=dtype)
    B = te.placeholder((L, M), name="B", dtype=dtype)
    C = te.placeholder((N, M), name="C", dtype=dtype)
    k = te.reduce_axis((0, L), name="k")
    matmul = te.compute(
        (N, M),
        lambda i, j: te.sum(A[i, k] * B[k, j], axis=k),
        name="matmul",
        attrs={"layout_free_placeholders": [B]},
    )
    out = te.compute((N, M), lambda i, j: matmul[i, j] + C[i, j], name="out")
    return [A, B, C, out]


target, size = Target(options.target), options.size
task = auto_scheduler.SearchTask(func=matmul_add, args=(size, size, size, "float32"), target=target)
print(task.compute_dag)

record = auto_scheduler.RecordToFile(options.log)
task.tune(auto_scheduler.TuningOptions(options.trials, measure_callbacks=[record], verbose=2))
sch, args = task.apply_best(options.log)
print(tilewright.lower(sch, args, simple_mode=True))

# Build, compare, time.
dev = tilewright.device(str(target))
a, b, c = np.random.rand(3, size, size).astype("float32")
arrays = [nd.array(x, dev) for x in (a, b, c)]
out = nd.empty((size, size), device=dev)
func = tilewright.build(sch, args, target)
func(*arrays, out)
testing.assert_allclose(out.numpy(), a @ b + c, rtol=1e-3)
evaluator = func.time_evaluator(func.entry_name, dev, min_repeat_ms=50)
print(f"{np.median(evaluator(*arrays, out).results) * 1e3:.3f} ms")

print("Equivalent python schedule:")
print(task.print_best(options.log))

# Resume: model and population begin with what the log knows.
model = auto_scheduler.XGBModel()
model.update_from_file(options.log)
policy = auto_scheduler.SketchPolicy(
    task, model, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(options.log)]
)
more = auto_scheduler.TuningOptions(options.more, measure_callbacks=[record])
task.tune(more, search_policy=policy)
