"""Computations whose extents are variables: which there are, and the same with numbers.

In: operations over `te.var`s.  Out: their symbols; operations with numbers in their place.  A
schedule, lowering and kernels take such a computation as it is; whatever counts, measures, compares
or keeps it (flops, hashes, records, tuning, networks, the reference) needs numbers and refuses it.
Read next: `dag.py`, `ir/symbols.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import symbols_of
from tilewright.te.tensor import ComputeOp, Operation, Tensor


def extent_symbols(ops: Iterable[Operation]) -> tuple[Expr, ...]:
    """The variables in extents."""
    sizes: list[Any] = []
    for op in ops:
        for tensor in op.outputs:
            sizes += tensor.shape
        for ax in (*op.axis, *op.reduce_axis):
            sizes += (ax.extent, ax.begin)
    return symbols_of(sizes)


def all_symbols(ops: Iterable[Operation]) -> tuple[Expr, ...]:
    """The variables that a computation needs: of extents, then integers of its expressions."""
    ops = tuple(ops)
    bodies = [e for op in ops if isinstance(op, ComputeOp) for e in op.expressions]
    return tuple(dict.fromkeys((*extent_symbols(ops), *symbols_of(bodies))))


def refuse(symbols: tuple[Expr, ...], place: str) -> None:
    """Raises ExpressionError where there are symbols: `place` needs numbers."""
    if not symbols:
        return
    names = ", ".join(str(v.attr) for v in symbols)
    are = f"{names} {'is a variable' if len(symbols) == 1 else 'are variables'}"
    values = ", ".join(f"{v.attr}=64" for v in symbols)
    raise ExpressionError(
        place, f"{are}: lowering and build take such a computation, this needs numbers",
        f"Declare it with ints, or use ComputeDAG(...).at({values}).",
    )  # fmt: skip


def concrete(ops: Iterable[Operation], values: Mapping[str, int]) -> dict[Operation, Operation]:
    """Every operation with numbers in the place of symbols, by their names."""
    ops = tuple(ops)
    numbers: dict[Expr, int] = {}
    for v in all_symbols(ops):
        given = values.get(str(v.attr))
        if given is None:
            raise ExpressionError(
                "ComputeDAG.at", f"{v.attr} has no value", f"Give {v.attr}=, a whole number."
            )
        numbers[v] = int(given)
    made: dict[Operation, Operation] = {}
    tensors: dict[Tensor, Tensor] = {}
    for op in ops:
        new = op.at(numbers, tensors)
        made[op] = new
        tensors |= zip(op.outputs, new.outputs, strict=True)
    return made
