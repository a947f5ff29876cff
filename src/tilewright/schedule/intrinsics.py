"""Instructions that users describe by statements: what `tensorize` puts in the place of loops.

In: a computation, and the statements that compute a tile of it.  Out: a table by name, of this
process: statements have no JSON, so that such a schedule is built, not tuned.
Read next: `lowering/intrinsics.py`, which puts them there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir.stmt import Buffer, Stmt
from tilewright.te.tensor import ComputeOp, Tensor


@dataclass(frozen=True, eq=False)
class Intrinsic:
    """
    op:      what a tile is, of placeholders
    buffers: what stands for these, and for the output, in the statements
    strides: of a buffer that is not row-major: a number, or a variable that the statements use
    body:    computes all of a tile; None where a sum is only added to
    reset, update: set it to what a sum begins with; add to it.  None: `body` does both
    """

    name: str
    op: ComputeOp
    buffers: Mapping[Tensor, Buffer]
    strides: Mapping[Tensor, tuple[Any, ...]]
    body: Stmt | None
    reset: Stmt | None = None
    update: Stmt | None = None


INTRINSICS: dict[str, Intrinsic] = {}


def added(intrinsic: Intrinsic) -> str:
    """The name by which schedules have it, which no other has."""
    known = INTRINSICS.get(intrinsic.name)
    name, count = intrinsic.name, 1
    while known is not None and known is not intrinsic:
        count += 1
        name = f"{intrinsic.name}.{count}"
        known = INTRINSICS.get(name)
    INTRINSICS[name] = intrinsic
    return name
