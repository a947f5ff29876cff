"""What a template sees as `cfg`: one concrete configuration, or all of a space at once.

In: entities by knob name.  Out: `cfg[name]`, and `define_*` calls that hand out axes.
Read next: `config_space.py`, whose `ConfigSpace` collects those calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base import plugins
from tilewright.base.errors import SpaceError
from tilewright.schedule.space.entities import (
    Entity,
    SplitEntity,
    entity_from_json,
)
from tilewright.schedule.space.policies import Knob, VirtualAxis
from tilewright.schedule.space.trace import Refused


class Config:
    """What a template sees as `cfg`.  Here every `define_*` only hands out axes: nothing is open.

    index: position in the space, None where it has none; errors: see `raise_error`
    """

    index: int | None = None
    is_fallback = False
    code_hash: str | None = None
    cost: float | None = None
    flop = 0.0

    def __init__(self) -> None:
        self.errors: list[str] = []

    def __getitem__(self, name: str) -> Any:
        raise SpaceError(f"config[{name!r}]", "this configuration has no knobs")

    if not TYPE_CHECKING:  # whose attributes are those that are written here

        def __getattr__(self, name: str) -> Any:
            return plugins.member(self, name)

    @staticmethod
    def axis(var: Any) -> VirtualAxis:
        """An axis without a schedule, from a length or another axis."""
        return VirtualAxis(var)

    reduce_axis = axis

    def define_split(
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
    ) -> list[VirtualAxis]:
        """Open the tiling of `axis` into `num_outputs` loops; returns a handle for each.

        policy: "factors" (every divisor), "power2", "verbose" (both), "candidate" (as listed)
        max_factor: limit of every size but the outermost; filter: keeps entities it is true for
        no_tail: exact tilings only, the default for "factors"
        """
        return handles(name, num_outputs or (len(candidate[0]) if candidate else 0))

    def define_knob(self, name: str, candidate: Iterable[Any], absent: Any = None) -> None:
        """Open a choice among any values; `cfg[name].val` reads it.

        absent: the value that configurations mean which were stored before the knob was there;
                default: such configurations are not of this space
        """

    def define_reorder(
        self,
        name: str,
        axes: Sequence[Any],
        policy: str,
        *,
        candidate: Sequence[Sequence[Any]] | None = None,
        interval: tuple[int, int] | None = None,
        spatial: Sequence[Sequence[Any]] = (),
        reduce: Sequence[Sequence[Any]] = (),
    ) -> list[VirtualAxis]:
        """Open the order of `axes`.

        policy: "identity", "all", "interval_all" (only positions `interval` = (begin, end) move),
        "candidate" (orders listed as axes), "interleave" (`spatial` chains without their last axes
        merged; then those and the `reduce` chains), "interleave_cuda" (the reduce chains between)
        """
        return handles(name, len(axes))

    def define_annotate(
        self, name: str, axes: Sequence[Any], policy: str, *, num_anchor: int | None = None
    ) -> list[VirtualAxis]:
        """Open the annotation of `axes`.

        policy: "bind_gpu", "bind_gpu_virtual" (thread bindings, extra outer axes fused),
        "locate_cache" (choose `num_anchor` of the axes), or words of none, unroll, vec and try
        joined by "_" ("try" adds "none"), at most one axis being vectorised
        """
        return handles(name, len(axes))

    def multi_filter(self, filter: Callable[[Any], Any]) -> None:
        """Keep the configurations for which `filter(cfg)` holds."""

    def add_flop(self, flop: float) -> None:
        """Count `flop` operations where they cannot be derived from the computation."""

    def raise_error(self, message: str) -> None:
        """Mark this configuration invalid."""
        self.errors.append(message)

    def valid(self) -> bool:
        return not self.errors


class ConfigEntity(Config):
    """One concrete configuration: an entity per knob.  Equal by its values, whatever its index."""

    def __init__(
        self, index: int | None, entities: Mapping[str, Entity], code_hash: str | None = None
    ) -> None:
        super().__init__()
        self.index, self.code_hash = index, code_hash
        self._entities = dict(entities)

    def __getitem__(self, name: str) -> Any:
        if name in self._entities:
            return self._entities[name]
        raise no_knob(name, self._entities)

    def __contains__(self, name: str) -> bool:
        return name in self._entities

    def items(self) -> Iterable[tuple[str, Entity]]:
        return self._entities.items()

    def to_json_dict(self) -> dict[str, Any]:
        """Knobs by value, as [name, kind, value] each; see `from_json_dict`."""
        return config_json(self.index, self.code_hash, self.items())

    @staticmethod
    def from_json_dict(data: Mapping[str, Any]) -> ConfigEntity:
        """The configuration of a record.  Raises SpaceError for data of another form."""
        place = "ConfigEntity.from_json_dict"
        try:
            rows = [(name, kind, value) for name, kind, value in data["entity"]]
        except (KeyError, TypeError, ValueError):
            raise SpaceError(
                place, f"cannot read {data!r}",
                "Expected {'index': i, 'entity': [[name, kind, value], ...]}.",
            ) from None  # fmt: skip
        entities = {name: entity_from_json(kind, value, place) for name, kind, value in rows}
        return ConfigEntity(data.get("index"), entities, data.get("code_hash"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigEntity) and self._entities == other._entities

    def __hash__(self) -> int:
        return hash(tuple(self._entities.items()))

    def __repr__(self) -> str:
        return f"{values_text(self.items())},,{self.code_hash},{self.index}"


class SymbolicConfig(Config):
    """All configurations of a space at once: sizes and integer knobs are `Choice` expressions.

    Anything else (an order, an annotation, a knob of strings) asks the active tracer when read.
    """

    def __init__(self, knobs: Mapping[str, Knob]) -> None:
        super().__init__()
        self._knobs = knobs

    def __getitem__(self, name: str) -> Any:
        if name not in self._knobs:
            raise no_knob(name, self._knobs)
        knob = self._knobs[name]
        return knob[0] if len(knob) == 1 else knob.open_entity()

    def raise_error(self, message: str) -> None:
        """Refuse the candidates being traced."""
        raise Refused("config", message)

    def __repr__(self) -> str:
        return f"SymbolicConfig({', '.join(self._knobs)})"


def handles(name: str, count: int) -> list[VirtualAxis]:
    """Axes that stand for the `count` outputs of a knob."""
    return [VirtualAxis(-1, f"{name}.{i}") for i in range(count)]


def no_knob(name: str, known: Iterable[str]) -> SpaceError:
    names = ", ".join(known) or "none"
    return SpaceError(f"config[{name!r}]", "no knob of that name", f"There are: {names}.")


def _copy(value: Any) -> Any:
    return list(value) if isinstance(value, list) else value


def values_text(items: Iterable[tuple[str, Entity]]) -> str:
    """The knobs by value, as a list of pairs."""
    return str([(name, entity.value) for name, entity in items])


def config_json(
    index: int | None, code_hash: str | None, items: Iterable[tuple[str, Entity]]
) -> dict[str, Any]:
    """The knobs by value: what `ConfigEntity.from_json_dict` reads."""
    entities = [[name, entity.kind, _copy(entity.value)] for name, entity in items]
    return {"index": index, "code_hash": code_hash, "entity": entities}
