"""Features: finite, the same for one candidate as for a population, and true of known accesses."""

import numpy as np
import pytest

from search.spaces import CPU, cpu_task, flagship
from tilewright import te
from tilewright.cost.addresses import Lanes
from tilewright.cost.features import FEATURES, describe, features_and_seconds
from tilewright.cost.gpu_facts import gpu_kernels
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.schedule.tree.touch import anatomy
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

GPU = Target("cuda")


def population(task, n, seed=0):
    sketch = task.sketches[0]
    found = sketch.space.sample(n, np.random.default_rng(seed))
    return sketch, found[sketch.legal(found)]


@pytest.mark.parametrize("make", [flagship, cpu_task])
def test_one_candidate_has_the_features_of_its_row(make):
    task = make()
    sketch, indices = population(task, 2048)
    assert len(indices) > 20
    for group in sketch.groups(indices):
        rows, seconds = features_and_seconds(group)
        for k in range(0, len(group.rows), max(1, len(group.rows) // 6)):
            tree = LoopTree(sketch.close(int(indices[group.rows[k]])))
            row, alone = describe(Resources(tree.bounds(), task.target), 1)
            np.testing.assert_allclose(row[0], rows[k], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(alone[0], seconds[k], rtol=1e-9)


@pytest.mark.parametrize("make", [flagship, cpu_task])
def test_features_are_finite_for_illegal_candidates_too(make):
    task = make()
    sketch = task.sketches[0]
    indices = sketch.space.sample(2000, np.random.default_rng(3))
    for group in sketch.groups(indices):
        rows, seconds = features_and_seconds(group)
        assert rows.shape == (len(group.rows), len(FEATURES)) and rows.dtype == np.float32
        assert np.isfinite(rows).all() and np.isfinite(seconds).all() and (seconds > 0).all()


def test_a_row_depends_on_its_candidate_alone():
    task = flagship()
    sketch, indices = population(task, 600)
    (group,) = sketch.groups(indices)
    (mirror,) = sketch.groups(indices[::-1])
    rows, seconds = features_and_seconds(group)
    back, again = features_and_seconds(mirror)
    np.testing.assert_array_equal(rows, back[::-1])
    np.testing.assert_array_equal(seconds, again[::-1])


def test_names_are_distinct_and_columns_differ_between_candidates():
    task = flagship()
    sketch, indices = population(task, 4096)
    (group,) = sketch.groups(indices)
    rows, _ = features_and_seconds(group)
    assert len(set(FEATURES)) == len(FEATURES)
    moving = {n for n, column in zip(FEATURES, rows.T, strict=True) if np.ptp(column) > 0}
    wanted = {
        "log_threads", "occupancy", "load_sectors", "load_conflicts", "log_phases", "tail",
        "log_code", "log_shared_waits", "log_global_waits",
    }  # fmt: skip
    assert wanted <= moving


def computations():
    a = te.placeholder((33, 65), name="A")
    b = te.placeholder((65, 17), name="B")
    r = te.reduce_axis((0, 65), "r")
    yield [te.compute((33, 17), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]
    yield [te.compute((33, 65), lambda i, j: te.exp(a[i, j]) + 1.0, name="E")]
    k = te.reduce_axis((0, 65), "k")
    top = te.compute((33,), lambda i: te.max(a[i, k], axis=k), name="M")
    yield [te.compute((33, 65), lambda i, j: a[i, j] - top[i], name="D")]
    yield [te.compute((65, 33), lambda i, j: a[j, i], name="T")]
    x = te.placeholder((8, 9, 9), name="X")
    ry, rx = te.reduce_axis((0, 3), "ry"), te.reduce_axis((0, 3), "rx")
    pad = te.compute(
        (8, 11, 11),
        lambda c, h, w: te.if_then_else(
            te.all(h >= 1, h < 10, w >= 1, w < 10), x[c, h - 1, w - 1], 0.0
        ),
        name="P",
    )

    def window(c, h, w):
        return te.max(pad[c, h + ry, w + rx], axis=[ry, rx])

    yield [te.compute((8, 9, 9), window, name="Q")]


@pytest.mark.parametrize("target", [GPU, Target("opencl"), CPU], ids=["cuda", "opencl", "llvm"])
def test_every_default_schedule_has_features(target):
    for outputs in computations():
        tree = LoopTree(default_schedule(ComputeDAG(outputs), target))
        rows, seconds = describe(Resources(tree.bounds(), target), 1)
        assert np.isfinite(rows).all() and 1e-9 < seconds[0] < 1


def strided_copy(stride, threads=64):
    """B[i] = A[i * stride], a thread an element."""
    a = te.placeholder((threads * stride,), name="A")
    b = te.compute((threads,), lambda i: a[i * stride], name="B")
    s = create_schedule([b.op])
    s[b].bind(s[b].op.axis[0], "threadIdx.x")
    return LoopTree(s)


@pytest.mark.parametrize("stride, sectors", [(0, 1), (1, 4), (2, 8), (4, 16), (8, 32), (32, 32)])
def test_sectors_of_a_strided_load(stride, sectors):
    tree = strided_copy(stride or 1)
    bounds = tree.bounds()
    (node,) = tree.nodes
    lanes = Lanes(bounds, bounds.launch(node), 1, 32)
    read = anatomy(tree).reads[node][0]
    if stride == 0:  # only one lane runs: the others are not counted
        bounds = (tree := strided_copy(1, threads=1)).bounds()
        (node,) = tree.nodes
        lanes, read = Lanes(bounds, bounds.launch(node), 1, 32), anatomy(tree).reads[node][0]
    assert np.max(lanes.sectors(read)) == sectors


@pytest.mark.parametrize("stride, passes", [(1, 1), (2, 2), (3, 1), (16, 16), (32, 32), (33, 1)])
def test_bank_conflicts_of_a_strided_access(stride, passes):
    tree = strided_copy(stride)
    bounds = tree.bounds()
    (node,) = tree.nodes
    lanes = Lanes(bounds, bounds.launch(node), 1, 32)
    assert np.max(lanes.wavefronts(anatomy(tree).reads[node][0], 1)) == passes


def test_lanes_that_read_one_word_are_a_broadcast():
    a = te.placeholder((4,), name="A")
    b = te.compute((64, 4), lambda i, j: a[j], name="B")
    s = create_schedule([b.op])
    s[b].bind(s[b].op.axis[0], "threadIdx.x")
    tree = LoopTree(s)
    lanes = Lanes(tree.bounds(), {"threadIdx.x": 64}, 1, 32)
    read = anatomy(tree).reads[tree.nodes[0]][0]
    assert lanes.sectors(read) == 1 and lanes.wavefronts(read, 1) == 1


def copied(width, whole, vector=1):
    """Features of a kernel whose 64 threads copy 16 rows of `width` of `whole` elements at once."""
    a = te.placeholder((128, whole), name="A")
    r, c = te.reduce_axis((0, 128), "r"), te.reduce_axis((0, width), "c")
    b = te.compute((64,), lambda i: te.sum(a[r, c], axis=[r, c]), name="B")
    s = create_schedule([b.op])
    shared = s[s.cache_read(a, "shared", [b])]
    s[b].bind(s[b].op.axis[0], "threadIdx.x")
    outer, _ = s[b].split(s[b].op.reduce_axis[0], factor=16)
    shared.compute_at(s[b], outer)
    rest, lane = shared.split(shared.fuse(*shared.op.axis), factor=vector)
    _, thread = shared.split(rest, factor=64)
    shared.vectorize(lane)
    shared.bind(thread, "threadIdx.x")
    tree = LoopTree(s)
    row, _ = describe(Resources(tree.bounds(), GPU), 1)
    return dict(zip(FEATURES, row[0], strict=True))


@pytest.mark.parametrize(
    "width, whole, divisions",
    [(32, 100, 0), (64, 100, 0), (128, 200, 0), (33, 100, 1), (100, 100, 0), (96, 100, 1)],
)
def test_copies_divide_where_steps_are_not_whole_rows(width, whole, divisions):
    assert copied(width, whole)["divisions"] == divisions


def test_lanes_that_cross_rows_are_no_vector():
    assert copied(32, 100, vector=4)["vector_width"] == 2
    assert copied(34, 100, vector=4)["vector_width"] == 0
    assert copied(34, 34, vector=4)["vector_width"] == 2


def summed(threads_share, stride):
    """Features of threads that sum 64 elements of a row in shared memory, `stride` apart."""
    a = te.placeholder((32, 64 * stride), name="A")
    r = te.reduce_axis((0, 64), "r")
    row = (lambda i: 0) if threads_share else (lambda i: i)
    b = te.compute((32,), lambda i: te.sum(a[row(i), r * stride], axis=r), name="B")
    s = create_schedule([b.op])
    block, thread = s[b].split(s[b].op.axis[0], factor=32)
    s[b].bind(block, "blockIdx.x")
    s[b].bind(thread, "threadIdx.x")
    shared = s[s.cache_read(a, "shared", [b])]
    shared.compute_at(s[b], block)
    s[b].unroll(s[b].op.reduce_axis[0])
    tree = LoopTree(s)
    (kernel,) = gpu_kernels(Resources(tree.bounds(), GPU), 1)
    return kernel


def test_neighbours_in_shared_memory_are_loaded_together():
    assert summed(True, 1).shared_load.requests == 16
    assert summed(False, 1).shared_load.requests == 16
    assert summed(True, 2).shared_load.requests == 64
    assert summed(False, 1).shared_load.passes > summed(True, 1).shared_load.passes
