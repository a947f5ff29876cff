"""Guards of uneven splits: where they are tested, and what they spare the stages inside."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te
from tilewright.ir.fast_interpreter import run_fast
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.space.decision import Assignment, var
from tilewright.schedule.tree.loop_tree import LoopTree, Node
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor


def node(tree: LoopTree, tensor: Tensor) -> Node:
    return tree.of_stage[tree.schedule[tensor]]


def dealt(threads: int) -> tuple[Schedule, list[Tensor]]:
    """Blocks of 4 x 8 elements dealt to `threads` in turn, each copied once more inside."""
    data = te.placeholder((16, 8), name="data")
    board = te.compute((16, 8), lambda i, j: data[i, j] + 1.0, name="board")
    own = te.compute((16, 8), lambda i, j: board[i, j] * 2.0, name="own")
    out = te.compute((16, 8), lambda i, j: own[i, j] + 0.5, name="out")
    s = create_schedule(out)
    i, j = s[out].op.axis
    block, row = s[out].split(i, factor=4)
    _, lane = s[out].split(s[out].fuse(row, j), factor=threads)
    s[out].bind(block, "blockIdx.x")
    s[out].bind(lane, "threadIdx.x")
    s[board].set_scope("shared")
    s[board].compute_at(s[out], block)
    s[board].bind(s[board].op.axis[1], "threadIdx.x")
    s[own].set_scope("local")
    s[own].compute_at(s[out], lane)
    return s, [board, own, out]


@pytest.mark.parametrize("threads", [8, 12, 20, 32])
def test_what_carries_a_guard_needs_no_more_than_the_guard_allows(threads: int) -> None:
    s, (board, own, _) = dealt(threads)
    tree = LoopTree(s)
    bounds = tree.bounds()
    assert bounds.region(node(tree, board)) == [4, 8]  # not what overhanging rounds would read
    assert bounds.region(node(tree, own)) == [1, 1]
    values = np.arange(128, dtype=np.float32).reshape(16, 8)
    result = np.full((16, 8), np.nan, np.float32)
    run_fast(lower_schedule(s, Target("cuda")), [values, result])
    np.testing.assert_array_equal(result, (values + 1) * 2 + 0.5)


def test_a_guard_is_not_carried_to_what_others_read() -> None:
    """`first` is computed by its own threads for all: the guard of `out` says nothing of it."""
    data = te.placeholder((10,), name="data")
    first = te.compute((10,), lambda i: data[i] + 1.0, name="first")
    out = te.compute((10,), lambda i: first[i] * 2.0, name="out")
    s = create_schedule(out)
    block, lane = s[out].split(s[out].op.axis[0], factor=4)
    s[out].bind(block, "blockIdx.x")
    s[out].bind(lane, "threadIdx.x")
    s[first].set_scope("shared")
    s[first].compute_at(s[out], block)
    tree = LoopTree(s)
    assert not node(tree, first).carried
    assert tree.bounds().region(node(tree, first)) == [4]


@pytest.mark.parametrize(("inner", "outer"), [(4, 5), (4, 3), (5, 3)])
def test_an_exact_split_leaves_the_guard_to_its_outer_loop(inner: int, outer: int) -> None:
    data = te.placeholder((40,), name="data")
    out = te.compute((40,), lambda i: data[i] * 3.0, name="out")
    s = create_schedule(out)
    rest, lane = s[out].split(s[out].op.axis[0], factor=inner)
    s[out].split(rest, factor=outer)
    if 16 % inner == 0:
        s[out].vectorize(lane)
    tree = LoopTree(s)
    guards = {ax for ax, flag in tree.bounds().guards[node(tree, out)].items() if flag}
    assert guards == (set() if (40 // inner) % outer == 0 else {rest})
    program = lower_schedule(s, Target("cuda"))
    result = np.full(40, np.nan, np.float32)
    run_fast(program, [np.arange(40, dtype=np.float32), result])
    np.testing.assert_array_equal(result, np.arange(40) * 3)
    assert (" +: 4]" in str(program)) == (inner == 4)  # a guard that names the lane forbids vectors


def test_guards_of_a_population_are_those_of_its_members() -> None:
    data = te.placeholder((40,), name="data")
    out = te.compute((40,), lambda i: data[i] * 3.0, name="out")
    s = create_schedule(out)
    axis = s[out].op.axis[0]
    rest, _ = s[out].split(axis, factor=var("inner"))
    s[out].split(rest, factor=var("outer"))
    tree = LoopTree(s)
    inner, outer = np.array([4, 4, 5, 7, 7]), np.array([5, 3, 3, 2, 3])
    flags = tree.bounds(Assignment(inner=inner, outer=outer)).guards[node(tree, out)]
    assert flags[axis].tolist() == [False, False, False, True, True]
    assert flags[rest].tolist() == [False, True, True, False, False]


def test_a_reduction_keeps_the_guard_of_an_inner_loop_on_a_cpu() -> None:
    """Tiles may overhang their tensor on a CPU, but not each other: sums would count twice."""
    data = te.placeholder((3, 4, 2), name="data")
    stored = te.compute((3, 4, 2), lambda i, j, k: data[i, j, k] + 1.0, name="stored")
    k = te.reduce_axis((0, 2), name="k")
    total = te.compute((3, 4), lambda i, j: te.sum(stored[i, j, k], axis=k), name="total")
    out = te.compute((3, 4), lambda i, j: total[i, j] * 2.0, name="out")
    s = create_schedule(out)
    s[total].compute_at(s[out], s[out].op.axis[0])
    _, inner = s[total].split(s[total].op.axis[1], factor=1)
    s[total].split(inner, factor=4)
    s[total].reorder(s[total].op.reduce_axis[0], *s[total].leaf_iter_vars[:-1])
    values = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
    result = np.full((3, 4), np.nan, np.float32)
    run_fast(lower_schedule(s, Target("llvm")), [values, result])
    np.testing.assert_array_equal(result, (values + 1).sum(2) * 2)
