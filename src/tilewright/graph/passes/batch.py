"""A network for another batch size: types are inferred again from inputs with another first extent.

In: main, the weights' names, a size.  Out: main for that size.  Where an operator has its shape as
numbers (a reshape), the extent that holds the batch is found by its place in memory.
Read next: `bind.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from fractions import Fraction
from math import prod

from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Call,
    Expr,
    Function,
    TensorType,
    TupleType,
    Type,
    Var,
    children,
    post_order,
)
from tilewright.graph.layers import adopt, layers_of
from tilewright.graph.traversal import is_call, with_children

_WAY_OUT = "Make the network anew for each size; a list of modules can be built as one."
_COMMAND = "Export the network with an open batch, and give --batch for that file."
Shape = tuple[int, ...]


def batch_of(function: Function, bound: Collection[str] = ()) -> int:
    """Give the first extent of all inputs that are not in `bound`.  Raises ModelError where they
    differ, or there is none."""
    found = {p.name_hint: p.shape[:1] for p in function.params if p.name_hint not in bound}
    sizes = set(found.values())
    if len(sizes) != 1 or () in sizes:
        shown = ", ".join(f"{name}: {list(s) or 'a scalar'}" for name, s in found.items())
        raise ModelError(
            "batch_sizes", f"the inputs have no batch in common (first extents: {shown or 'none'})",
            _WAY_OUT, command=_COMMAND,
        )  # fmt: skip
    return sizes.pop()[0]


def with_batch(function: Function, size: int, bound: Collection[str] = ()) -> Function:
    """Give `function` for inputs whose first extent is `size`.

    bound: parameters that are no inputs
    Raises ModelError where the network fixes its batch size.
    """
    old = batch_of(function, bound)
    if size == old:
        return function
    place, ratio = f"batch size {size}", Fraction(size, old)
    new: dict[Expr, Expr] = {}
    repeats: dict[Expr, int] = {}  # of the whole batch, inside the extent that holds it
    for p in function.params:
        is_input = p.name_hint not in bound
        new[p] = Var(p.name_hint, TensorType((size, *p.shape[1:]), p.dtype)) if is_input else p
    try:
        for node in post_order(function.body):
            if node not in new:
                _rebuild(node, new, repeats)
                adopt(new[node], layers_of(node))
    except ModelError as error:
        way_out = error.way_out if "batch" in error.way_out else _WAY_OUT
        raise ModelError(
            f"{place}: {error.place}", error.reason, way_out, command=_COMMAND
        ) from None
    body = new[function.body]
    if body.checked_type != (wanted := _scaled(function.body.checked_type, ratio)):
        raise ModelError(
            place, f"the result is {body.checked_type} where {wanted} was expected: the network "
            "fixes its batch size, or computes across samples", _WAY_OUT, command=_COMMAND,
        )  # fmt: skip
    params = [new[p] for p in function.params]
    return Function([p for p in params if isinstance(p, Var)], body, attrs=function.attrs)


def _rebuild(node: Expr, new: dict[Expr, Expr], repeats: dict[Expr, int]) -> None:
    """Add the new node and its repeats."""
    read = children(node)
    args = tuple(new[c] for c in read)
    batched = [c for c in read if new[c] is not c]
    repeats[node] = max((repeats.get(c, 1) for c in batched), default=1)
    if batched and isinstance(node, Call) and is_call(node, "reshape"):
        shape, repeats[node] = _reshaped(read[0].shape, args[0].shape, node.shape, repeats[node])
        new[node] = Call(node.op, args, {**node.attrs, "newshape": shape})
    elif batched and isinstance(node, Call) and is_call(node, "broadcast_to"):
        shape = _spread(read[0].shape, args[0].shape, node.shape)
        new[node] = Call(node.op, args, {**node.attrs, "shape": shape})
    else:
        new[node] = with_children(node, args)


def _reshaped(before: Shape, after: Shape, result: Shape, repeats: int) -> tuple[Shape, int]:
    """`result`, which held `before`, for `after`, and how often it repeats the batch.

    One extent of it grows as one of `before` did: that in which the batch lies, by the number of
    times that it is repeated outside, which row-major order keeps.
    """
    at = next((k for k, (old, new) in enumerate(zip(before, after, strict=True)) if old != new), 0)
    outside = prod(before[:at]) * repeats
    ratio = Fraction(prod(after), prod(before))
    for k, extent in enumerate(result):
        here = prod(result[:k])
        if here == outside > 1 and before[at] == 1 != extent:
            raise ModelError(
                f"reshape of {list(before)} to {list(result)}", "which extent holds a batch "
                "of 1 cannot be seen", "Give the network with a batch of 2 or more.",
            )  # fmt: skip
        if here == outside or here < outside < here * extent:
            grown = extent * ratio
            if outside % here == 0 and grown.denominator == 1:
                return (*result[:k], int(grown), *result[k + 1 :]), outside // here
            break
    raise ModelError(
        f"reshape of {list(after)}", f"where {list(before)} became {list(result)}, its batch has "
        "no place", _WAY_OUT, command=_COMMAND,
    )  # fmt: skip


def _spread(before: Shape, after: Shape, result: Shape) -> Shape:
    lead = len(result) - len(before)
    return (
        *result[:lead],
        *(r if o == n else n for o, n, r in zip(before, after, result[lead:], strict=True)),
    )


def _scaled(kind: Type, ratio: Fraction) -> Type:
    """The type of a result of `kind` for another batch."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(_scaled(field, ratio) for field in kind.fields))
    assert isinstance(kind, TensorType)
    first = kind.shape[0] * ratio if kind.shape else Fraction(0)
    if not kind.shape or first.denominator != 1:
        return kind
    return TensorType((int(first), *kind.shape[1:]), kind.dtype)
