"""Asynchronous copies, meetings of lanes and of blocks in the source that `fast_source.py` writes.

In: the writer and a statement.  Out: lines of Python.  `groups` of a thread has its copies that
have not been waited for, as (elements, stamps, places, values), one list per group, the oldest
first; the last list is of those not committed.  An element in flight has the stamp FLIGHT.
In the body of a `Join`, `seen` has the first and the last stamp of what is before it, for each of
its blocks; it is None in a block that is not the last.
Read next: `interpreter_memory.py`, which says what is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tilewright.ir.atoms import GROUP, ROWS_OF_EIGHT, Tile, multiplied_alone
from tilewright.ir.expr import Expr
from tilewright.ir.fast_bulk import READ, constant, tell
from tilewright.ir.foreign import Foreign
from tilewright.ir.stmt import (
    AsyncCopy,
    Buffer,
    Commit,
    Exchange,
    Join,
    LoadRows,
    Mma,
    MmaBegin,
    MmaEnd,
    Prefetch,
    Region,
    Show,
    Stmt,
    Wait,
    load,
)
from tilewright.ir.swizzle import turn

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
        hidden = f", hidden, {name}u" if to.buffer in w.beside else ""
        w._line(f"depart(groups, {name}, {name}w, ({ats},), {values}{hidden})")


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


def _foreign(w: Any, stmt: Foreign) -> None:
    w._statement(stmt.means)


def _commit(w: Any, stmt: Commit) -> None:
    w._line("groups.append([])")


def _wait(w: Any, stmt: Wait) -> None:
    w._line(f"land(groups, {stmt.pending}, cur)")


def _mma(w: Any, stmt: Mma) -> None:
    """The lane gives what it holds and goes on with its sums."""
    w._begin(stmt.a.index, stmt.b.index, stmt.sum.index)
    if stmt.atom.by_group:
        _mma_of_group(w, stmt)
        return
    held = ", ".join(_loaded(w, region) for region, _ in stmt.operands)
    name, sums = f"mma{w._number()}", f"x{w._number()}"
    if stmt.atom.by_thread:
        w.constants[name] = partial(multiplied_alone, stmt.atom)
        w._line(f"{sums} = {name}({held})")
    else:
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


def turned(buffer: Buffer, at: str) -> str:
    """Where memory has the element of an index."""
    if not buffer.swizzle:
        return at
    rows, pieces, unit = turn(buffer.swizzle, buffer.dtype.bytes)
    return f"({at} ^ {at} // {rows} % {pieces} * {unit})"


def of_groups(stmts: Iterable[Stmt], filled: set[Buffer]) -> tuple[set[Buffer], set[Buffer]]:
    """What groups read beside the threads, and what they add to.

    filled: by bulk copies, of which gates know who reads them
    """
    found = [s for s in stmts if isinstance(s, Mma) and s.atom.by_group]
    return {r.buffer for s in found for r in (s.a, s.b)} - filled, {s.sum.buffer for s in found}


def touched(w: Any, buffer: Buffer, at: str, *, stored: bool = False) -> None:
    """A thread reads, or stores, an element of such a buffer."""
    name = w._name(buffer)
    w._guard(f"{name}m[{at}]", "multiplying", buffer, at)
    if stored and buffer in w.summed:
        w._line(f"{name}d[0] = 1")


_WRONG = ("in flight", "load race", "unwritten", "not shown")  # with an element of a tile


def _mma_of_group(w: Any, stmt: Mma) -> None:
    """The same with operands that the lanes have read of their tiles."""
    tiles = [_tile(w, region, of) for region, of in stmt.operands if isinstance(of, Tile)]
    (a, _), (b, _) = tiles
    buffer, count, places = stmt.sum.buffer, stmt.sum.count, _places(w, stmt.sum)
    name, meeting, sums = w._name(buffer), f"mma{w._number()}", f"x{w._number()}"
    w.constants[meeting] = stmt
    w._line(f"{sums} = ({', '.join(f'{name}[{at}]' for at in places)},)")
    if w.check:
        w._guard(f"{name}d[0]", "unfenced", buffer, places[0])
        w._guard(f"None in {sums}", "unwritten", buffer, places[0])
        for region, (_, at) in zip((stmt.a, stmt.b), tiles, strict=True):
            own = w._name(region.buffer)
            if region.buffer in w.filled:
                engaged = f"{own}w.engage(tid, {constant(w, region.buffer)}, {at})"
                w._line(f"batches[-1].append({engaged})")
            else:
                w._line(f"engage(batches, {own}m, {at})")
        w._line(f"engage(batches, {name}m, ({', '.join(places)},))")
    w._line(f"{sums} = yield Meeting({meeting}, ({a}, {b}, {sums}))")
    kind = buffer.dtype
    for k in range(count):
        w._line(f"{name}[{places[k]}] = to_{kind}({sums}[{k}])")


def _tile(w: Any, region: Region, tile: Tile) -> tuple[str, str]:
    """Names of what a lane reads of a tile, and of the places where it is."""
    buffer, columns = region.buffer, tile.shape[1]
    width = buffer.swizzle // buffer.dtype.bytes
    first, name = w._atom(region.index), w._name(buffer)
    if w.check:
        last = buffer.size - region.count
        w._guard(f"not 0 <= {first} <= {last}", "bounds", buffer, first)
        at = f"{first} // {width} % {ROWS_OF_EIGHT} or {first} % {width} % {columns}"
        w._guard(at, "tile", buffer, first, columns)
    lanes, places, taken = f"tile{w._number()}", f"p{w._number()}", f"x{w._number()}"
    w.constants[lanes] = [tile.offsets(buffer.swizzle, lane) for lane in range(GROUP)]
    w._line(f"{places} = [{first} + k for k in {lanes}[tid % {GROUP}]]")
    w._line(f"{places} = [{turned(buffer, 'k')} for k in {places}]")
    if not w.check:
        w._line(f"{taken} = [{name}[k] for k in {places}]")
        return taken, places
    if buffer in w.filled:
        known = f"{name}w, tid, {constant(w, buffer)}"
        w._line(f"{taken}, why, at = tile_of_gates({name}, {known}, {places})")
    else:
        stamps = ", ".join(f"{name}{suffix}" for suffix in ("", *"wru"))
        w._line(f"{taken}, why, at = tile({stamps}, {places}, fork, block, epoch, cur, many)")
    for kind in _WRONG if buffer not in w.filled else READ:
        w._guard(f"why == {kind!r}", kind, buffer, "at")
    return taken, places


def _show(w: Any, stmt: Show) -> None:
    if w.check and w.summed:
        w._line("show(hidden)")
    if w.check:
        tell(w, "show")


def _mma_begin(w: Any, stmt: MmaBegin) -> None:
    if w.check:
        w._line(f"{w._name(stmt.sum.buffer)}d[0] = 0")


def _mma_end(w: Any, stmt: MmaEnd) -> None:
    if w.check:
        w._line(f"release(batches, {stmt.pending})")


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
    Foreign: _foreign,
    AsyncCopy: _copy,
    Prefetch: _prefetch,
    Commit: _commit,
    Wait: _wait,
    Mma: _mma,
    LoadRows: _load_rows,
    Show: _show,
    MmaBegin: _mma_begin,
    MmaEnd: _mma_end,
    Join: _join,
    Exchange: _exchange,
}
