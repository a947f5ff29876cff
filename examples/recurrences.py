"""Recurrences by te.scan, and Python between kernels.

python examples/recurrences.py
python examples/recurrences.py --steps 100 --width 4096
"""

import argparse

import numpy as np

import tilewright
import tilewright_tvm
from tilewright_tvm import nd, te, testing, topi

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="llvm, opencl or cuda")
parser.add_argument("--steps", type=int, default=10, help="of the recurrence")
parser.add_argument("--width", type=int, default=1024, help="elements of a state")
options = parser.parse_args()
steps, width = options.steps, options.width
dev = tilewright.device(options.target)
x = np.random.rand(steps, width).astype("float32")


def build(outputs, arguments):
    with tilewright_tvm.target.Target(options.target):
        return tilewright.build(topi.generic.schedule_injective(outputs), arguments)


# Running sums are an operator: blocks in parallel, not one step after the other.
X = te.placeholder((steps, width), name="X")
sums = topi.cumsum(X, axis=0)
out = nd.empty(x.shape, device=dev)
build(sums, [X, sums])(nd.array(x, dev), out)
testing.assert_allclose(out.numpy(), np.cumsum(x, axis=0), rtol=1e-5)

# Any other recurrence is a te.scan: what a step makes of the state one step before.  The update is
# the loop nest of the scan; its time axis stays a serial loop, and other stages are inside it.
state = te.placeholder((steps, width), name="state")
begin = te.compute((1, width), lambda t, i: X[t, i], name="begin")
grown = te.compute((steps, width), lambda t, i: te.tanh(state[t - 1, i]) * 2.0, name="grown")
step = te.compute((steps, width), lambda t, i: grown[t, i] + X[t, i], name="step")
scan = te.scan(begin, step, state, inputs=[X])
s = te.create_schedule(scan.op)
outer, inner = s[step].split(step.op.axis[1], factor=128)
s[grown].compute_at(s[step], inner)
if options.target == "llvm":
    s[step].parallel(outer)
else:
    s[step].bind(outer, te.thread_axis("blockIdx.x"))
    s[step].bind(inner, te.thread_axis("threadIdx.x"))
print(s)
tilewright.build(s, [X, scan], options.target)(nd.array(x, dev), out)
expected = x.copy()
for t in range(1, steps):
    expected[t] = np.tanh(expected[t - 1]) * 2 + x[t]
testing.assert_allclose(out.numpy(), expected, rtol=1e-4)

# Several states: Fibonacci's numbers, weighted; both states are tensors of one stage.
a, b = (te.placeholder((steps, width), name=name) for name in "ab")
zero = te.compute((1, width), lambda t, i: te.const(0.0), name="zero")
new_a = te.compute((steps, width), lambda t, i: b[t - 1, i], name="new_a")
new_b = te.compute((steps, width), lambda t, i: (a[t - 1, i] + b[t - 1, i]) * 0.5, name="new_b")
older, newer = te.scan([zero, begin], [new_a, new_b], [a, b])
s = te.create_schedule(older.op)
first, second = nd.empty(x.shape, device=dev), nd.empty(x.shape, device=dev)
tilewright.build(s, [X, older, newer], options.target)(nd.array(x, dev), first, second)
expected = [np.zeros(width, "float32"), x[0]]
for _ in range(1, steps):
    expected.append((expected[-2] + expected[-1]) * 0.5)
testing.assert_allclose(second.numpy(), np.array(expected[1:]), rtol=1e-4)

# A step that reads all of the state, as a recurrent layer does: the product is a stage inside the
# steps.  Threads of a GPU do not wait for each other between steps, so there a kernel for a step is
# called for each; what it reads and what it writes take turns, and nothing is copied.
weight = te.placeholder((width, width), name="weight")
w = (np.random.rand(width, width) / width).astype("float32")
k = te.reduce_axis((0, width), "k")
expected = x.copy()
for t in range(1, steps):
    expected[t] = np.tanh(expected[t - 1] @ w + x[t])
if options.target == "llvm":
    product = te.compute(
        (steps, width), lambda t, i: te.sum(state[t - 1, k] * weight[k, i], axis=k), name="product"
    )
    step = te.compute((steps, width), lambda t, i: te.tanh(product[t, i] + X[t, i]), name="step")
    layer = te.scan(begin, step, state)
    s = te.create_schedule(layer.op)
    outer, inner = s[step].split(step.op.axis[1], factor=16)
    s[step].parallel(outer)
    s[product].compute_at(s[step], outer)
    s[product].reorder(*product.op.reduce_axis, product.op.axis[1])
    s[product].vectorize(product.op.axis[1])
    tilewright.build(s, [X, weight, layer])(nd.array(x), nd.array(w), out)
    testing.assert_allclose(out.numpy(), expected, rtol=1e-3)
last, row = te.placeholder((1, width), name="last"), te.placeholder((1, width), name="row")
one_step = topi.tanh(topi.nn.matmul(last, weight) + row)
run = build(one_step, [last, weight, row, one_step])
one, other = nd.array(x[:1], dev), nd.empty((1, width), device=dev)
for t in range(1, steps):
    run(one, nd.array(w, dev), nd.array(x[t : t + 1], dev), other)
    one, other = other, one
testing.assert_allclose(one.numpy(), expected[-1:], rtol=1e-3)

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
