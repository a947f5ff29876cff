"""Calls for what goes on beside the threads: bulk copies, gates, groups of warps that multiply.

In: the printer of a kernel and a statement.  Out: lines of C.  Read next: `c_family.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base.artifact import TensorMap
from tilewright.codegen.c_dialect import MMA_BEGIN, MMA_END, SHOW, bulk_copy, multiply
from tilewright.codegen.cuda_groups import form
from tilewright.ir.bulk import Arrive, Await, BulkCopy, Expect, Fence, MakeGates
from tilewright.ir.stmt import Mma, MmaBegin, MmaEnd, Show, Stmt


def view_of(p: Any, stmt: BulkCopy) -> TensorMap:
    """The map that the kernel has as a parameter for a copy."""
    source, box = stmt.source.buffer, stmt.box
    return TensorMap(
        p.kernel.params.index(source), source.dtype, box.shape, box.strides, box.reach,
        box.steps, stmt.to.buffer.swizzle,
    )  # fmt: skip


def _bulk_copy(p: Any, stmt: BulkCopy) -> None:
    corner = (p._print(p._closed(e)) for e in reversed(stmt.at))
    begin = p._print(p._closed(stmt.to.index))  # of whole periods of a swizzle
    to = f"&{p.buffers[stmt.to.buffer]}[{begin}]"
    places = to, p.maps[view_of(p, stmt)], p._place(stmt.gate)
    p._call_helper(bulk_copy(len(stmt.at)), ", ".join([*places, *corner]))


def _make_gates(p: Any, stmt: MakeGates) -> None:
    what = f"{p._place(stmt.gates)}, {stmt.gates.count}, {stmt.arrivals}"
    p._call_helper("tw_make_gates", what)


def _fence(p: Any, stmt: Fence) -> None:
    p._call_helper("tw_fence", "")


def _expect(p: Any, stmt: Expect) -> None:
    p._call_helper("tw_expect", f"{p._place(stmt.gate)}, {stmt.nbytes}")


def _arrive(p: Any, stmt: Arrive) -> None:
    p._call_helper("tw_arrive", p._place(stmt.gate))


def _await(p: Any, stmt: Await) -> None:
    parity = p._print(p._closed(stmt.parity))
    p._call_helper("tw_await_gate", f"{p._place(stmt.gate)}, {parity}")


def _mma(p: Any, stmt: Mma) -> None:
    regions, how = (stmt.sum, stmt.a, stmt.b), ""
    if stmt.atom.by_group:
        how = ", ".join(f"{form(region.buffer.swizzle)}" for region in regions[1:])
    places = (p._place(region, as_told=stmt.atom.by_group) for region in regions)
    p._call_helper(multiply(stmt.atom.name), ", ".join(places), how)


def _show(p: Any, stmt: Show) -> None:
    p._call_helper(SHOW, "")


def _mma_begin(p: Any, stmt: MmaBegin) -> None:
    p._call_helper(MMA_BEGIN, p._place(stmt.sum), f"{stmt.sum.count}")


def _mma_end(p: Any, stmt: MmaEnd) -> None:
    how = f"{stmt.sum.count}, {stmt.pending}"
    p._call_helper(MMA_END, p._place(stmt.sum), how)


BESIDE: dict[type[Stmt], Callable[[Any, Any], None]] = {
    BulkCopy: _bulk_copy, MakeGates: _make_gates, Fence: _fence, Expect: _expect, Arrive: _arrive,
    Await: _await, Mma: _mma, Show: _show, MmaBegin: _mma_begin, MmaEnd: _mma_end,
}  # fmt: skip
