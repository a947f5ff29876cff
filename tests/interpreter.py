"""The definition of the lowered IR: evaluate a `Program` on numpy arrays, checked.

In: a program and one array per argument; outputs are written in place.  Out: `InterpreterError` for
the first out-of-bounds access, use of an unwritten element, race or divergence.
It is written to be read; `ir/fast_interpreter.py` does the same by generated Python, some hundred
times as fast, and is tested against this module.  Read next: `ir/verifier.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.groups_beside import Beside
from tests.scalars import operation, rounded
from tests.touches import Cells, Moment
from tilewright.ir.atoms import multiplied
from tilewright.ir.bulk import (
    Arrive,
    Await,
    BulkCopy,
    Expect,
    Fence,
    MakeGates,
    has_gates,
)
from tilewright.ir.expr import Expr, walk
from tilewright.ir.fast_bulk import filled
from tilewright.ir.foreign import Foreign
from tilewright.ir.gates import Gates, box_places, run_block
from tilewright.ir.interpreter_memory import (
    Array,
    InterpreterError,
    bind,
    fault,
    first_line,
    write_back,
)
from tilewright.ir.interpreter_scalars import tf32
from tilewright.ir.stmt import (
    BLOCK_TAGS,
    THREAD_TAGS,
    Allocate,
    AsyncCopy,
    Barrier,
    Buffer,
    Commit,
    Exchange,
    For,
    If,
    Join,
    Kernel,
    LoadRows,
    Mma,
    MmaBegin,
    MmaEnd,
    Prefetch,
    Program,
    Region,
    Rules,
    Seq,
    Show,
    Stmt,
    Store,
    Wait,
    While,
    statements,
    vector_loads,
)
from tilewright.ir.warps import Meeting, Waiting, run_warp, unit_of

__all__ = ["InterpreterError", "run"]


def run(program: Program, arrays: Sequence[Array], *, check: bool = True) -> None:
    """Execute `program`; `arrays` correspond to `program.args`, outputs are written in place.

    A constant that the program wants packed may be given as users know it.

    Semantics.  Kernels run in order, the blocks of a kernel one after another, the threads of a
    block in turn from barrier to barrier.  All loops run in order whatever their kind.  A vector
    statement reads all its lanes before it writes any.  if_then_else evaluates one side; `and`,
    `or` and select evaluate everything.

    Arithmetic.  Floats round to their type after every operation; min and max propagate NaN (see
    `expr.py`).  `//` and `%` floor.  int32 and int64 are exact, and must fit where they are stored;
    the other integers wrap around.  Casts from floats to integers truncate, those to bool compare
    with zero, those between int32 and int64 are exact, those to other integers wrap.

    check: raise InterpreterError for
    - an index outside its buffer; a vector access on a GPU that is not aligned (to its lanes, at
      most 16 bytes)
    - a load of an element that nothing has written (outputs and workspaces start unwritten),
      and outputs not written by the end
    - a race: an element that one thread writes and another reads, or writes with another value,
      with no barrier between; blocks, and iterations of a parallel loop, have none at all
    - a barrier that not all threads of the block reach together
    - an element touched, or its memory given back, between the begin of an asynchronous copy into
      it and a wait of the same thread that covers it: until then the copy may write at any time.
      It counts as a write by that thread where it begins, and again where it is waited for
    - an element that a bulk copy fills, read before its phase of the gate has ended, or by a thread
      that has not waited for it (see `ir/gates.py`); a copy that begins before its thread knows of
      all reads of what was there; other bytes than expected; threads that wait for ever
    - an Mma, a LoadRows, an Exchange or an Arrive that not all lanes of a warp, which are 32
      threads in order, reach together; only the last orders accesses of memory
    - the same of an Mma of a group, which is 128 threads in order.  Each lane reads a part of its
      tiles, every element by two: one that its writer has not shown since, one written before the
      MmaEnd that covers the Mma; a sum touched before that, or stored to without an MmaBegin
    - a Join that not all threads of the block reach together, as for barriers; its body, run by the
      block whose count is the last, comes after what the first thread of each block that came did,
      and what barriers put before that: not after what else other threads did in the same interval
    - a counter of blocks that is not 0 at the end
    """
    memory = bind(program, arrays, check, _scalars)
    cells = {buffer: Cells(values) for buffer, values in memory.items()}
    with np.errstate(all="ignore"):
        for kernel in program.kernels:
            _launch(kernel, cells, check)
    write_back(program, memory, arrays, check)


def _scalars(flat: Array) -> list[Any]:
    return flat.tolist() if flat.dtype.kind in "biu" else list(flat.astype(np.float64))


# -- a kernel --------------------------------------------------------------------------------------


def _launch(kernel: Kernel, cells: dict[Buffer, Cells], check: bool) -> None:
    extents = {t.tag: range(t.extent) for t in kernel.threads}
    variables = {t.tag: t.var for t in kernel.threads}
    blocks, threads = (
        [tag for tag in reversed(tags) if tag in extents] for tags in (BLOCK_TAGS, THREAD_TAGS)
    )  # the last changes fastest: x
    fork, brought = object(), filled(kernel)
    came: Came = {}
    for block, at in enumerate(itertools.product(*(extents[tag] for tag in blocks))):
        shared: dict[Buffer, Cells] = {}
        running = []
        gates = Gates(kernel, math.prod(len(extents[tag]) for tag in threads))
        for number, lane in enumerate(itertools.product(*(extents[tag] for tag in threads))):
            place = zip((*blocks, *threads), (*at, *lane), strict=True)
            bound = {variables[tag]: value for tag, value in place}
            now = Moment(fork, block, 0, number)
            running.append(_Thread(kernel, check, dict(cells), shared, now, bound, gates, brought))
        _in_turn(kernel, running, gates, came)


Came = dict[tuple[Join, int], list[tuple[int, int]]]  # block and interval of each that came


def _in_turn(kernel: Kernel, threads: Sequence[_Thread], gates: Gates, came: Came) -> None:
    """Run threads from barrier to barrier until all end."""
    courses = [thread.run(kernel.body) for thread in threads]

    def go_on(k: int, told: Any) -> Any:
        try:
            return courses[k].send(told)
        except StopIteration:
            return None
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise threads[k].error(f"{error}") from error

    unit = unit_of(kernel)

    def met(stop: Any) -> bool | None:
        seen: frozenset[tuple[int, int]] = frozenset()
        last = None
        if isinstance(stop, Join):
            found = threads[0].count(stop, came)
            last, seen = found is not None, frozenset(found or ())
        for thread in threads:
            now = thread.now
            thread.now = replace(now, interval=now.interval + 1, seen=now.seen | seen)
        return last

    def diverged(waiting: Sequence[Any]) -> InterpreterError:
        barriers = [s for s in statements(kernel.body) if isinstance(s, (Barrier, Join))]
        told = (
            f"thread {waiting.index(stop)} "
            + ("has ended" if stop is None else f"waits at barrier {barriers.index(stop) + 1}")
            for stop in dict.fromkeys(waiting)
        )
        return InterpreterError(
            kernel.name, f"barrier divergence: {', '.join(told)}",
            "Move the barrier out of the condition, or give all threads the same trip counts.",
        )  # fmt: skip

    if has_gates(kernel):
        run_block(gates, go_on, met, diverged)
        return
    last: bool | None = None
    while True:
        waiting: list[Any] = []
        for first in range(0, len(threads), unit):
            waiting += run_warp(kernel, first, min(unit, len(threads) - first), go_on, last)
        if len(set(waiting)) > 1:
            raise diverged(waiting)
        if waiting[0] is None:
            return
        last = met(waiting[0])


@dataclass
class _Flight:
    """A copy under way: of these values, to these places of `cells`, which are of the region's
    buffer."""

    region: Region
    cells: Cells
    places: list[int]
    values: tuple[Any, ...]


# of a thread through a statement: it stops at barriers, at joins, where it is told whether its
# block is the last, and at meetings, where it gets its sums
Course = Generator[Barrier | Join | Meeting | Waiting, Any, None]


@dataclass
class _Thread(Beside):
    """One thread.  cells: the buffers it sees; shared: those of its block; at: its variables."""

    kernel: Kernel
    check: bool
    cells: dict[Buffer, Cells]
    shared: dict[Buffer, Cells]
    now: Moment
    at: dict[Expr, int]
    gates: Gates
    filled: set[Buffer]  # by bulk copies
    forked: bool = False  # in a parallel loop
    mask: Sequence[bool] | None = None  # the lanes that run
    stmt: Stmt = field(default_factory=Barrier)  # under way
    begun: list[_Flight] = field(default_factory=list)  # copies since the last commit
    groups: list[list[_Flight]] = field(default_factory=list)  # those not waited for, oldest first
    known: dict[tuple[Expr, int], Any] = field(default_factory=dict)  # of the current statement
    hidden: list[tuple[Cells, int]] = field(default_factory=list)  # written and not shown
    # of each batch of Mmas, the last not complete: what happens to what they hold when it has ended
    batches: list[list[Callable[[], None]]] = field(default_factory=lambda: [[]])

    # -- statements
    def run(self, stmt: Stmt) -> Course:
        self.stmt, self.known = stmt, {}
        return _RUN[type(stmt)](self, stmt)

    def seq(self, stmt: Seq) -> Course:
        for s in stmt.body:
            yield from self.run(s)

    def loop(self, stmt: For) -> Course:
        forks, fork = stmt.kind == "parallel" and not self.forked, object()
        self.forked |= forks
        for k in range(stmt.extent):
            self.at[stmt.var] = k
            if forks:
                self.now = Moment(fork, k)
            yield from self.run(stmt.body)
        if forks:  # whatever comes next comes after all iterations
            self.now, self.forked = Moment(object()), False
        self.at.pop(stmt.var, None)  # a loop may run not at all

    def branch(self, stmt: If) -> Course:
        test = stmt.condition
        if test.lanes == 1:
            chosen = stmt.then if self.value(test) else stmt.orelse
            if chosen is not None:
                yield from self.run(chosen)
            return
        if any(n.op in ("load", "call") for n in walk(test)):
            raise self.error("a condition of several lanes must depend on loop variables only")
        outer, holds = self.mask, [self.value(test, k) for k in _lanes(test)]
        for side, wanted in ((stmt.then, True), (stmt.orelse, False)):
            if side is not None:
                self.mask = [
                    x == wanted and (outer is None or outer[k]) for k, x in enumerate(holds)
                ]
                yield from self.run(side)
        self.mask = outer

    def repeat(self, stmt: While) -> Course:
        while self.value(stmt.condition):
            yield from self.run(stmt.body)
            self.stmt, self.known = stmt, {}

    def allocate(self, stmt: Allocate) -> Course:
        buffer, zero = stmt.buffer, rounded(stmt.buffer.dtype, 0)
        fresh = Cells([None if self.check else zero] * buffer.size)
        if buffer.scope == "shared" and self.kernel.threads:
            fresh = self.shared.setdefault(buffer, fresh)
        self.cells[buffer] = fresh
        yield from self.run(stmt.body)
        self.stmt = stmt
        for flight in (f for group in (*self.groups, self.begun) for f in group):
            if flight.region.buffer is buffer:
                self.refuse("given back", buffer, flight.places[0])
        del self.cells[buffer]

    def barrier(self, stmt: Barrier) -> Course:
        yield stmt

    def join(self, stmt: Join) -> Course:
        if (yield stmt):
            yield from self.run(stmt.body)

    def count(self, stmt: Join, came: Came) -> list[tuple[int, int]] | None:
        """This thread counts its block: the blocks that came, if it is the last of them."""
        self.stmt, self.known = stmt, {}
        at = self.place(stmt.counters, stmt.index, 0)
        values = self.cells[stmt.counters].values
        blocks = came.setdefault((stmt, at), [])
        blocks.append((self.now.block, self.now.interval))
        values[at] += 1
        if values[at] != stmt.blocks:
            return None
        values[at] = 0
        return came.pop((stmt, at))

    def store(self, stmt: Store) -> Course:
        buffer = stmt.buffer
        if stmt.value.dtype != buffer.dtype:
            raise self.error(f"a {stmt.value.dtype} is stored to {buffer!r}")
        if self.mask is None:
            self.aligned(buffer, stmt.index)
            for node in vector_loads(stmt.value):
                self.aligned(node.attr, node.args[0])
        lanes = [k for k in _lanes(stmt.index) if self.mask is None or self.mask[k]]
        places = [self.place(buffer, stmt.index, k) for k in lanes]
        values = [self.value(stmt.value, k) for k in lanes]
        for at, value in zip(places, values, strict=True):
            self.write(buffer, at, value)
        yield from ()

    def copy(self, stmt: AsyncCopy) -> Course:
        wanted, zero = self.value(stmt.condition), rounded(stmt.to.buffer.dtype, 0)
        count = stmt.to.count
        values = self.fragment(stmt.source, count) if wanted else (zero,) * count
        places = self.places(stmt.to, count)
        for at, value in zip(places, values, strict=True):
            self.write(stmt.to.buffer, at, value)
        if self.check:
            flight = _Flight(stmt.to, self.cells[stmt.to.buffer], places, values)
            flight.cells.flying.update(places)
            self.begun.append(flight)
        yield from ()

    def prefetch(self, stmt: Prefetch) -> Course:
        self.fragment(stmt.source)
        yield from ()

    def commit(self, stmt: Commit) -> Course:
        self.groups.append(self.begun)
        self.begun = []
        yield from ()

    def wait(self, stmt: Wait) -> Course:
        while len(self.groups) > stmt.pending:
            for flight in self.groups.pop(0):
                flight.cells.flying.difference_update(flight.places)
                for at, value in zip(flight.places, flight.values, strict=True):
                    self.write(flight.region.buffer, at, value)
        yield from ()

    def multiply(self, stmt: Mma) -> Course:
        if stmt.atom.by_group:
            yield from self.multiply_beside(stmt)
            return
        a, b, sums = (self.fragment(region) for region, _ in stmt.operands)
        if stmt.atom.by_thread:
            (results,) = multiplied(stmt.atom, [a], [b], [sums])
        else:
            results = yield Meeting(stmt, (a, b, sums))
        for at, value in zip(self.places(stmt.sum), results, strict=True):
            held = np.float64(value) if stmt.sum.buffer.dtype.is_float else value
            self.write(stmt.sum.buffer, at, held)

    def load_rows(self, stmt: LoadRows) -> Course:
        given = yield Meeting(stmt, (self.fragment(stmt.source, stmt.source.count),))
        for at, value in zip(self.places(stmt.to), given, strict=True):
            self.write(stmt.to.buffer, at, value)

    def exchange(self, stmt: Exchange) -> Course:
        given = yield Meeting(stmt, (self.fragment(stmt.source),))
        for at, value in zip(self.places(stmt.to), given, strict=True):
            self.write(stmt.to.buffer, at, value)

    def bulk_copy(self, stmt: BulkCopy) -> Course:
        to, source = stmt.to.buffer, stmt.source.buffer
        places = box_places(stmt.box, [self.value(e) for e in stmt.at])
        zero, given = rounded(to.dtype, 0), self.cells[source].values
        if self.check:
            inner, step = self.value(stmt.at[-1]), stmt.inner_unit
            self.refuse("aligned" if inner % step else "", source, inner, step)
        if self.check and max(places) >= source.size:
            self.refuse("bounds", source, max(places))
        for p in places if self.check else ():
            self.refuse("unwritten" if p >= 0 and given[p] is None else "", source, p)
        held = tf32 if stmt.rounded else lambda value: value
        values = [zero if p < 0 else held(given[p]) for p in places]
        self.place(to, stmt.to.index, 0)
        self.place(to, stmt.to.index + (stmt.to.count - 1), 0)
        first, cells = self.value(stmt.to.index), self.cells[to]
        if self.check:
            self.refuse("aligned" if first % stmt.unit else "", to, first, stmt.unit)
        into = [to.at(first + k) for k in range(stmt.to.count)]

        def arrived() -> None:
            for at, value in zip(into, values, strict=True):
                cells.values[at] = value

        gate = self.gate(stmt.gate)
        wrong, at = self.gates.copy(self.now.thread, gate, (to, into), stmt.nbytes, arrived)
        self.refuse(wrong if self.check else "", to, at)
        yield from ()

    def make_gates(self, stmt: MakeGates) -> Course:
        places = self.places(stmt.gates)
        self.gates.make(self.now.thread, stmt.gates.buffer, places, stmt.arrivals)
        yield from ()

    def fence(self, stmt: Fence) -> Course:
        self.gates.fence(self.now.thread)
        yield from ()

    def expect(self, stmt: Expect) -> Course:
        self.gates.expect(self.now.thread, self.gate(stmt.gate), stmt.nbytes)
        yield from ()

    def arrive(self, stmt: Arrive) -> Course:
        yield Meeting(stmt, (self.gate(stmt.gate),))

    def wait_for_gate(self, stmt: Await) -> Course:
        parity, gate = self.value(stmt.parity), self.gate(stmt.gate)
        if self.gates.ready(self.now.thread, gate, parity):
            self.gates.passed(self.now.thread, gate)
        else:
            yield Waiting(stmt, gate, parity)

    def gate(self, region: Region) -> tuple[Buffer, int]:
        return region.buffer, self.place(region.buffer, region.index, 0)

    # -- memory
    def fragment(self, region: Region, unit: int = 1) -> tuple[Any, ...]:
        """Its elements."""
        return tuple(self.read(region.buffer, at) for at in self.places(region, unit))

    def places(self, region: Region, unit: int = 1) -> list[int]:
        """The elements of `region`, which begins at a multiple of `unit`."""
        buffer, first = region.buffer, self.value(region.index)
        self.place(buffer, region.index, 0)
        indices = range(first, first + region.count)
        if self.check:
            self.refuse("aligned" if first % unit else "", buffer, buffer.at(first), unit)
            for at in indices:
                self.refuse("" if at < buffer.size else "bounds", buffer, at)
        return [buffer.at(at) for at in indices]

    def place(self, buffer: Buffer, index: Expr, k: int) -> int:
        at: int = self.value(index, k)
        if buffer not in self.cells:
            place = f"{self.kernel.name}: {buffer.name}"
            raise InterpreterError(place, "the program has no such buffer")
        if self.check and not 0 <= at < buffer.size:
            self.refuse("bounds", buffer, at)
        return int(buffer.at(at))

    def aligned(self, buffer: Buffer, index: Expr) -> None:
        unit = math.gcd(index.lanes, 16 // buffer.dtype.bytes)
        stride = index.args[1] if index.op == "ramp" else None
        if self.check and self.kernel.threads and stride is not None and stride.attr == 1:
            at = self.value(index.args[0])
            self.refuse("aligned" if at % unit else "", buffer, at, unit)

    def read(self, buffer: Buffer, at: int, *, beside: bool = False) -> Any:
        """beside: by what needs to be shown what threads write"""
        cells = self.cells[buffer]
        if self.check and buffer.scope == "local":
            self.refuse("multiplying" if cells.busy[at] > 0 else "", buffer, at)
        if self.check and buffer in self.filled:
            why = self.gates.read(self.now.thread, buffer, at, beside)
            self.refuse(why, buffer, at)
        elif self.check:
            self.refuse(cells.fault_of_read(at, self.now), buffer, at)
            self.refuse("not shown" if beside and at in cells.hidden else "", buffer, at)
        return cells.values[at]

    def write(self, buffer: Buffer, at: int, value: Any) -> None:
        cells = self.cells[buffer]
        if self.check:
            fits = not buffer.dtype.is_index or buffer.dtype.holds(value)
            self.refuse("" if fits else "overflow", buffer, at)
            self.refuse("multiplying" if cells.busy[at] > 0 else "", buffer, at)
            cells.stored = True
            self.refuse(cells.fault_of_write(at, value, self.now), buffer, at)
            if buffer.scope == "shared":
                cells.hidden.add(at)
                self.hidden.append((cells, at))
        cells.values[at] = value

    def refuse(self, kind: str, buffer: Buffer, at: int, unit: int = 1) -> None:
        if kind:
            where = ", ".join(f"{v.attr}={x}" for v, x in self.at.items())
            raise fault(kind, self.kernel, buffer, at, self.stmt, where, unit)

    def error(self, reason: str) -> InterpreterError:
        return InterpreterError(f"{self.kernel.name}: {first_line(self.stmt)}", reason)

    # -- expressions
    def value(self, node: Expr, k: int = 0) -> Any:
        """Lane `k` of `node`; a scalar is the same for all lanes."""
        key = node, k if node.lanes > 1 else 0
        if key not in self.known:
            self.known[key] = self.evaluate(node, k)
        return self.known[key]

    def evaluate(self, node: Expr, k: int) -> Any:
        op = node.op
        if op == "var":
            if node not in self.at:
                raise self.error(f"the variable {node} is used outside its loop")
            return self.at[node]
        if op == "const":
            return np.float64(node.attr) if node.dtype.is_float else node.attr
        if op == "load":
            return self.read(node.attr, self.place(node.attr, node.args[0], k))
        if op == "if_then_else":
            return self.value(node.args[1 if self.value(node.args[0], k) else 2], k)
        if op in ("read", "reduce"):
            raise self.error(f"{node} has not been lowered")
        args = [self.value(a, k) for a in node.args]
        if op == "ramp":
            return args[0] + k * args[1]
        if op == "broadcast":
            return args[0]
        return operation(node, args)


_RUN: Rules[Callable[..., Course]] = Rules(
    "interpreter",
    {
        Seq: _Thread.seq,
        For: _Thread.loop,
        If: _Thread.branch,
        While: _Thread.repeat,
        Allocate: _Thread.allocate,
        Barrier: _Thread.barrier,
        Store: _Thread.store,
        AsyncCopy: _Thread.copy,
        Prefetch: _Thread.prefetch,
        Commit: _Thread.commit,
        Wait: _Thread.wait,
        Mma: _Thread.multiply,
        LoadRows: _Thread.load_rows,
        Show: _Thread.show,
        MmaBegin: _Thread.begin,
        MmaEnd: _Thread.end,
        BulkCopy: _Thread.bulk_copy,
        MakeGates: _Thread.make_gates,
        Fence: _Thread.fence,
        Expect: _Thread.expect,
        Arrive: _Thread.arrive,
        Await: _Thread.wait_for_gate,
        Join: _Thread.join,
        Exchange: _Thread.exchange,
        Foreign: lambda thread, stmt: thread.run(stmt.means),
    },
)


def _lanes(node: Expr) -> range:
    return range(node.lanes)
