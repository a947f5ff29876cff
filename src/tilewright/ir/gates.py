"""Gates and bulk copies as interpreters run them: phases, what is under way, who knows of what.

In: what the threads of one block do, in some order.  Out: "" or what is wrong with it, in REASONS
of `interpreter_memory.py`; an `InterpreterError` where it is wrong with a gate itself.

Each thread has a clock: of each other thread, how far it knows it to have come; of each gate, the
phases by which it knows copies; of each thread again, what it has read and shown.  Arriving tells a
gate what a thread knows, a phase that ended tells it to those that wait for it, and a barrier tells
all to all.  Copies come as late as they
can: when no thread can go on, those that one waits for.  Of blocks that run together each has gates
of its own, which the others arrive at and copy to; threads of all have numbers in one row, and a
block ends when one of its threads knows of all that others did to it.
Read next: `bulk.py` (the statements), `warps.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.ir.bulk import Box
from tilewright.ir.interpreter_memory import REASONS, InterpreterError, first_line
from tilewright.ir.stmt import Buffer, Kernel
from tilewright.ir.warps import Waiting, Wide, go_together, unit_of

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
    before: the blocks before it of those that run together
    """

    def __init__(self, kernel: Kernel, threads: int, before: Sequence[Gates] = ()) -> None:
        self.kernel = kernel
        self.threads = threads
        self.blocks: list[Gates] = before[0].blocks if before else []  # those that run together
        self.clocks: list[Clock] = before[0].clocks if before else []  # of the threads of all
        self.first, self.place = len(self.clocks), len(self.blocks)
        self.clocks += [{t: 1} for t in range(self.first, self.first + threads)]
        self.blocks.append(self)
        self.states: dict[Gate, _State] = {}
        self.cells: dict[Buffer, dict[int, Cell]] = {}
        self.memory: dict[Buffer, Any] = {}  # for whoever runs the block: shared buffers
        self.touched: Clock = {}  # threads of other blocks that reached into this one, and when

    # -- statements
    # A thread of this block is named by its number there.
    def make(self, thread: int, buffer: Buffer, places: Iterable[int], arrivals: int) -> None:
        for at in places:
            if (buffer, at) in self.states:
                raise self._error((buffer, at), "the gate is made twice")
            self.states[buffer, at] = _State(arrivals, arrivals, self.first + thread)

    def fence(self, thread: int) -> None:
        me = self.first + thread
        clock = self.clocks[me]
        for state in self.states.values():
            if state.maker == me and state.since == 0:
                state.since = clock[me]
        clock[me] += 1

    def expect(self, thread: int, gate: Gate, nbytes: int) -> None:
        me = self.first + thread
        state = self._state(gate, me)
        state.expected += nbytes
        self._arrived((me,), gate, state)

    def arrive(self, threads: Sequence[int], gate: Gate, everywhere: bool = False) -> None:
        numbers = [self.first + thread for thread in threads]
        for block in self.blocks if everywhere else (self,):
            for me in numbers:
                block._state(gate, me)
            block._arrived(numbers, gate, block.states[gate])

    def copy(
        self, thread: int, gate: Gate, to: tuple[Buffer, Sequence[int]], nbytes: int,
        arrived: Callable[[Gates], None], everywhere: bool = False,
    ) -> tuple[str, int]:  # fmt: skip
        """Begin a copy; gives what is wrong, and with which element.

        to: the buffer and the elements; arrived: what stores them in a block, done when the phase
        of its gate ends; everywhere: in all blocks that run together
        """
        wrong = "", 0
        for block in self.blocks if everywhere else (self,):
            if not wrong[0]:
                wrong = block._begin(self.first + thread, gate, to, nbytes, arrived)
        return wrong

    def _begin(
        self, me: int, gate: Gate, to: tuple[Buffer, Sequence[int]], nbytes: int,
        arrived: Callable[[Gates], None],
    ) -> tuple[str, int]:  # fmt: skip
        """Of a copy to this block by a thread of any."""
        state, (buffer, places) = self._state(gate, me), to
        cells, known = self.cells.setdefault(buffer, {}), self.clocks[me]
        for at in places:
            cell = cells.setdefault(at, Cell())
            if cell.flying or cell.busy:
                return "in flight" if cell.flying else "multiplying", at
            if any(known.get(t, 0) < when for t, when in cell.readers.items()):
                return "not known to be read", at
            if any(known.get(_shown(t), 0) < when for t, when in cell.looked.items()):
                return "not shown to be read", at
            if cell.by is not None and known.get(self._known(cell.by[0]), 0) <= cell.by[1]:
                return "not waited for", at
        phase = state.phase
        for at in places:
            cells[at] = Cell((gate, phase), flying=True)
        state.begun += nbytes

        def land() -> None:
            for at in places:
                cells[at].flying = False
            arrived(self)

        state.flights.append(land)
        return "", 0

    def ready(self, thread: int, gate: Gate, parity: int) -> bool:
        """Whether the thread may go on behind an `Await`."""
        return self._state(gate, self.first + thread).phase % 2 != parity

    def passed(self, thread: int, gate: Gate) -> None:
        """The thread has waited for the phase before the present one of the gate."""
        state = self._state(gate, self.first + thread)
        if state.phase:
            _join(self.clocks[self.first + thread], state.known[state.phase - 1])

    def show(self, thread: int) -> None:
        """What the thread has read is read, to a copy engine, too."""
        me = self.first + thread
        clock = self.clocks[me]
        clock[_shown(me)] = clock[me]
        clock[me] += 1

    def read(self, thread: int, buffer: Buffer, at: int, beside: bool = False) -> str:
        """What is wrong with reading an element, or ""; notes that it is read.

        beside: by what is no load of the thread, and is `engage`d
        """
        cell = self.cells.get(buffer, {}).get(at)
        if cell is None or cell.by is None:
            return "unwritten"
        if cell.flying:
            return "in flight"
        (gate, phase), me = cell.by, self.first + thread
        if self.clocks[me].get(self._known(gate), 0) <= phase:
            return "not waited for"
        if not beside:
            cell.readers[me] = cell.looked[me] = self.clocks[me][me]
        return ""

    def engage(self, thread: int, buffer: Buffer, places: Sequence[int]) -> Callable[[], None]:
        """A group reads these elements beside a thread that has looked at them; gives what happens
        when the thread has waited for that: it has read them then."""
        cells, me = self.cells[buffer], self.first + thread
        for at in places:
            cells[at].busy += 1

        def release() -> None:
            for at in places:
                cells[at].busy -= 1
                cells[at].readers[me] = self.clocks[me][me]

        return release

    def end(self) -> None:
        """All threads have ended: their memory is given back."""
        for buffer, cells in self.cells.items():
            for at, cell in cells.items():
                if cell.flying:
                    raise self._error((buffer, at), REASONS["given back"])
        own = self.clocks[self.first : self.first + self.threads]
        for other, when in self.touched.items():
            if all(clock.get(other, 0) < when for clock in own):
                raise InterpreterError(
                    self.kernel.name,
                    f"block {self.place} of those that run together may end before"
                    f" thread {other % self.threads} of block {other // self.threads} arrives",
                )

    # -- all threads
    def meet(self, everywhere: bool = False) -> None:
        """All threads have come to a barrier; everywhere: of all blocks that run together."""
        first, threads = (0, len(self.clocks)) if everywhere else (self.first, self.threads)
        together: Clock = {}
        for me in range(first, first + threads):
            _join(together, self.clocks[me])
        for me in range(first, first + threads):
            self.clocks[me].update(together)
            self.clocks[me][me] += 1

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
            f"{self._block()}thread {thread} waits for ever: phase {state.phase} of"
            f" {_named(stop.gate)} has {state.arrivals - state.left} of {state.arrivals} arrivals,"
            f" and {state.begun} of {state.expected} bytes are under way",
        )

    def _arrived(self, threads: Sequence[int], gate: Gate, state: _State) -> None:
        if state.left == 0:
            raise self._error(gate, f"more than {state.arrivals} arrivals in a phase")
        state.left -= 1
        for me in threads:
            _join(state.told, self.clocks[me])
            if not self.first <= me < self.first + self.threads:
                self.touched[me] = self.clocks[me][me]
            self.clocks[me][me] += 1
        if state.left == 0 and state.expected == 0 and not state.flights:
            self._end(gate, state)

    def _end(self, gate: Gate, state: _State) -> None:
        for land in state.flights:
            land()
        state.told[self._known(gate)] = state.phase + 1
        state.known = {state.phase: state.told}
        state.phase += 1
        state.left, state.expected, state.begun = state.arrivals, 0, 0
        state.flights, state.told = [], {}

    def _known(self, gate: Gate) -> tuple[int, Gate]:
        """What a clock calls a gate of this block."""
        return self.place, gate

    def _block(self) -> str:
        return f"block {self.place}, " if len(self.blocks) > 1 else ""

    def _state(self, gate: Gate, me: int) -> _State:
        """Of a gate that a thread of any block uses."""
        state = self.states.get(gate)
        if state is None:
            raise self._error(gate, "the gate was never made")
        if state.since == 0:
            raise self._error(gate, "no fence stands behind the statement that made the gate")
        if self.clocks[me].get(state.maker, 0) < state.since:
            raise self._error(gate, f"no barrier lies between its making and thread {me}")
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
    blocks: Sequence[Gates],
    go_on: Sequence[Callable[[int, Any], Any]],
    told: Sequence[Callable[[Any], Any]],
    diverged: Callable[[Sequence[Any]], Exception],
) -> None:
    """Run the threads of a block, or of blocks that run together, until all have ended.

    go_on:    of each block (thread, what it is told) -> its next stop: where it stands, None at its
              end
    told:     of each, called with the stop when all of it have come to a barrier; what they are
              told there
    diverged: the error for threads that stop for different barriers, or end before one
    """
    count, unit = blocks[0].threads, unit_of(blocks[0].kernel)
    stops = [[own(t, None) for t in range(count)] for own in go_on]

    def pass_on(k: int) -> bool:
        """Let those of a block go on that wait for nothing more; whether there were such."""
        gates, own, moved = blocks[k], stops[k], False
        for t, stop in enumerate(own):
            if isinstance(stop, Waiting) and gates.ready(t, stop.gate, stop.parity):
                gates.passed(t, stop.gate)
                own[t], moved = go_on[k](t, None), True
        for first in range(0, count, unit):
            some = own[first : first + unit]
            moved |= go_together(gates.kernel, first, some, go_on[k], gates.arrive)
            own[first : first + unit] = some
        return moved

    while True:
        if any([pass_on(k) for k in range(len(blocks))]):
            continue
        if all(stop is None for own in stops for stop in own):
            for gates in blocks:
                gates.end()
            return
        wanted = [[s.gate for s in own if isinstance(s, Waiting)] for own in stops]
        if any([gates.settle(own) for gates, own in zip(blocks, wanted, strict=True)]):
            continue
        come = [k for k, own in enumerate(stops) if _at_barrier(own)]
        passing = [k for k in come if not isinstance(stops[k][0], Wide)]
        if not passing and all(own[0] == stops[0][0] for own in stops) and len(come) == len(stops):
            blocks[0].meet(everywhere=True)
            passing = come
        else:
            for k in passing:
                blocks[k].meet()
        if not passing:
            lost = next((k for k, own in enumerate(wanted) if own), None)
            if lost is not None:
                raise blocks[lost].stuck(stops[lost])
            some = (own for own in stops if any(stop is not own[0] for stop in own))
            raise diverged(next(some, [own[0] for own in stops]))
        for k in passing:
            start = told[k](stops[k][0])
            stops[k] = [go_on[k](t, start) for t in range(count)]


def _at_barrier(stops: Sequence[Any]) -> bool:
    """Whether all threads of a block stand at the same one."""
    first = stops[0]
    if first is None or isinstance(first, Waiting):
        return False
    return all(stop is first or stop == first for stop in stops)


def box_places(box: Box, at: Sequence[int]) -> list[int]:
    """The element of the tensor's buffer for each one of a box, -1 outside the tensor."""
    places = [0]
    for d, first in enumerate(at):
        row = [first + k * box.steps[d] for k in range(box.extents[d])]
        inside = [k * box.strides[d] if 0 <= k < box.shape[d] else -1 for k in row]
        places = [-1 if p < 0 or k < 0 else p + k for p in places for k in inside]
    return places
