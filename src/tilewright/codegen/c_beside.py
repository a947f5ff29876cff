"""Calls for what goes on beside the threads: bulk copies, gates, groups of warps that multiply.

In: the printer of a kernel and a statement.  Out: lines of C.  Read next: `c_family.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.base.artifact import TensorMap
from tilewright.codegen.byte_floats import WORD, halves_of
from tilewright.codegen.c_dialect import MMA_BEGIN, MMA_END, SHOW, bulk_copy, multiplies, multiply
from tilewright.codegen.c_value import LANE_NAMES
from tilewright.codegen.cuda_groups import form
from tilewright.ir.affine import Simplifier
from tilewright.ir.atoms import WARP, Atom
from tilewright.ir.bulk import Arrive, Await, BulkCopy, Expect, Fence, MakeGates
from tilewright.ir.expr import Expr, conjuncts, const, free_variables, make, ramp
from tilewright.ir.stmt import (
    THREAD_TAGS,
    If,
    Kernel,
    Mma,
    MmaBegin,
    MmaEnd,
    Region,
    Show,
    Stmt,
    Thread,
    statements,
)


def view_of(p: Any, stmt: BulkCopy) -> TensorMap:
    """The map that the kernel has as a parameter for a copy."""
    source, box = stmt.source.buffer, stmt.box
    return TensorMap(
        p.kernel.params.index(source), source.dtype, box.shape, box.strides, box.reach,
        box.steps, stmt.to.buffer.swizzle, stmt.rounded,
    )  # fmt: skip


def _bulk_copy(p: Any, stmt: BulkCopy) -> None:
    corner = (p._print(p._closed(e)) for e in reversed(stmt.at))
    begin = p._print(p._closed(stmt.to.index))  # of whole periods of a swizzle
    to = f"&{p.buffers[stmt.to.buffer]}[{begin}]"
    places = to, p.maps[view_of(p, stmt)], p._place(stmt.gate)
    p._call_helper(bulk_copy(len(stmt.at)), ", ".join([*places, *corner]))


def halves(p: Any, to: Region, lanes: Sequence[Expr]) -> bool:
    """Store halves that are made of the bytes of one access, four by a call; False where they are
    not, or the language has no function for them."""
    found = halves_of(lanes, p._simplify)
    if found is None or found[-1] not in p.dialect.instructions:
        return False
    source, first, shift, name = found
    at = make("load", (ramp(first, 1, len(lanes)),), source, source.dtype, len(lanes))
    if not p._is_vector(at):
        return False
    words = p._print(p._named(at))
    for k in range(0, len(lanes), WORD):
        place = p._place(replace(to, index=to.index + k))
        p._call_helper(name, f"{place}, {words}.{LANE_NAMES[k // WORD]}, {p._print(shift)}")
    return True


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
    if stmt.atom.texts:
        _define_own(p, stmt.atom)
        p._line(f"{multiplies(stmt.atom)}({', '.join(places)});")
        return
    p._call_helper(multiply(stmt.atom.name), ", ".join(places), how)


_OWN = """{inline} void {name}({total}* d, const {left}* a, const {right}* b) {{
{body}}}
"""


def _define_own(p: Any, atom: Atom) -> None:
    """Write the function of an atom that brings its text."""
    language = p.dialect.language
    if language not in atom.texts:
        raise p._broken(f"{atom} has no text in {language}")
    total, left, right = (p._type(of.dtype) for of in (atom.sum, atom.a, atom.b))
    name = multiplies(atom)
    p.helpers[name] = _OWN.format(
        inline=p.dialect.inline, name=name, total=total, left=left, right=right,
        body=atom.texts[language],
    )  # fmt: skip


def _show(p: Any, stmt: Show) -> None:
    p._call_helper(SHOW, "")


def _mma_begin(p: Any, stmt: MmaBegin) -> None:
    p._call_helper(MMA_BEGIN, p._place(stmt.sum), f"{stmt.sum.count}")


def _mma_end(p: Any, stmt: MmaEnd) -> None:
    how = f"{stmt.sum.count}, {stmt.pending}"
    p._call_helper(MMA_END, p._place(stmt.sum), how)


def multiplies_by_groups(kernel: Kernel) -> bool:
    return any(isinstance(s, Mma) and s.atom.by_group for s in statements(kernel.body))


def whole_warps(stmt: If, kernel: Kernel) -> bool:
    """Whether the condition of a branch with gates or products differs between threads, but not
    between those of a warp.  Compilers do not know that, and have groups wait for each product
    where their path may divide.  Lanes are not apart there: gates and products want them all."""
    test = stmt.condition
    if not any(isinstance(s, (Mma, Await)) for s in statements(stmt)):
        return False
    threads = {t.tag: t for t in kernel.threads if t.tag in THREAD_TAGS}
    variables = {t.var for t in threads.values()}
    used = [p for p in conjuncts(test) if variables.intersection(free_variables(p))]
    return bool(used) and all(_of_whole_warps(p, threads) for p in used)


def _of_whole_warps(part: Expr, threads: Mapping[str, Thread]) -> bool:
    """Of a part: it does not look at threadIdx.x, whose extent is whole warps, or asks for thread
    numbers below a multiple of a warp."""
    x = threads.get("threadIdx.x")
    if x is None or isinstance(x.extent, Expr) or x.extent % WARP:
        return False
    if x.var not in free_variables(part):
        return True
    if part.op != "lt" or part.args[1].op != "const" or part.args[1].attr % WARP:
        return False
    number, step = const(0), 1
    for _, t in sorted(threads.items()):
        number, step = number + t.var * step, step * t.extent
    apart = Simplifier({t.var: (0, t.extent - 1) for t in threads.values()})(part.args[0] - number)
    return apart.op == "const" and not apart.attr


BESIDE: dict[type[Stmt], Callable[[Any, Any], None]] = {
    BulkCopy: _bulk_copy, MakeGates: _make_gates, Fence: _fence, Expect: _expect, Arrive: _arrive,
    Await: _await, Mma: _mma, Show: _show, MmaBegin: _mma_begin, MmaEnd: _mma_end,
}  # fmt: skip
