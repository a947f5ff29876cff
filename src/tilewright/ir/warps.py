"""The lanes of a warp, or of a group of warps, as interpreters run them: one after the other,
together where statements of all lanes are: an `Mma`, a `LoadRows`, an `Exchange`, an `Arrive`.

In: their courses, generators that stop at barriers and meetings.  Out: where each stops at last.
Read next: `interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.atoms import GROUP, WARP, multiplied
from tilewright.ir.bulk import Arrive, Await
from tilewright.ir.interpreter_memory import InterpreterError, first_line
from tilewright.ir.stmt import (
    PLACE,
    ROW,
    Barrier,
    Buffer,
    Exchange,
    Kernel,
    LoadRows,
    Mma,
    Stmt,
    statements,
)

ROWS, PLACES = 8, ROW // PLACE  # of a matrix
TOGETHER = (Mma, LoadRows, Exchange, Arrive)  # the statements of all lanes
_STOPS = (Barrier, *TOGETHER, Await)


@dataclass(frozen=True)
class Meeting:
    """What one lane brings to `stmt`: its elements of a, of b (of a group: what it has read of
    their tiles, see `Tile.offsets`) and of the sum; the row it points to; what it gives to another
    lane; the gate.

    What it is told there is what it stores.
    """

    stmt: Mma | LoadRows | Exchange | Arrive
    held: tuple[tuple[Any, ...], ...]


def stops(stmt: Stmt) -> bool:
    """Whether threads may stop there for others."""
    return isinstance(stmt, _STOPS) and not (isinstance(stmt, Mma) and stmt.atom.by_thread)


def unit_of(kernel: Kernel) -> int:
    """Threads that run together: those of a warp, or of a group where one multiplies."""
    found = (s.atom.lanes for s in statements(kernel.body) if isinstance(s, Mma))
    return max((WARP, *found))


@dataclass(frozen=True)
class Waiting:
    """Where a thread stands that waits for a gate: a place in a buffer of gates."""

    stmt: Await
    gate: tuple[Buffer, int]
    parity: int


def run_warp(
    kernel: Kernel, first: int, lanes: int, go_on: Callable[[int, Any], Any], told: Any
) -> list[Any]:
    """Run a warp, or a group, until each lane stands at a barrier or has ended: what stops each, or
    None.

    first: the number of its first thread; lanes: how many there are, fewer in the last of a block;
    go_on: (thread, what it is told) -> its next stop; told: to each at the begin
    """
    stops = [go_on(first + k, told) for k in range(lanes)]
    while go_together(kernel, first, stops, go_on):
        pass
    return stops


def go_together(
    kernel: Kernel, first: int, stops: list[Any], go_on: Callable[[int, Any], Any],
    arrive: Callable[[Sequence[int], Any], None] | None = None,
) -> bool:  # fmt: skip
    """Let the lanes of a warp, or of a group, that have come together go on; whether there were
    such.

    first: the number of its first thread; stops: where each lane stands, which changes
    arrive: see `meet`
    """
    moved = False
    for unit in (WARP, GROUP):
        for at in range(0, len(stops), unit) if not moved else ():  # first those of one warp
            own = stops[at : at + unit]
            found = next((stop for stop in own if isinstance(stop, Meeting)), None)
            if found is None or _lanes(found.stmt) != unit:
                continue
            for k, told in enumerate(meet(kernel, first + at, own, arrive)):
                stops[at + k], moved = go_on(first + at + k, told), True
    return moved


def _lanes(stmt: Mma | LoadRows | Exchange | Arrive) -> int:
    return stmt.atom.lanes if isinstance(stmt, Mma) else WARP


def meet(
    kernel: Kernel,
    first: int,
    stops: Sequence[Any],
    arrive: Callable[[Sequence[int], Any], None] | None = None,
) -> Sequence[Any]:
    """What each lane of a warp, or of a group, is told where all have come together; empty where
    some wait for a gate.

    first: the number of its first thread; stops: where each lane stands, one of them at a meeting
    arrive: (threads, gate) for those that arrive there; without it no lane waits for a gate
    """
    meetings = [stop for stop in stops if isinstance(stop, Meeting)]
    stmt = meetings[0].stmt
    unit = _lanes(stmt)
    if len(stops) == unit and any(isinstance(stop, Waiting) for stop in stops):
        return []
    if len(stops) < unit or len(meetings) < unit or any(m.stmt is not stmt for m in meetings):
        raise _divergence(kernel, first, list(stops), unit)
    if isinstance(stmt, Arrive):
        assert arrive is not None
        if any(m.held != meetings[0].held for m in meetings):
            raise InterpreterError(
                f"{kernel.name}: {first_line(stmt)}", "lanes of a warp name different gates"
            )
        arrive(range(first, first + WARP), meetings[0].held[0])
        return [None] * WARP
    parts = zip(*(m.held for m in meetings), strict=True)
    return _given(stmt, *parts)


def _given(stmt: Mma | LoadRows | Exchange, *parts: Any) -> Sequence[Any]:
    """What each lane gets; parts: what the lanes bring."""
    if isinstance(stmt, Mma):
        return multiplied(stmt.atom, *parts)
    if isinstance(stmt, LoadRows):
        return spread(stmt, *parts)
    (held,) = parts
    return [held[lane ^ stmt.apart] for lane in range(WARP)]


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
    if isinstance(stop, Waiting):
        return "waits for a gate"
    return "has ended" if stop is None else "waits at a barrier"
