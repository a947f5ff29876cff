"""Which loops are written out without being asked for."""

from __future__ import annotations

import pytest

from schedule.computations import matmul
from tilewright.cost.addresses import Point
from tilewright.cost.nest import Nest
from tilewright.ir.stmt import For, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target


@pytest.mark.parametrize(("columns", "registers"), [(16, True), (512, False)])
def test_only_loops_of_a_tile_that_fits_the_registers(columns: int, registers: bool) -> None:
    """A row of 512 floats is memory: writing out its loops would only make the code long."""
    target = Target("llvm -vector-bytes=32 -vector-registers=16")  # 512 bytes
    *_, c = matmul(8, 512, 4)
    s = create_schedule([c.op])
    local = s.cache_write(c, "local")
    s[c].split(s[c].op.axis[1], factor=columns)
    s[local].compute_at(s[c], s[c].leaf_iter_vars[1])
    s[local].reorder(*s[local].op.reduce_axis, *s[local].op.axis)
    kernel = lower_schedule(s, target).kernels[0]
    loops = [x for x in statements(kernel.body) if isinstance(x, For) and x.extent == columns]
    assert {loop.kind for loop in loops} == {"unrolled" if registers else "serial"}
    tree = LoopTree(s)
    kernels = Resources(tree.bounds(), target).kernels
    nests = [Nest(n, kernel, Point(kernel.bounds, {})) for kernel in kernels for n in kernel.nodes]
    told = {bool(lp.unrolled) for n in nests for lp in n.own if lp.extent == columns}
    assert told == {registers}, "the facts of the search say what lowering does"
