"""Stages of statements, and of Python functions: te.extern, tir.ir_builder, tir.call_packed.

python examples/imperative_stages.py
python examples/imperative_stages.py --target opencl --rows 64
"""

import argparse

import numpy as np

import tilewright
from tilewright_tvm import nd, te, testing, tir
from tilewright_tvm.contrib import cblas

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="llvm, opencl or cuda")
parser.add_argument("--rows", type=int, default=16, help="that are sorted")
options = parser.parse_args()
on_gpu = options.target != "llvm"
rows, width = options.rows, 24
dev = tilewright.device(options.target)
x = np.random.rand(rows, width).astype("float32")


def each_row(ib):
    """The number of a row: of a core's iteration, or of a thread."""
    if not on_gpu:
        return ib.for_range(0, rows, name="row", kind="parallel")
    block = te.thread_axis("blockIdx.x")
    ib.scope_attr(block, "thread_extent", rows)
    return ib.for_range(block.var, block.var + 1, name="row")


# Rows are sorted by insertion: the inner loop ends where the numbers say, and what it stores is
# read by what follows.  The stages around it are scheduled like any.
def insertion(ins, outs):
    ib = tir.ir_builder.create()
    given, kept = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    with each_row(ib) as row, ib.for_range(0, width, name="i") as i:
        at = ib.allocate("int32", 1, name="at", scope="local")
        at[0] = i
        value = ib.let("value", given[row, i])
        with ib.while_loop(tir.all(at[0] > 0, kept[row, te.maximum(at[0] - 1, 0)] > value)):
            kept[row, at[0]] = kept[row, at[0] - 1]
            at[0] = at[0] - 1
        kept[row, at[0]] = value
    return ib.get()


def over(s, tensor):
    """Rows at once, on cores or in blocks."""
    if on_gpu:
        s[tensor].bind(tensor.op.axis[0], te.thread_axis("blockIdx.x"))
        s[tensor].bind(tensor.op.axis[1], te.thread_axis("threadIdx.x"))
    else:
        s[tensor].parallel(tensor.op.axis[0])


X = te.placeholder((rows, width), name="X")
sizes = te.compute(X.shape, lambda i, j: te.abs(X[i, j] - 0.5), name="sizes")
ordered = te.extern(X.shape, [sizes], insertion, name="ordered")
steps = te.compute((rows, width - 1), lambda i, j: ordered[i, j + 1] - ordered[i, j], name="steps")
s = te.create_schedule(steps.op)
over(s, sizes)
over(s, steps)
print(s)
out = nd.empty(steps.shape, device=dev)
tilewright.build(s, [X, steps], options.target)(nd.array(x, dev), out)
testing.assert_allclose(out.numpy(), np.diff(np.sort(np.abs(x - 0.5))), rtol=1e-4, atol=1e-6)


# Two outputs of different shapes: how many numbers of a row are above a half, and which they are.
def chosen(ins, outs):
    ib = tir.ir_builder.create()
    given, count, which = map(ib.buffer_ptr, (*ins, *outs))
    with each_row(ib) as row:
        count[row] = 0
        with ib.for_range(0, width, name="j") as j:
            which[row, j] = -1
        with ib.for_range(0, width, name="j") as j, ib.if_scope(given[row, j] > 0.5):
            which[row, count[row]] = j
            count[row] += 1
    return ib.get()


count, which = te.extern(
    [(rows,), (rows, width)], [X], chosen, name="chosen", dtype=["int32", "int32"]
)
s = te.create_schedule(count.op)
many, places = nd.empty(count.shape, "int32", dev), nd.empty(which.shape, "int32", dev)
tilewright.build(s, [X, count, which], options.target)(nd.array(x, dev), many, places)
for row in range(rows):
    found = np.flatnonzero(x[row] > 0.5)
    assert many.numpy()[row] == len(found)
    assert places.numpy()[row].tolist() == [*found, *[-1] * (width - len(found))]

# Threads of a block that share memory: each pair adds up, then pairs of pairs.  Where one thread
# reads what another has stored, a barrier stands by itself.
if on_gpu:

    def added(ins, outs):
        ib = tir.ir_builder.create()
        given, sums = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        block, thread = te.thread_axis("blockIdx.x"), te.thread_axis("threadIdx.x")
        ib.scope_attr(block, "thread_extent", rows)
        ib.scope_attr(thread, "thread_extent", 32)
        partial = ib.allocate("float32", (32,), name="partial", scope="shared")
        partial[thread] = tir.if_then_else(thread < width, given[block, thread], 0.0)
        step = 16
        while step:
            with ib.if_scope(thread < step):
                partial[thread] = partial[thread] + partial[thread + step]
            step //= 2
        with ib.if_scope(thread.equal(0)):
            sums[block] = partial[0]
        return ib.get()

    sums = te.extern((rows,), [X], added, name="sums")
    s = te.create_schedule(sums.op)
    total = nd.empty((rows,), device=dev)
    tilewright.build(s, [X, sums], options.target)(nd.array(x, dev), total)
    testing.assert_allclose(total.numpy(), x.sum(1), rtol=1e-4)

# On a CPU a stage may be a Python function: it gets arrays over the module's own memory, in the
# process that calls the module.  Products of numpy's library are there by TVM's names.
if not on_gpu:

    @tilewright.register_func("example.softmax")
    def softmax(source, target):
        numbers = source.numpy()
        powers = np.exp(numbers - numbers.max(1, keepdims=True))
        target.copyfrom(powers / powers.sum(1, keepdims=True))

    W = te.placeholder((width, 8), name="W")
    product = cblas.matmul(X, W)
    scaled = te.compute(product.shape, lambda i, j: product[i, j] * 0.5, name="scaled")
    chances = te.extern(
        scaled.shape,
        [scaled],
        lambda ins, outs: tir.call_packed("example.softmax", ins[0], outs[0]),
        name="chances",
    )
    s = te.create_schedule(chances.op)
    s[scaled].parallel(scaled.op.axis[0])
    print(tilewright.lower(s, [X, W, chances]))
    w, out = np.random.rand(width, 8).astype("float32"), nd.empty((rows, 8))
    tilewright.build(s, [X, W, chances])(nd.array(x), nd.array(w), out)
    powers = np.exp(x @ w * 0.5)
    testing.assert_allclose(out.numpy(), powers / powers.sum(1, keepdims=True), rtol=1e-4)
print("statements are right")
