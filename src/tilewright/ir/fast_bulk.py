"""Bulk copies and gates in the source that `fast_source.py` writes.

In: the writer and a statement.  Out: lines of Python.  A buffer of gates is the `Gates` of its
block, and so is the list of stamps of a buffer that bulk copies fill.  Read next: `gates.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.bulk import Arrive, Await, BulkCopy, Expect, Fence, MakeGates, gates_of
from tilewright.ir.gates import box_places
from tilewright.ir.interpreter_scalars import tf32
from tilewright.ir.stmt import Buffer, Kernel, Region, Stmt, statements
from tilewright.ir.warps import Meeting, Waiting

READ = ("unwritten", "in flight", "not waited for")  # what may be wrong with reading an element
# with beginning a copy to it
BEGUN = (
    "in flight", "multiplying", "not known to be read", "not shown to be read", "not waited for"
)  # fmt: skip


def filled(kernel: Kernel) -> set[Buffer]:
    """The buffers that bulk copies fill."""
    return {s.to.buffer for s in statements(kernel.body) if isinstance(s, BulkCopy)}


def gates_in(kernel: Kernel) -> set[Buffer]:
    """The buffers of gates."""
    found = (gates_of(s) for s in statements(kernel.body))
    return {region.buffer for region in found if region is not None}


def look(w: Any, buffer: Buffer, at: str) -> None:
    """Whether the thread may read an element that a bulk copy brings."""
    if w.check:
        w._line(f"q = {w._name(buffer)}w.read(tid, {constant(w, buffer)}, {at})")
        for kind in READ:
            w._guard(f"q == {kind!r}", kind, buffer, at)


def _copy(w: Any, stmt: BulkCopy) -> None:
    to, source, gate = stmt.to, stmt.source.buffer, stmt.gate
    w._begin(*stmt.at, to.index, gate.index)
    corner = ", ".join(w._atom(e) for e in stmt.at)
    places, values, name = f"x{w._number()}", f"x{w._number()}", w._name(source)
    w._line(f"{places} = box_places({constant(w, stmt.box)}, ({corner},))")
    if w.check:
        inner = w._atom(stmt.at[-1])
        w._guard(f"{inner} % {stmt.inner_unit}", "aligned", source, inner, stmt.inner_unit)
        w._line(f"at = max({places})")
        w._guard(f"at >= {source.size}", "bounds", source, "at")
        w._line(f"at = next((p for p in {places} if p >= 0 and {name}[p] is None), -1)")
        w._guard("at >= 0", "unwritten", source, "at")
    zero = f"to_{to.buffer.dtype}(0)" if to.buffer.dtype.is_float else "0"
    one = f"tf32({name}[p])" if stmt.rounded else f"{name}[p]"
    w._line(f"{values} = [{zero} if p < 0 else {one} for p in {places}]")
    w._index(to.buffer, to.index)
    w._index(to.buffer, to.index + (to.count - 1))
    first, buffer = w._atom(to.index), constant(w, to.buffer)
    if w.check:
        w._guard(f"{first} % {stmt.unit}", "aligned", to.buffer, first, stmt.unit)
    w._line(f"{places} = [{buffer}.at({first} + k) for k in range({to.count})]")
    w._line(
        f"q, at = {w._name(gate.buffer)}.copy(tid, {_gate(w, gate)}, ({buffer}, {places}),"
        f" {stmt.nbytes}, fill({w._name(to.buffer)}, {places}, {values}))"
    )
    for kind in BEGUN if w.check else ():
        w._guard(f"q == {kind!r}", kind, to.buffer, "at")


def fill(elements: list[Any], places: Sequence[int], values: Sequence[Any]) -> Callable[[], None]:
    """What stores values when they are there."""

    def arrived() -> None:
        for at, value in zip(places, values, strict=True):
            elements[at] = value

    return arrived


def _make(w: Any, stmt: MakeGates) -> None:
    gates = stmt.gates
    w._begin(gates.index)
    first = w._index(gates.buffer, gates.index)
    w._index(gates.buffer, gates.index + (gates.count - 1))
    w._line(
        f"{w._name(gates.buffer)}.make(tid, {constant(w, gates.buffer)},"
        f" range({first}, {first} + {gates.count}), {stmt.arrivals})"
    )


def _fence(w: Any, stmt: Fence) -> None:
    tell(w, "fence")


def tell(w: Any, what: str) -> None:
    """All gates are one in what a thread tells the copy engine."""
    for buffer in sorted(gates_in(w.kernel), key=lambda b: b.name)[:1]:
        w._line(f"{w._name(buffer)}.{what}(tid)")


def _expect(w: Any, stmt: Expect) -> None:
    w._begin(stmt.gate.index)
    w._line(f"{w._name(stmt.gate.buffer)}.expect(tid, {_gate(w, stmt.gate)}, {stmt.nbytes})")


def _arrive(w: Any, stmt: Arrive) -> None:
    w._begin(stmt.gate.index)
    w._line(f"yield Meeting({constant(w, stmt)}, ({_gate(w, stmt.gate)},))")


def _await(w: Any, stmt: Await) -> None:
    w._begin(stmt.gate.index, stmt.parity)
    parity, gate, name = f"x{w._number()}", f"x{w._number()}", w._name(stmt.gate.buffer)
    w._line(f"{parity} = {w._text(stmt.parity)}")
    w._line(f"{gate} = {_gate(w, stmt.gate)}")
    w._line(f"if {name}.ready(tid, {gate}, {parity}): {name}.passed(tid, {gate})")
    w._line(f"else: yield Waiting({constant(w, stmt)}, {gate}, {parity})")


def _gate(w: Any, region: Region) -> str:
    return f"({constant(w, region.buffer)}, {w._index(region.buffer, region.index)})"


def constant(w: Any, thing: Any) -> str:
    known = next((name for name, value in w.constants.items() if value is thing), None)
    if known is None:
        known = f"c{w._number()}"
        w.constants[known] = thing
    return known


BULK: dict[type[Stmt], Callable[..., None]] = {
    BulkCopy: _copy,
    MakeGates: _make,
    Fence: _fence,
    Expect: _expect,
    Arrive: _arrive,
    Await: _await,
}
BULK_NAMES = {
    "Waiting": Waiting, "Meeting": Meeting, "box_places": box_places, "fill": fill,
    "tf32": tf32,
}  # fmt: skip
