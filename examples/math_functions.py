"""Functions of numbers: one spelling in tensor expressions, each target's own in its text.

python examples/math_functions.py
"""

import numpy as np

import tilewright
from tilewright import te, topi
from tilewright_tvm import nd, testing, tir

n = te.var("n")


def text(dtype, function, target):
    """The device text of `function` applied to a vector."""
    A = te.placeholder((n,), dtype, name="A")
    B = te.compute((n,), lambda i: function(A[i]), name="B")
    s = te.create_schedule(B.op)
    block, thread = s[B].split(B.op.axis[0], factor=64)
    s[B].bind(block, te.thread_axis("blockIdx.x"))
    s[B].bind(thread, te.thread_axis("threadIdx.x"))
    return tilewright.build(s, [A, B], target, name="f").imported_modules[0].get_source()


for target in ("cuda", "opencl"):
    for dtype in ("float32", "float64", "float16"):
        print(f"# exp of {dtype} for {target}\n{text(dtype, te.exp, target)}")


# A function of one's own is an expression of those there are: every target has it at once, and its
# result is compared with the same reference.
def log1p(x):
    """log(1 + x), accurate for small x, where 1 + x has lost digits of x."""
    y = x + 1.0
    return tir.if_then_else(y.equal(1.0), x, te.log(y) * x / (y - 1.0))


print(f"# log1p for cuda\n{text('float32', log1p, 'cuda')}")
A = te.placeholder((n,), name="A")
B = te.compute((n,), lambda i: log1p(A[i]), name="B")
func = tilewright.build(te.create_schedule(B.op), [A, B], "llvm")
x = np.logspace(-8, 2, 1000, dtype="float32")
out = nd.empty(x.shape)
func(nd.array(x), out)
testing.assert_allclose(out.numpy(), np.log1p(x), rtol=1e-6)

# By name, as TVM's scripts ask for them, and on whole tensors.
call = te.compute((n,), lambda i: tir.call_intrin("float32", "tir.tanh", A[i]), name="call")
whole = topi.tanh(A)
for tensor in (call, whole):
    tilewright.build(te.create_schedule(tensor.op), [A, tensor], "llvm")(nd.array(x), out)
    testing.assert_allclose(out.numpy(), np.tanh(x), rtol=1e-6)
print("results are those of numpy")
