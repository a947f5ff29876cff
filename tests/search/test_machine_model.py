"""The machine model orders schedules whose order is known."""

import numpy as np

from search.spaces import CPU, flagship
from tilewright import te
from tilewright.base.target import Target
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.tree import LoopTree
from tilewright.search.machine_model import predict_seconds, seconds

GPU = Target("cuda")


def predicted(s, target):
    tree = LoopTree(s)
    return float(seconds(tree, tree.bounds(), target, 1)[0])


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
    found = predict_seconds(group, task.target)
    assert found.min() > task.flop / task.target.limits.peak_flops * 0.9
    assert found.max() < 1.0
