"""Proposers: only legal candidates, none twice, and the model finds what chance does not."""

import numpy as np
import pytest

from search.spaces import CPU, conv, cost_of, cpu_task, flagship, hidden_cost
from tilewright import te
from tilewright.base.errors import SpaceError
from tilewright.cost.features import FEATURES
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.task import Task, create
from tilewright.schedule.template import get_config, template
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.first_look import MAX_CODE
from tilewright.search.propose.model_proposer import ModelProposer, evaluate, neighbours
from tilewright.search.propose.proposers import (
    Candidate,
    GeneticProposer,
    GridProposer,
    Outcome,
    Pool,
    RandomProposer,
)

ALL = [RandomProposer, GridProposer, GeneticProposer, ModelProposer]


def search(proposer, task, trials, batch=8, fit_every=16):
    """Candidates in order, with the times that the hidden function gives them."""
    seen, seconds = [], []
    while len(seen) < trials:
        chosen = proposer.suggest(min(batch, trials - len(seen)))
        if not chosen:
            break
        times = [cost_of(c, task) for c in chosen]
        proposer.update([Outcome(c, t) for c, t in zip(chosen, times, strict=True)])
        seen += chosen
        seconds += times
        if isinstance(proposer, ModelProposer) and len(seen) % fit_every == 0:
            proposer.model.fit()
    return seen, seconds


def best_of(task, n=300_000):
    space = task.sketches[0].space
    found = space.sample(n, np.random.default_rng(5))
    return hidden_cost(task, found[task.sketches[0].legal(found)]).min()


def trials_until(seconds, limit):
    return next((k + 1 for k, s in enumerate(seconds) if s <= limit), None)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", ALL)
def test_proposals_are_sensible_and_never_repeated(kind):
    task = flagship()
    seen, _ = search(kind(task, 3), task, 96)
    indices = np.array([c.index for c in seen])
    assert len(seen) == 96 == len(set(indices.tolist()))
    assert task.sketches[0].legal(indices).all()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_an_exhausted_space_says_so(kind):
    task = cpu_task(4, 16, 2)
    every = np.arange(len(task.config_space))
    sensible = int(task.sketches[0].legal(every).sum())
    proposer = kind(task, 0)
    assert not proposer.exhausted
    seen, _ = search(proposer, task, 10_000)
    assert len(seen) == sensible > 20
    assert proposer.exhausted and proposer.suggest(4) == []


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_the_same_seed_gives_the_same_proposals(kind):
    task = flagship()
    runs = [[c.index for c in search(kind(task, s), task, 32)[0]] for s in (1, 1, 2)]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2] or kind is GridProposer


@template("tests/search/uncountable")
def uncountable():
    b = te.compute((8,), lambda i: i + 1, name="B")
    cfg = get_config()
    for k in range(10):
        cfg.define_split(f"t{k}", 4096, num_outputs=4)
    return te.create_schedule([b.op]), [b]


@pytest.mark.parametrize("kind", ALL)
def test_a_space_without_indices_is_refused_with_a_way_out(kind):
    with pytest.raises(SpaceError, match="do not fit 64-bit indices. Limit the splits"):
        kind(create("tests/search/uncountable", (), CPU), 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL)
def test_visited_candidates_are_not_proposed(kind):
    task = cpu_task(4, 16, 2)
    first, _ = search(kind(task, 0), task, 16)
    proposer = kind(task, 0)
    proposer.visit(first)
    again, _ = search(proposer, task, 1000)
    assert again and not set(again) & set(first)


@pytest.mark.parametrize("kind", [RandomProposer, GeneticProposer])
def test_no_sketch_is_left_out(kind):
    base = cpu_task()
    (one,) = base.sketches
    sketches = [Sketch(f"s{k}", one.dag, one.space, one.build, one.target) for k in range(3)]
    task = Task(base.name, base.args, base.dag, base.target, sketches)
    seen, _ = search(kind(task, 0), task, 60)
    counts = [sum(c.sketch is s for c in seen) for s in sketches]
    assert len(seen) == 60 and min(counts) >= 10


def test_the_grid_ascends_and_keeps_to_its_range():
    task = flagship()
    seen, _ = search(GridProposer(task, 0, (5000, 9000)), task, 64)
    indices = [c.index for c in seen]
    assert indices == sorted(indices) and indices[0] >= 5000
    rest = search(GridProposer(task, 0, (5000, 5999)), task, 5000)[0]
    assert rest and max(c.index for c in rest) <= 5999
    assert len(rest) == task.sketches[0].legal(np.arange(5000, 6000)).sum()


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_the_model_gets_within_ten_percent_where_chance_does_not(seed):
    task = flagship()
    goal = 1.1 * best_of(task)
    _, guided = search(ModelProposer(task, seed), task, 160)
    _, blind = search(RandomProposer(task, seed), task, 512)
    assert trials_until(guided, goal) is not None
    assert trials_until(blind, goal) is None
    assert min(guided) < min(blind)


