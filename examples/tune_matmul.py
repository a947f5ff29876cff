"""Tuning a product of matrices with a template of one's own, after AutoTVM's first tutorial.

Two templates for the same loops: one lists its candidates, one asks for every way to split an axis.

    python examples/tune_matmul.py
    python examples/tune_matmul.py --size 1024 --trials 100 --tuner xgb
"""

import argparse

import numpy as np

import tilewright
from tilewright import te
from tilewright_tvm import autotvm, nd, testing
from tilewright_tvm.autotvm.tuner import GATuner, GridSearchTuner, RandomTuner, XGBTuner
from tilewright_tvm.target import Target

TUNERS = {"random": RandomTuner, "gridsearch": GridSearchTuner, "ga": GATuner, "xgb": XGBTuner}

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="a CPU, with options: llvm -mcpu=haswell")
parser.add_argument("--size", type=int, default=512, help="rows and columns of the matrices")
parser.add_argument("--trials", type=int, default=10, help="configurations to measure")
parser.add_argument("--tuner", default="random", choices=TUNERS)
parser.add_argument("--log", default="matmul.log", help="file of records, appended to")
options = parser.parse_args()


def product(n, dtype):
    """The tensors of a product, and a schedule that does nothing yet."""
    A = te.placeholder((n, n), name="A", dtype=dtype)
    B = te.placeholder((n, n), name="B", dtype=dtype)
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    return te.create_schedule(C.op), [A, B, C]


@autotvm.template("examples/matmul_by_knobs")
def matmul_by_knobs(n, dtype):
    s, (A, B, C) = product(n, dtype)
    (y, x), (k,) = s[C].op.axis, s[C].op.reduce_axis
    cfg = autotvm.get_config()
    cfg.define_knob("tile_y", [1, 2, 4, 8, 16])
    cfg.define_knob("tile_x", [1, 2, 4, 8, 16])
    yo, yi = s[C].split(y, cfg["tile_y"].val)
    xo, xi = s[C].split(x, cfg["tile_x"].val)
    s[C].reorder(yo, xo, k, yi, xi)
    return s, [A, B, C]


@autotvm.template("examples/matmul")
def matmul(n, dtype):
    s, (A, B, C) = product(n, dtype)
    (y, x), (k,) = s[C].op.axis, s[C].op.reduce_axis
    cfg = autotvm.get_config()
    cfg.define_split("tile_y", y, num_outputs=2)
    cfg.define_split("tile_x", x, num_outputs=2)
    yo, yi = cfg["tile_y"].apply(s, C, y)
    xo, xi = cfg["tile_x"].apply(s, C, x)
    s[C].reorder(yo, xo, k, yi, xi)
    return s, [A, B, C]


args = (options.size, "float32")
print(autotvm.task.create("examples/matmul_by_knobs", args, options.target).config_space)
task = autotvm.task.create("examples/matmul", args, options.target)
print(task.config_space)

TUNERS[options.tuner](task).tune(
    n_trial=options.trials,
    measure_option=autotvm.measure_option(builder="local", runner=autotvm.LocalRunner(number=5)),
    callbacks=[
        autotvm.callback.progress_bar(options.trials),
        autotvm.callback.log_to_file(options.log),
    ],
)

# The template once more, this time with the best configuration of the log.
with autotvm.apply_history_best(options.log) as best, Target(options.target):
    print("Best config:", best.query(task.target, task.workload))
    s, tensors = matmul(*args)
    func = tilewright.build(s, tensors)

left, right = np.random.rand(2, options.size, options.size).astype("float32")
out = nd.empty(left.shape)
func(nd.array(left), nd.array(right), out)
testing.assert_allclose(out.numpy(), left @ right, rtol=1e-4)
seconds = func.time_evaluator(func.entry_name, tilewright.cpu(), number=5)
print(f"{seconds(nd.array(left), nd.array(right), out).mean * 1e3:.3f} ms")
