"""Extents that stay open until a network is built: `relay.Any()`.

In: shapes as users write them.  Out: shapes of ints.  While a graph is made by hand an open extent
is a prime that stands for it, so that types are inferred as ever.
Read next: `expr.py`, `open.py`, `graph/passes/extents.py`.
"""

from __future__ import annotations

import operator
import zlib
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, isqrt, trunc
from typing import Any as Anything

from tilewright.ir.expr import Expr as IrExpr
from tilewright.ir.expr import walk

# Primes that are extents of nothing else, small enough for the square of one to be a tensor's size.
_STAND_INS = tuple(n for n in range(1009, 1600, 2) if all(n % k for k in range(3, isqrt(n) + 1, 2)))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul,
    "floordiv": operator.floordiv, "floormod": operator.mod, "min": min, "max": max,
}  # fmt: skip


# Of one operand, as extents are scaled: int32(round(float64(n) * 2)).
_OF_ONE: dict[str, Callable[[float], float]] = {
    "round": round, "floor": floor, "ceil": ceil, "trunc": trunc,
}  # fmt: skip


class Any:
    """An extent that is not known yet, in a shape of `relay.var`, `from_onnx` or `from_pytorch`;
    a `te.var` in a shape means the same under its name.

    name: open extents of one name are equal; by default `batch` on the first axis, `axis1`, ... on
        the others, or the name that an ONNX model gives the extent
    `relay.build(batch_sizes=)` or `(sizes=)` says what it may be; under the executors "vm" and
    "debug" it is what the arrays of a call have, and extents without a name may differ.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"relay.Any({self.name!r})" if self.name else "relay.Any()"


def stand_in(name: str) -> int:
    """The prime that stands for the open extent of this name."""
    return _STAND_INS[zlib.crc32(name.encode()) % len(_STAND_INS)]


def known_part(extent: int) -> int:
    """`extent` without the open ones that it is a product of, which may become small."""
    for prime in _STAND_INS:
        while extent % prime == 0 and extent:
            extent //= prime
    return extent


def is_open(shape: Sequence[int]) -> bool:
    """Whether an extent of a typed value's shape stands for an open one, or may."""
    return any(known_part(n) != n for n in shape)


def closed(shape: Anything, extent_of: Callable[[str], int], own: str = "") -> Anything:
    """`shape`, or shapes by name, or lists of them, with an int for every `Any`.

    own: the name of one that has none
    """
    if (name := _open_name(shape, own)) is not None:
        return extent_of(name)
    if isinstance(shape, Mapping):
        return {name: closed(s, extent_of, name) for name, s in shape.items()}
    if isinstance(shape, (tuple, list)):
        return tuple(closed(s, extent_of, _axis_name(k)) for k, s in enumerate(shape))
    return _arithmetic(shape, extent_of) if isinstance(shape, IrExpr) else shape


def _arithmetic(extent: IrExpr, extent_of: Callable[[str], int]) -> Anything:
    """The number of an extent that is arithmetic of `te.var`s, as ``n * 2``; else itself."""
    known: dict[IrExpr, Anything] = {}
    for node in walk(extent):
        values = [known[a] for a in node.args if a in known]
        if node.op == "var":
            known[node] = extent_of(node.name)
        elif node.op == "const":
            known[node] = node.attr
        elif node.op in _ARITHMETIC and len(values) == 2:
            known[node] = _ARITHMETIC[node.op](*values)
        elif node.op == "cast" and values:
            known[node] = float(values[0]) if node.dtype.is_float else int(values[0])
        elif node.op == "call" and node.attr in _OF_ONE and values:
            known[node] = _OF_ONE[node.attr](values[0])
        else:
            return extent
    return known[extent]


def open_names(shape: Anything) -> tuple[str, ...]:
    """The names of the open extents in `shape`, which is what `closed` takes."""
    found: dict[str, int] = {}
    closed(shape, lambda name: found.setdefault(name, 1))
    return tuple(found)


def open_axes(shape: Anything) -> dict[int, str]:
    """The names of the open extents of one shape, by axis."""
    items = shape if isinstance(shape, Sequence) else ()
    names = {k: _open_name(x, _axis_name(k)) for k, x in enumerate(items)}
    return {k: name for k, name in names.items() if name is not None}


def is_unnamed(name: str, axis: int) -> bool:
    """Whether an open extent is called so for want of a name."""
    return name == _axis_name(axis)


def _open_name(extent: Anything, own: str) -> str | None:
    """What an open extent is called, `own` where it says nothing; None for any other value."""
    if isinstance(extent, Any):
        return extent.name or own
    is_variable = isinstance(extent, IrExpr) and extent.op == "var"
    return extent.name if is_variable else None


def _axis_name(axis: int) -> str:
    return f"axis{axis}" if axis else "batch"
