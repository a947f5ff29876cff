"""Fewer branches on GPUs: padded reads without any, one for statements that share a guard.

In: kernels after simplification.  Out: loads that are always safe instead of `if_then_else`, and
guards outside loops, so that compilers issue many loads before they wait for the first.
Read next: `pipeline.py`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    Seq,
    Stmt,
    Store,
    load,
    map_children,
    seq,
)

MAX_LOADS = 2  # more than these are worth a branch
_DEAR = ("call", "div", "floordiv", "floormod", "if_then_else")
_TRUE = E.const(True)


def flatten_choices(kernel: Kernel) -> Kernel:
    """A choice between few loads of global memory reads them all, at element 0 where not wanted.

    rewrite:  if_then_else(c, A[i], 0)   ->   select(c, A[select(c, i, 0)], 0)
              if (g) S[j] = that         ->   t = that, with g and c for c; if (g) S[j] = t
    """
    body = _visit(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def merge_guards(kernel: Kernel) -> Kernel:
    """Guards move out of loops that do not change them, and neighbours with one guard share it.

    rewrite:  if (g) S; for i: if (g) T   ->   if (g) {S; for i: T}
    """
    body = _merged(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _merged(stmt: Stmt) -> Stmt:
    stmt = map_children(stmt, _merged)
    if isinstance(stmt, For):
        guard, body = _guard(stmt.body)
        if guard is not _TRUE and stmt.var not in E.free_variables(guard):
            return If(guard, replace(stmt, body=body))
    if not isinstance(stmt, Seq):
        return stmt
    groups: list[tuple[Expr, list[Stmt]]] = []
    for part in stmt.body:
        guard, body = _guard(part)
        if groups and guard is groups[-1][0]:
            groups[-1][1].append(body)
        else:
            groups.append((guard, [body]))
    if len(groups) == len(stmt.body):
        return stmt
    return seq(*(seq(*parts) if g is _TRUE else If(g, seq(*parts)) for g, parts in groups))


def _guard(stmt: Stmt) -> tuple[Expr, Stmt]:
    """The guard of the whole statement (true where it has none) and what it guards."""
    if not isinstance(stmt, If) or stmt.orelse is not None or stmt.condition.lanes > 1:
        return _TRUE, stmt
    changing = any(n.op == "load" for n in E.walk(stmt.condition))
    return (_TRUE, stmt) if changing else (stmt.condition, stmt.then)


def _visit(stmt: Stmt) -> Stmt:
    if isinstance(stmt, Store):
        value = _flat(stmt.value, _TRUE)
        return stmt if value is stmt.value else Store(stmt.buffer, stmt.index, value)
    if isinstance(stmt, If) and stmt.orelse is None and isinstance(stmt.then, Store):
        return _guarded_store(stmt, stmt.then)
    return map_children(stmt, _visit)  # choices in statements of other classes stay


def _guarded_store(stmt: If, store: Store) -> Stmt:
    value = _flat(store.value, stmt.condition)
    if value is store.value:
        return stmt
    if value.op != "select" or store.buffer.scope != "shared" or _reads(value, stmt.condition):
        return If(stmt.condition, Store(store.buffer, store.index, _flat(store.value, _TRUE)))
    held = Buffer(f"{store.buffer.name}.next", store.buffer.dtype, 1, "local", (1,))
    zero = E.const(0)
    then = Store(store.buffer, store.index, load(held, zero))
    return Allocate(held, seq(Store(held, zero, value), If(stmt.condition, then)))


def _reads(value: Expr, guard: Expr) -> bool:
    """Whether something beside the choice's own safe loads would be read without the guard."""
    tests = E.walk(guard, value.args[0])
    return any(n.op == "load" for n in tests) or any(
        n.op == "load" and n.args[0].op != "select" for n in E.walk(value)
    )


def _flat(root: Expr, guard: Expr) -> Expr:
    """`root` with its choices flattened; the loads are safe also where `guard` does not hold."""

    def rule(node: Expr) -> Expr | None:
        return _flattened(node, guard)

    return E.transform(root, rule)


def _flattened(node: Expr, guard: Expr) -> Expr | None:
    if node.op != "if_then_else" or node.lanes > 1:
        return None
    test, *sides = node.args
    loads = [n for n in E.walk(*sides) if n.op == "load"]
    if not 0 < len(loads) <= MAX_LOADS or any(n.attr.scope != "global" for n in loads):
        return None
    if any(_is_dear(side) for side in sides):
        return None
    wanted = E.all_of(guard, test), E.all_of(guard, E.logical_not(test))
    first, second = (_safe(side, when) for side, when in zip(sides, wanted, strict=True))
    return E.select(test, first, second)


def _is_dear(side: Expr) -> bool:
    """Whether `side` computes more than one would repeat for nothing, its addresses aside."""
    if side.op == "load":
        return any(n.op in ("load", "call", "if_then_else") for n in E.walk(side.args[0]))
    return side.op in _DEAR or any(map(_is_dear, side.args))


def _safe(side: Expr, wanted: Expr) -> Expr:
    """`side` with loads that stay inside their buffers where it is not `wanted`."""

    def rule(node: Expr) -> Expr | None:
        if node.op != "load":
            return None
        (index,) = node.args
        return load(node.attr, E.select(wanted, index, E.const(0, index.dtype)))

    return E.transform(side, rule)
