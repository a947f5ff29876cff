"""Tensor expressions from the ground up: one kernel for vectors of every length, then a product.

Each schedule of the product is checked against numpy and timed, from the plain loops to tiles that
are packed, vectorized and spread over the cores.

    python examples/tensor_expressions.py
    python examples/tensor_expressions.py --size 1024 --gpu cuda
"""

import argparse

import numpy as np

import tilewright
from tilewright import te
from tilewright_tvm import nd, testing, tir

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--size", type=int, default=256, help="rows and columns of the matrices")
parser.add_argument("--gpu", default="", help="cuda or opencl: also add vectors there")
options = parser.parse_args()


# -- vectors of any length -------------------------------------------------------------------------

n = te.var("n")
A = te.placeholder((n,), name="A")
B = te.placeholder((n,), name="B")
C = te.compute(A.shape, lambda i: A[i] + B[i], name="C")


def add_vectors(module, device, length):
    """Run the module on vectors of one length and compare."""
    x, y = np.random.rand(2, length).astype("float32")
    out = nd.empty((length,), "float32", device)
    module(nd.array(x, device), nd.array(y, device), out)
    testing.assert_allclose(out.numpy(), x + y, rtol=1e-6)


s = te.create_schedule(C.op)
outer, inner = s[C].split(C.op.axis[0], factor=8)
s[C].parallel(outer)
s[C].vectorize(inner)
print(tilewright.lower(s, [A, B, C], simple_mode=True))
add = tilewright.build(s, [A, B, C], "llvm", name="add")
for length in (1, 7, 1000):  # one kernel: its tail is guarded
    add_vectors(add, tilewright.cpu(), length)

if options.gpu:
    s = te.create_schedule(C.op)
    block, thread = s[C].split(C.op.axis[0], factor=64)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    s[C].bind(thread, te.thread_axis("threadIdx.x"))
    add = tilewright.build(s, [A, B, C], options.gpu, name="add")
    print(add.imported_modules[0].get_source())
    if tilewright.device(options.gpu).exist:
        add_vectors(add, tilewright.device(options.gpu), 1000)


# -- a product of matrices -------------------------------------------------------------------------

size, tile = options.size, 32
k = te.reduce_axis((0, size), "k")
A = te.placeholder((size, size), name="A")
B = te.placeholder((size, size), name="B")
C = te.compute((size, size), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")

left, right = np.random.rand(2, size, size).astype("float32")
expected = left @ right


def measure(schedule, title):
    """Build, compare with numpy, print the time of one product."""
    module = tilewright.build(schedule, [A, B, C], "llvm", name="product")
    out = nd.array(np.zeros((size, size), "float32"))
    arrays = [nd.array(left), nd.array(right), out]
    module(*arrays)
    testing.assert_allclose(out.numpy(), expected, rtol=1e-4)
    seconds = module.time_evaluator(module.entry_name, tilewright.cpu(), number=1)(*arrays).mean
    print(f"{title:24} {seconds * 1e3:9.3f} ms")


s = te.create_schedule(C.op)
measure(s, "as declared")

s = te.create_schedule(C.op)
io, jo, ii, ji = s[C].tile(C.op.axis[0], C.op.axis[1], tile, tile)
ko, ki = s[C].split(k, factor=4)
s[C].reorder(io, jo, ko, ki, ii, ji)
measure(s, "tiles")

s[C].vectorize(ji)
measure(s, "and vectors")

packed = te.compute(
    (size / tile, size, tile), lambda block, r, j: B[r, block * tile + j], name="packed"
)
C = te.compute(
    (size, size),
    lambda i, j: te.sum(A[i, k] * packed[tir.indexdiv(j, tile), k, tir.indexmod(j, tile)], axis=k),
    name="C",
)
s = te.create_schedule(C.op)
local = s.cache_write(C, "global")
io, jo, ii, ji = s[C].tile(C.op.axis[0], C.op.axis[1], tile, tile)
s[local].compute_at(s[C], jo)
il, jl = s[local].op.axis
ko, ki = s[local].split(s[local].op.reduce_axis[0], factor=4)
s[local].reorder(ko, il, ki, jl)
s[local].unroll(ki)
s[local].vectorize(jl)
s[C].parallel(io)
block, _, column = s[packed].op.axis
s[packed].vectorize(column)
s[packed].parallel(block)
measure(s, "packed, all cores")
