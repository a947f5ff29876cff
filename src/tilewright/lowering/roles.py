"""Warps that do nothing but load: what all others do is not theirs.

In: a kernel with barriers, in which such warps have a branch of their own (`bulk.py`).  Out: the
same, where all else but barriers stands under the condition that a thread is none of them.

rewrite:  L = 0; barrier; for o: {if computes: for k: use .. else: for k: fill(k)}; C[..] = L
          ->   if computes: L = 0; barrier; for o: {..}; if computes: C[..] = L
Where nothing but such statements stands around the branch, they go into it.
Loops around a barrier or a branch of theirs run in all threads.  Read next: `pipeline.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.ir.bulk import BulkCopy, MakeGates
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    For,
    If,
    Kernel,
    Seq,
    Stmt,
    map_children,
    seq,
    statements,
)


def separate_roles(kernel: Kernel) -> Kernel:
    """`kernel`, whose loading warps skip what is not theirs; itself where it has none."""
    found = next((s for s in statements(kernel.body) if _is_branch(s)), None)
    if found is None:
        return kernel
    assert isinstance(found, If)
    return replace(kernel, body=_separated(kernel.body, found.condition))


def _separated(stmt: Stmt, computes: Expr) -> Stmt:
    if _is_branch(stmt) or isinstance(stmt, Barrier):
        return stmt
    if isinstance(stmt, If) and _concerns_all(stmt):  # the making of gates
        return stmt
    if isinstance(stmt, Seq) and sum(map(_concerns_all, stmt.body)) == 1:
        at = next(k for k, s in enumerate(stmt.body) if _concerns_all(s))
        whole = _within(stmt.body[at], stmt.body[:at], stmt.body[at + 1 :])
        if whole is not None:
            return whole
    if isinstance(stmt, Seq):
        parts: list[Stmt] = []
        alone: list[Stmt] = []  # statements that one branch holds
        for s in stmt.body:
            if _concerns_all(s):
                parts += [If(computes, seq(*alone))] if alone else []
                parts.append(_separated(s, computes))
                alone = []
            else:
                alone.append(s)
        parts += [If(computes, seq(*alone))] if alone else []
        return seq(*parts)
    if isinstance(stmt, (For, Allocate)) and _concerns_all(stmt):
        return map_children(stmt, lambda s: _separated(s, computes))
    return If(computes, stmt)


def _within(stmt: Stmt, before: Sequence[Stmt], behind: Sequence[Stmt]) -> Stmt | None:
    """The branch in `stmt` with what stands around it on its side: the path of who multiplies stays
    one.  None where it is more than a branch."""
    if isinstance(stmt, Allocate):
        body = _within(stmt.body, before, behind)
        return None if body is None else Allocate(stmt.buffer, body)
    if not _is_branch(stmt):
        return None
    assert isinstance(stmt, If)
    return If(stmt.condition, seq(*before, stmt.then, *behind), stmt.orelse)


def _concerns_all(stmt: Stmt) -> bool:
    """Whether threads that only load have a part in it."""
    return any(_is_branch(s) or isinstance(s, (Barrier, MakeGates)) for s in statements(stmt))


def _is_branch(stmt: Stmt) -> bool:
    """Whether some threads load here and the others do not."""
    return (
        isinstance(stmt, If) and stmt.orelse is not None
        and any(isinstance(s, BulkCopy) for s in statements(stmt.orelse))
    )  # fmt: skip
