"""Norms behind a product: what follows an anchor, element by element, and then by whole rows.

In: a DAG and its anchor.  Out: the stage from which on all is norms of its rows, if there is one.
Read next: `../topi/templates/gpu_rows_behind.py`, which schedules it.
"""

from __future__ import annotations

from math import prod

from tilewright.ir import expr as E
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Tensor

SHORTEST, LONGEST = 64, 1 << 13  # elements of a row


def is_row(columns: int) -> bool:
    """Whether some threads have so many elements between them."""
    return SHORTEST <= columns <= LONGEST


def before_rows(dag: ComputeDAG, anchor: ComputeOp) -> ComputeOp | None:
    """Give the last stage that all behind `anchor` reads of it, the anchor itself where nothing is
    computed element by element, if what follows are reductions along whole rows, the anchor's
    innermost axis, and elementwise stages of them and the rows, up to one result of that shape.

    None where that is not so.
    """
    if len({t.op for t in dag.outputs}) != 1 or len(anchor.shape) < 2:
        return None
    columns, rows = anchor.shape[-1], prod(anchor.shape[:-1])
    if not is_row(columns):
        return None
    made: set[Tensor] = {anchor.output_tensor}
    behind: list[ComputeOp] = []
    for op in dag.compute_ops:
        if op is not anchor and made.intersection(op.input_tensors):
            made |= set(op.outputs)
            behind.append(op)
    last, rest = anchor, behind
    for k, op in enumerate(behind):
        if op.combiner is not None or not _is_elementwise(op, anchor.shape, made):
            break
        before = {t for earlier in (anchor, *behind[:k]) for t in earlier.outputs}
        alone = not any(before.intersection(later.input_tensors) for later in behind[k + 1 :])
        if alone and op.dtype.bytes <= last.dtype.bytes:  # what only widens it is done on the way
            last, rest = op, behind[k + 1 :]
    sums = [op for op in rest if op.combiner is not None]
    if not sums or any(not _is_of_rows(op, rows, columns) for op in rest):
        return None
    result = dag.outputs[0].op
    whole = result is rest[-1] and result not in sums and result.shape[-1] == columns
    outer = result.shape[:-1]
    return last if whole and all(op.shape == (*outer, 1) for op in sums) else None


def _is_elementwise(op: ComputeOp, shape: tuple[int, ...], made: set[Tensor]) -> bool:
    own = [ax.var for ax in op.axis]
    reads = (e for e in E.walk(op.body) if e.op == "read" and e.attr in made)
    return op.shape == shape and all(list(e.args) == own for e in reads)


def _is_of_rows(op: ComputeOp, rows: int, columns: int) -> bool:
    """Whether it has an element, or as many as there are columns, for each row."""
    if op.combiner is not None:
        return prod(op.shape) == rows and prod(ax.size for ax in op.reduce_axis) == columns
    return prod(op.shape) in (rows, rows * columns)
