"""What a copy is that needs no thread: elements of one tensor, or zeros.

In: an expression, of a stage (reads of tensors) or of a kernel (loads of buffers).  Out: where it
reads, and under which condition; why it is no such copy.  Read next: `steps/copies.py`,
`tree/rings.py`.
"""

from __future__ import annotations

import math

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te.tensor import PlaceholderOp, Tensor

LOADERS = (0, 1, 4)  # warps that do nothing but load
MOST_SLOTS = 16  # of a ring: more are never useful, and a typing error easily asks for them
_CHOICES = ("if_then_else", "select")


def source_of(value: Expr) -> tuple[Expr, Expr] | None:
    """(condition, read or load) of a value that is an element of memory where the condition holds,
    and zero elsewhere; None of any other."""
    if value.op in ("read", "load"):
        return E.const(True), value
    if value.op not in _CHOICES or not _is_zero(value.args[2]):
        return None
    inner = source_of(value.args[1])
    return None if inner is None else (E.binary("and", value.args[0], inner[0]), inner[1])


def stays_a_copy(tensor: Tensor) -> bool:
    """Whether a stage that copies `tensor` is a copy of global memory whatever becomes of the
    tensor's own stage: it is there already, a reduction stores it, or it is such a copy itself."""
    op = tensor.op
    if isinstance(op, PlaceholderOp) or op.combiner is not None:
        return True
    found = source_of(op.body)
    return found is not None and not why_no_copy(op.body) and stays_a_copy(found[1].attr)


def _is_zero(value: Expr) -> bool:
    return value.op == "const" and value.attr == 0 and math.copysign(1, value.attr) > 0


def why_no_copy(body: Expr) -> str:
    """Why a stage with this body is no copy that can be asynchronous; "" where it is one."""
    found = source_of(body)
    if found is None:
        return "it computes, and asynchronous copies take what they find, or zero"
    condition, read = found
    if any(n.op == "read" for n in E.walk(condition, *read.args)):
        return "data say what is copied"
    return ""
