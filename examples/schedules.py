"""What schedules do to loops, one primitive after the other, and how a GPU reduces.

Every schedule is printed as the loops it means; extents are variables, so each is one kernel for
all shapes.  The last one, rows summed by threads together, also runs where there is such a device.

    python examples/schedules.py
    python examples/schedules.py --target opencl
"""

import argparse

import numpy as np

import tilewright
import tilewright_tvm
from tilewright import te
from tilewright_tvm import nd, testing, tir, topi

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="cuda", help="cuda or opencl")
options = parser.parse_args()
n, m = te.var("n"), te.var("m")


def show(title, schedule, arguments):
    print(f"\n# {title}\n{tilewright.lower(schedule, arguments, simple_mode=True)}")


A = te.placeholder((n, m), name="A")
B = te.compute((n, m), lambda i, j: A[i, j] * 2.0, name="B")
C = te.compute((n, m), lambda i, j: B[i, j] + 1.0, name="C")

s = te.create_schedule(C.op)
show("two stages, each computed on its own", s, [A, B, C])

s[B].compute_inline()
show("compute_inline", s, [A, C])

s = te.create_schedule(C.op)
s[B].compute_at(s[C], C.op.axis[0])
show("compute_at: a row of B for each row of C", s, [A, C])

s = te.create_schedule(B.op)
io, jo, ii, ji = s[B].tile(B.op.axis[0], B.op.axis[1], x_factor=10, y_factor=5)
s[B].fuse(ii, ji)
show("tile, then fuse the inner loops", s, [A, B])

s = te.create_schedule(B.op)
outer, inner = s[B].split(B.op.axis[0], nparts=32)
s[B].reorder(B.op.axis[1], outer, inner)
show("split into 32 parts, reorder", s, [A, B])

first, second = te.compute((n, m), lambda i, j: (A[i, j] + 2.0, A[i, j] * 3.0), name="both")
s = te.create_schedule(first.op)
show("two results of one computation", s, [A, first, second])

k = te.reduce_axis((0, m), "k")
product = te.comm_reducer(lambda x, y: x * y, lambda t: tir.const(1, dtype=t), name="product")
P = te.compute((n,), lambda i: product(A[i, k], axis=k), name="P")
show("a reducer of one's own", te.create_schedule(P.op), [A, P])

# Rows are summed by 16 threads each: every thread adds up its share (rfactor), then they meet.
S = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="S")
s = te.create_schedule(S.op)
ko, ki = s[S].split(S.op.reduce_axis[0], factor=16)
share = s.rfactor(S, ki)
rows, row = s[S].split(s[S].op.axis[0], factor=32)
lane = te.thread_axis("threadIdx.x")
s[S].bind(rows, te.thread_axis("blockIdx.x"))
s[S].bind(row, te.thread_axis("threadIdx.y"))
s[S].bind(s[S].op.reduce_axis[0], lane)
s[share].compute_at(s[S], s[S].op.reduce_axis[0])
s[S].set_store_predicate(lane.var.equal(0))
summed = tilewright.build(s, [A, S], options.target, name="rows")
print(f"\n# rows by threads together\n{summed.imported_modules[0].get_source()}")

# The same by topi's operators and their default schedule.
with tilewright_tvm.target.Target(options.target):
    total = topi.sum(A, axis=1)
    default = topi.cuda.schedule_reduce(total)
    show("topi.sum with its default schedule", default, [A, total])

device = tilewright.device(options.target)
if device.exist:
    for shape in ((1, 1), (128, 100)):
        x = np.random.rand(*shape).astype("float32")
        out = nd.empty(shape[:1], "float32", device)
        summed(nd.array(x, device), out)
        testing.assert_allclose(out.numpy(), x.sum(axis=1), rtol=1e-5)
    print("rows are right")
