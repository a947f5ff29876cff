"""Sums of what atoms made, scaled element by element, by the lanes that hold it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import interpreter
from tests.tiers import examples
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import Mma, Store, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.thread_loops import lanes
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

TARGET = Target("cuda -arch=sm_90")
ATOM = "m16n8k16.float16"


def scaled(m: int, n: int, parts: int, depth: int = 16) -> list[Tensor]:
    """C[i, j] = the sum of parts of products, times a scale of the row for each part."""
    a = te.placeholder((m, parts, depth), "float16", "A")
    b = te.placeholder((n, parts, depth), "float16", "B")
    s = te.placeholder((parts, m), "float32", "S")
    k, part = te.reduce_axis((0, depth), "k"), te.reduce_axis((0, parts), "part")
    wide = "float32"
    p = te.compute(
        (m, n, parts),
        lambda i, j, q: te.sum(a[i, q, k].astype(wide) * b[j, q, k].astype(wide), axis=k),
        name="P",
    )
    c = te.compute((m, n), lambda i, j: te.sum(p[i, j, part] * s[part, i], axis=part), name="C")
    return [a, b, s, c]


def schedule(tensors: list[Tensor], each: int, step: int, shared: bool) -> tuple[Schedule, Stage]:
    """each: atoms of rows of a warp; step: parts that are written out; shared: scales lie there"""
    dag = ComputeDAG(tensors)
    s, of = Schedule(dag), {op.name: op.output_tensor for op in dag.ops}
    sums = s[s.cache_write(of["C"], "fragment")]
    result, product = s[of["C"]], s[of["P"]]
    i, j = result.op.axis
    rows, row = result.split(i, factor=16 * each)
    columns, column = result.split(j, factor=8)
    result.reorder(rows, columns, row, column)
    result.bind(result.fuse(rows, columns), "blockIdx.x")
    lane, *_ = lanes(result, row, column, ATOM)
    sums.compute_at(result, lane)
    part, inside = sums.split(sums.op.reduce_axis[0], factor=step)
    sums.reorder(part, inside, *sums.op.axis)
    sums.unroll(inside)
    product.set_scope("fragment")
    product.compute_at(sums, inside)
    m, n, q = product.op.axis
    tiles, row = product.split(m, factor=16)
    blocks, column = product.split(n, factor=8)
    (k,) = product.op.reduce_axis
    product.reorder(q, tiles, blocks, row, column, k)
    product.tensorize(row, ATOM)
    for name in "AB":
        held = s[s.cache_read(of[name], "fragment", [product.tensor])]
        held.compute_at(product, q)
    if shared:
        s[s.cache_read(of["S"], "shared", [sums.tensor])].compute_at(sums, part)
    return s, sums


def drawn(tensors: list[Tensor], seed: int) -> list[np.ndarray]:
    """Numbers whose sums are exact."""
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(-3, 4, t.shape) * (0.5 if t.op.name == "S" else 1)).astype(t.dtype.storage)
        for t in tensors[:-1]
    ]


def check(tensors: list[Tensor], s: Schedule, seed: int = 0) -> None:
    program = lower_schedule(s, TARGET, args=tensors)
    a, b, scale = values = drawn(tensors, seed)
    exact = np.einsum(
        "iqk,jqk,qi->ij", a.astype("float64"), b.astype("float64"), scale.astype("float64")
    )
    for run in (run_fast, interpreter.run):
        out = np.full(tensors[-1].shape, np.nan, "float32")
        run(program, [*values, out])
        np.testing.assert_array_equal(out, exact)


@given(
    st.integers(1, 40), st.integers(1, 20), st.integers(1, 5), st.integers(1, 2),
    st.integers(1, 3), st.booleans(), st.integers(0, 10**6),
)  # fmt: skip
@examples(6)
def test_every_extent(
    m: int, n: int, parts: int, each: int, step: int, shared: bool, seed: int
) -> None:
    if 1 in (m, n):  # the factor is a vector, which `pad` makes a tile of
        m, n = m + 1, n + 1
    tensors = scaled(m, n, parts)
    check(tensors, schedule(tensors, each, step, shared)[0], seed)


def test_a_lane_adds_what_it_holds_once_for_each_atom() -> None:
    tensors = scaled(16, 8, 4)
    s, sums = schedule(tensors, 1, 2, shared=True)
    (node,) = (n for n in LoopTree(s).nodes if n.stage is sums or n.name == "C.fragment")
    assert node.product is None and node.held is not None and node.held.part == "sum"
    (kernel,) = lower_schedule(s, TARGET, args=tensors).kernels
    found = list(statements(kernel.body))
    atoms = [x for x in found if isinstance(x, Mma)]
    added = [x for x in found if isinstance(x, Store) and x.buffer.name == "C.fragment"]
    assert len(atoms) == 1 and len(added) == 2 * 4  # zeros, and sums


def test_loops_that_are_split_or_bound_are_refused() -> None:
    tensors = scaled(16, 8, 4)
    s, sums = schedule(tensors, 1, 2, shared=True)
    sums.split(sums.op.axis[0], factor=8)
    with pytest.raises(ScheduleError, match="lanes add up what they hold tile by tile"):
        LoopTree(s)
