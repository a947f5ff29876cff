"""Recurrences, and Python between kernels: what TVM's scripts do with te.scan and te.extern.

python examples/recurrences.py
python examples/recurrences.py --steps 100 --width 4096
"""

import argparse

import numpy as np

import tilewright
from tilewright import nd, te, testing, topi

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="llvm, opencl or cuda")
parser.add_argument("--steps", type=int, default=10, help="of the recurrence")
parser.add_argument("--width", type=int, default=1024, help="elements of a state")
options = parser.parse_args()
steps, width = options.steps, options.width
dev = tilewright.device(options.target)
x = np.random.rand(steps, width).astype("float32")


def build(outputs, arguments):
    with tilewright.target.Target(options.target):
        return tilewright.build(topi.generic.schedule_injective(outputs), arguments)


# Running sums are an operator: blocks in parallel, not one step after the other.
X = te.placeholder((steps, width), name="X")
sums = topi.cumsum(X, axis=0)
out = nd.empty(x.shape, device=dev)
build(sums, [X, sums])(nd.array(x, dev), out)
testing.assert_allclose(out.numpy(), np.cumsum(x, axis=0), rtol=1e-5)

# Any other recurrence: one kernel for a step, called once for each; what it reads and what it
# writes take turns.  Nothing is copied, and on a GPU nothing waits.
state = te.placeholder((width,), name="state")
row = te.placeholder((width,), name="row")
doubled = topi.tanh(state) * 2.0
step = te.compute((width,), lambda i: doubled[i] + row[i], name="step")
run = build(step, [state, row, step])
one, other = nd.array(x[0], dev), nd.empty((width,), device=dev)
expected = x[0]
for t in range(1, steps):
    run(one, nd.array(x[t], dev), other)
    one, other = other, one
    expected = np.tanh(expected) * 2 + x[t]
testing.assert_allclose(one.numpy(), expected, rtol=1e-4)

# The same as one kernel: few steps are unrolled into as many stages, which inline.
few = min(steps, 4)
unrolled = te.compute((width,), lambda i: X[0, i], name="s0")
for t in range(1, few):
    last = topi.tanh(unrolled) * 2.0
    unrolled = te.compute((width,), lambda i, t=t, last=last: last[i] + X[t, i], name=f"s{t}")
end = nd.empty((width,), device=dev)
build(unrolled, [X, unrolled])(nd.array(x, dev), end)
expected = x[0]
for t in range(1, few):
    expected = np.tanh(expected) * 2 + x[t]
testing.assert_allclose(end.numpy(), expected, rtol=1e-4)

# Functions of other libraries stand between kernels; on CPUs an array is numpy's memory.
left, right = np.random.rand(64, 32).astype("float32"), np.random.rand(32, 16).astype("float32")
bias = te.var("bias", dtype="float32")
C = te.placeholder((64, 16), name="C")
D = te.compute(C.shape, lambda i, j: C[i, j] + bias, name="D")
add = tilewright.build(te.create_schedule(D.op), [C, D, bias], "llvm")
result = nd.empty(D.shape)
add(nd.array(np.dot(left, right)), result, 10.0)
testing.assert_allclose(result.numpy(), left @ right + 10, rtol=1e-5)
print("recurrences are right")
