"""First looks at spaces: whoever takes them, a search goes the same way."""

from concurrent.futures import Future

import numpy as np
import pytest

from tilewright.measure.pool import WorkerFailure, WorkerTimeout
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.propose.first_look import (
    Looks,
    begin_look,
    look,
    looks_of,
    score_sensible,
    take_looks,
)
from tilewright.search.propose.model_proposer import ModelProposer
from tilewright.search.propose.proposers import Outcome
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
