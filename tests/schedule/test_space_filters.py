"""Spaces that `multi_filter` thins out, and knobs that are defined again."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import SpaceError
from tilewright.schedule.space.config_space import ConfigSpace

RNG = np.random.default_rng(3)


def filtered() -> ConfigSpace:
    """100 configurations, of which 30 pass: a < b by value, and a not 3."""
    space = ConfigSpace()
    space.define_knob("a", list(range(10)))
    space.define_knob("b", list(range(10)))
    space.multi_filter(lambda cfg: cfg["a"].val < cfg["b"].val)
    space.multi_filter(lambda cfg: cfg["a"].val not in {3, 0})
    return space


def test_multi_filter() -> None:
    space = filtered()
    valid = [i for i in range(100) if i % 10 < i // 10 and i % 10 not in (0, 3)]
    assert (len(valid), len(space), space.range_length) == (30, 30, 100)
    with pytest.raises(SpaceError, match="multi_filter leaves this configuration out"):
        space.get(0)
    assert np.flatnonzero(space.valid_mask(np.arange(100))).tolist() == valid
    assert [i for i in range(100) if space.is_index_valid(i)] == valid
    assert not space.is_index_valid(100) and space.subrange_length(0, 100) == 30
    assert sorted(space.sample(100, RNG).tolist()) == valid
    assert space.get_next_index(valid[3]) == valid[4]
    assert space.get_next_index(-1, n=2) == valid[1]
    assert space.get_next_index(valid[-1]) is None is space.get_next_index(valid[0], -1)
    assert space.get_next_index(valid[3], -1) == valid[2]
    assert space.get_next_index(valid[9], -4) == valid[5]
    assert space.get_next_index(99, -2, start=valid[4]) == valid[-2]
    assert space.get_next_index(valid[5], -2, start=valid[4]) is None
    assert space.subrange_length(7, 7) == 0
    with pytest.raises(SpaceError, match="that is no step"):
        space.get_next_index(5, 0)
    assert {space.get_rand_index(to_exclude=set(valid[1:])) for _ in range(3)} == {valid[0]}
    walked = space.walk(np.array(valid * 10), RNG)
    assert space.valid_mask(walked).all()


def test_a_split_that_is_defined_again_has_its_last_options() -> None:
    space = ConfigSpace()
    space.define_split("tile", 128, num_outputs=2)
    space.define_split("other", 128, num_outputs=2)
    space.multi_filter(lambda cfg: cfg["tile"].size[1] * cfg["other"].size[1] >= 32)
    assert (len(space), space.range_length) == (49, 64)
    space.define_split("tile", 128, num_outputs=2, filter=lambda tile: tile.size[-1] < 64)
    sizes = [space.get(i)["tile"].size[1] for i in range(48) if space.is_index_valid(i)]
    assert space.dims == [6, 8] and len(space) == len(sizes) == 33 and max(sizes) == 32
    for length, loops in ((64, 2), (128, 3)):
        with pytest.raises(SpaceError, match="the name stands for Split"):
            space.define_split("tile", length, num_outputs=loops)
