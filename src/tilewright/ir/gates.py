"""Gates and bulk copies as interpreters run them: phases, what is under way, who knows of what.

In: what the threads of one block do, in some order.  Out: "" or what is wrong with it, in REASONS
of `interpreter_memory.py`; an `InterpreterError` where it is wrong with a gate itself.

Each thread has a clock: of each other thread, how far it knows it to have come; of each gate, the
phases by which it knows copies; of each thread again, what it has read and shown.  Arriving tells a
gate what a thread knows, a phase that ended tells it to those that wait for it, and a barrier tells
all to all.  Copies come as late as they
can: when no thread can go on, those that one waits for.
Read next: `bulk.py` (the statements), `warps.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.bulk import Box
from tilewright.ir.interpreter_memory import REASONS, InterpreterError, first_line
from tilewright.ir.stmt import Buffer, Kernel
from tilewright.ir.warps import Waiting, go_together, unit_of

Clock = dict[Any, int]  # of threads, by number, and of gates: how far they have come
Gate = tuple[Buffer, int]  # one of a buffer of gates


@dataclass
class _State:
    """A gate.  arrivals: of a phase; left: those that the present phase still waits for.

    expected, begun: bytes of this phase; flights: copies of it
    told: what those that arrived in this phase knew; known: what ended phases tell, the last two
    maker: the thread that made it; since: when its clock said so, behind a fence; 0: not yet fenced
    """

    arrivals: int
    left: int
    maker: int
    since: int = 0
    phase: int = 0
    expected: int = 0
    begun: int = 0
    flights: list[Callable[[], None]] = field(default_factory=list)
    told: Clock = field(default_factory=dict)
    known: dict[int, Clock] = field(default_factory=dict)


@dataclass
class Cell:
    """An element that bulk copies fill.  by: the gate and the phase that brought what it has;
    readers: threads that have read that, and when; looked: of them those that loaded it, which have
    to show that; flying: whether a copy is under way; busy: how many Mmas of groups still read it.
    """

    by: tuple[Gate, int] | None = None
    readers: Clock = field(default_factory=dict)
    looked: Clock = field(default_factory=dict)
    flying: bool = False
    busy: int = 0


class Gates:
    """All gates of one block, and the elements that bulk copies fill.

    kernel: for errors; threads: how many
    """

    def __init__(self, kernel: Kernel, threads: int) -> None:
        self.kernel = kernel
        self.clocks: list[Clock] = [{t: 1} for t in range(threads)]
        self.states: dict[Gate, _State] = {}
        self.cells: dict[Buffer, dict[int, Cell]] = {}

    # -- statements
    def make(self, thread: int, buffer: Buffer, places: Iterable[int], arrivals: int) -> None:
        for at in places:
            if (buffer, at) in self.states:
                raise self._error((buffer, at), "the gate is made twice")
            self.states[buffer, at] = _State(arrivals, arrivals, thread)

    def fence(self, thread: int) -> None:
        clock = self.clocks[thread]
        for state in self.states.values():
            if state.maker == thread and state.since == 0:
                state.since = clock[thread]
        clock[thread] += 1

    def expect(self, thread: int, gate: Gate, nbytes: int) -> None:
        state = self._state(gate, thread)
        state.expected += nbytes
        self._arrived((thread,), gate, state)

    def arrive(self, threads: Sequence[int], gate: Gate) -> None:
        for thread in threads:
            self._state(gate, thread)
        self._arrived(threads, gate, self.states[gate])

    def copy(
        self, thread: int, gate: Gate, to: tuple[Buffer, Sequence[int]], nbytes: int,
        arrived: Callable[[], None],
    ) -> tuple[str, int]:  # fmt: skip
        """Begin a copy; gives what is wrong, and with which element.

        to: the buffer and the elements; arrived: what stores them, done when the phase ends
        """
        state, (buffer, places) = self._state(gate, thread), to
        cells, known = self.cells.setdefault(buffer, {}), self.clocks[thread]
        for at in places:
            cell = cells.setdefault(at, Cell())
            if cell.flying or cell.busy:
                return "in flight" if cell.flying else "multiplying", at
            if any(known.get(t, 0) < when for t, when in cell.readers.items()):
                return "not known to be read", at
            if any(known.get(_shown(t), 0) < when for t, when in cell.looked.items()):
                return "not shown to be read", at
            if cell.by is not None and known.get(cell.by[0], 0) <= cell.by[1]:
                return "not waited for", at
        phase = state.phase
        for at in places:
            cells[at] = Cell((gate, phase), flying=True)
        state.begun += nbytes

        def land() -> None:
            for at in places:
                cells[at].flying = False
            arrived()

        state.flights.append(land)
        return "", 0

    def ready(self, thread: int, gate: Gate, parity: int) -> bool:
        """Whether the thread may go on behind an `Await`."""
        return self._state(gate, thread).phase % 2 != parity

    def passed(self, thread: int, gate: Gate) -> None:
        """The thread has waited for the phase before the present one of the gate."""
        state = self._state(gate, thread)
        if state.phase:
            _join(self.clocks[thread], state.known[state.phase - 1])

    def show(self, thread: int) -> None:
        """What the thread has read is read, to a copy engine, too."""
        clock = self.clocks[thread]
        clock[_shown(thread)] = clock[thread]
        clock[thread] += 1

    def read(self, thread: int, buffer: Buffer, at: int, beside: bool = False) -> str:
        """What is wrong with reading an element, or ""; notes that it is read.

        beside: by what is no load of the thread, and is `engage`d
        """
        cell = self.cells.get(buffer, {}).get(at)
        if cell is None or cell.by is None:
            return "unwritten"
        if cell.flying:
            return "in flight"
        gate, phase = cell.by
        if self.clocks[thread].get(gate, 0) <= phase:
            return "not waited for"
        if not beside:
            cell.readers[thread] = cell.looked[thread] = self.clocks[thread][thread]
        return ""

    def engage(self, thread: int, buffer: Buffer, places: Sequence[int]) -> Callable[[], None]:
        """A group reads these elements beside a thread that has looked at them; gives what happens
        when the thread has waited for that: it has read them then."""
        cells = self.cells[buffer]
        for at in places:
            cells[at].busy += 1

        def release() -> None:
            for at in places:
                cells[at].busy -= 1
                cells[at].readers[thread] = self.clocks[thread][thread]

        return release

    def end(self) -> None:
        """All threads have ended: their memory is given back."""
        for buffer, cells in self.cells.items():
            for at, cell in cells.items():
                if cell.flying:
                    raise self._error((buffer, at), REASONS["given back"])

    # -- all threads
    def meet(self) -> None:
        """All threads have come to a barrier."""
        together: Clock = {}
        for clock in self.clocks:
            _join(together, clock)
        for thread, clock in enumerate(self.clocks):
            clock.update(together)
            clock[thread] += 1

    def settle(self, wanted: Iterable[Gate]) -> bool:
        """Let the copies of these gates come whose phase waits for nothing else; whether there were
        any."""
        ended = False
        for gate in dict.fromkeys(wanted):
            state = self.states[gate]
            if state.left == 0 and state.flights:
                if state.begun != state.expected:
                    raise self._error(
                        gate, f"{state.expected} bytes are expected, and copies bring {state.begun}"
                    )
                self._end(gate, state)
                ended = True
        return ended

    def stuck(self, stops: Sequence[Any]) -> InterpreterError:
        """Threads wait for what never comes."""
        thread = next(t for t, stop in enumerate(stops) if isinstance(stop, Waiting))
        stop = stops[thread]
        state = self.states[stop.gate]
        return InterpreterError(
            f"{self.kernel.name}: {first_line(stop.stmt)}",
            f"thread {thread} waits for ever: phase {state.phase} of {_named(stop.gate)} has"
            f" {state.arrivals - state.left} of {state.arrivals} arrivals, and {state.begun} of"
            f" {state.expected} bytes are under way",
        )

    def _arrived(self, threads: Sequence[int], gate: Gate, state: _State) -> None:
        if state.left == 0:
            raise self._error(gate, f"more than {state.arrivals} arrivals in a phase")
        state.left -= 1
        for thread in threads:
            _join(state.told, self.clocks[thread])
            self.clocks[thread][thread] += 1
        if state.left == 0 and state.expected == 0 and not state.flights:
            self._end(gate, state)

    def _end(self, gate: Gate, state: _State) -> None:
        for land in state.flights:
            land()
        state.told[gate] = state.phase + 1
        state.known = {state.phase: state.told}
        state.phase += 1
        state.left, state.expected, state.begun = state.arrivals, 0, 0
        state.flights, state.told = [], {}

    def _state(self, gate: Gate, thread: int) -> _State:
        """Of a gate that the thread uses."""
        state = self.states.get(gate)
        if state is None:
            raise self._error(gate, "the gate was never made")
        if state.since == 0:
            raise self._error(gate, "no fence stands behind the statement that made the gate")
        if self.clocks[thread].get(state.maker, 0) < state.since:
            raise self._error(gate, f"no barrier lies between its making and thread {thread}")
        return state

    def _error(self, gate: Gate, reason: str) -> InterpreterError:
        return InterpreterError(f"{self.kernel.name}: {_named(gate)}", reason)


def _named(gate: Gate) -> str:
    return f"{gate[0].name}[{gate[1]}]"


def _shown(thread: int) -> tuple[str, int]:
    """What a clock has of what a thread has shown."""
    return "shown", thread


def _join(clock: Clock, other: Clock) -> None:
    for key, when in other.items():
        if clock.get(key, 0) < when:
            clock[key] = when


def run_block(
    gates: Gates,
    go_on: Callable[[int, Any], Any],
    told: Callable[[Any], Any],
    diverged: Callable[[Sequence[Any]], Exception],
) -> None:
    """Run the threads of a block until all have ended.

    go_on:    (thread, what it is told) -> its next stop: where it stands, None at its end
    told:     called with the stop when all have come to a barrier; what they are told there
    diverged: the error for threads that stop for different barriers, or end before one
    """
    count, unit = len(gates.clocks), unit_of(gates.kernel)
    stops = [go_on(t, None) for t in range(count)]
    while True:
        moved = False
        for t, stop in enumerate(stops):
            if isinstance(stop, Waiting) and gates.ready(t, stop.gate, stop.parity):
                gates.passed(t, stop.gate)
                stops[t], moved = go_on(t, None), True
        for first in range(0, count, unit):
            own = stops[first : first + unit]
            moved |= go_together(gates.kernel, first, own, go_on, gates.arrive)
            stops[first : first + unit] = own
        if moved:
            continue
        if all(stop is None for stop in stops):
            gates.end()
            return
        if gates.settle(stop.gate for stop in stops if isinstance(stop, Waiting)):
            continue
        if any(isinstance(stop, Waiting) for stop in stops):
            raise gates.stuck(stops)
        if any(stop is not stops[0] and stop != stops[0] for stop in stops):
            raise diverged(stops)
        gates.meet()
        start = told(stops[0])
        stops = [go_on(t, start) for t in range(count)]


def box_places(box: Box, at: Sequence[int]) -> list[int]:
    """The element of the tensor's buffer for each one of a box, -1 outside the tensor."""
    places = [0]
    for d, first in enumerate(at):
        row = [first + k * box.steps[d] for k in range(box.extents[d])]
        inside = [k * box.strides[d] if 0 <= k < box.shape[d] else -1 for k in row]
        places = [-1 if p < 0 or k < 0 else p + k for p in places for k in inside]
    return places
