"""Open extents become numbers.

In: a network with `relay.Any()` in the shapes of its inputs, and a number for each.  Out: the
network for them.  One that was imported is imported again; in a graph that was made by hand the
primes that stand for open extents (`graph/extents.py`) are replaced wherever they are in a shape
or an attribute, and types are inferred anew.  Read next: `batch.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import is_integer
from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Deferred, advanced, made_again
from tilewright.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Var,
    children,
    post_order,
)
from tilewright.graph.extents import stand_in
from tilewright.graph.layers import adopt, layers_of
from tilewright.graph.open import OpenModule, still_open
from tilewright.graph.passes.bind import with_weights
from tilewright.graph.traversal import with_children
from tilewright.graph.types import MAX_RANK

_TRIAL = 32  # for each open extent where one network is made to see whether it can be
_WAY_OUT = "Make the network anew for each size; a list of modules can be built as one."


def open_extents(mod: IRModule | Function) -> tuple[str, ...]:
    """Give the names of the extents that are open, in the order of the inputs."""
    if isinstance(mod, OpenModule):
        return mod.names
    functions = [mod] if isinstance(mod, Function) else mod.functions.values()
    names = (n for f in functions for p in f.params for n in p.open_extents.values())
    return tuple(dict.fromkeys(names))


def require_closed(mod: IRModule | Function, place: str) -> None:
    if names := open_extents(mod):
        raise still_open(place, names)


def with_sizes(mod: IRModule | Function, sizes: Mapping[str, int]) -> IRModule:
    """Give the network whose open extents (`relay.Any()`) are these numbers, by name.

    Raises ModelError for a name too few or too many, and where the network cannot be of that size.
    """
    names, place = open_extents(mod), f"relay.with_sizes({dict(sizes)})"
    if set(names) != set(sizes):
        raise ModelError(
            place, f"the open extents are {', '.join(names) or 'none'}",
            f"Give {dict.fromkeys(names, 8)}." if names else "Leave it as it is.",
        )  # fmt: skip
    if wrong := [n for n, size in sizes.items() if not is_integer(size) or size < 1]:
        raise ModelError(place, f"{wrong[0]} is no whole number of at least 1", "Try 8.")
    chosen = {name: int(size) for name, size in sizes.items()}
    if isinstance(mod, OpenModule):
        return mod.make(chosen)
    if not names:
        return mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    functions = {"main": mod} if isinstance(mod, Function) else mod.functions
    numbers = Numbers(chosen, place)
    return IRModule({
        name: _closed(f, [numbers.shape(p.shape) for p in f.params], numbers, place)
        for name, f in functions.items()
    })  # fmt: skip


def with_shapes(function: Function, shapes: Sequence[tuple[int, ...]]) -> Function:
    """Give `function` for parameters of these shapes, where extents are open.

    Extents that no name was given for may differ, although they are called the same.
    """
    place = f"a network for shapes {', '.join(str(list(s)) for s in shapes)}"
    return _closed(function, shapes, numbers_of(function.params, shapes, place), place)


def for_arguments(function: Function, args: Sequence[Expr]) -> Function:
    """Give `function` for the shapes of these arguments, where they are others than those that
    stand for its open extents."""
    if len(args) != len(function.params):
        return function
    pairs = list(zip(function.params, args, strict=True))
    if not all(isinstance(a.checked_type, TensorType) for p, a in pairs if p.open_extents):
        return function
    shapes = [a.shape if p.open_extents else p.shape for p, a in pairs]
    fits = all(len(s) == len(p.shape) for s, p in zip(shapes, function.params, strict=True))
    if not fits or all(s == p.shape for s, p in zip(shapes, function.params, strict=True)):
        return function
    return with_shapes(function, shapes)


def numbers_of(params: Sequence[Var], shapes: Sequence[tuple[int, ...]], place: str) -> Numbers:
    """Give what open extents are where parameters have these shapes; of one name where they are
    one."""
    sizes: dict[str, set[int]] = {}
    for p, shape in zip(params, shapes, strict=True):
        for axis, name in p.open_extents.items():
            sizes.setdefault(name, set()).add(shape[axis])
    known = {name: found.pop() for name, found in sizes.items() if len(found) == 1}
    return Numbers(known, place)


def opened(
    names: tuple[str, ...], make: Callable[[Mapping[str, int]], tuple[IRModule, dict[str, Array]]]
) -> tuple[IRModule, dict[str, Array]]:
    """Give the network that `make` makes for every number of the extents `names`, and its weights.

    It is made once, so what cannot be imported is told at once.
    """
    _, weights = make(dict.fromkeys(names, _TRIAL))
    return OpenModule(names, lambda sizes: with_weights(*make(sizes), weights)), weights


class Numbers:
    """What each number of the graph becomes."""

    def __init__(self, sizes: Mapping[str, int], place: str) -> None:
        self.sizes = {stand_in(name): size for name, size in sizes.items()}
        if len(self.sizes) < len(sizes):
            raise ModelError(
                place, "two of the names cannot be told apart", "Give the open extents other names."
            )

    def extent(self, value: int) -> int:
        factor = 1
        for prime, size in self.sizes.items():
            while value and value % prime == 0:
                value, factor = value // prime, factor * size
        return value * factor

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(map(self.extent, shape))

    def attribute(self, value: Any) -> Any:
        if isinstance(value, (tuple, list)):
            return type(value)(map(self.attribute, value))
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return self.extent(value) if is_number else value

    def means(self, data: np.ndarray) -> bool:
        """Say whether a constant has an open extent, or is one, or the share of one element of it,
        or may be a shape with one."""
        if self.shape(data.shape) != data.shape:
            return True
        if data.ndim == 1 and data.dtype.kind in "iu" and data.size <= MAX_RANK:
            values = tuple(map(int, data))
            return self.shape(values) != values
        known = [x for prime in self.sizes for x in (prime, 1 / prime)]
        return data.size == 1 and any(
            np.isclose(float(data.ravel()[0]), x, rtol=1e-6) for x in known
        )


def _closed(
    function: Function, shapes: Sequence[tuple[int, ...]], numbers: Numbers, place: str
) -> Function:
    new: dict[Expr, Expr] = {}
    for p, shape in zip(function.params, shapes, strict=True):
        if shape != p.shape and not p.open_extents:
            raise ModelError(
                f"{place}: {p.name_hint}", "its shape follows from an open extent",
                "A weight has one shape; give its own.",
            )  # fmt: skip
        new[p] = Var(p.name_hint, TensorType(shape, p.dtype)) if p.open_extents else p
    for node in post_order(function.body, _read):
        if isinstance(node, Constant) and numbers.means(node.data):
            raise ModelError(
                f"{place}: a constant of shape {list(node.shape)}", "it was made of an open extent",
                _WAY_OUT,
            )  # fmt: skip
        if node not in new:
            new[node] = adopt(_rebuilt(node, new, numbers, place), layers_of(node))
    params = [new[p] for p in function.params]
    kept = [p for p in params if isinstance(p, Var)]
    return Function(kept, new[function.body], attrs=function.attrs)


def _read(node: Expr) -> Sequence[Expr]:
    """What `node` is made of again."""
    again = made_again(node)
    return children(node) if again is None else again.parts


def _rebuilt(node: Expr, new: Mapping[Expr, Expr], numbers: Numbers, place: str) -> Expr:
    args = tuple(new[c] for c in _read(node))
    again = node if isinstance(node, Deferred) else made_again(node)
    if again is not None:
        later = again.with_numbers(args, numbers.extent)
        try:
            return advanced(later)
        except ModelError as error:
            if again is node:
                return later.failed(error)  # which counts if the network comes there
            raise ModelError(f"{place}: {error.place}", error.reason, _WAY_OUT) from None
    if not isinstance(node, Call):
        return with_children(node, args)
    attrs = {name: numbers.attribute(value) for name, value in node.attrs.items()}
    try:
        return Call(node.op, args, attrs)
    except ModelError as error:
        raise ModelError(f"{place}: {error.place}", error.reason, _WAY_OUT) from None