@pytest.mark.slow
def test_the_model_helps_on_a_cpu_task_too():
    task = cpu_task(96, 128, 64)
    space = task.sketches[0].space
    every = np.arange(len(space))
    best = hidden_cost(task, every[task.sketches[0].legal(every)]).min()
    found = [min(search(ModelProposer(task, s), task, 64)[1]) for s in range(4)]
    assert np.mean(found) <= 1.15 * best


def test_genes_of_the_fast_spread():
    task = flagship()
    _, seconds = search(GeneticProposer(task, 1, pop_size=32), task, 160)
    assert np.median(seconds[-32:]) < 0.6 * np.median(seconds[:32])


@pytest.mark.slow
def test_sketches_of_a_task_compete():
    slow, fast = conv(64, 14), conv(128, 14)  # stand-ins for two ways to compute the same
    both = Task("both", (), slow.dag, slow.target, [slow.sketches[0], fast.sketches[0]])
    proposer = ModelProposer(both, 0)
    counts = [0, 0]
    for _ in range(8):
        chosen = proposer.suggest(8)
        results = [
            Outcome(c, cost_of(c, slow if (first := c.sketch is slow.sketches[0]) else fast)
                    * (20 if first else 1))
            for c in chosen
        ]  # fmt: skip
        proposer.update(results)
        proposer.model.fit()
        counts = [sum(c.sketch is s for c in chosen) for s in both.sketches]
    assert counts[1] > counts[0] > 0  # the slow one is still explored


def test_candidates_of_other_sketches_are_predicted_too():
    """As of schedules that another program found: the proposer did not make them itself."""
    task, other = conv(64, 14), conv(64, 14)
    candidates = RandomProposer(task, 0).suggest(4)
    foreign = [Candidate(other.sketches[0], c.index) for c in candidates]
    proposer = ModelProposer(task, 0)
    proposer.update([Outcome(c, cost_of(c, task)) for c in candidates])
    proposer.model.fit()
    wanted = proposer.predict(candidates)
    np.testing.assert_array_equal(proposer.predict([*foreign, *candidates]), [*wanted, *wanted])


@pytest.mark.slow
def test_a_model_shared_by_tasks_learns_from_both():
    model = CostModel()
    tasks = [conv(64, 14), conv(128, 14)]
    proposers = [ModelProposer(t, 0, model) for t in tasks]
    for task, proposer in zip(tasks, proposers, strict=True):
        search(proposer, task, 16, fit_every=1000)
    assert len(model) == 32


@pytest.mark.slow
def test_failed_candidates_are_not_followed():
    task = flagship()
    proposer = ModelProposer(task, 0)
    for _ in range(6):  # many threads fail
        chosen = proposer.suggest(8)
        proposer.update(
            [Outcome(c, float("inf") if _threads(c) > 128 else cost_of(c, task)) for c in chosen]
        )
        proposer.model.fit()
    assert np.mean([_threads(c) > 128 for c in proposer.suggest(16)]) < 0.3


def _threads(candidate):
    config = candidate.sketch.space.get(candidate.index)
    return np.prod([config[f"tile_{axis}"].size[2] for axis in "fyx"])


def test_neighbours_differ_in_one_knob():
    task = flagship()
    pool = Pool(task.sketches[0], np.random.default_rng(0))
    index = int(pool.draw(4096)[0])
    space = task.sketches[0].space
    around = neighbours(space, np.array([index]))
    differ = (space.positions(around) != space.positions(np.array([index]))).sum(axis=0)
    assert sorted(differ.tolist()) == [0] + [1] * sum(n - 1 for n in space.dims)


def test_a_batch_is_not_one_candidate_and_its_twins():
    """unroll_explicit changes no kernel: both of its values are never in the first batches."""
    task = flagship()
    seen = ModelProposer(task, 0).suggest(16)
    knobs = [dict(c.sketch.space.get(c.index).items()) for c in seen]
    for values in knobs:
        del values["unroll_explicit"]
    assert len({str(values) for values in knobs}) >= 15


def test_what_would_compile_for_seconds_is_not_proposed():
    """Straight-line code of more than MAX_CODE bytes, as long as there is other."""
    task = flagship()
    proposer = ModelProposer(task, 0)
    drawn = task.sketches[0].space.sample(4096, np.random.default_rng(1))
    code = evaluate(task.sketches[0], drawn)[0][:, FEATURES.index("log_code")]
    assert (code > np.log2(MAX_CODE)).any(), "else this test proves nothing"
    chosen = np.array([c.index for c in proposer.suggest(64)])
    code = evaluate(task.sketches[0], chosen)[0][:, FEATURES.index("log_code")]
    assert len(code) == 64 and (code <= np.log2(MAX_CODE)).all()
