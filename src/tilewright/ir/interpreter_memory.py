"""The memory that programs run on: bound to arrays; and the texts of faults.

In: a `Program` and numpy arrays.  Out: one list of scalars per buffer, None where nothing was
written; the arrays, filled from such lists.  Read next: `fast_interpreter.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
    "not waited for": "a bulk copy wrote this element in a phase that this thread does not know of",
    "not known to be read": "a bulk copy comes here, and its thread does not know that all have "
    "read what is there",
    "not shown to be read": "a bulk copy comes here, and who has read what is there has not"
    " shown it to the copy engine",
    "given back": "this memory is given back with a copy into it under way",
    "multiplying": "an Mma may add to this element, or read it, and has not been waited for",
    "unfenced": "this sum was stored to and no MmaBegin lies between",
    "not shown": "its writer has not shown it to what reads shared memory beside the threads",
    "tile": "a tile begins in the first of eight rows, at a multiple of {unit} elements",
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

    check: outputs and workspaces start unwritten, else as given and as zeros; counters are zeros
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
    counters = program.counters
    for buffer in program.workspaces:
        memory[buffer] = scalars(np.zeros(buffer.size, buffer.dtype.storage))
        # What lies behind the tensor counts as written: tiles that overhang may read it.
        if check and buffer not in counters:
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
    for buffer in program.counters if check else ():
        for at, count in enumerate(memory[buffer]):
            if count:
                raise InterpreterError(
                    f"{program.name}: {buffer.name}[{at}]",
                    f"{count} blocks have come here, and not the last: the next run begins with it",
                )
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
