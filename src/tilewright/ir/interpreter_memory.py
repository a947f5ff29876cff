"""The memory that programs run on: bound to arrays, watched for races; and the texts of faults.

In: a `Program` and numpy arrays.  Out: one list of scalars per buffer, None where nothing was
written; the arrays, filled from such lists.  Both interpreters use it, but the fast one watches
races by stamps of its own.  Read next: `interpreter.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import TilewrightError
from tilewright.ir.stmt import Buffer, Kernel, Program, Stmt, written_buffers

Array = npt.NDArray[Any]
Memory = dict[Buffer, list[Any]]
Scalars = Callable[[Array], list[Any]]  # the elements of a flat array as an interpreter keeps them


class InterpreterError(TilewrightError):
    """A program that does what no correct program does: where, and what."""


REASONS = {
    "bounds": "outside the {buffer.size} elements of {buffer!r}",
    "aligned": "this vector must start at a multiple of {unit} elements",
    "unwritten": "this element was never written",
    "load race": "another thread wrote this element and no barrier lies between",
    "store race": "another thread read this element and no barrier lies between",
    "store twice": "another thread wrote a different value and no barrier lies between",
    "in flight": "a copy into this element is under way and has not been waited for",
    "given back": "this memory is given back with a copy into it under way",
    "overflow": "the value stored does not fit {buffer.dtype}",
}


def fault(
    kind: str, kernel: Kernel, buffer: Buffer, at: int, stmt: Stmt, where: str, unit: int = 1
) -> InterpreterError:
    """The error for an access of `buffer[at]` in `stmt`; where: the loop variables, as text."""
    reason = REASONS[kind].format(buffer=buffer, unit=unit)
    context = first_line(stmt) + (f" at {where}" if where else "")
    return InterpreterError(f"{kernel.name}: {buffer.name}[{at}]", f"{reason} (in {context})")


def first_line(stmt: Stmt) -> str:
    return str(stmt).splitlines()[0].strip()


def bind(program: Program, arrays: Sequence[Array], check: bool, scalars: Scalars) -> Memory:
    """The elements of arguments and workspaces before the program runs.

    check: outputs and workspaces start unwritten, else as given and as zeros
    """
    if program.calls:
        raise InterpreterError(
            program.name, f"it calls the Python function {program.calls[0][1].name}",
            "Build it, and compare what the module gives with what that function does.",
        )  # fmt: skip
    if len(arrays) != len(program.args):
        raise InterpreterError(
            program.name, f"{len(arrays)} arrays for {len(program.args)} arguments",
            f"Give {', '.join(b.name for b in program.args)}, in this order.",
        )  # fmt: skip
    memory: Memory = {}
    for buffer in program.workspaces:
        memory[buffer] = scalars(np.zeros(buffer.size, buffer.dtype.storage))
        if check:  # what lies behind the tensor counts as written: tiles that overhang may read it
            count = min(buffer.size, math.prod(buffer.shape)) if buffer.shape else buffer.size
            memory[buffer][:count] = [None] * count
    for buffer, role, given in zip(program.args, program.roles, arrays, strict=True):
        array = given
        if buffer.packing is not None and given.shape == buffer.packing.shape:
            array = buffer.packing.apply(given)
        if array.size != buffer.size or array.dtype != buffer.dtype.storage:
            raise InterpreterError(
                f"{program.name}({buffer.name})",
                f"{array.dtype}[{array.size}] given for {buffer.dtype}[{buffer.size}]",
            )
        undefined = check and role == "output"
        flat = np.ascontiguousarray(array).reshape(-1)
        memory[buffer] = [None] * buffer.size if undefined else scalars(flat)
    return memory


def write_back(program: Program, memory: Memory, arrays: Sequence[Array], check: bool) -> None:
    """Outputs, and whatever else the program stored to, back into `arrays`."""
    stored = set().union(*(written_buffers(kernel.body) for kernel in program.kernels))
    for buffer, role, array in zip(program.args, program.roles, arrays, strict=True):
        if role != "output" and buffer not in stored:
            continue
        values = memory[buffer]
        if check and None in values:
            place = f"{program.name}: {buffer.name}[{values.index(None)}]"
            raise InterpreterError(place, "no kernel writes this element")
        try:
            array[...] = np.array(values, dtype=buffer.dtype.storage).reshape(array.shape)
        except OverflowError as error:
            raise InterpreterError(f"{program.name}: {buffer.name}", f"{error}") from None


# -- who touched an element, and when --------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """fork: the launch or parallel loop; block: or iteration; interval: between two barriers."""

    fork: object
    block: int = 0
    interval: int = 0
    thread: int = 0

    def unordered(self, other: Moment) -> bool:
        """Whether nothing says which of the two comes first."""
        if self.fork is not other.fork:
            return False
        together = self.interval == other.interval and self.thread != other.thread
        return self.block != other.block or together


@dataclass
class Cells:
    """The elements of one buffer, and the accesses of each that later ones may race with.

    flying: elements that a copy, begun and not yet waited for, will write
    """

    values: list[Any]
    writer: dict[int, Moment] = field(default_factory=dict)
    readers: dict[int, set[Moment]] = field(default_factory=dict)
    flying: set[int] = field(default_factory=set)

    def fault_of_read(self, at: int, now: Moment) -> str:
        """What is wrong with reading an element now, in REASONS, or ""; notes the access."""
        if at in self.flying:
            return "in flight"
        if self.writer.get(at, now).unordered(now):
            return "load race"
        before = self.readers.get(at, ())
        self.readers[at] = {now, *(r for r in before if r.unordered(now))}  # the others are settled
        return "unwritten" if self.values[at] is None else ""

    def fault_of_write(self, at: int, value: Any, now: Moment) -> str:
        """As for reading.  Several may write one value; NaN counts as equal to any."""
        if at in self.flying:
            return "in flight"
        again = self.writer.get(at, now).unordered(now)
        if again and value == value and self.values[at] != value:
            return "store twice"
        if any(r.unordered(now) for r in self.readers.get(at, ())):
            return "store race"
        self.writer[at] = now
        return ""
