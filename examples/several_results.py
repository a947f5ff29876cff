"""Several results: of one loop, of one reduction, of one kernel.

After TVM's tutorial of tuples.  Each result is a stage of its own, scheduled by itself.

    python examples/several_results.py
"""

import numpy as np

import tilewright
from tilewright import nd, te, testing, topi

m, n = te.var("m"), te.var("n")
A0 = te.placeholder((m, n), name="A0")
A1 = te.placeholder((m, n), name="A1")
x0, x1 = np.random.rand(2, 5, 7).astype("float32")

# One te.compute with two elements: two tensors, which one kernel writes.
B0, B1 = te.compute((m, n), lambda i, j: (A0[i, j] + 2.0, A1[i, j] * 3.0), name="B")
s = te.create_schedule(B0.op)
print(tilewright.lower(s, [A0, A1, B0, B1], simple_mode=True))
y0, y1 = nd.empty(x0.shape), nd.empty(x0.shape)
tilewright.build(s, [A0, A1, B0, B1], "llvm")(nd.array(x0), nd.array(x1), y0, y1)
testing.assert_allclose(y0.numpy(), x0 + 2)
testing.assert_allclose(y1.numpy(), x1 * 3)

# What only one of them is read for is all that is computed.
C = te.compute((m, n), lambda i, j: A1[i, j] + B0[i, j], name="C")
s = te.create_schedule(C.op)
s[B0].compute_at(s[C], C.op.axis[0])
print(tilewright.lower(s, [A0, A1, C], simple_mode=True))

# Where the greatest value is, and the value: an operator, and a reduction beside it.
x = te.placeholder((16, 100), name="x")
where, value = topi.argmax(x, axis=1), topi.max(x, axis=1)
s = te.create_schedule([where.op, value.op])
print(tilewright.lower(s, [x, where, value], simple_mode=True))
data = np.random.rand(16, 100).astype("float32")
found, greatest = nd.empty((16,), where.dtype), nd.empty((16,))
tilewright.build(s, [x, where, value], "llvm")(nd.array(data), found, greatest)
assert np.array_equal(found.numpy(), data.argmax(axis=1))
assert np.array_equal(greatest.numpy(), data.max(axis=1))
print("results are those of numpy")
