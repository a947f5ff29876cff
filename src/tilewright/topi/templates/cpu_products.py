"""Matrix products of CPUs: what templates read off an anchor.  Read next: `cpu_dense.py`."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.schedule.template import Anchored
from tilewright.te.tensor import ComputeOp, PlaceholderOp
from tilewright.topi.stage import workload_of
from tilewright.topi.templates.cpu_tile import Operands

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 12, 14)
PACK_ROWS = 32  # rows that use a packed operand often enough to pack it on every call


@dataclass(frozen=True)
class Product:
    """batch, rows, columns, inner: extents; transposed: the second operand is [columns, inner]."""

    batch: int
    rows: int
    columns: int
    inner: int
    transposed: bool


def product_of(at: Anchored) -> Product:
    """Read the matrix product off its workload."""
    op = at.anchor.op
    assert isinstance(op, ComputeOp)
    inner = op.reduce_axis[0].size
    transposed = op.tag == "dense" or bool(workload_of(op, 2, 2)[4])
    batch = op.shape[0] if len(op.shape) == 3 else 1
    return Product(batch, op.shape[-2], op.shape[-1], inner, transposed)


def stored_plainly(at: Anchored, ops: Operands) -> bool:
    """Whether the weight can be packed: it has the anchor's rank and nobody else reads it."""
    readers = at.schedule.readers(ops.weight)
    same = len(ops.weight.shape) == len(at.anchor.shape)
    return isinstance(ops.weight.op, PlaceholderOp) and same and len(readers) == 1
