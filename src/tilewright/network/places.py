"""Numbers that inputs may hold because they say which places of a cache are written.

In: a function as a model's reader made it, and which of its inputs are written to.  Out: the least
and the greatest number of inputs of whole numbers, for `build(bounds=)`.  What lies beyond a cache
is not written, so a position there would be lost without a word.  Read next: `in_place.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import numpy as np

from tilewright.graph.expr import Array, Call, Constant, Expr, Function, Tuple, Var, post_order
from tilewright.graph.traversal import is_call

Ends = tuple[int, int]
Found = Iterator[tuple[str, Ends]]

_RENAMED = ("reshape", "expand_dims", "squeeze", "transpose", "broadcast_to", "cast")
_WRITES = ("scatter_nd", "scatter_elements")


def bounds_of_places(main: Function, written: Collection[str]) -> dict[str, Ends]:
    """Give what inputs may hold so that all that they say to write has a place.

    written: names of inputs that writes go to; those to what is computed have no say
    A number outside is wrong whatever other inputs hold; an input that numbers are chosen of, or
    of which more is computed than a sum with a constant, has no bounds.
    """
    found: dict[str, Ends] = {}
    for node in post_order(main.body):
        if not is_call(node, *_WRITES) or not isinstance(node, Call):
            continue
        data, index = node.args[:2]
        if not _is_of(data, written):
            continue
        for name, (least, most) in _of_index(node, data, index):
            before = found.get(name, (least, most))
            found[name] = max(before[0], least), min(before[1], most)
    return {name: ends for name, ends in found.items() if ends[0] <= ends[1]}


def _is_of(data: Expr, written: Collection[str]) -> bool:
    while isinstance(data, Call) and is_call(data, *_RENAMED, *_WRITES):
        data = data.args[0]
    return isinstance(data, Var) and data.name_hint in written


def _of_index(node: Call, data: Expr, index: Expr) -> Found:
    if is_call(node, "scatter_elements"):
        yield from _within(index, 0, data.shape[node.attrs.axis] - 1)
        return
    axes, parts = index.shape[0], [index]
    if axes > 1:  # a line of numbers for each axis
        if not isinstance(index, Call) or not is_call(index, "concatenate") or index.attrs.axis:
            return
        parts = [p for f in index.args for p in (f.fields if isinstance(f, Tuple) else (f,))]
        if [part.shape[0] for part in parts] != [1] * axes:
            return
    for part, extent in zip(parts, data.shape, strict=False):
        yield from _within(part, 0, extent - 1)


def _within(value: Expr, least: int, most: int) -> Found:
    """What inputs hold where all elements of `value` are from `least` to `most`, at most."""
    if 0 in value.shape or np.dtype(str(value.dtype)).kind not in "iu":
        return
    if isinstance(value, Var):
        yield value.name_hint, (least, most)
    elif not isinstance(value, Call):
        return
    elif is_call(value, *_RENAMED):
        yield from _within(value.args[0], least, most)
    elif is_call(value, "add"):
        for one, other in (value.args, value.args[::-1]):
            if isinstance(other, Constant):
                low, high = _added(other.data, one.shape)
                yield from _within(one, least - low, most - high)
    elif is_call(value, "where") and (inner := _from_behind(value)) is not None:
        yield from _within(inner[0], least - inner[1], most)


def _added(constant: Array, shape: tuple[int, ...]) -> Ends:
    """What is added to elements of a shape: the least that one of them meets, where it is greatest
    of all of them, and the greatest, where it is least."""
    rank = max(constant.ndim, len(shape))
    whole = constant.reshape((1,) * (rank - constant.ndim) + constant.shape)
    met = tuple(k for k, n in enumerate((1,) * (rank - len(shape)) + shape) if n == 1)
    return int(whole.min(axis=met).max()), int(whole.max(axis=met).min())


def _from_behind(value: Call) -> tuple[Expr, int] | None:
    """x and n, of where(x < 0, x + n, x): places that may be counted from behind."""
    test, behind, inner = value.args
    if not is_call(test, "less") or not is_call(behind, "add"):
        return None
    assert isinstance(test, Call) and isinstance(behind, Call)
    zero, count = test.args[1], behind.args[1]
    same = test.args[0] is inner and behind.args[0] is inner
    if not same or not (isinstance(zero, Constant) and isinstance(count, Constant)):
        return None
    known = zero.data.size == count.data.size == 1 and not zero.data.any() and count.data.min() > 0
    return (inner, int(count.data.min())) if known else None
