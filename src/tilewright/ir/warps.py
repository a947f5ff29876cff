"""The lanes of a warp as interpreters run them: one after the other, together where statements of
all lanes are: an `Mma`, a `LoadRows`, an `Exchange`, an `Arrive`.

In: 32 courses, generators that stop at barriers and meetings.  Out: where each stops at last.
Read next: `interpreter.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir.atoms import WARP, multiplied
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
    statements,
)

ROWS, PLACES = 8, ROW // PLACE  # of a matrix
TOGETHER = (Mma, LoadRows, Exchange, Arrive)  # the statements of all lanes
STOPS = (Barrier, *TOGETHER, Await)  # where threads may stop for others


@dataclass(frozen=True)
class Meeting:
    """What one lane brings to `stmt`: its elements of a, of b and of the sum; the row it points to;
    what it gives to another lane; the gate.

    What it is told there is what it stores.
    """

    stmt: Mma | LoadRows | Exchange | Arrive
    held: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Waiting:
    """Where a thread stands that waits for a gate: a place in a buffer of gates."""

    stmt: Await
    gate: tuple[Buffer, int]
    parity: int


def run_warp(
    kernel: Kernel, first: int, lanes: int, go_on: Callable[[int, Any], Any], told: Any
) -> list[Any]:
    """Run a warp until each lane stands at a barrier or has ended: what stops each, or None.

    first: the number of its first thread; lanes: how many there are, less than WARP in the last
    warp of a block; go_on: (thread, what it is told) -> its next stop; told: to each at the begin
    """
    stops = [go_on(first + k, told) for k in range(lanes)]
    while given := meet(kernel, first, stops):
        stops = [go_on(first + k, given[k]) for k in range(lanes)]
    return stops


def meet(
    kernel: Kernel,
    first: int,
    stops: Sequence[Any],
    arrive: Callable[[Sequence[int], Any], None] | None = None,
) -> Sequence[Any]:
    """What each lane of a warp is told where all have come together; empty where none stands at a
    meeting, or some wait for a gate.

    first: the number of its first thread; stops: where each lane stands
    arrive: (threads, gate) for those that arrive there; without it no lane waits for a gate
    """
    meetings = [stop for stop in stops if isinstance(stop, Meeting)]
    if not meetings:
        return []
    stmt = meetings[0].stmt
    if len(stops) == WARP and any(isinstance(stop, Waiting) for stop in stops):
        return []
    if len(stops) < WARP or len(meetings) < len(stops) or any(m.stmt is not stmt for m in meetings):
        raise _divergence(kernel, first, list(stops))
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


def _divergence(kernel: Kernel, first: int, stops: list[Any]) -> InterpreterError:
    known = [s for s in statements(kernel.body) if isinstance(s, (Barrier, *TOGETHER))]
    if len(stops) < WARP:
        reason = f"a warp of {len(stops)} lanes, of which all {WARP} are needed"
    else:
        texts = [_where(stop, known) for stop in stops]
        places = {text: first + texts.index(text) for text in texts}
        reason = ", ".join(f"thread {thread} {text}" for text, thread in places.items())
    stmt = next(stop.stmt for stop in stops if isinstance(stop, Meeting))
    return InterpreterError(
        f"{kernel.name}: {first_line(stmt)}", f"warp divergence: {reason}",
        "All lanes of a warp come to it together, as often as each other.",
    )  # fmt: skip


def _where(stop: Any, known: list[Any]) -> str:
    if isinstance(stop, Meeting):
        return f"is at {first_line(stop.stmt)!r} ({known.index(stop.stmt) + 1})"
    if isinstance(stop, Waiting):
        return "waits for a gate"
    return "has ended" if stop is None else "waits at a barrier"
