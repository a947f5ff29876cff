"""First looks at spaces: whoever takes them, a search goes the same way."""

from concurrent.futures import Future

import numpy as np
import pytest

from tilewright.measure.pool import WorkerFailure, WorkerTimeout
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.propose.first_look import (
    BEGINNINGS,
    MOST_STRUCTURES,
    Looks,
    adjacent,
    begin_look,
    look,
    looks_of,
    score_sensible,
    take_looks,
)
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.propose.proposers import Outcome, Pool
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target
from tilewright.te import ComputeDAG, compute, placeholder, reduce_axis
from tilewright.te import sum as total

CUDA = Target("cuda -arch=sm_90")


def product(m: int = 48, n: int = 64, k: int = 80) -> ComputeDAG:
    a, b = placeholder((m, k), name="a"), placeholder((n, k), name="b")
    over = reduce_axis((0, k), name="k")
    return ComputeDAG(
        [a, b, compute((m, n), lambda i, j: total(a[i, over] * b[j, over], over), tag="dense")]
    )


def task() -> Task:
    return with_rules(task_of_dag(product(), CUDA, "product"))


class Other:
    """A helper that calls at once, with what survives a pipe; or that fails."""

    def __init__(self, error: WorkerFailure | None = None) -> None:
        self.error, self.calls = error, 0

    def call(self, target, function, *args, timeout):
        self.calls += 1
        found = Future()
        if self.error is not None:
            found.set_exception(self.error)
        else:
            found.set_result(function(*args))
        return found


def chosen(helper: Other | None) -> list[tuple[str, int]]:
    mine = task()
    proposer = ModelProposer(mine, seed=3)
    if helper is not None:
        proposer.begin_with(begin_look(helper, mine, proposer.request))
    found = [*proposer.suggest(8), *proposer.suggest(8)]
    return [(candidate.sketch.origin, candidate.index) for candidate in found]


@pytest.mark.slow
def test_a_search_goes_the_same_way_whoever_looks():
    alone, helped = chosen(None), Other()
    assert chosen(helped) == alone and helped.calls == len(task().sketches)
    assert chosen(Other(WorkerTimeout("no result"))) == alone


def test_nobody_else_looks_at_what_it_could_not_derive():
    own = task()
    own.sketches = [Sketch("mine", own.dag, ConfigSpace(), lambda _: None, CUDA)]
    request = ModelProposer(own).request
    assert request.origins == ("",) and looks_of(None) == Looks()
    assert take_looks(own.dag.to_json(), CUDA, request).at(0, request) is None
    given = with_rules(task_of_dag(product(), CUDA), rules=[])
    assert not any(s.repeatable for s in given.sketches if s.origin.startswith("rules"))
    assert all(s.repeatable for s in task().sketches)


def test_a_look_keeps_the_fastest_and_some_others():
    sketch = task().sketches[0]
    seen, few = look(sketch, (0, 0), 512, 512).scored, look(sketch, (0, 0), 512, 32).scored
    assert len(few.indices) == 32 < len(seen.indices)
    assert set(few.indices) < set(seen.indices)
    assert set(np.sort(seen.machine)[:24]) <= set(few.machine)


def test_a_small_space_is_listed_and_a_large_one_looked_at_around_the_best():
    knobs = ("split", "slices", "tile")

    def schedule(cfg):
        c = product().outputs[0]
        s = create_schedule([c.op])
        for name in knobs:
            cfg.define_knob(name, list(range(1, size + 1)))
        made.append(tuple(int(cfg[name].val) for name in knobs[:2]))  # each is a structure
        i, _ = s[c].op.axis
        outer, inner = s[c].split(i, factor=cfg["tile"].val)
        s[c].bind(outer, "blockIdx.x")
        s[c].bind(inner, "threadIdx.x")
        return s

    for whole in (True, False):
        size = 6 if whole else 30
        made: list[tuple[int, int]] = []
        space = ConfigSpace()
        schedule(space)
        found = look(
            Sketch("mine", product(), space, schedule, CUDA, structures=1000), (0, 0), 4096
        )
        assert (found.listed is not None) == whole
        least, most = (36, 36) if whole else (BEGINNINGS, MOST_STRUCTURES)
        assert least <= len(found.scored.structures) <= most
        assert len(set(made)) <= (36 if whole else 2 * MOST_STRUCTURES)


def test_a_look_around_the_best_finds_nearly_what_a_look_at_all_does():
    sketch = task().sketches[0]
    seen = look(sketch, (0, 0), 4096).scored
    drawn = np.unique(Pool(sketch, np.random.default_rng((0, 0))).guess(4096))
    every = score_sensible(sketch, drawn)
    assert len(seen.structures) <= MOST_STRUCTURES < len(every.structures)
    assert seen.machine.min() < 1.05 * every.machine.min()


def test_adjacent_members_differ_in_one_knob_by_one_place():
    space = task().sketches[0].space
    (index,) = space.sample(1, np.random.default_rng(3))
    own, near = (
        space.positions(np.array(i)) for i in ([index], adjacent(space, np.array([index])))
    )
    assert sorted(np.abs(near - own).sum(axis=0).tolist())[:2] == [0, 1]
    assert np.abs(near - own).sum(axis=0).max() == 1
    inner = [int(p > 0) + int(p < n - 1) for p, n in zip(own[:, 0], space.dims, strict=True)]
    assert near.shape[1] == 1 + sum(inner)


def test_some_structures_are_looked_at():
    sketch = task().sketches[0]
    some = sketch.space.sample(512, np.random.default_rng(0))
    assert score_sensible(sketch, some, others=0).structures == {}  # none is known yet
    three = score_sensible(sketch, some, others=3)
    assert len(three.structures) == 3
    assert score_sensible(sketch, some, None, three.structures, 0).structures == three.structures
    every = score_sensible(sketch, some)
    assert len(every.structures) > 3
    best = min(every.structures, key=every.structures.__getitem__)
    one = score_sensible(sketch, some, lambda trails: {best})
    assert one.structures == {best: every.structures[best]}
    assert one.machine.min() == every.machine.min()


@pytest.mark.slow
def test_a_sketch_that_is_far_behind_gets_new_candidates_seldom(monkeypatch):
    """Seldom, not never: it may be better than it was predicted to be."""
    mine = task()
    proposer, looked = ModelProposer(mine, seed=3), []
    behind, fast = mine.sketches[-1], mine.sketches[0]
    monkeypatch.setattr(
        ModelProposer, "_bred", lambda self, at: looked.append(at) or np.empty(0, np.int64)
    )
    for _ in range(12):
        chosen = proposer.suggest(16)
        slow = {id(behind): 1.0, id(fast): 1e-6}
        proposer.update([Outcome(c, slow.get(id(c.sketch), 1e-3)) for c in chosen])
        proposer.model.fit()
    times = [looked.count(at) for at in range(len(mine.sketches))]
    assert 1 < times[-1] < times[0] // 2, times
