"""What is written at one place, as a cache of keys and values is in each step, is a choice.

In: a canonical module.  Out: an equal one, in which such a scatter is elementwise: it has no kernel
of its own where something else is computed along, and nothing is moved for it.
Read next: `moves.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tilewright.graph.expr import Call, Constant, Expr, IRModule
from tilewright.graph.op import call
from tilewright.graph.passes.canonicalize import as_view
from tilewright.graph.passes.common_subexpressions import eliminate_common
from tilewright.graph.traversal import each_function, is_call, rewrite, users, with_body
from tilewright.graph.types import TensorType

Readers = Mapping[Expr, Sequence[Expr]]


def choose_points(mod: IRModule) -> IRModule:
    """scatter_nd(x, [[i]], u)                        ->  where(0..n-1 == i, u, x)
    transpose(scatter_nd(transpose(x), [[i]], u))  ->  the same along another axis of x

    i: counted from the end where it is negative; nothing is written where there is no such place
    What says where, often the same for several of them, is then computed once.
    """
    some = False

    def change(body: Expr) -> Expr:
        nonlocal some
        readers = users(body)
        points = _Points(readers)
        body = rewrite(body, points.visit)
        some |= bool(points.made)
        return body

    changed = each_function(mod, lambda f: with_body(f, change(f.body)))
    return eliminate_common(changed, keep=_is_of_floats) if some else mod


def _is_of_floats(node: Expr) -> bool:
    kind = node.checked_type
    return not isinstance(kind, TensorType) or kind.dtype.is_float


@dataclass(frozen=True)
class _Point:
    """data with updates, of which the first axis has one element, at `place` of its first axis"""

    data: Expr
    place: Expr
    updates: Expr


@dataclass
class _Points:
    """made: choices that were made of scatters; every: constants 0..n-1 by shape and type"""

    readers: Readers
    made: dict[Expr, _Point] = field(default_factory=dict)
    every: dict[Any, Constant] = field(default_factory=dict)

    def visit(self, old: Expr, node: Expr) -> Expr:
        if not isinstance(node, Call) or not isinstance(old, Call):
            return node
        if is_call(node, "scatter_nd") and _is_point(node):
            data, place, updates = node.args
            updates = call("reshape", updates, newshape=(1, *data.shape[1:]))
            chosen = self._choice(place, 0, data, updates)
            self.made[chosen] = _Point(data, place, updates)
            return chosen
        if not is_call(node, "transpose") or len(self.readers[old.args[0]]) > 1:
            return node
        point = self.made.get(node.args[0])
        if point is None or not is_call(point.data, "transpose"):
            return node
        assert isinstance(point.data, Call)
        axes, inner = tuple(node.attrs.axes), tuple(point.data.attrs.axes)
        if [inner[k] for k in axes] != list(range(len(axes))):
            return node
        updates = as_view(call("transpose", point.updates, axes=axes))
        return self._choice(point.place, inner[0], point.data.args[0], updates)

    def _choice(self, place: Expr, axis: int, data: Expr, updates: Expr) -> Expr:
        """`updates` at `place` of an axis, else `data`."""
        size, dtype, ones = data.shape[axis], str(place.dtype), [1] * len(data.shape)
        place = call("reshape", place, newshape=tuple(ones))
        zero, end = (Constant(np.full(ones, n, dtype)) for n in (0, size))
        place = call("where", call("less", place, zero), call("add", place, end), place)
        shape = (*ones[:axis], size, *ones[axis + 1 :])
        every = self.every.get((shape, dtype))
        if every is None:
            every = Constant(np.arange(size, dtype=dtype).reshape(shape))
            self.every[shape, dtype] = every
        return call("where", call("equal", every, place), updates, data)


def _is_point(node: Call) -> bool:
    data, indices, _ = node.args
    sizes = (*data.shape, *indices.shape)
    one = all(isinstance(n, int) for n in sizes) and prod(indices.shape) == 1
    varies = node.attrs.reduction == "update" and not isinstance(indices, Constant)
    return varies and one and len(indices.shape) > 0 and len(data.shape) > 0
