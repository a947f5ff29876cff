"""Choices without branches: padded reads on GPUs.

In: kernels with `if_then_else` around loads.  Out: the same values by loads that are always safe, so
that compilers issue many of them before they wait for the first.  Read next: `pipeline.py`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Allocate, For, If, Kernel, Seq, Stmt, Store, load, map_children

MAX_LOADS = 2  # more than these are worth a branch
_DEAR = ("call", "div", "floordiv", "floormod", "if_then_else")


def flatten_choices(kernel: Kernel) -> Kernel:
    """A choice between few loads reads them all, at element 0 where it does not want them.

    rewrite:  if_then_else(c, A[i], 0)   ->   select(c, A[select(c, i, 0)], 0)
    """

    def on_expr(root: Expr) -> Expr:
        return E.transform(root, _flattened)

    def on_stmt(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Store):
            value = on_expr(stmt.value)
            return stmt if value is stmt.value else Store(stmt.buffer, stmt.index, value)
        if isinstance(stmt, (For, If, Seq, Allocate)):
            return map_children(stmt, on_stmt)
        return stmt

    body = on_stmt(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _flattened(node: Expr) -> Expr | None:
    if node.op != "if_then_else" or node.lanes > 1:
        return None
    test, *sides = node.args
    loads = [n for n in E.walk(*sides) if n.op == "load"]
    if not 0 < len(loads) <= MAX_LOADS or any(_is_dear(side) for side in sides):
        return None
    first, second = (_safe(side, test, k == 0) for k, side in enumerate(sides))
    return E.select(test, first, second)


def _is_dear(side: Expr) -> bool:
    """Whether `side` computes more than one would repeat for nothing, its addresses aside."""
    if side.op == "load":
        return any(n.op in ("load", "call", "if_then_else") for n in E.walk(side.args[0]))
    return side.op in _DEAR or any(map(_is_dear, side.args))


def _safe(side: Expr, test: Expr, wanted: bool) -> Expr:
    """`side` with loads that stay inside their buffers wherever `test` is not `wanted`."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "load":
            return None
        (index,) = node.args
        zero = E.const(0, index.dtype)
        return load(node.attr, E.select(test, *((index, zero) if wanted else (zero, index))))

    return E.transform(side, rule)
