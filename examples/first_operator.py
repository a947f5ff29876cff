"""One operator: declared, tuned, compiled; then with a template of one's own.

python examples/first_operator.py
python examples/first_operator.py --target cuda --size 1024 --trials 200
"""

import argparse

import numpy as np

import tilewright as tw
from tilewright import te

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="cuda, opencl or llvm, with options")
parser.add_argument("--size", type=int, default=256, help="rows and columns of the matrices")
parser.add_argument("--trials", type=int, default=16, help="candidates to measure")
parser.add_argument("--log", default="first_operator.jsonl", help="file of results, appended to")
options = parser.parse_args()


def product(n):
    """The product of two matrices, and what follows it: inputs and the output."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    return [a, b, te.compute((n, n), lambda i, j: te.max(c[i, j], 0.0), name="D")]


@tw.template("examples/rows")
def rows(n):
    """By hand, for a CPU: blocks of rows and columns, whose sizes are left open."""
    a, b, d = product(n)
    c = d.op.input_tensors[0]
    s, config = te.create_schedule(d.op), tw.get_config()
    i, j = s[d].op.axis
    config.define_split("rows", i, num_outputs=2)
    config.define_split("columns", j, num_outputs=2)
    outer, inner = config["rows"].apply(s, d, i)
    left, right = config["columns"].apply(s, d, j)
    s[d].reorder(outer, left, inner, right)
    s[c].compute_at(s[d], left)
    (k,), (x, y) = s[c].op.reduce_axis, s[c].op.axis
    s[c].reorder(x, k, y)
    s[d].parallel(outer)
    return s, [a, b, d]


left, right = np.random.default_rng(0).standard_normal((2, options.size, options.size), "float32")
tasks = {options.log: tw.task(product, (options.size,), options.target)}
if options.target.startswith("llvm"):
    tasks[f"template.{options.log}"] = tw.task("examples/rows", (options.size,), options.target)
for log, task in tasks.items():  # the same computation: in one log the better would count for both
    tuned = tw.tune(task, trials=options.trials, log=log)
    print(tuned)
    print(tuned.schedule())
    run = tw.compile(task, log=log)
    np.testing.assert_allclose(run(left, right), np.maximum(left @ right, 0), rtol=1e-3, atol=1e-3)
    print(f"{task.name}: {run.time() * 1e3:.3f} ms")
