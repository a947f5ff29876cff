"""How kernels and statements look to people."""

from tests import strategies as S
from tests.ir import naive
from tests.ir.test_interpreter import tiled_matmul
from tilewright.ir import expr as E
from tilewright.ir.stmt import Barrier, Buffer, For, If, Seq, Store, load

PRODUCT = """\
kernel mm(a: float32[256] global, b: float32[256] global, c: float32[256] global) \
launch blockIdx.x=bx:4 blockIdx.y=by:4 threadIdx.x=tx:4 threadIdx.y=ty:4
  alloc acc: float32[1] local
  alloc sb: float32[16] shared
  alloc sa: float32[16] shared
  acc[0] = 0f
  for ko in 4:
    barrier
    sa[((ty*4) + tx)] = a[(((((by*4) + ty)*16) + (ko*4)) + tx)]
    sb[((ty*4) + tx)] = b[((((ko*4) + ty)*16) + ((bx*4) + tx))]
    barrier
    for ki in 4:
      acc[0] = (acc[0] + (sa[((ty*4) + ki)]*sb[((ki*4) + tx)]))
  c[((((by*4) + ty)*16) + ((bx*4) + tx))] = acc[0]"""

SUM = """\
kernel stage0(x: float32[12] global, out: float32[3] global)
  parallel for i0 in 3:
    out[i0] = 0f
    for r1 in 4:
      out[i0] = (out[i0] + x[((i0*4) + r1)])"""


def test_a_launched_kernel():
    assert str(tiled_matmul()) == PRODUCT


def test_a_kernel_of_a_cpu():
    assert str(naive.program(S.reduction((3, 4), (1,), "sum"), "parallel")) == SUM


def test_statements_and_vectors():
    b, i = Buffer("b", "float64", 8), E.var("i")
    ramp = E.ramp(i, 2, 4)
    vector = Store(b, ramp, E.broadcast(E.const(0.1, "float64"), 4))
    assert str(vector) == "b[ramp(i, 2, 4)] = x4(0.1)"
    assert str(If(i < 1, vector, Barrier())) == (
        "if (i < 1):\n  b[ramp(i, 2, 4)] = x4(0.1)\nelse:\n  barrier"
    )
    assert str(Seq(())) == "pass"
    assert str(For(i, 2, Seq(()), "vthread")) == "vthread for i in 2:\n  pass"
    text = str(E.cast("int32", E.select(~(load(b, i) > 0.0), E.call("floor", load(b, i)), -1.5)))
    assert text == "int32(select(!(b[i] > 0), tir.floor(b[i]), -1.5))"
