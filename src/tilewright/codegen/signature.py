"""What a `Source` says besides its text: buffers in order, and which of them a kernel takes.

In: a lowered `Program`, its text, how its kernels are launched.  Out: `Source`.
Read next: `c_family.py`, `llvm.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.base.artifact import BufferSpec, KernelInfo, Source
from tilewright.base.errors import InternalError
from tilewright.ir.stmt import Buffer, Kernel, Program
from tilewright.targets.target import Target


def arguments_of(kernel: Kernel, program: Program) -> tuple[int, ...]:
    """The index of each parameter in `Source.buffers`.

    Raises InternalError for a parameter that the program does not have.
    """
    position = {buffer: i for i, buffer in enumerate(program.args + program.workspaces)}
    missing = [p.name for p in kernel.params if p not in position]
    if missing:
        place = f"generate({program.name})"
        raise InternalError(place, f"{kernel.name} takes {missing[0]}, which the program lacks")
    return tuple(position[p] for p in kernel.params)


def source_of(program: Program, target: Target, text: str, kernels: Sequence[KernelInfo]) -> Source:
    roles = program.roles + ("workspace",) * len(program.workspaces)
    return Source(
        target=str(target),
        text=text,
        entry_name=program.name,
        buffers=tuple(
            BufferSpec(b.name, b.dtype, _shape(b), role, b.packing)
            for b, role in zip(program.args + program.workspaces, roles, strict=True)
        ),
        kernels=tuple(kernels),
    )


def _shape(buffer: Buffer) -> tuple[int, ...]:
    """Flat where the memory has more elements than the tensor: overhanging tiles need them."""
    return buffer.shape if math.prod(buffer.shape) == buffer.size else (buffer.size,)
