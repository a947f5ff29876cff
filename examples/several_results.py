"""Several results: of one loop, of one reduction, of one kernel.

After TVM's tutorial of tuples.  The results of one te.compute are one stage, with one loop nest.

    python examples/several_results.py
    python examples/several_results.py --target opencl
"""

import argparse

import numpy as np

import tilewright
from tilewright import te
from tilewright_tvm import nd, testing

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="of the threads: llvm (none), opencl or cuda")
options = parser.parse_args()

m, n = te.var("m"), te.var("n")
A0 = te.placeholder((m, n), name="A0")
A1 = te.placeholder((m, n), name="A1")
x0, x1 = np.random.rand(2, 5, 7).astype("float32")

# One te.compute with two elements: two tensors, which one loop writes.
B0, B1 = te.compute((m, n), lambda i, j: (A0[i, j] + 2.0, A1[i, j] * 3.0), name="B")
s = te.create_schedule(B0.op)
assert s[B0] is s[B1]
xo, xi = s[B0].split(B0.op.axis[1], factor=4)
s[B0].vectorize(xi)
print(tilewright.lower(s, [A0, A1, B0, B1], simple_mode=True))
y0, y1 = nd.empty(x0.shape), nd.empty(x0.shape)
tilewright.build(s, [A0, A1, B0, B1], "llvm")(nd.array(x0), nd.array(x1), y0, y1)
testing.assert_allclose(y0.numpy(), x0 + 2)
testing.assert_allclose(y1.numpy(), x1 * 3)

# A stage is computed where it is read, with all it gives.
C = te.compute((m, n), lambda i, j: A1[i, j] + B0[i, j], name="C")
s = te.create_schedule(C.op)
s[B0].compute_at(s[C], C.op.axis[0])
print(tilewright.lower(s, [A0, A1, C], simple_mode=True))


# Where the greatest value is, and the value, in one reduction.  Of equal values the first counts,
# so that the result does not depend on the order in which a schedule combines them.
def combine(x, y):
    first = te.any(x[1] > y[1], te.all(x[1].equal(y[1]), x[0] < y[0]))
    return te.select(first, x[0], y[0]), te.select(first, x[1], y[1])


argmax = te.comm_reducer(
    combine, lambda t0, t1: (te.max_value(t0), te.min_value(t1)), name="argmax"
)
x = te.placeholder((16, 100), name="x")
k = te.reduce_axis((0, 100), name="k")
where, value = te.compute((16,), lambda i: argmax((k.var, x[i, k]), axis=k), name="best")
data = np.random.randint(0, 50, (16, 100)).astype("float32")


def check(s, target):
    dev = tilewright.device(target)
    found, greatest = nd.empty((16,), where.dtype, dev), nd.empty((16,), device=dev)
    tilewright.build(s, [x, where, value], target)(nd.array(data, dev), found, greatest)
    assert np.array_equal(found.numpy(), data.argmax(axis=1))
    assert np.array_equal(greatest.numpy(), data.max(axis=1))


s = te.create_schedule(where.op)
print(tilewright.lower(s, [x, where, value], simple_mode=True))
check(s, "llvm")

# Partial results of threads, which the threads of a block combine.
outer, inner = s[where].split(s[where].op.reduce_axis[0], factor=16)
partial, _ = s.rfactor(where, inner)
lane = s[where].op.reduce_axis[0]
s[where].bind(s[where].op.axis[0], te.thread_axis("blockIdx.x"))
s[where].bind(lane, te.thread_axis("threadIdx.x"))
s[partial].compute_at(s[where], lane)
print(s)
if options.target != "llvm":
    check(s, options.target)
print("results are those of numpy")
