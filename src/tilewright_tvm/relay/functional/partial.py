"""What can be told of the type of a value that waits: its rank, its element type, some extents.

In: a node whose type values decide, or extents that are still open.  Out: a type in which
`relay.Any()` stands for every extent that is not the same in all trials.  Users are shown it
(`Expr.checked_type`, `relay.transform.InferType`); nothing is computed with it, so it is found by
trying: the function that made the node is called on a few numbers where values decide, on equal
extents where open ones have to fit.
Read next: `later.py`, `graph/extents.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice, product

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.deferred import Deferred, NotYet
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    children,
    post_order,
)
from tilewright.graph.extents import Any, is_unnamed, known_part, stand_in

_FILLS = (0, 1, 2, 3)  # of what decides: extents, places, steps, how many there are
_LENGTHS = (3, 4)  # of what decides and is itself of an open length
_MOST_TRIALS, _MOST_ELEMENTS = 64, 4096
_UNKNOWN = Any()

Make = Callable[[Sequence[Expr]], Expr]


def told(node: Expr) -> Type:
    """The type of a node that waits, as far as it is the same whatever decides it.

    Raises NotYet where not even its rank is.
    """
    types: dict[Expr, Type] = {}
    for step in post_order(node, _what_it_waits_for):
        found = _told(step, types) if step.waits else step.known_type
        if found is None:
            raise NotYet(node)
        types[step] = found
    return _shown(types[node], _names(node))


def _what_it_waits_for(node: Expr) -> Sequence[Expr]:
    return children(node) if node.waits else ()


def _told(node: Expr, types: Mapping[Expr, Type]) -> Type | None:
    if isinstance(node, Tuple):
        return TupleType(tuple(types[f] for f in node.fields))
    if isinstance(node, TupleGetItem):
        held = types[node.tuple_value]
        return held.fields[node.index] if isinstance(held, TupleType) else None
    if isinstance(node, Deferred):
        decides = [k for k in node.needs if not isinstance(node.parts[k], Constant)]
        return _tried(node.make, [types[p] for p in node.parts], node.parts, decides)
    if isinstance(node, Call):
        return _tried(node.with_parts, [types[a] for a in node.args], node.args, ())
    return None


def _tried(
    make: Make, kinds: Sequence[Type], parts: Sequence[Expr], decides: Sequence[int]
) -> Type | None:
    """The type of what `make` gives of such parts; None where no trial gives one."""
    given = [p if not p.waits else _stand_for(k) for p, k in zip(parts, kinds, strict=True)]
    if not decides:
        trials = chain([given], _with_equal_extents(given, kinds))
        return next((made for t in trials if (made := _made(make, t)) is not None), None)
    found = []
    for values in islice(_numbers(kinds, decides), _MOST_TRIALS):
        trial = list(given)
        for k, value in zip(decides, values, strict=True):
            trial[k] = Constant(value)
        if (made := _made(make, trial)) is not None:
            found.append(made)
    return _common(found) if found else None


def _made(make: Make, parts: Sequence[Expr]) -> Type | None:
    try:
        made = make(parts)
    except (ModelError, ArithmeticError, LookupError, ValueError):  # of numbers that nobody gave
        return None
    if not made.waits:
        return made.known_type
    if not isinstance(made, Deferred) or not made.asks or any(p.waits for p in made.parts):
        return None
    return _told(made, {p: p.known_type for p in made.parts})  # another part decides, too


def _stand_for(kind: Type) -> Expr:
    if isinstance(kind, TupleType):
        return Tuple([_stand_for(f) for f in kind.fields])
    return Var("waits", kind)


def _numbers(kinds: Sequence[Type], decides: Sequence[int]) -> Iterator[tuple[np.ndarray, ...]]:
    """Arrays for the parts that decide, of the lengths and numbers that such parts often have."""
    wanted = [kinds[k] for k in decides]
    if not all(isinstance(w, TensorType) for w in wanted):
        return
    around = {
        n for k in kinds if isinstance(k, TensorType) for n in k.shape if n < _LENGTHS[-1] ** 4
    }
    fills: list[Sequence[int]] = [(n,) for n in dict.fromkeys((*_FILLS, *sorted(around)))]
    if len(decides) == 1:
        fills.append((-1, 1))  # the rest, and extents of 1
    opened = any(known_part(n) != n for w in wanted for n in w.shape)  # type: ignore[union-attr]
    for length in _LENGTHS if opened else _LENGTHS[:1]:
        shapes = [
            tuple(length if known_part(n) != n else n for n in w.shape)  # type: ignore[union-attr]
            for w in wanted
        ]
        if sum(int(np.prod(s)) for s in shapes) > _MOST_ELEMENTS:
            return
        for chosen in product(fills, repeat=len(decides)):
            yield tuple(
                _filled(s, c).astype(w.dtype.storage)  # type: ignore[union-attr]
                for s, c, w in zip(shapes, chosen, wanted, strict=True)
            )


def _filled(shape: tuple[int, ...], numbers: Sequence[int]) -> np.ndarray:
    """`numbers` and, as often as it takes, the last of them."""
    made = np.full(shape, numbers[-1])
    made.ravel()[: len(numbers)] = numbers[: made.size]
    return made


def _with_equal_extents(parts: Sequence[Expr], kinds: Sequence[Type]) -> Iterator[list[Expr]]:
    """The parts with one open extent, or two, as long as others are."""
    shapes = [k.shape for k in kinds if isinstance(k, TensorType)]
    if len(shapes) < len(kinds):
        return
    extents = list(dict.fromkeys(n for shape in shapes for n in shape))
    open_ = [n for n in extents if known_part(n) == 1 and n != 1]
    swaps = [(o, n) for o in open_ for n in extents if o != n]
    for chosen in chain(((s,) for s in swaps), islice(combinations(swaps, 2), _MOST_TRIALS)):
        instead = dict(chosen)
        yield [
            Var("waits", TensorType(tuple(instead.get(n, n) for n in k.shape), k.dtype))
            for k in kinds
            if isinstance(k, TensorType)
        ]


def _common(types: Sequence[Type]) -> Type | None:
    """What all have in common; of one trial nothing but the rank is known."""
    first = types[0]
    if isinstance(first, TupleType):
        columns = [t.fields for t in types if isinstance(t, TupleType)]
        if len(columns) < len(types) or len({len(c) for c in columns}) > 1:
            return None
        fields = [_common(column) for column in zip(*columns, strict=True)]
        known = tuple(f for f in fields if f is not None)
        return TupleType(known) if len(known) == len(fields) else None
    tensors = [t for t in types if isinstance(t, TensorType)]
    if len(tensors) < len(types) or len({(len(t.shape), t.dtype) for t in tensors}) > 1:
        return None
    shape = (n.pop() if len(n) == 1 and len(tensors) > 1 else _UNKNOWN
             for n in map(set, zip(*(t.shape for t in tensors), strict=True)))  # fmt: skip
    return TensorType(tuple(shape), first.dtype)  # type: ignore[arg-type]


def _names(node: Expr) -> set[int]:
    """What stands for the extents to which users gave names."""
    opened = (v.open_extents.items() for v in _variables(node))
    return {stand_in(n) for axis, n in chain.from_iterable(opened) if not is_unnamed(n, axis)}


def _variables(node: Expr) -> Iterable[Var]:
    return (n for n in post_order(node) if isinstance(n, Var))


def _shown(kind: Type, named: set[int]) -> Type:
    """With `relay.Any()` for what is an open extent and no name, or arithmetic of open ones."""
    if isinstance(kind, TupleType):
        return TupleType(tuple(_shown(f, named) for f in kind.fields))
    shape = (n if known_part(n) == n or n in named else _UNKNOWN for n in kind.shape)
    return TensorType(tuple(shape), kind.dtype)  # type: ignore[arg-type]
