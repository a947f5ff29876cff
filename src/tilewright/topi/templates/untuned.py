"""What runs untuned: the member of a template's space that the machine model likes best.

In: a `Sketch` and which knobs to hold at a value that is always good.  Out: an index, found in the
few hundred members that can be judged while a network is built.  Read next: `gpu.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.base.errors import LegalityError
from tilewright.cost.machine_model import seconds
from tilewright.schedule.sketch import Indices, Sketch
from tilewright.schedule.space.config_space import ConfigSpace

DRAWN = 768  # members looked at where there are more, and then the neighbours of the best

Held = Mapping[str, Any]  # knob -> the value it is held at


def fastest(sketch: Sketch, *ways: Held) -> int:
    """The index of the fastest by `cost.machine_model`, of the members with the knobs of one of the
    `ways` at its values.

    Each way is drawn from alone, and costs time if its loops differ from those of the others.
    Raises LegalityError where the device runs none.
    """
    space = sketch.space
    drawn = [_members(space, held) for held in ways]
    best = _fastest_of(sketch, np.concatenate(drawn))
    held = next(way for way, members in zip(ways, drawn, strict=True) if best in members)
    if sum(map(len, drawn)) < DRAWN:
        return best
    return _fastest_of(sketch, _neighbours(space, best, held))


def or_with(sketch: Sketch, index: int, changed: Held) -> int:
    """The faster of a member and of the one that differs from it by the values of these knobs."""
    positions = sketch.space.positions(np.array([index]))
    for name, value in changed.items():
        positions[list(sketch.space.space_map).index(name)] = _position(sketch.space, name, value)
    return _fastest_of(sketch, np.array([index, *sketch.space.indices(positions)]))


def _fastest_of(sketch: Sketch, members: Indices) -> int:
    """Where masks discourage all, the fastest of those that run."""
    best: dict[bool, tuple[float, int]] = {}  # sensible or not -> its seconds and index
    for group in sketch.groups(members):
        sensible = group.verdict.sensible(len(group.rows))
        mask = sensible if sensible.any() else group.verdict.legal(len(group.rows))
        if not mask.any():
            continue
        predicted = seconds(group.resources_of(mask), int(mask.sum()))
        at = int(np.argmin(predicted))
        found = float(predicted[at]), int(members[group.rows[mask][at]])
        kind = bool(sensible.any())
        best[kind] = min(found, best.get(kind, found))
    if not best:
        raise LegalityError(
            f"{sketch.origin}, untuned", "the device runs none of its usual configurations",
            "Tune it, or compile it with its default schedule.",
        )  # fmt: skip
    return best[max(best)][1]


def _members(space: ConfigSpace, held: Held) -> Indices:
    """Members with the knobs of `held` at its values: all, or `DRAWN` of them."""
    free = [len(knob) for name, knob in space.space_map.items() if name not in held]
    total = int(np.prod(free, dtype=np.int64))
    chosen = np.arange(total)
    if total > DRAWN:
        chosen = np.random.default_rng(0).choice(total, DRAWN, replace=False)
    columns = iter(np.unravel_index(chosen, free) if free else ())
    positions = [
        np.full(len(chosen), _position(space, name, held[name])) if name in held else next(columns)
        for name in space.space_map
    ]
    return space.indices(np.array(positions, np.int64))


def _neighbours(space: ConfigSpace, index: int, held: Held) -> Indices:
    """The member and all that differ from it in one knob that is not held."""
    own = space.positions(np.array([index]))
    found = [own]
    for k, (name, knob) in enumerate(space.space_map.items()):
        if name not in held:
            near = np.repeat(own, len(knob), axis=1)
            near[k] = np.arange(len(knob))
            found.append(near)
    return np.unique(space.indices(np.concatenate(found, axis=1)))


def _position(space: ConfigSpace, name: str, value: Any) -> int:
    """The position of the knob's entity with this value."""
    return next(k for k, entity in enumerate(space.space_map[name]) if entity.value == value)
