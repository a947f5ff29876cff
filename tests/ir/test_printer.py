"""How kernels and statements look to people."""

import pytest

from tests import strategies as S
from tests.ir import naive
from tests.ir.test_interpreter import tiled_matmul
from tilewright.ir import expr as E
from tilewright.ir.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Seq,
    Store,
    load,
)

PRODUCT = """\
kernel mm(a: float32[256], b: float32[256], c: float32[256])
  launch 4 x 4 blocks of 4 x 4 threads: bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, \
ty = threadIdx.y
  alloc acc: float32[1] local, 4 bytes
  alloc sb: float32[16] shared, 64 bytes
  alloc sa: float32[16] shared, 64 bytes
  acc[0] = 0f
  for ko in 4:
    barrier
    sa[ty*4 + tx] = a[(by*4 + ty)*16 + ko*4 + tx]
    sb[ty*4 + tx] = b[(ko*4 + ty)*16 + (bx*4 + tx)]
    barrier
    for ki in 4:
      acc[0] += sa[ty*4 + ki]*sb[ki*4 + tx]
  c[(by*4 + ty)*16 + (bx*4 + tx)] = acc[0]"""

SUM = """\
kernel stage0(x: float32[3, 4], out: float32[3])
  parallel for i0 in 3:
    out[i0] = 0f
    for r1 in 4:
      out[i0] += x[i0*4 + r1]"""


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
        "if i < 1:\n  b[ramp(i, 2, 4)] = x4(0.1)\nelse:\n  barrier"
    )
    assert str(Seq(())) == "pass"
    assert str(For(i, 2, Seq(()), "vthread")) == "vthread for i in 2:\n  pass"
    text = str(E.cast("int32", E.select(~(load(b, i) > 0.0), E.call("floor", load(b, i)), -1.5)))
    assert text == "int32(select(!(b[i] > 0), tir.floor(b[i]), -1.5))"


X, Y = E.var("x"), E.var("y")
B16, B8 = Buffer("h", "float16", 64), Buffer("c", "int8", 8)
NEXT = E.ramp(X * 8, 1, 8)


@pytest.mark.parametrize(
    ("stmt", "text"),
    [
        (Store(B16, NEXT, load(B16, NEXT) + E.const(1.0, "float16")), "h[x*8 +: 8] += x8(1)"),
        (Store(B8, X, E.const(2, "int8") + load(B8, X)), "c[x] += 2"),
        (Store(B8, X, load(B8, X) * load(B8, Y)), "c[x] *= c[y]"),
        (Store(B8, X, load(B8, X) - load(B8, Y)), "c[x] = c[x] - c[y]"),
        (Store(B8, X, load(B8, Y) + load(B8, X)), "c[x] = c[y] + c[x]"),
        (Store(B8, X, load(B8, Y) - (load(B8, X) - load(B8, Y))), "c[x] = c[y] - (c[x] - c[y])"),
        (Store(B8, (X + Y) * 2 // 3 % 5, E.const(0, "int8")), "c[(x + y)*2 // 3 % 5] = 0"),
        (Store(B8, X * (Y // 2), E.const(0, "int8")), "c[x*(y // 2)] = 0"),
        (If((X < 1) | (Y < 2) & ~(X < Y), Barrier()), "if x < 1 || y < 2 && !(x < y):\n  barrier"),
        (
            Store(B16, X, E.cast("float16", E.call("exp", E.cast("float32", load(B16, X))))),
            "h[x] = float16(exp(float32(h[x])))",
        ),
        (
            Store(B16, X, E.maximum(E.if_then_else(X < 1, load(B16, X), 0.5), load(B16, Y))),
            "h[x] = max(if_then_else(x < 1, h[x], 0.5), h[y])",
        ),
    ],
)  # fmt: skip
def test_statements_have_only_the_parentheses_they_need(stmt, text):
    assert str(stmt) == text


def test_a_program_names_its_workspaces():
    w = Buffer("w", "float16", 12, "global", (3, 4))
    kernel = Kernel("k", (w,), Store(w, X, E.const(0.0, "float16")))
    assert str(Program("p", (), (), (kernel,), (w,))) == (
        "workspace w: float16[3, 4] global, 24 bytes\nkernel k(w: float16[3, 4])\n  w[x] = 0"
    )
