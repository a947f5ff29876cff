"""Small helpers of TVM's `topi.utils`: numbers of constant expressions, positions, stages by tag.

In: ints and expressions.  Out: ints where they are constant.  Read next: `topi/stage.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import simplifier
from tilewright.schedule.schedule import Schedule
from tilewright.te.tensor import ComputeOp, Operation

__all__ = [
    "equal_const_int", "get_const_float", "get_const_int", "get_const_tuple", "get_shape",
    "nchw_pack_layout", "nchw_xc_layout", "prod", "ravel_index", "simplify", "traverse_inline",
    "unravel_index",
]  # fmt: skip


def _constant(value: Any, place: str) -> Any:
    short = simplify(value)
    if isinstance(short, Expr):
        raise ExpressionError(f"{place}({value})", "it is no constant", "Give a number.")
    return short


@door(ExpressionError, "topi.utils.get_const_int")
def get_const_int(expr: Any) -> int:
    """The integer that a constant expression is.  Raises ExpressionError for any other."""
    return int(_constant(expr, "get_const_int"))


@door(ExpressionError, "topi.utils.get_const_float")
def get_const_float(expr: Any) -> float:
    """The number that a constant expression is.  Raises ExpressionError for any other."""
    return float(_constant(expr, "get_const_float"))


@door(ExpressionError, "topi.utils.get_const_tuple")
def get_const_tuple(in_tuple: Sequence[Any]) -> tuple[Any, ...]:
    """A shape with ints where its extents are constant; variables stay."""
    return tuple(simplify(n) for n in in_tuple)


@door(ExpressionError, "topi.utils.equal_const_int")
def equal_const_int(expr: Any, value: int) -> bool:
    """Tell whether an expression is the constant `value`."""
    short = simplify(expr)
    return not isinstance(short, Expr) and bool(short == value)


@door(ExpressionError, "topi.utils.simplify")
def simplify(expr: Any) -> Any:
    """An integer expression in its shortest form, a number where it is constant."""
    if not isinstance(expr, Expr) and not hasattr(expr, "as_expr"):
        return E.convert(expr).value
    node = E.convert(expr)
    short = simplifier(node)(node)
    return short.attr if short.op == "const" else short


@door(ExpressionError, "topi.utils.get_shape")
def get_shape(src_shape: Sequence[Any], src_layout: str, dst_layout: str) -> tuple[Any, ...]:
    """The shape of an array whose axes are put in another order.

    The layouts have the same axes, split alike: "NCHW16c" and "NC16cWH".  Raises ExpressionError
    for others, and for a shape of another rank.
    """
    before, after = (_axes_of(layout) for layout in (src_layout, dst_layout))
    if sorted(before) != sorted(after) or len(before) != len(src_shape):
        raise ExpressionError(
            f"get_shape({list(src_shape)}, {src_layout!r}, {dst_layout!r})",
            "the layouts and the shape have not the same axes",
            "Use topi.layout_transform, which also splits axes.",
        )  # fmt: skip
    return tuple(get_const_tuple([src_shape[before.index(axis)] for axis in after]))


def _axes_of(layout: str) -> list[str]:
    """The letters of a layout with the number before each."""
    return re.findall(r"\d*[A-Za-z]", layout)


def nchw_pack_layout(layout_info: str) -> bool:
    """Tell whether a layout has blocks of images and of channels, as NCHW1n16c does."""
    return layout_info[:4] == "NCHW" and "c" in layout_info[4:] and "n" in layout_info[4:]


def nchw_xc_layout(layout_info: str) -> bool:
    """Tell whether a layout has blocks of channels alone, as NCHW16c does."""
    return layout_info[:4] == "NCHW" and "c" in layout_info[4:] and layout_info[4:-1].isnumeric()


@door(ExpressionError, "topi.utils.prod")
def prod(x: Sequence[Any]) -> Any:
    """The product of extents; 1 for none."""
    result: Any = 1
    for n in x:
        result = n * result
    return result


@door(ExpressionError, "topi.utils.ravel_index")
def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The position in a row-major array of `shape`."""
    if len(indices) != len(shape):
        raise ExpressionError(
            f"ravel_index({len(indices)} indices)", f"the shape has {len(shape)} dimensions",
            "Give one index for each.",
        )  # fmt: skip
    flat: Any = 0
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index
    return flat


@door(ExpressionError, "topi.utils.unravel_index")
def unravel_index(idx: Any, shape: Sequence[Any]) -> list[Any]:
    """The inverse of `ravel_index`: one index for each dimension."""
    indices: list[Any] = []
    for extent in reversed(shape):
        indices.append(E.convert(idx) % extent)
        idx = E.convert(idx) // extent
    return indices[::-1]


@door(ExpressionError, "topi.utils.traverse_inline")
def traverse_inline(
    s: Schedule, final_op: Operation, callback: Callable[[Operation], object]
) -> None:
    """Inline the elementwise stages behind `final_op` that are no outputs; `callback` sees every
    stage behind it, readers first."""
    todo, seen = [final_op], {final_op}
    while todo:
        op = todo.pop()
        if isinstance(op, ComputeOp):
            cheap = op.tag.startswith(("elemwise", "broadcast", "injective"))
            if cheap and not s[op].is_output:
                s[op].compute_inline()
            for t in op.input_tensors:
                if t.op not in seen and isinstance(t.op, ComputeOp):
                    seen.add(t.op)
                    todo.append(t.op)
        callback(op)
