"""The lanes of a warp, or of a group of warps, as interpreters run them: one after the other,
together where statements of all lanes are, an `Mma` or a `LoadRows`.

In: their courses, generators that stop at barriers and meetings.  Out: where each stops at last.
Read next: `interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.atoms import GROUP, WARP, multiplied
from tilewright.ir.interpreter_memory import InterpreterError, first_line
from tilewright.ir.stmt import PLACE, ROW, Barrier, Kernel, LoadRows, Mma, statements

ROWS, PLACES = 8, ROW // PLACE  # of a matrix
TOGETHER = (Mma, LoadRows)  # the statements of all lanes


@dataclass(frozen=True)
class Meeting:
    """What one lane brings to `stmt`: its elements of a, of b (of a group: what it has read of
    their tiles, see `Tile.offsets`) and of the sum; the row it points to.

    What it is told there is what it stores.
    """

    stmt: Mma | LoadRows
    held: tuple[tuple[Any, ...], ...]


def unit_of(kernel: Kernel) -> int:
    """Threads that run together: those of a warp, or of a group where one multiplies."""
    found = (s.atom.lanes for s in statements(kernel.body) if isinstance(s, Mma))
    return max(found, default=WARP)


def run_warp(
    kernel: Kernel, first: int, lanes: int, go_on: Callable[[int, Any], Any], told: Any
) -> list[Any]:
    """Run a warp, or a group, until each lane stands at a barrier or has ended: what stops each, or
    None.

    first: the number of its first thread; lanes: how many there are, fewer in the last of a block;
    go_on: (thread, what it is told) -> its next stop; told: to each at the begin
    """
    stops = [go_on(first + k, told) for k in range(lanes)]
    while any(isinstance(stop, Meeting) for stop in stops):
        moved = False
        for at in range(0, lanes, WARP):
            own = stops[at : at + WARP]
            found = next((stop for stop in own if isinstance(stop, Meeting)), None)
            if found is not None and _lanes(found.stmt) == WARP:
                stops[at : at + WARP] = _met(kernel, first + at, own, WARP, go_on)
                moved = True
        if not moved:  # no warp waits for itself alone
            stops = _met(kernel, first, stops, GROUP, go_on)
    return stops


def _met(
    kernel: Kernel, first: int, stops: list[Any], unit: int, go_on: Callable[[int, Any], Any]
) -> list[Any]:
    """Where lanes that stand at one statement together stop next."""
    stmt = next(stop.stmt for stop in stops if isinstance(stop, Meeting))
    together = all(isinstance(stop, Meeting) and stop.stmt is stmt for stop in stops)
    if len(stops) < unit or not together:
        raise _divergence(kernel, first, stops, unit)
    parts = zip(*(stop.held for stop in stops), strict=True)
    given = multiplied(stmt.atom, *parts) if isinstance(stmt, Mma) else spread(stmt, *parts)
    return [go_on(first + k, given[k]) for k in range(unit)]


def _lanes(stmt: Mma | LoadRows) -> int:
    return stmt.atom.lanes if isinstance(stmt, Mma) else WARP


def spread(stmt: LoadRows, rows: Sequence[Any]) -> list[list[Any]]:
    """What each lane gets of the rows that the lanes point to."""
    width = PLACE // stmt.to.buffer.dtype.bytes
    given: list[list[Any]] = []
    for lane in range(WARP):
        g, q = divmod(lane, PLACES)
        own: list[Any] = []
        for matrix in range(0, stmt.matrices * ROWS, ROWS):
            for k in range(width * q, width * (q + 1)):
                own.append(rows[matrix + k][g] if stmt.transposed else rows[matrix + g][k])
        given.append(own)
    return given


def _divergence(kernel: Kernel, first: int, stops: list[Any], unit: int) -> InterpreterError:
    known = [s for s in statements(kernel.body) if isinstance(s, (Barrier, *TOGETHER))]
    name = "warp" if unit == WARP else "group"
    if len(stops) < unit:
        reason = f"a {name} of {len(stops)} lanes, of which all {unit} are needed"
    else:
        texts = [_where(stop, known) for stop in stops]
        places = {text: first + texts.index(text) for text in texts}
        reason = ", ".join(f"thread {thread} {text}" for text, thread in places.items())
    stmt = next(stop.stmt for stop in stops if isinstance(stop, Meeting))
    return InterpreterError(
        f"{kernel.name}: {first_line(stmt)}", f"{name} divergence: {reason}",
        f"All lanes of a {name} come to it together, as often as each other.",
    )  # fmt: skip


def _where(stop: Any, known: list[Any]) -> str:
    if isinstance(stop, Meeting):
        return f"is at {first_line(stop.stmt)!r} ({known.index(stop.stmt) + 1})"
    return "has ended" if stop is None else "waits at a barrier"
