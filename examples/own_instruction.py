"""A matrix instruction of your own: registered, put in the place of three loops, checked.

    python examples/own_instruction.py

It adds two products to each of four sums: what a thread of a CPU does with vectors of four floats.
On GPUs the texts are C (`{"cuda": ...}`), and `unit="warp"` has 32 lanes: see docs/schedules.md.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.runtime.ndarray import array

TEXT = """
  %x0 = load float, ptr %a
  %a1 = getelementptr float, ptr %a, i64 1
  %x1 = load float, ptr %a1
  %b1 = getelementptr float, ptr %b, i64 4
  %y0 = load <4 x float>, ptr %b, align 4
  %y1 = load <4 x float>, ptr %b1, align 4
  %l0 = insertelement <4 x float> poison, float %x0, i64 0
  %v0 = shufflevector <4 x float> %l0, <4 x float> poison, <4 x i32> zeroinitializer
  %l1 = insertelement <4 x float> poison, float %x1, i64 0
  %v1 = shufflevector <4 x float> %l1, <4 x float> poison, <4 x i32> zeroinitializer
  %s = load <4 x float>, ptr %d, align 4
  %p0 = fmul contract <4 x float> %v0, %y0
  %s0 = fadd contract <4 x float> %s, %p0
  %p1 = fmul contract <4 x float> %v1, %y1
  %s1 = fadd contract <4 x float> %s0, %p1
  store <4 x float> %s1, ptr %d, align 4
"""


def tile(m: int, n: int, k: int) -> te.Tensor:
    """What the instruction adds to its sums."""
    a, b = te.placeholder((m, k), "float32", "a"), te.placeholder((k, n), "float32", "b")
    r = te.reduce_axis((0, k), "k")
    return te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="tile")


# The bits of an element's indices are those of its place: b[k, n] is element 4 * k + n.
name = tw.register_atom(
    "example.m1n4k2", tile(1, 4, 2), a="k0", b="n0 n1 k0", sum="n0 n1", texts={"llvm": TEXT}
)
try:
    tw.register_atom(
        "example.wrong", tile(1, 4, 2), a="k0", b="n0 k0", sum="n0 n1", texts={"llvm": TEXT}
    )
except ScheduleError as error:
    print("refused:", error)

m, n, k = 16, 32, 24
a, b = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
r = te.reduce_axis((0, k), name="r")
c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
s = te.create_schedule(c.op)
sums = s.cache_write(c, "local")
_, j = s[c].op.axis
jo, ji = s[c].split(j, factor=4)
s[c].vectorize(ji)
s[sums].compute_at(s[c], jo)
row, column = s[sums].op.axis
step, depth = s[sums].split(s[sums].op.reduce_axis[0], factor=2)
rows, row = s[sums].split(row, factor=1)
columns, column = s[sums].split(column, factor=4)
s[sums].reorder(step, rows, columns, row, column, depth)
s[sums].tensorize(row, name)
for tensor in (a, b):
    s[s.cache_read(tensor, "local", [sums])].compute_at(s[sums], step)
print(tw.lower(s, [a, b, c]))

product = tw.build(s, [a, b, c])
rng = np.random.default_rng(0)
left, right = (rng.standard_normal(t.shape).astype("float32") for t in (a, b))
out = array(np.zeros((m, n), "float32"))
product(array(left), array(right), out)
print("largest difference:", np.abs(out.numpy() - left @ right).max())
