"""`ConfigSpace`: the product of a template's knobs; its members by index, by value, as arrays.

In: `define_split`, `define_knob`, ... called by a template.  Out: `get(index)` for one candidate,
`decode(indices)` for a population, `symbolic()` for a trace.  Read next: `sketch.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError
from tilewright.schedule.space.config import (
    Config,
    ConfigEntity,
    SymbolicConfig,
    config_json,
    handles,
    no_knob,
    values_text,
)
from tilewright.schedule.space.decision import Assignment, Number, Size, evaluate
from tilewright.schedule.space.entities import (
    AnnotateEntity,
    Entity,
    OtherOptionEntity,
    ReorderEntity,
    SplitEntity,
    entity_from_json,
)
from tilewright.schedule.space.policies import (
    AnnotateSpace,
    Knob,
    OtherOptionSpace,
    ReorderSpace,
    SplitSpace,
    VirtualAxis,
)
from tilewright.schedule.space.trace import trace

__all__ = [
    "AnnotateEntity", "AnnotateSpace", "Config", "ConfigEntity", "ConfigSpace",
    "FallbackConfigEntity", "OtherOptionEntity", "OtherOptionSpace", "ReorderEntity",
    "ReorderSpace", "SplitEntity", "SplitSpace", "SymbolicConfig", "VirtualAxis",
]  # fmt: skip

Indices = npt.NDArray[np.int64]
_MAX_INDEX = 2**63 - 1
_MOST_COUNTED = 1 << 26  # members that `len` looks at, some tens of seconds
TRIES = 64  # candidates looked at, per candidate wanted, before a filter counts as too strict


class ConfigSpace(Config):
    """The product of knobs.  An index is a mixed-radix number whose first knob varies fastest.

    A template fills it in one run, in which `cfg[name]` is the first entity of each knob.
    `space_map` holds the knobs by name.  Nothing here lists the whole space.
    """

    def __init__(self) -> None:
        super().__init__()
        self.space_map: dict[str, Knob] = {}
        self._filters: list[Callable[[Any], Any]] = []
        self._counted: tuple[tuple[int, int], int] | None = None  # for these sizes: the valid ones

    # What the template calls.

    @door(SpaceError)
    def define_split(self, name: str, axis: Any, policy: str = "factors", **options: Any) -> Any:
        knob = SplitSpace(name, axis, policy, **options)
        self._add(knob)
        return handles(name, knob.num_output)

    @door(SpaceError)
    def define_knob(self, name: str, candidate: Iterable[Any], absent: Any = None) -> None:
        self._add(OtherOptionSpace(name, candidate, absent))

    @door(SpaceError)
    def define_reorder(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> Any:
        self._add(ReorderSpace(name, axes, policy, **options))
        return handles(name, len(axes))

    @door(SpaceError)
    def define_annotate(self, name: str, axes: Sequence[Any], policy: str, **options: Any) -> Any:
        self._add(AnnotateSpace(name, axes, policy, **options))
        return handles(name, len(axes))

    @door(SpaceError)
    def multi_filter(self, filter: Callable[[Any], Any]) -> None:
        """Keep the configurations for which `filter(cfg)` holds.

        It is traced over the candidates that are looked at.  `len` counts those that are left, once
        and by looking at each; `range_length` stays the product of the knobs.
        """
        self._filters.append(filter)

    @door(SpaceError)
    def add_flop(self, flop: float) -> None:
        self.flop += flop

    def __getitem__(self, name: str) -> Any:
        if name in self.space_map:
            return self.space_map[name][0]
        raise no_knob(name, self.space_map)

    def __contains__(self, name: str) -> bool:
        return name in self.space_map

    # Sizes and indices.

    @property
    def dims(self) -> list[int]:
        """Entities of each knob."""
        return [len(knob) for knob in self.space_map.values()]

    @property
    def range_length(self) -> int:
        """The product of `dims`, 1 for a space without knobs."""
        return math.prod(self.dims)

    def __len__(self) -> int:
        """How many configurations there are.  Raises SpaceError for more than can be counted."""
        if not self._filters:
            return self.check_countable()
        known = self._counted
        if known is None or known[0] != (self.range_length, len(self._filters)):
            if self.range_length > _MOST_COUNTED:
                raise SpaceError(
                    "len(space)", f"a filter would have to look at {self.range_length} members",
                    "range_length is their number before multi_filter.",
                )  # fmt: skip
            valid = self.subrange_length(0, self.range_length)
            known = self._counted = (self.range_length, len(self._filters)), valid
        return known[1]

    def point2knob(self, point: int) -> list[int]:
        """Index -> position of each knob."""
        self._check_index(point)
        positions = []
        for size in self.dims:
            point, position = divmod(point, size)
            positions.append(position)
        return positions

    def knob2point(self, knob: Iterable[int]) -> int:
        """Position of each knob -> index."""
        positions, dims = list(knob), self.dims
        if len(positions) != len(dims) or any(
            not 0 <= p < size for p, size in zip(positions, dims, strict=True)
        ):
            raise SpaceError(
                f"knob2point({positions})", "not one position per knob", f"The sizes are {dims}."
            )
        return sum(p * stride for p, stride in zip(positions, self._strides(), strict=True))

    @door(SpaceError)
    def get(self, index: int) -> ConfigEntity:
        """The configuration at `index`."""
        positions = self.point2knob(index)
        knobs = self.space_map.items()
        if self._filters and not self.is_index_valid(index):
            raise SpaceError(
                f"get({index})", "multi_filter leaves this configuration out",
                "sample_ints(n) and get_next_index(i) give those that are left.",
            )  # fmt: skip
        return ConfigEntity(index, {n: k[p] for (n, k), p in zip(knobs, positions, strict=True)})

    @door(SpaceError)
    def index_of(self, config: ConfigEntity | Mapping[str, Any]) -> int:
        """The index of a configuration given by values, such as {"tile_f": [-1, 1, 64, 1], ...}.

        Raises SpaceError where a knob is missing or has no such entity.
        """
        given = dict(config.items())
        positions = []
        for name, knob in self.space_map.items():
            given.setdefault(name, knob.absent)
            if given[name] is None:
                del given[name]
                raise no_knob(name, given)
            try:
                position = knob.position(entity_of(knob, given[name], f"index_of({name})"))
            except (TypeError, ValueError, ArithmeticError, RecursionError):
                position = -1  # such as a number for a split
            if position < 0:
                place = f"index_of({name}={given[name]!r:.200})"
                raise SpaceError(place, "the knob has no such entity", f"It is {knob}.")
            positions.append(position)
        return self.knob2point(positions)

    # A population as arrays.

    def symbolic(self) -> SymbolicConfig:
        """The configuration to trace a template with; `decode` assigns its decisions."""
        return SymbolicConfig(self.space_map)

    def positions(self, indices: Indices) -> Indices:
        """Indices [n] -> position of each knob, int64 [knobs, n]."""
        rest = self._check_indices(indices)
        out = np.empty((len(self.space_map), len(rest)), dtype=np.int64)
        for row, size in zip(out, self.dims, strict=True):
            quotient = rest // size
            np.subtract(rest, quotient * size, out=row)
            rest = quotient
        return out

    def indices(self, positions: Indices) -> Indices:
        """Position of each knob, [knobs, n] -> indices [n]."""
        total = np.zeros(positions.shape[1], dtype=np.int64)
        for row, stride in zip(positions, self._strides(), strict=True):
            total += row * stride
        return total

    def decode(self, indices: Indices | int) -> Assignment:
        """Indices [n] -> decision name -> int64 vector [n]; one int -> ints.

        A split decides `name.0`, `name.1`, ... (sizes, outermost first); a knob of ints its value,
        under its own name; any other knob the position of its entity.
        """
        if isinstance(indices, (int, np.integer)):
            return self.decode(np.array([indices], dtype=np.int64)).row(0)
        positions, knobs = self.positions(indices), self.space_map.values()
        names = [name for knob in knobs for name in knob.decisions]
        values = np.empty((len(names), positions.shape[1]), dtype=np.int64)
        rows = iter(values)  # one block: many small arrays cost more in page faults than in copying
        for knob, position in zip(knobs, positions, strict=True):
            for column in knob.columns:
                column.take(position, out=next(rows), mode="clip")
        return Assignment(zip(names, values, strict=True))

    def encode(self, assignment: Mapping[str, Number]) -> Indices:
        """Inverse of `decode`: int64 [n].  Raises SpaceError for values that are no entity."""
        rows = Assignment(assignment).rows
        positions = np.empty((len(self.space_map), rows), dtype=np.int64)
        for row, knob in zip(positions, self.space_map.values(), strict=True):
            row[:] = _lookup(knob, assignment, rows)
        return self.indices(positions)

    def valid_mask(self, indices: Indices) -> npt.NDArray[np.bool_]:
        """Tell which of `indices` [n] pass every `multi_filter`."""
        mask = np.ones(len(indices), dtype=bool)
        if not self._filters or not len(indices):
            return mask
        assignment, config = self.decode(indices), self.symbolic()
        for predicate in self._filters:

            def build(predicate: Callable[[Any], Any] = predicate) -> Size:
                return predicate(config)  # type: ignore[no-any-return]

            for part in trace(build, assignment, len(indices), max_parts=len(indices)):
                holds = False if part.error or part.value is None else part.value
                with np.errstate(divide="ignore"):  # rows of other parts may divide by zero
                    values = evaluate(holds, assignment)
                mask[part.rows] &= (
                    values[part.rows] != 0 if isinstance(values, np.ndarray) else bool(values)
                )
        return mask

    def sample(self, n: int, rng: np.random.Generator) -> Indices:
        """Up to `n` different valid indices in random order, int64.

        Fewer where the space has no more, or where a filter refuses nearly everything looked at.
        """
        total = self.check_countable()
        if not self._filters or n < 1:
            return rng.choice(total, min(max(n, 0), total), replace=False)
        budget = max(n * TRIES, 1 << 16)
        if total <= budget:
            every = rng.permutation(total)
            return every[self.valid_mask(every)][:n]
        found = np.empty(0, dtype=np.int64)
        while budget > 0 and len(found) < n:
            drawn = rng.choice(total, max(2 * (n - len(found)), 256), replace=False)
            budget -= len(drawn)
            drawn = drawn[self.valid_mask(drawn)]
            found = np.concatenate([found, drawn[~np.isin(drawn, found)]])
        return found[:n]

    def walk(self, points: Indices, rng: np.random.Generator) -> Indices:
        """For each index a valid one that differs in one knob; itself where none was found."""
        points = self._check_indices(points)
        dims, strides = np.array(self.dims), np.array(self._strides())
        movable = np.flatnonzero(dims > 1)
        result = points.copy()
        pending = np.arange(len(points)) if len(movable) else np.empty(0, dtype=np.int64)
        for _ in range(TRIES):
            if not len(pending):
                break
            knob = movable[rng.integers(len(movable), size=len(pending))]
            start = points[pending]
            old = start // strides[knob] % dims[knob]
            new = (old + rng.integers(1, dims[knob])) % dims[knob]
            moved = start + (new - old) * strides[knob]
            valid = self.valid_mask(moved)
            result[pending[valid]] = moved[valid]
            pending = pending[~valid]
        return result

    # The same for one index at a time.

    @door(SpaceError)
    def is_index_valid(self, index: int) -> bool:
        """Tell whether `index` is in range and passes every filter."""
        return 0 <= index < self.range_length and bool(self.valid_mask(np.array([index]))[0])

    def subrange_length(self, start: int, end: int) -> int:
        """Count the valid indices of [start, end); looks at each where a filter is set."""
        self._check_range(start, end, empty=True)
        if not self._filters:
            return end - start
        return sum(len(chunk) for chunk in self._valid_chunks(start, end))

    def __str__(self) -> str:
        lines = [f"  {i:2d} {knob.name}: {knob}" for i, knob in enumerate(self.space_map.values())]
        return "\n".join([f"ConfigSpace (len={self.range_length}, space_map=", *lines, ")"])

    def __repr__(self) -> str:
        knobs = ", ".join(f"{name}:{len(knob)}" for name, knob in self.space_map.items())
        return f"ConfigSpace({self.range_length} configurations; {knobs or 'no knobs'})"

    def _add(self, knob: Knob) -> None:
        known = self.space_map.get(knob.name)
        if known is not None and known.same_as(knob):
            return
        if known is not None and not known.splits_like(knob):
            raise SpaceError(
                f"define({knob.name})", f"the name stands for {known} already", "Use another name."
            )
        taken = {d for k in self.space_map.values() if k is not known for d in k.decisions}
        if not taken.isdisjoint(knob.decisions):
            raise SpaceError(
                f"define({knob.name})", "its decisions have the names of another knob's",
                "Use a name without a dot.",
            )  # fmt: skip
        self.space_map[knob.name] = knob  # the same loops by other options: the last ones count
        self._counted = None

    def _strides(self) -> list[int]:
        strides, stride = [], 1
        for size in self.dims:
            strides.append(stride)
            stride *= size
        return strides

    def _valid_chunks(
        self, start: int, stop: int, size: int = 1 << 14, backwards: bool = False
    ) -> Iterator[Indices]:
        """The valid indices of [start, stop), so many looked at at once."""
        begins = range(start, stop, size)
        for begin in reversed(begins) if backwards else begins:
            chunk = np.arange(begin, min(begin + size, stop), dtype=np.int64)
            valid = chunk[self.valid_mask(chunk)]
            yield valid[::-1] if backwards else valid

    def check_countable(self) -> int:
        """`range_length`; SpaceError where arrays cannot hold the indices."""
        if self.range_length <= _MAX_INDEX:
            return self.range_length
        raise SpaceError(
            "ConfigSpace", f"{self.range_length} configurations do not fit 64-bit indices",
            "Limit the splits with max_factor= or filter=.",
        )  # fmt: skip

    def _check_indices(self, indices: Indices) -> Indices:
        total = self.check_countable()
        indices = np.asarray(indices, dtype=np.int64)
        if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < total:
            raise SpaceError("ConfigSpace", f"an index is outside [0, {total})")
        return indices

    def _check_index(self, index: int) -> None:
        if not 0 <= index < self.range_length:
            raise SpaceError(f"ConfigSpace.get({index})", f"not in [0, {self.range_length})")

    def _check_range(self, start: int, end: int, empty: bool = False) -> None:
        if not 0 <= start <= end <= self.range_length or (start == end and not empty):
            raise SpaceError(
                f"range [{start}, {end})", f"empty or outside [0, {self.range_length})"
            )


class FallbackConfigEntity(ConfigSpace):
    """A usable configuration for an operator nobody tuned: the template defines, defaults are set.

    `cfg[name]` is the first entity until `cfg[name] = entity` or a fallback sets another.
    """

    is_fallback = True

    def __init__(self) -> None:
        super().__init__()
        self._chosen: dict[str, Entity] = {}

    def __getitem__(self, name: str) -> Any:
        return self._chosen[name] if name in self._chosen else super().__getitem__(name)

    def __setitem__(self, name: str, entity: Entity) -> None:
        self._chosen[name] = entity

    def items(self) -> Iterable[tuple[str, Entity]]:
        return {name: self[name] for name in (*self.space_map, *self._chosen)}.items()

    def to_json_dict(self) -> dict[str, Any]:
        return config_json(None, self.code_hash, self.items())

    def __repr__(self) -> str:
        return f"{values_text(self.items())},,{self.code_hash},None"

    __str__ = __repr__


def entity_of(knob: Knob, value: Any, place: str) -> Any:
    """`value` where it is an entity, or else the entity that a record tells by it."""
    if isinstance(value, Entity):
        return value
    return entity_from_json(type(knob[0]).kind, value, place)


def _lookup(knob: Knob, assignment: Mapping[str, Number], rows: int) -> Indices:
    """Position of each candidate's entity in `knob`, int64 [rows]."""
    missing = [name for name in knob.decisions if name not in assignment]
    if missing:
        raise SpaceError(f"encode({knob.name})", f"no value for {', '.join(missing)}")
    code = np.zeros(rows, dtype=np.int64)
    own = np.zeros(len(knob), dtype=np.int64)
    known = np.ones(rows, dtype=bool)
    for name, column in zip(knob.decisions, knob.columns, strict=True):
        levels = np.unique(column)
        digit = np.minimum(np.searchsorted(levels, assignment[name]), len(levels) - 1)
        known &= levels[digit] == assignment[name]
        code, own = code * len(levels) + digit, own * len(levels) + np.searchsorted(levels, column)
    order = np.argsort(own, kind="stable")
    place = np.minimum(np.searchsorted(own[order], code), len(own) - 1)
    known &= own[order][place] == code
    if not known.all():
        row = int(np.flatnonzero(~known)[0])
        values = [int(np.broadcast_to(assignment[name], rows)[row]) for name in knob.decisions]
        raise SpaceError(
            f"encode({knob.name})", f"it has no entity {values}", f"It is {knob}."
        )  # fmt: skip
    return order[place]
