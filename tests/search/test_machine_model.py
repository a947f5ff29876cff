"""The machine model orders schedules whose order is known."""

import numpy as np

from search.spaces import CPU, flagship
from tilewright import te
from tilewright.base.dtype import FLOAT32
from tilewright.cost.machine_model import predict_seconds, seconds
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target

GPU = Target("cuda")


def predicted(s, target):
    tree = LoopTree(s)
    return float(seconds(Resources(tree.bounds(), target), 1)[0])


def transposed_or_not(along_rows):
    """A copy whose threads lie along rows (contiguous) or columns."""
    a = te.placeholder((4096, 4096), name="A")
    b = te.compute((4096, 4096), lambda i, j: a[i, j] + 1.0, name="B")
    s = create_schedule([b.op])
    i, j = s[b].op.axis
    lanes, other = (j, i) if along_rows else (i, j)
    block, thread = s[b].split(lanes, factor=128)
    s[b].reorder(other, block, thread)
    s[b].bind(other, "blockIdx.y")
    s[b].bind(block, "blockIdx.x")
    s[b].bind(thread, "threadIdx.x")
    return predicted(s, GPU)


def test_coalesced_copies_are_faster():
    assert transposed_or_not(True) * 1.5 < transposed_or_not(False)


def gpu_rows(threads, blocks):
    n = threads * blocks
    a = te.placeholder((n, 64), name="A")
    r = te.reduce_axis((0, 64), "r")
    b = te.compute((n,), lambda i: te.sum(a[i, r] * a[i, r], axis=r), name="B")
    s = create_schedule([b.op])
    block, thread = s[b].split(s[b].op.axis[0], factor=threads)
    s[b].bind(block, "blockIdx.x")
    s[b].bind(thread, "threadIdx.x")
    return predicted(s, GPU)


def test_the_same_work_wants_more_than_one_core_and_whole_warps():
    assert gpu_rows(64, 4096) < gpu_rows(2, 131072)
    assert gpu_rows(64, 64) < gpu_rows(1024, 4)


def written_out(steps, length=16384):
    """A sum of products per thread, in a loop of which `steps` iterations are written out."""
    a, b = te.placeholder((length,), name="A"), te.placeholder((length,), name="B")
    r = te.reduce_axis((0, length), "r")
    c = te.compute((128,), lambda i: te.sum(a[r] * b[r], axis=r), name="C")
    s = create_schedule([c.op])
    s[c].bind(s[c].op.axis[0], "threadIdx.x")
    outer, _ = s[c].split(s[c].op.reduce_axis[0], factor=steps)
    s[c].pragma(outer, "auto_unroll_max_step", steps)
    return predicted(s, GPU)


def test_code_that_exceeds_the_instruction_cache_is_slower():
    assert written_out(16) < written_out(1)  # a rolled loop waits for its loads, and for itself
    assert written_out(16384) > 1.5 * written_out(1024)


def staged(*, width=32, rows=16, unroll=0, threads=64, whole=100):
    """Threads sum slices of `rows` times `width` elements, which they copy to shared memory."""
    a = te.placeholder((128, whole), name="A")
    r, c = te.reduce_axis((0, 128), "r"), te.reduce_axis((0, width), "c")
    b = te.compute((threads * 256,), lambda i: te.sum(a[r, c], axis=[r, c]), name="B")
    s = create_schedule([b.op])
    shared = s[s.cache_read(a, "shared", [b])]
    block, thread = s[b].split(s[b].op.axis[0], factor=threads)
    outer, inner = s[b].split(s[b].op.reduce_axis[0], factor=rows)
    s[b].reorder(block, thread, outer, inner, s[b].op.reduce_axis[1])
    s[b].bind(block, "blockIdx.x")
    s[b].bind(thread, "threadIdx.x")
    shared.compute_at(s[b], outer)
    _, lane = shared.split(shared.fuse(*shared.op.axis), factor=threads)
    shared.bind(lane, "threadIdx.x")
    shared.pragma(shared.leaf_iter_vars[0], "auto_unroll_max_step", unroll)
    return predicted(s, GPU)


def test_copies_pay_for_indices_that_must_be_taken_apart():
    """64 threads step over whole rows of 32, but not of 33; rows of 36 need no telling apart where
    the tensor is as wide."""
    assert staged(width=33) / 33 > 1.01 * staged(width=32) / 32
    assert staged(width=36) > 1.01 * staged(width=36, whole=36)


def test_copies_want_loads_in_flight_but_no_more_than_registers_hold():
    assert staged(rows=64, unroll=64) < staged(rows=64)  # 32 loads of each thread
    large = {"rows": 128, "width": 96}  # 192 loads
    assert staged(**large, unroll=512) > 1.3 * staged(**large)


def cpu_matmul(*, parallel=True, vector=True, tile=4):
    n = 64
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), "r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s = create_schedule([c.op])
    local = s.cache_write(c, "local")
    i, j = s[c].op.axis
    io, ii = s[c].split(i, factor=tile)
    jo, ji = s[c].split(j, factor=16)
    s[c].reorder(io, jo, ii, ji)
    if parallel:
        s[c].parallel(io)
    s[local].compute_at(s[c], jo)
    i, j = s[local].op.axis
    (r,) = s[local].op.reduce_axis
    s[local].reorder(r, i, j)
    if vector:
        s[local].vectorize(j)
        s[c].vectorize(ji)
    return predicted(s, CPU)


def test_cpu_kernels_gain_by_vectors_and_register_tiles():
    assert cpu_matmul() * 2 < cpu_matmul(vector=False)
    assert cpu_matmul(tile=4) < cpu_matmul(tile=1)


def test_a_large_cpu_kernel_gains_by_its_cores():
    n = 128
    results = []
    for parallel in (True, False):
        a = te.placeholder((n, n), name="A")
        r = te.reduce_axis((0, n), "r")
        c = te.compute((n, n), lambda i, j, a=a, r=r: te.sum(a[i, r] * a[r, j], axis=r), name="C")
        s = create_schedule([c.op])
        if parallel:
            s[c].parallel(s[c].op.axis[0])
        results.append(predicted(s, CPU))
    assert results[0] < 0.7 * results[1]


def test_no_prediction_beats_the_device():
    task = flagship()
    sketch = task.sketches[0]
    indices = sketch.space.sample(4096, np.random.default_rng(0))
    indices = indices[sketch.legal(indices)]
    (group,) = sketch.groups(indices)
    found = predict_seconds(group)
    assert found.min() > task.flop / task.target.limits.rate(FLOAT32) * 0.9
    assert found.max() < 1.0
