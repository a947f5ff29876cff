"""Operators of topi: numpy's way of writing computations, and schedules that fit their target.

python examples/operators.py
python examples/operators.py --target opencl
"""

import argparse

import numpy as np

import tilewright
from tilewright import te
from tilewright_tvm import nd, testing, topi
from tilewright_tvm.target import Target

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="cuda", help="cuda, opencl or llvm")
options = parser.parse_args()

# A sum of rows by hand, and by its operator: the same loops.
n, m = te.var("n"), te.var("m")
A = te.placeholder((n, m), name="A")
k = te.reduce_axis((0, m), "k")
by_hand = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="rows")
for rows in (by_hand, topi.sum(A, axis=1)):
    print(tilewright.lower(te.create_schedule(rows.op), [A, rows], simple_mode=True))

# Tensors add and multiply as arrays of numpy do, with broadcasting.
a = te.placeholder((100, 10, 10), name="a")
b = te.placeholder((10, 10), name="b")
total = topi.sum(topi.elemwise_sum([a + b, a * b]) / 2.0)
with Target(options.target):
    s = topi.generic.schedule_reduce(total)
print(s.stages)
func = tilewright.build(s, [a, b, total], options.target)

dev = tilewright.device(options.target)
if dev.exist:
    x, y = np.random.rand(*a.shape).astype("float32"), np.random.rand(*b.shape).astype("float32")
    out = nd.empty((), device=dev)
    func(nd.array(x, dev), nd.array(y, dev), out)
    testing.assert_allclose(out.numpy(), ((x + y + x * y) / 2).sum(), rtol=1e-5)
    print("the sum is right")

# Several stages of one operator, and operators that share a kernel.
x = te.placeholder((512, 512), name="x")
data = te.placeholder((1, 3, 224, 224), name="data")
kernel = te.placeholder((10, 3, 5, 5), name="kernel")
with Target(options.target):
    softmax = topi.nn.softmax(x)
    s = topi.generic.schedule_softmax(softmax)
    print(tilewright.lower(s, [x, softmax], simple_mode=True))
    relu = topi.nn.relu(topi.nn.conv2d_nchw(data, kernel, 1, 2, 1))
    s = topi.generic.schedule_conv2d_nchw([relu])
    print(tilewright.lower(s, [data, kernel, relu], simple_mode=True))
