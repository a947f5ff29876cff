"""Asynchronous copies, meetings of lanes and of blocks in the source that `fast_source.py` writes.

In: the writer and a statement.  Out: lines of Python.  `groups` of a thread has its copies that
have not been waited for, as (elements, stamps, places, values), one list per group, the oldest
first; the last list is of those not committed.  An element in flight has the stamp FLIGHT.
In the body of a `Join`, `seen` has the first and the last stamp of what is before it, for each of
its blocks; it is None in a block that is not the last.
Read next: `interpreter_memory.py`, which says what is a fault.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    AsyncCopy,
    Buffer,
    Commit,
    Exchange,
    Join,
    LoadRows,
    Mma,
    Prefetch,
    Region,
    Stmt,
    Wait,
    load,
)

END = "at = pending(groups, {buffer})"  # an element of it that a copy is still to write, or -1


def _copy(w: Any, stmt: AsyncCopy) -> None:
    to, source = stmt.to, stmt.source
    w._begin(stmt.condition, to.index, source.index)
    condition, values = w._atom(stmt.condition), f"x{w._number()}"
    w._choose(condition, values, lambda: _loaded(w, source, source.count), lambda: _zeros(to))
    places = _places(w, to, to.count)
    for k, at in enumerate(places):
        w._write(to.buffer, at, load(to.buffer, to.index + k), f"{values}[{k}]")
    if w.check:
        name, ats = w._name(to.buffer), ", ".join(places)
        w._line(f"depart(groups, {name}, {name}w, ({ats},), {values})")


def _loaded(w: Any, source: Region, unit: int = 1) -> str:
    _places(w, source, unit)
    loads = (w._text(load(source.buffer, source.index + k)) for k in range(source.count))
    return f"({', '.join(loads)},)"


def _zeros(to: Region) -> str:
    kind = to.buffer.dtype
    return f"({f'to_{kind}(0)' if kind.is_float else '0'},) * {to.count}"


def _places(w: Any, region: Region, unit: int = 1) -> list[str]:
    buffer, count = region.buffer, region.count
    places = [_place(w, buffer, region.index, 0)]
    if w.check and unit > 1:
        w._guard(f"{places[0]} % {unit}", "aligned", buffer, places[0], unit)
    return [*places, *(_place(w, buffer, region.index, k) for k in range(1, count))]


def _place(w: Any, buffer: Buffer, index: Expr, k: int) -> str:
    return str(w._index(buffer, index + k))


def _commit(w: Any, stmt: Commit) -> None:
    w._line("groups.append([])")


def _wait(w: Any, stmt: Wait) -> None:
    w._line(f"land(groups, {stmt.pending}, cur)")


def _mma(w: Any, stmt: Mma) -> None:
    """The lane gives what it holds and goes on with its sums."""
    w._begin(stmt.a.index, stmt.b.index, stmt.sum.index)
    held = ", ".join(_loaded(w, region) for region, _ in stmt.operands)
    name, sums = f"mma{w._number()}", f"x{w._number()}"
    w.constants[name] = stmt
    w._line(f"{sums} = yield Meeting({name}, ({held},))")
    kind = stmt.sum.buffer.dtype
    for k, at in enumerate(_places(w, stmt.sum)):
        value = load(stmt.sum.buffer, stmt.sum.index + k)
        found = f"{sums}[{k}]"
        w._write(stmt.sum.buffer, at, value, f"to_{kind}({found})" if kind.is_float else found)


def _prefetch(w: Any, stmt: Prefetch) -> None:
    """What is asked for is there, though nothing is done with it."""
    w._begin(stmt.source.index)
    w._line(_loaded(w, stmt.source, stmt.source.count))


def _load_rows(w: Any, stmt: LoadRows) -> None:
    """The lane gives the row it points to and goes on with what it gets."""
    w._begin(stmt.source.index, stmt.to.index)
    row = _loaded(w, stmt.source, stmt.source.count)
    name, got = f"rows{w._number()}", f"x{w._number()}"
    w.constants[name] = stmt
    w._line(f"{got} = yield Meeting({name}, ({row},))")
    for k, at in enumerate(_places(w, stmt.to)):
        w._write(stmt.to.buffer, at, load(stmt.to.buffer, stmt.to.index + k), f"{got}[{k}]")


def _join(w: Any, stmt: Join) -> None:
    """A barrier where a block learns what came before, if it is the last of its kind."""
    w._begin(stmt.index)
    at = w._index(stmt.counters, stmt.index)
    w._line(f"epoch, seen = yield ({w._number()}, {w.joins[stmt]}, {at})")
    w._line("cur = epoch + tid; many = epoch + threads")
    w.joined = True
    w._nest("if seen is not None:", stmt.body)
    w.joined = False


def _exchange(w: Any, stmt: Exchange) -> None:
    """The lane gives what it has and goes on with what the other one had."""
    w._begin(stmt.source.index, stmt.to.index)
    own = _loaded(w, stmt.source)
    name, got = f"exchange{w._number()}", f"x{w._number()}"
    w.constants[name] = stmt
    w._line(f"{got} = yield Meeting({name}, ({own},))")
    for k, at in enumerate(_places(w, stmt.to)):
        w._write(stmt.to.buffer, at, load(stmt.to.buffer, stmt.to.index + k), f"{got}[{k}]")


WARPS: dict[type[Stmt], Callable[..., None]] = {
    AsyncCopy: _copy,
    Prefetch: _prefetch,
    Commit: _commit,
    Wait: _wait,
    Mma: _mma,
    LoadRows: _load_rows,
    Join: _join,
    Exchange: _exchange,
}
