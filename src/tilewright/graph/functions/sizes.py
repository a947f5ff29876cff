"""The usual spellings of strides, padding and layouts, and weights without a shape.

In: what users write: an int, a pair, four sides.  Out: one number per axis; ModelErrors that name
the operator.  Read next: `convolution.py`, `pooling.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.doors import is_integer
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, TensorType, Var
from tilewright.topi import stage

SIDES = {
    1: "Use an int or (left, right).",
    2: "Use an int, (height, width) or (top, left, bottom, right).",
    3: "Use an int, three of them, or six: all in front, then all behind.",
}


def per_axis(value: Any, rank: int, what: str, place: str) -> tuple[int, ...]:
    """`topi`'s, for ints of which the type rule says what they may be."""
    return stage.per_axis(known(value), rank, what, place, None, ModelError)


def known(value: Any) -> Any:
    """`value`, or the numbers in a value of the graph.

    Raises NotYet where those are known later.
    """
    if not isinstance(value, Expr):
        return value
    numbers = value.as_numbers()
    if numbers is None:
        value.await_numbers(lambda like: True)
    return numbers


def sides(padding: Any, rank: int, place: str) -> tuple[int, ...]:
    """Padding in front of each axis, then behind each, from an int, one per axis or all of them."""
    padding = known(padding)
    items = tuple(padding) if isinstance(padding, (tuple, list)) else (padding,)
    if len(items) not in (1, rank, 2 * rank) or not all(is_integer(v) for v in items):
        raise ModelError(place, f"padding={padding!r} is not understood", SIDES[rank])
    return tuple(int(v) for v in items) * (2 * rank // len(items))


def same_layout(out_layout: str, layout: str, place: str) -> None:
    """Refuse an `out_layout` that asks for another order than the data have."""
    if out_layout not in ("", layout):
        raise ModelError(
            f"{place}(out_layout={out_layout!r})", f"results have the layout of the data, {layout}",
            "Leave out_layout out, and transpose the result.",
        )  # fmt: skip


def settle(weight: Any, shape: Sequence[int], data: Expr) -> None:
    """Give a weight without a type the one the operator implies."""
    if isinstance(weight, Var) and not weight.is_typed:
        weight.settle(TensorType(tuple(shape), data.dtype))
