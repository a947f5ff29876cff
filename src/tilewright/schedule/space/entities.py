"""One choice for one knob: the tiling, order, annotation or option that a template applies.

In: concrete values, or `Choice` expressions while a template is traced.  Out: calls of the public
schedule primitives.  Read next: `policies.py` (which entities a knob offers), `config_space.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import mul
from typing import Any

from tilewright.base.errors import SpaceError
from tilewright.ir.stmt import TAGS
from tilewright.schedule.space.decision import Size
from tilewright.schedule.space.trace import Refused
from tilewright.te.tensor import thread_axis

ANNOTATIONS = ("none", "vec", "unroll", *TAGS, "fuse")


class Entity(ABC):
    """Base of the four kinds.  kind: its name in records; `value`: what a record stores."""

    __slots__ = ()
    kind = ""

    @property
    @abstractmethod
    def value(self) -> Any:
        """What tells it from the other entities of its knob."""

    def feature(self) -> list[float]:
        """The numbers a cost model sees of it."""
        return [float(v) for v in self.value]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash((self.kind, repr(self)))

    def __repr__(self) -> str:
        return str(self.value)


class SplitEntity(Entity):
    """Sizes of the tiles, outermost first; the first is derived (-1: the length is unknown)."""

    __slots__ = ("size",)
    kind = "sp"

    def __init__(self, size: Iterable[Size]) -> None:
        self.size = list(size)

    @property
    def value(self) -> list[Size]:
        return self.size

    def apply(self, sch: Any, op: Any, axis: Any) -> list[Any]:
        """Split `axis` of `sch[op]` into len(size) axes, returned outermost first.

        Each split is by the product of all sizes inside it, so the outermost takes what is left.
        """
        outer = []
        for inner in range(1, len(self.size)):
            part, axis = sch[op].split(axis, factor=reduce(mul, self.size[inner:]))
            outer.append(part)
        return [*outer, axis]


class ReorderEntity(Entity):
    """A permutation: position i of the new order holds axis perm[i] of the old one."""

    __slots__ = ("perm",)
    kind = "re"

    def __init__(self, perm: Iterable[int]) -> None:
        self.perm = [int(p) for p in perm]

    @property
    def value(self) -> list[int]:
        return self.perm

    def apply(self, sch: Any, op: Any, axes: Sequence[Any]) -> list[Any]:
        """Reorder `axes` of `sch[op]`; returns them in their new order."""
        _check_axes("reorder", op, axes, len(self.perm))
        order = [axes[p] for p in self.perm]
        sch[op].reorder(*order)
        return order


class AnnotateEntity(Entity):
    """One annotation per axis, see `ANNOTATIONS`; for `locate_cache` the anchors' axis numbers."""

    __slots__ = ("anns",)
    kind = "an"

    def __init__(self, anns: Iterable[str | int]) -> None:
        self.anns = list(anns)

    @property
    def value(self) -> list[str | int]:
        return self.anns

    def feature(self) -> list[float]:
        """An anchor's number as it is; a named annotation one-hot over `ANNOTATIONS`."""
        row: list[float] = []
        for ann in self.anns:
            row += [float(ann == a) for a in ANNOTATIONS] if isinstance(ann, str) else [float(ann)]
        return row

    def apply(
        self,
        sch: Any,
        op: Any,
        axes: Sequence[Any],
        axis_lens: Sequence[Any] | None = None,
        max_unroll: int | None = None,
        vec_size: Iterable[int] | None = None,
        cfg: Any = None,
        source: Sequence[Sequence[Any]] | None = None,
    ) -> list[Any]:
        """Annotate `axes` of `sch[op]`; returns the axes that are left, fused ones merged.

        axis_lens, max_unroll, vec_size: lengths of `axes` and what they may be where a loop is
        unrolled or vectorised; a configuration outside is refused (through `cfg.raise_error`).
        source: for `locate_cache`, the stages to compute at each anchor.
        """
        if source is not None:
            for stages, anchor in zip(source, self.anns, strict=True):
                for stage in stages:
                    sch[stage].compute_at(sch[op], axes[int(anchor)])
            return list(axes)
        _check_axes("annotate", op, axes, len(self.anns))
        left: list[Any] = []
        pending: Any = None  # the outer axes to be fused with the next one
        for i, ann in enumerate(self.anns):
            axis = axes[i] if pending is None else sch[op].fuse(pending, axes[i])
            if ann == "fuse":
                pending = axis
                continue
            pending = None
            left.append(axis)
            if ann == "unroll":
                _check_length(cfg, "unrolling", axis_lens, i, _at_most(max_unroll))
                sch[op].unroll(axis)
            elif ann == "vec":
                _check_length(cfg, "vectorization", axis_lens, i, _one_of(vec_size))
                sch[op].vectorize(axis)
            elif ann in TAGS:
                sch[op].bind(axis, thread_axis(str(ann)))
        return left


class OtherOptionEntity(Entity):
    """One of a list of values: `val` is what the template reads."""

    __slots__ = ("val",)
    kind = "ot"

    def __init__(self, val: Any) -> None:
        self.val = val

    @property
    def value(self) -> Any:
        return self.val

    def feature(self) -> list[float]:
        return [float(self.val)] if isinstance(self.val, (int, float)) else []

    def __repr__(self) -> str:
        return repr(self.val)


ENTITIES: dict[str, Callable[[Any], Entity]] = {
    "sp": SplitEntity,
    "re": ReorderEntity,
    "an": AnnotateEntity,
    "ot": OtherOptionEntity,
}


def entity_from_json(kind: str, value: Any, place: str) -> Entity:
    """The entity a record stores as (kind, value)."""
    if kind not in ENTITIES:
        raise SpaceError(place, f"unknown kind of knob {kind!r}", f"Known: {', '.join(ENTITIES)}.")
    return ENTITIES[kind](value)


def _check_axes(what: str, op: Any, axes: Sequence[Any], count: int) -> None:
    if len(axes) == count:
        return
    raise SpaceError(
        f"{what}({getattr(op, 'name', op)})", f"{len(axes)} axes for a knob over {count}",
        "Pass the axes the knob was defined for.",
    )  # fmt: skip


def _at_most(limit: int | None) -> Callable[[Any], Any] | None:
    return (lambda length: length <= limit) if limit else None


def _one_of(sizes: Iterable[int] | None) -> Callable[[Any], Any] | None:
    return (lambda length: any(length == v for v in sizes)) if sizes else None


def _check_length(
    cfg: Any, what: str, lengths: Sequence[Any] | None, i: int, allowed: Callable[[Any], Any] | None
) -> None:
    """Refuse the configuration where the length of axis `i` is not allowed."""
    if allowed is None:
        return
    if lengths is None:
        raise SpaceError("annotate", f"a limit on {what} needs axis_lens", "Pass axis_lens=[...].")
    if allowed(lengths[i]):
        return
    reason = {
        "unrolling": "Too large factor for unrolling",
        "vectorization": "Wrong size of lanes in vectorization",
    }[what]
    if cfg is None:
        raise Refused("annotate", f"{reason}: {lengths[i]}", "Pass cfg= to mark it invalid.")
    cfg.raise_error(reason)
