"""The operator table: everything the compiler knows of an operator is its one row.

In: `get("nn.conv2d")`.  Out: the `Op` row; `call` applies one.  The rows are in the modules
imported here, by family; what a row holds is in `row.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Constant, Expr
from tilewright.graph.leaves import const
from tilewright.graph.op import (
    conv,
    elementwise,
    indexing,
    movement,
    narrow,
    nn,
    normalize,
    pooling,
    ranking,
    reduction,
    regions,
    resize,
    sampling,
)
from tilewright.graph.op.row import Op, Pattern

ROWS: tuple[Op, ...] = (
    *elementwise.ROWS,
    *reduction.ROWS,
    *movement.ROWS,
    *nn.ROWS,
    *narrow.ROWS,
    *normalize.ROWS,
    *conv.ROWS,
    *pooling.ROWS,
    *ranking.ROWS,
    *indexing.ROWS,
    *resize.ROWS,
    *sampling.ROWS,
    *regions.ROWS,
)
TABLE: dict[str, Op] = {row.name: row for row in ROWS}


def register(rows: Iterable[Op]) -> None:
    """Add rows of operators that stand on others of this package."""
    TABLE.update((row.name, row) for row in rows)


def get(name: str) -> Op:
    """The row of operator `name`, for example ``get("nn.conv2d")``."""
    if name in TABLE:
        return TABLE[name]
    near = difflib.get_close_matches(name, TABLE, 3) or [n for n in TABLE if n.endswith(name)]
    hint = f"Near it: {', '.join(near)}." if near else "TABLE of graph/op lists all."
    raise ModelError(f"relay.op.get({name!r})", "there is no such operator", hint)


def call(op_name: str, *args: Any, **attrs: Any) -> Call:
    """The operator applied to `args`; attributes that are left out have their defaults."""
    row = get(op_name)
    return Call(row, args, {**row.attrs, **attrs})


def takes_numbers(node: Call) -> bool:
    """Whether `node` has two operands of which one may be a number: `x + 1`."""
    return isinstance(node.op, Op) and node.op.inputs == elementwise.OPERANDS


def same_dtype(lhs: Any, rhs: Any) -> tuple[Expr, Expr]:
    """Both operands as graph values; a number takes the other's element type."""
    if isinstance(lhs, Expr):
        return lhs, rhs if isinstance(rhs, Expr) else _like(rhs, lhs)
    if isinstance(rhs, Expr):
        return _like(lhs, rhs), rhs
    return const(lhs), const(rhs)


def _like(value: Any, other: Expr) -> Constant:
    return const(value, other.dtype if isinstance(value, (int, float)) else None)


__all__ = [
    "ROWS", "TABLE", "Op", "Pattern", "call", "get", "register", "same_dtype", "takes_numbers",
]  # fmt: skip
