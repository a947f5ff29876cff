"""What a search space and its configurations refuse, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import SpaceError
from tilewright.schedule.space.config_space import (
    AnnotateEntity,
    Config,
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
    ReorderEntity,
    VirtualAxis,
)


def space() -> ConfigSpace:
    cfg = ConfigSpace()
    cfg.define_split("tile_f", 512, num_outputs=4)
    cfg.define_split("tile_y", 7, num_outputs=4)
    cfg.define_knob("unroll_explicit", [0, 1])
    return cfg


AXES = [VirtualAxis(4) for _ in range(3)]
UNKNOWN = VirtualAxis(-1)
PRIMES = np.array([1, 3])
REFUSED: list[tuple[str, Callable[[ConfigSpace], Any]]] = [
    ("unknown policy", lambda c: c.define_split("t", 8, "prime", num_outputs=2)),
    ("num_outputs must be at least 1", lambda c: c.define_split("t", 8)),
    ("extent of the axis is not known", lambda c: c.define_split("t", UNKNOWN, num_outputs=2)),
    ("no candidate", lambda c: c.define_split("t", 8, "candidate", num_outputs=2)),
    ("is not 2 positive", lambda c: c.define_split("t", 8, "candidate", candidate=[[8, -1]])),
    ("no entity is left", lambda c: c.define_split("t", 8, num_outputs=2, filter=lambda e: False)),
    ("no entity is left", lambda c: c.define_split("t", 8, num_outputs=2, max_factor=0)),
    ("too many to list", lambda c: c.define_split("t", 720720, "verbose", num_outputs=6)),
    ("too many to list", lambda c: c.define_split("t", 1 << 21, "power2", num_outputs=8)),
    ("neither a length nor an axis", lambda c: c.define_split("t", "i", num_outputs=2)),
    ("no entity is left", lambda c: c.define_knob("k", [])),
    ("unknown policy", lambda c: c.define_reorder("o", AXES, "random")),
    ("not within 3 axes", lambda c: c.define_reorder("o", AXES, "interval_all", interval=(1, 5))),
    ("not within 3 axes", lambda c: c.define_reorder("o", AXES, "interval_all")),
    ("orders", lambda c: c.define_reorder("o", AXES * 4, "all")),
    ("not among", lambda c: c.define_reorder("o", AXES, "candidate", candidate=[[UNKNOWN]])),
    ("not a permutation", lambda c: c.define_reorder("o", AXES, "candidate", candidate=[AXES[:2]])),
    ("not a permutation", lambda c: c.define_reorder("o", AXES, "interleave", spatial=[AXES[:2]])),
    ("cannot be bound", lambda c: c.define_annotate("a", AXES[:1], "bind_gpu")),
    ("cannot be bound", lambda c: c.define_annotate("a", AXES[:2], "bind_gpu_virtual")),
    ("num_anchor=4", lambda c: c.define_annotate("a", AXES, "locate_cache", num_anchor=4)),
    ("num_anchor=None", lambda c: c.define_annotate("a", AXES, "locate_cache")),
    ("unknown policy", lambda c: c.define_annotate("a", AXES, "parallel")),
    ("annotations", lambda c: c.define_annotate("a", AXES * 5, "try_unroll_vec")),
    ("stands for", lambda c: c.define_split("tile_f", 256, num_outputs=4)),
    ("stands for", lambda c: c.define_knob("unroll_explicit", [0, 2])),
    ("names of another", lambda c: c.define_knob("tile_f.2", [1])),
    ("no knob of that name. There are: tile_f", lambda c: c["tile_z"]),
    ("no knob of that name", lambda c: c.symbolic()["tile_z"]),
    ("no knob of that name", lambda c: c.get(0)["tile_z"]),
    ("no knobs", lambda c: Config()["tile_f"]),
    ("not in", lambda c: c.get(1760)),
    ("not in", lambda c: c.point2knob(-1)),
    ("not one position per knob", lambda c: c.knob2point([0] * 2)),
    ("not one position per knob", lambda c: c.knob2point([220, *[0] * 2])),
    ("no such entity", lambda c: c.index_of({**_values(c.get(0)), "tile_y": [1, 2, 2, 2]})),
    ("no such entity", lambda c: c.index_of({**_values(c.get(0)), "tile_y": [7, 1]})),
    ("no such entity", lambda c: c.index_of({**_values(c.get(0)), "tile_y": [10**30, 1]})),
    ("no such entity", lambda c: c.index_of({**_values(c.get(0)), "tile_y": _nested(900)})),
    ("no knob of that name", lambda c: c.index_of({})),
    ("outside", lambda c: c.decode(np.array([0, 1760]))),
    ("it has no entity", lambda c: c.encode({**c.decode(np.arange(2)), "tile_f.3": PRIMES})),
    ("no value for tile_f.0", lambda c: c.encode({})),
    ("outside", lambda c: c.get_rand_index(5, 5)),
    ("excluded", lambda c: c.get_rand_index(3, 5, to_exclude=[3, 4])),
    ("found 1 valid", lambda c: ConfigSpace().sample_ints(2)),
    ("no valid neighbour", lambda c: ConfigSpace().random_walk(0)),
    ("cannot read", lambda c: ConfigEntity.from_json_dict({"entity": [["tile_f", "sp"]]})),
    ("unknown kind", lambda c: ConfigEntity.from_json_dict({"entity": [["tile_f", "xx", 1]]})),
    ("2 axes for a knob over 1", lambda c: ReorderEntity([0]).apply({}, "C", "ij")),
    ("1 axes for a knob over 2", lambda c: AnnotateEntity(["vec"] * 2).apply({}, "C", "i")),
]  # fmt: skip


def _nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def _values(config: ConfigEntity) -> dict[str, Any]:
    return {name: entity.value for name, entity in config.items()}


@pytest.mark.slow
@pytest.mark.parametrize(("message", "call"), REFUSED)
def test_refusals(message: str, call: Callable[[ConfigSpace], Any]) -> None:
    with pytest.raises(SpaceError, match=message):
        call(space())


FALLBACK_REFUSED: list[tuple[str, Callable[[FallbackConfigEntity], Any]]] = [
    ("no split of that name", lambda c: c.fallback_split("k", [1])),
    ("the split has 2 loops", lambda c: c.fallback_split("t", [1])),
    ("a limit below 1", lambda c: c.fallback_split("t", [0, 4])),
    ("extent of its axis is not known", lambda c: c.fallback_split("u", [-1, 4])),
]


@pytest.mark.parametrize(("message", "call"), FALLBACK_REFUSED)
def test_fallback_refusals(message: str, call: Callable[[FallbackConfigEntity], Any]) -> None:
    cfg = FallbackConfigEntity()
    cfg.define_split("t", 8, num_outputs=2)
    cfg.define_split("u", VirtualAxis(-1), "candidate", candidate=[[-1, 2]])
    cfg.define_knob("k", [1])
    with pytest.raises(SpaceError, match=message):
        call(cfg)
