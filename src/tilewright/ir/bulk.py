"""Statements of bulk copies: boxes of tensors that a copy engine brings, and gates that open then.

A bulk copy moves a box of a tensor in global memory to shared memory, with zeros for what lies
outside the tensor; one thread begins it.  A gate is a word in shared memory by which threads wait,
for each other and for bulk copies.  It goes from phase to phase: one ends as soon as as many have
arrived as the gate was made for, and all bytes that were expected in it are there.  Whoever waits
names the parity of a phase, and goes on when a phase of it, the present one or the one before, has
ended.

Of what bulk copies fill a thread sees what came before the phases that it waited for, itself or by
way of gates and barriers; and a copy may take a place when its thread knows, in the same way, that
all have read what was there.  All other memory is ordered by barriers alone.
These statements are rows of `STATEMENTS`, made here.  Read next: `gates.py`, which says what they
do when they run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilewright.ir.expr import Expr
from tilewright.ir.stmt import STATEMENTS, Kernel, Parts, Region, Stmt, statements
from tilewright.ir.swizzle import period

LEAST_DIMENSIONS, MOST_DIMENSIONS = 2, 5  # of a box
MOST_BOX = 256  # elements of a box along a dimension, with those that steps leave out
MOST_STEP = 8
UNIT = 16  # bytes: of which rows of a tensor, and those of a box in it, begin at multiples
BULK_ALIGNMENT = 128  # bytes: where a box begins in shared memory
GATE_TYPE = "int64"
MOST_ARRIVALS = (1 << 20) - 1  # in a phase, and likewise expected bytes


@dataclass(frozen=True)
class Box:
    """How a buffer is seen as a tensor, and which part of it is copied; outermost dimension first.

    shape, strides: of the tensor, in elements; the innermost stride is 1, and in bytes the others
                    are multiples of UNIT
    extents:        of the box, which lies row by row in shared memory
    steps:          from one element of the box to the next in the tensor; the innermost is 1
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    extents: tuple[int, ...]
    steps: tuple[int, ...]

    @property
    def elements(self) -> int:
        return prod(self.extents)

    @property
    def reach(self) -> tuple[int, ...]:
        """Elements of the tensor from the first to the last of the box."""
        return tuple((e - 1) * s + 1 for e, s in zip(self.extents, self.steps, strict=True))

    def fault(self, nbytes: int, swizzle: int = 0) -> str:
        """Why there is no such copy, of elements of so many bytes to a buffer that is swizzled so;
        "" where there is one."""
        if not LEAST_DIMENSIONS <= len(self.shape) <= MOST_DIMENSIONS:
            ranks = f"{LEAST_DIMENSIONS} to {MOST_DIMENSIONS}"
            return f"{len(self.shape)} dimensions, of which a box has {ranks}"
        if any(n < 1 for n in (*self.shape, *self.extents)):
            return f"a box {self.extents} of a tensor {self.shape}"
        if self.strides[-1] != 1 or self.steps[-1] != 1:
            return "elements of a row that are no neighbours in memory"
        if any(s % UNIT or not 0 < s < 1 << 40 for s in (n * nbytes for n in self.strides[:-1])):
            return f"rows that are not a multiple of {UNIT} bytes apart"
        if any(not 1 <= step <= MOST_STEP for step in self.steps):
            return f"steps of {self.steps}, which are 1 to {MOST_STEP}"
        if max(self.reach) > MOST_BOX:
            return f"a box of {max(self.reach)} elements along a dimension, of at most {MOST_BOX}"
        if self.extents[-1] * nbytes % UNIT:
            return f"rows of {self.extents[-1] * nbytes} bytes, no multiple of {UNIT}"
        if swizzle and self.extents[-1] * nbytes != swizzle:
            return f"rows of {self.extents[-1] * nbytes} bytes, swizzled by {swizzle}"
        return ""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class BulkCopy(Stmt):
    """`to[...]` becomes the box of `source` that begins at `at`, some time before a phase of `gate`
    ends that expects its bytes.

    to:     in shared memory, from a multiple of BULK_ALIGNMENT bytes on, swizzled rows of whole
            periods; nothing but bulk copies writes to that buffer
    source: all of a buffer in global memory, which the kernel does not store to
    at:     of each dimension, in elements; may lie outside, also before the tensor; of the
            innermost one a multiple of UNIT bytes
    rounded: whether elements, of float32, are rounded to 11 digits on the way
    """

    to: Region
    source: Region
    box: Box
    at: tuple[Expr, ...]
    gate: Region
    rounded: bool = False

    @property
    def unit(self) -> int:
        """Elements of which the place of the first is a multiple."""
        to = self.to.buffer
        return max(BULK_ALIGNMENT, int(period(to.swizzle))) // to.dtype.bytes

    @property
    def inner_unit(self) -> int:
        """Elements of which the innermost of `at` is a multiple."""
        return UNIT // self.to.buffer.dtype.bytes

    @property
    def nbytes(self) -> int:
        return self.box.elements * self.to.buffer.dtype.bytes


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class MakeGates(Stmt):
    """`gates`, each for so many `arrivals` in a phase, begin with their first one, of parity 0.

    One thread makes them, before a `Fence` of its own and a barrier.
    """

    gates: Region
    arrivals: int


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Fence(Stmt):
    """The copy engine sees what this thread has written to shared memory; gates that it made."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Expect(Stmt):
    """This thread arrives at `gate`, whose phase ends when `nbytes` more have been copied, too."""

    gate: Region
    nbytes: int


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Arrive(Stmt):
    """The 32 lanes of a warp together arrive once at `gate`: what they did is done.  What they read
    may then be written; by a copy engine, too, if each has shown it by a `Show` in between, which
    what groups multiplied needs not."""

    gate: Region


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Await(Stmt):
    """This thread goes on when a phase of `gate` of this parity, 0 or 1, has ended: the present one
    of the gate is not of it."""

    gate: Region
    parity: Expr


STATEMENTS.update({
    BulkCopy: Parts(expressions=("at",), written=("to",), read=("source", "gate")),
    MakeGates: Parts(read=("gates",)),
    Fence: Parts(),
    Expect: Parts(read=("gate",)),
    Arrive: Parts(read=("gate",)),
    Await: Parts(expressions=("parity",), read=("gate",)),
})  # fmt: skip
GATED = (BulkCopy, MakeGates, Fence, Expect, Arrive, Await)


def has_gates(kernel: Kernel) -> bool:
    return any(isinstance(s, GATED) for s in statements(kernel.body))


def gates_of(stmt: Stmt) -> Region | None:
    """The gates that `stmt` itself concerns."""
    if isinstance(stmt, MakeGates):
        return stmt.gates
    return stmt.gate if isinstance(stmt, (BulkCopy, Expect, Arrive, Await)) else None
