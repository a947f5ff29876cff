"""Legalising element types: no arithmetic in formats of memory.

In: a kernel after simplification, with statements on any element type.  Out: the same kernel with
all arithmetic on float16, bfloat16, int8, uint8 and int16 done in `DType.compute`, so that printers
meet these types only in loads, stores, constants, choices, and casts from and to that one type.

A wide expression is one whose type is its own compute type.  A narrow load is cast as soon as it
is computed with, and a result is cast back where it is stored.  Integers wrap around after each
operation that may leave their range; floats keep what float32 has until they are stored or
explicitly cast.  A float64, or an integer of more than 24 bits, becomes a half by way of float32.
What merely moves data stays narrow, so vector copies remain what they were, and a choice among
loads is converted once, behind the choice: a conversion in a branch would keep the branch.

Operations of a matrix unit on narrow operands are no arithmetic of this kind: this pass would leave
them alone.  Read next: `pipeline.py`.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.base.dtype import BOOL, DType
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Kernel, Stmt, Store, expressions, load, map_children

_MAY_LEAVE = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "shl",
)  # the range of its operands, if they are integers


def legalize_types(kernel: Kernel) -> Kernel:
    """All arithmetic in compute types; the kernel itself where no type is narrow.

    rewrite:  C[i] = A[i] + B[i]      (float16)
              ->   C[i] = float16(float32(A[i]) + float32(B[i]))
              C[i] = max(A[i] + B[i], 0)      (int8)
              ->   C[i] = int8(max(int32(int8(int32(A[i]) + int32(B[i]))), 0))
              C[i] = A[i] if 0 < i else 0
              ->   the same
              C[i] = float32(A[i] if 0 < i else 0)
              ->   the same
    """
    if not any(map(is_narrow, {n.dtype for n in E.walk(*expressions(kernel.body))})):
        return kernel
    return replace(kernel, body=_legal(kernel.body, _Wide()))


def is_narrow(kind: DType) -> bool:
    """Whether `kind` is a format of memory: its arithmetic is done in another type."""
    return kind.compute is not kind


def _legal(stmt: Stmt, wide: _Wide) -> Stmt:
    if isinstance(stmt, Store):
        return Store(stmt.buffer, wide.value(stmt.index), _stored(stmt.value, wide))
    return map_children(stmt, lambda child: _legal(child, wide), wide.value)


def _stored(node: Expr, wide: _Wide) -> Expr:
    """`node` in its own type."""
    if not is_narrow(node.dtype):
        return wide.value(node)
    moved = _moved(node, wide)
    return moved if moved is not None else E.cast(node.dtype, wide.unrounded(node))


def _moved(node: Expr, wide: _Wide) -> Expr | None:
    """`node` as data that is moved, in its own type; None where it is computed."""
    if node.op == "const":
        return node
    if node.op == "load":
        return load(node.attr, wide.value(node.args[0]))
    if node.op not in ("broadcast", "select", "if_then_else"):
        return None
    test, sides = node.args[:-2], node.args[-2:]
    moved = [_moved(side, wide) for side in sides]
    if any(side is None for side in moved):
        return None
    return E.rebuild(node, (*map(wide.value, test), *moved))  # type: ignore[arg-type]


class _Wide:
    """The wide form of expressions, each made once."""

    def __init__(self) -> None:
        self._values: dict[Expr, Expr] = {}

    def value(self, node: Expr) -> Expr:
        """`node` in its compute type: an integer within the range of its own type, a float rounded
        to it where the program casts."""
        done = self._values.get(node)
        if done is None:
            done = self.unrounded(node)
            if is_narrow(node.dtype) and _may_leave(node):
                done = E.cast(done.dtype, E.cast(node.dtype, done))
            self._values[node] = done
        return done

    def unrounded(self, node: Expr) -> Expr:
        """`node` in its compute type, as good as `value` for what is cast to its own type anyway,
        or an integer to a narrower one."""
        if is_narrow(node.dtype) and (moved := _moved(node, self)) is not None:
            return E.cast(node.dtype.compute, moved)
        if node.op in ("const", "var"):
            return E.cast(node.dtype.compute, node)
        if node.op == "load":
            return load(node.attr, self.value(node.args[0]))
        if node.op == "cast":
            (source,) = node.args
            inner = self.unrounded if _is_modular(source.dtype, node.dtype) else self.value
            return E.cast(node.dtype.compute, inner(source))
        return E.rebuild(node, tuple(map(self.value, node.args)))


def _may_leave(node: Expr) -> bool:
    """Whether the wide value of `node` may be none of its own type.  A sum of floats may too, but
    is allowed to."""
    if node.op == "cast":
        return not _holds(node.dtype, node.args[0].dtype)
    return node.dtype.is_int and node.op in _MAY_LEAVE


def _holds(kind: DType, source: DType) -> bool:
    """Whether a narrow `kind` holds every value of `source`."""
    if source is BOOL:
        return True
    if source.is_float:
        return False
    if kind.is_float:
        return max(-source.least, source.greatest) <= 1 << kind.digits
    return kind.least <= source.least and source.greatest <= kind.greatest


def _is_modular(source: DType, kind: DType) -> bool:
    """Whether an integer that is cast from `source` to `kind` may have wrapped around or not."""
    return source.is_int and kind.is_int and is_narrow(kind) and kind.bits <= source.bits
