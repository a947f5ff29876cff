"""The knobs of a search space: which entities a policy offers, and in which order.

In: an axis or its length, a policy and its options.  Out: a `Knob`: entities by position, and the
columns of integers its decisions take.  Read next: `config_space.py`, the product of knobs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.schedule.space.decision import Choice, ceil_div, var
from tilewright.schedule.space.entities import (
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
)

Table = npt.NDArray[np.int64]
MAX_TABLE = 1_000_000  # entities of one knob
MAX_OUTPUTS = 64  # loops that an axis is split into


class VirtualAxis:
    """An axis without a schedule.  var: a length, an axis, or another VirtualAxis.

    length: -1 where it is not known yet
    """

    __slots__ = ("length", "name")

    def __init__(self, var: Any, name: str = "") -> None:
        self.length = axis_length(var)
        self.name = name or str(getattr(var, "name", "axis"))

    def __repr__(self) -> str:
        return f"vaxis({self.name}:{'?' if self.length < 0 else self.length})"


def axis_length(axis: Any) -> int:
    """The extent of an int, a `VirtualAxis`, or an axis of a schedule; -1 where not known yet."""
    if isinstance(axis, (int, np.integer)):
        return int(axis)
    places = (axis, "length"), (axis, "extent"), (getattr(axis, "dom", None), "extent")
    for owner, field in places:
        value = getattr(owner, field, None)
        if isinstance(value, (int, np.integer)):
            return int(value)
        if isinstance(value, Choice):
            return -1
    if any(hasattr(axis, field) for field in ("length", "extent", "dom")):
        return -1
    raise SpaceError(f"axis {axis!r}", "neither a length nor an axis", "Pass an int or an axis.")


LONGEST = 1 << 36  # of an axis whose divisors are looked for: a quarter of a million divisions


def factors(length: int) -> list[int]:
    """The divisors of `length`, ascending."""
    low = [d for d in range(1, math.isqrt(length) + 1) if length % d == 0]
    return low + [length // d for d in reversed(low) if d * d != length]


def powers_of_two(length: int) -> list[int]:
    """The powers of two up to `length`, ascending."""
    return [1 << i for i in range(length.bit_length())]


class Knob(ABC):
    """One dimension of a space: `len(knob)` entities by position, from the first to the last.

    decisions: names of the integers it decides
    columns:   int64 [len(decisions), len]: their values at each position
    absent:    the entity that configurations mean which do not have the knob; None: there are none
    """

    absent: Any = None
    name: str
    columns: Table
    decisions: tuple[str, ...]

    def __len__(self) -> int:
        return int(self.columns.shape[1])

    def __getitem__(self, position: int) -> Any:
        if not -len(self) <= position < len(self):
            raise IndexError(f"{self.name} has {len(self)} entities, not {position}")
        return self.entity(position % len(self))

    def __iter__(self) -> Iterator[Any]:
        return (self.entity(position) for position in range(len(self)))

    @abstractmethod
    def entity(self, position: int) -> Entity:
        """The entity at `position`, which is in range."""

    def open_entity(self) -> Entity:
        """The entity while a template is traced: expressions, or what the tracer answers."""
        return self.entity(int(var(self.name)))

    def position(self, entity: Entity) -> int:
        """Find where an equal entity first stands; -1 where there is none."""
        return next((i for i, mine in enumerate(self) if mine == entity), -1)

    @property
    def entities(self) -> list[Any]:
        return list(self)

    def same_as(self, other: Knob) -> bool:
        return repr(self) == repr(other) and np.array_equal(self.columns, other.columns)

    def splits_like(self, other: Knob) -> bool:
        """Tell whether both tile an axis of one length into as many loops."""
        return False

    def _check_size(self, place: str, way_out: str) -> None:
        if len(self) < 1:
            raise SpaceError(place, "no entity is left", way_out)


class SplitSpace(Knob):
    """Tilings of an axis of length `product` into `num_output` loops.

    Positions follow a depth-first walk over ascending factors, the innermost loop walked slowest;
    the outermost size is what the others leave, rounded up.
    """

    @door(SpaceError, "define_split")
    def __init__(
        self,
        name: str,
        axis: Any,
        policy: str = "factors",
        *,
        num_outputs: int = 0,
        max_factor: int = 1 << 31,
        filter: Callable[[SplitEntity], Any] | None = None,
        no_tail: bool | None = None,
        candidate: Sequence[Sequence[int]] | None = None,
    ) -> None:
        self.name, self.policy, self.product = name, policy, axis_length(axis)
        self.num_output = num_outputs or (len(candidate[0]) if candidate else 0)
        place = f"define_split({name}, {axis}, policy={policy})"
        if policy not in SPLIT_POLICIES:
            raise SpaceError(
                place, "unknown policy", f"Use one of {', '.join(SPLIT_POLICIES)}."
            )  # fmt: skip
        if self.num_output < 1:
            raise SpaceError(place, "num_outputs must be at least 1", "Try num_outputs=2.")
        if self.num_output > MAX_OUTPUTS:
            raise SpaceError(
                place, f"{self.num_output} loops are too many", f"Use at most {MAX_OUTPUTS}."
            )
        if policy == "candidate":
            inner = self._candidates(candidate, place)
        elif self.product < 1:
            raise SpaceError(
                place, "the extent of the axis is not known here",
                "Split an axis of the computation, pass its length, or use policy='candidate'.",
            )  # fmt: skip
        elif self.product > LONGEST:
            raise SpaceError(
                place, f"an axis of {self.product} is too long to list its divisors",
                f"Split axes of at most {LONGEST}, or use policy='candidate'.",
            )  # fmt: skip
        else:
            sizes = [f for f in SPLIT_POLICIES[policy](self.product) if f <= max_factor]
            exact = policy == "factors" if no_tail is None else no_tail
            if exact:
                sizes = [f for f in sizes if self.product % f == 0]
            inner = _tilings(self.product, sizes, self.num_output - 1, exact, place)
        self.columns = np.vstack([self._outermost(inner, candidate), inner])
        if filter is not None:
            kept = [i for i in range(len(self)) if filter(self.entity(i))]
            self.columns = np.ascontiguousarray(self.columns[:, kept])
        self._check_size(place, "Relax filter= or max_factor=.")
        self.decisions = tuple(f"{name}.{i}" for i in range(self.num_output))
        self.exact = bool((self.columns.prod(axis=0) == self.product).all())

    def _candidates(self, candidate: Sequence[Sequence[int]] | None, place: str) -> Table:
        if not candidate:
            raise SpaceError(place, "no candidate", "Pass candidate=[[-1, 8], [-1, 16]].")
        for row in candidate:
            if len(row) != self.num_output or any(size < 1 for size in row[1:]):
                raise SpaceError(
                    place, f"candidate {list(row)} is not {self.num_output} positive sizes",
                    "Only the outermost size may be -1, which means what is left.",
                )  # fmt: skip
        table = np.array([row[1:] for row in candidate], dtype=np.int64)
        return np.ascontiguousarray(table.reshape(len(candidate), self.num_output - 1).T)

    def _outermost(self, inner: Table, candidate: Sequence[Sequence[int]] | None) -> Table:
        if self.product > 0:
            tile = inner.prod(axis=0, dtype=np.int64)
            return np.asarray(ceil_div(np.full_like(tile, self.product), tile), dtype=np.int64)
        assert candidate is not None
        return np.array([row[0] for row in candidate], dtype=np.int64)

    def entity(self, position: int) -> SplitEntity:
        return SplitEntity(self.columns[:, position].tolist())

    def splits_like(self, other: Knob) -> bool:
        own = self.product, self.num_output
        return isinstance(other, SplitSpace) and own == (other.product, other.num_output)

    def open_entity(self) -> SplitEntity:
        sizes = [var(name) for name in self.decisions]
        if self.exact or self.product < 1:
            return SplitEntity(sizes)
        return SplitEntity([ceil_div(self.product, math.prod(sizes[1:])), *sizes[1:]])

    def position(self, entity: Entity) -> int:
        """Found by the inner sizes alone: the outermost may be -1."""
        size = getattr(entity, "size", ())
        if len(size) != self.num_output:
            return -1
        inner = np.array(size[1:], dtype=np.int64)[:, None]
        hits = np.flatnonzero((self.columns[1:] == inner).all(axis=0))
        return int(hits[0]) if len(hits) else -1

    def __repr__(self) -> str:
        return (
            f"Split(policy={self.policy}, product={self.product}, num_outputs={self.num_output}) "
            f"len={len(self)}"
        )


class _Listed(Knob):
    """A knob whose entities are a list; it decides the position itself."""

    values: list[Any]
    make: Callable[[Any], Entity]

    def _fill(self, values: Iterable[Any], place: str) -> None:
        self.values = list(values)
        self.decisions = (self.name,)
        self.columns = np.arange(len(self.values), dtype=np.int64)[None]
        self._check_size(place, "Give at least one candidate.")

    def entity(self, position: int) -> Entity:
        return type(self).make(self.values[position])

    def same_as(self, other: Knob) -> bool:
        return super().same_as(other) and self.values == getattr(other, "values", None)


class ReorderSpace(_Listed):
    """Orders of `axes`, as permutations of their positions."""

    make = ReorderEntity

    @door(SpaceError, "define_reorder")
    def __init__(
        self,
        name: str,
        axes: Sequence[Any],
        policy: str,
        *,
        candidate: Sequence[Sequence[Any]] | None = None,
        interval: tuple[int, int] | None = None,
        spatial: Sequence[Sequence[Any]] = (),
        reduce: Sequence[Sequence[Any]] = (),
    ) -> None:
        self.name, self.policy, self.num_output = name, policy, len(axes)
        place = f"define_reorder({name}, policy={policy})"

        def numbers(order: Sequence[Any]) -> list[int]:
            return [_find(axis, axes, place) for axis in order]

        orders: Iterable[Sequence[int]]
        if policy == "identity":
            orders = [range(len(axes))]
        elif policy in ("all", "interval_all"):
            begin, end = (0, len(axes)) if policy == "all" else _interval(interval, axes, place)
            if math.factorial(end - begin) > MAX_TABLE:
                raise SpaceError(
                    place, f"{end - begin} axes have more than {MAX_TABLE} orders",
                    "Permute a shorter interval with policy='interval_all'.",
                )  # fmt: skip
            tail = range(end, len(axes))
            orders = [(*range(begin), *p, *tail) for p in permutations(range(begin, end))]
        elif policy == "candidate":
            orders = [numbers(order) for order in candidate or ()]
        elif policy in ("interleave", "interleave_cuda"):
            chains, reductions = [numbers(c) for c in spatial], [numbers(c) for c in reduce]
            outer, inner = [c[:-1] for c in chains], [c[-1:] for c in chains]
            if policy == "interleave":
                orders = [_merge(outer) + _merge(inner + reductions)]
            else:
                orders = [_merge(outer) + _merge(reductions) + _merge(inner)]
        else:
            raise SpaceError(place, "unknown policy", f"Use one of {', '.join(REORDER_POLICIES)}.")
        self._fill((list(order) for order in orders), place)
        for order in self.values:
            if sorted(order) != list(range(len(axes))):
                raise SpaceError(
                    place, f"order {order} is not a permutation of {len(axes)} axes",
                    "Name every axis exactly once.",
                )  # fmt: skip

    def __repr__(self) -> str:
        return f"Reorder(policy={self.policy}) len={len(self)}"


class AnnotateSpace(_Listed):
    """Annotations of `axes`: thread bindings, cache anchors, or loop marks (`try_unroll_vec`)."""

    make = AnnotateEntity

    @door(SpaceError, "define_annotate")
    def __init__(
        self, name: str, axes: Sequence[Any], policy: str, *, num_anchor: int | None = None
    ) -> None:
        self.name, self.policy, self.num_output = name, policy, len(axes)
        place = f"define_annotate({name}, policy={policy})"
        values: Iterable[Sequence[str | int]]
        if policy in GPU_LEVELS:
            values = [_gpu_binding(len(axes), policy, place)]
        elif policy == "locate_cache":
            if num_anchor is None or not 0 < num_anchor <= len(axes):
                raise SpaceError(
                    place, f"num_anchor={num_anchor} for {len(axes)} axes",
                    f"Choose 1 to {len(axes)} anchors.",
                )  # fmt: skip
            values = combinations(range(len(axes)), num_anchor)
        else:
            values = _loop_marks(len(axes), policy, place)
        self._fill((list(v) for v in values), place)

    def __repr__(self) -> str:
        return f"Annotate(policy={self.policy}) len={len(self)}"


class OtherOptionSpace(_Listed):
    """A list of any values.  Ints are decided by value, anything else by position."""

    make = OtherOptionEntity

    def __init__(self, name: str, candidate: Iterable[Any], absent: Any = None) -> None:
        self.name = name
        self.absent = None if absent is None else OtherOptionEntity(absent)
        self._fill(candidate, f"define_knob({name})")
        self.by_value = all(type(v) is int for v in self.values)
        if self.by_value:
            self.columns = np.array([self.values], dtype=np.int64)

    def open_entity(self) -> Entity:
        if self.by_value:
            return OtherOptionEntity(var(self.name))
        return super().open_entity()

    def position(self, entity: Entity) -> int:
        wanted = getattr(entity, "val", None)
        exact = (i for i, v in enumerate(self.values) if type(v) is type(wanted) and v == wanted)
        plain = (i for i, v in enumerate(self.values) if _plain(v) == _plain(wanted))
        return next(exact, next(plain, -1))

    def __repr__(self) -> str:
        return f"OtherOption({self.values}) len={len(self)}"


SPLIT_POLICIES: dict[str, Callable[[int], list[int]]] = {
    "factors": factors,
    "power2": powers_of_two,
    "verbose": lambda length: sorted({*factors(length), *powers_of_two(length)}),
    "candidate": lambda length: [],
}
REORDER_POLICIES = (
    "identity", "all", "interval_all", "candidate", "interleave", "interleave_cuda",
)  # fmt: skip
# policy -> tags of each level of binding, outermost level first
GPU_LEVELS: dict[str, tuple[str, ...]] = {
    "bind_gpu": ("blockIdx.", "threadIdx."),
    "bind_gpu_virtual": ("blockIdx.", "vthread", "threadIdx."),
}
LOOP_MARKS = {"none": "none", "try": "none", "unroll": "unroll", "vec": "vec"}


def _tilings(length: int, sizes: list[int], slots: int, exact: bool, place: str) -> Table:
    """int64 [slots, count]: every choice of `slots` sizes whose product fits, innermost slowest."""
    table = np.empty((0, 1), dtype=np.int64)
    tile = np.ones(1, dtype=np.int64)
    new = np.array(sizes, dtype=np.int64)
    for _ in range(slots):
        if len(tile) * len(new) > MAX_TABLE * 16:
            raise _too_many(place)
        grown = (tile[:, None] * new).ravel()
        fits = np.flatnonzero(length % grown == 0 if exact else grown <= length)
        old, last = np.divmod(fits, max(len(new), 1))
        # a later slot varies faster and is an outer loop
        table, tile = np.vstack([new[last][None], table[:, old]]), grown[fits]
    if len(tile) > MAX_TABLE:
        raise _too_many(place)
    return table


def _too_many(place: str) -> SpaceError:
    return SpaceError(
        place, "the tilings are too many to list",
        "Use policy='power2', max_factor= or fewer outputs.",
    )  # fmt: skip


def _find(axis: Any, axes: Sequence[Any], place: str) -> int:
    """The position of `axis` in `axes`, by identity: axes need not compare as values."""
    for i, known in enumerate(axes):
        if known is axis:
            return i
    raise SpaceError(place, f"{axis} is not among the axes", f"They are {list(axes)}.")


def _interval(interval: tuple[int, int] | None, axes: Sequence[Any], place: str) -> tuple[int, int]:
    if interval is None or not 0 <= interval[0] < interval[1] <= len(axes):
        raise SpaceError(
            place, f"interval={interval} is not within {len(axes)} axes",
            "Pass interval=(begin, end).",
        )  # fmt: skip
    return interval


def _merge(chains: Sequence[Sequence[int]]) -> list[int]:
    """One order of all chains: next comes the chain with most left, the first among equals."""
    rest = [list(chain) for chain in chains]
    order: list[int] = []
    while any(rest):
        order.append(max(rest, key=len).pop(0))
    return order


def _gpu_binding(count: int, policy: str, place: str) -> list[str]:
    """One tag per axis: as many dimensions per level as fit, at most 3; the outermost are fused."""
    levels = GPU_LEVELS[policy]
    dims = min(count // len(levels), 3)
    if dims < 1:
        raise SpaceError(
            place, f"{count} axes cannot be bound", f"Pass at least {len(levels)} axes."
        )  # fmt: skip
    tags = [
        level + d if level.endswith(".") else level for level in levels for d in "zyx"[3 - dims :]
    ]
    return ["fuse"] * (count - len(tags)) + tags


def _loop_marks(count: int, policy: str, place: str) -> list[tuple[str, ...]]:
    """Every choice of one mark per axis with at most one `vec`."""
    words = policy.split("_")
    if any(word not in LOOP_MARKS for word in words):
        raise SpaceError(
            place, "unknown policy",
            f"Use {', '.join(GPU_LEVELS)}, locate_cache, or words of {'_'.join(LOOP_MARKS)}.",
        )  # fmt: skip
    marks = [LOOP_MARKS[word] for word in words]
    if len(marks) ** count > MAX_TABLE:
        raise SpaceError(
            place, f"{count} axes have more than {MAX_TABLE} annotations",
            "Annotate fewer axes.",
        )  # fmt: skip
    return [row for row in product(marks, repeat=count) if row.count("vec") <= 1]


def _plain(value: Any) -> Any:
    """`value` as a record gives it back: tuples become lists."""
    return [_plain(v) for v in value] if isinstance(value, (tuple, list)) else value
