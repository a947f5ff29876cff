"""Ansor's parameters of a search: each changes what is proposed, wrong ones are told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tvm.auto_scheduler.test_cost_models import Own, length
from tests.tvm.auto_scheduler.workloads import product
from tilewright.base.errors import SpaceError
from tilewright.driver.build import build
from tilewright.schedule.space.config_space import SplitSpace
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.search.propose.model_proposer import ModelProposer, Plan
from tilewright.search.rules.state import USUAL
from tilewright.te.tensor import IterVar
from tilewright_tvm import auto_scheduler, nd
from tilewright_tvm.auto_scheduler.policy_params import PARAMETERS, PolicyParams
from tilewright_tvm.auto_scheduler.scored_proposer import Breeding
from tilewright_tvm.target import Target


def policy(task: Any, model: Any = None, **params: Any) -> auto_scheduler.SketchPolicy:
    return auto_scheduler.SketchPolicy(task, model, params, templates=False)


def spaces(found: auto_scheduler.SketchPolicy) -> list[Any]:
    return [s.space for s in found.task().sketches]


def splits(found: auto_scheduler.SketchPolicy) -> list[SplitSpace]:
    every = [knob for space in spaces(found) for knob in space.space_map.values()]
    return [knob for knob in every if isinstance(knob, SplitSpace)]


def test_without_any_the_search_is_what_it_was(task: Any) -> None:
    assert PolicyParams.of(None, task.target) == PolicyParams(Plan(), Breeding(), USUAL, 50, 4)
    usual = {"cpu_multi_level_tiling_structure": "SSRSRS", "max_innermost_split_factor": 64}
    assert [repr(s) for s in spaces(policy(task))] == [
        repr(s) for s in spaces(policy(task, **usual))
    ]


@pytest.mark.slow
def test_structures_of_tiles(task: Any) -> None:
    deep = policy(task, cpu_multi_level_tiling_structure="SSSRSRSRS")
    assert {knob.num_output for knob in splits(deep)} >= {6, 3}
    assert 6 not in {knob.num_output for knob in splits(policy(task))}
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 12, 16)).astype("float32")[:, :, :8], rng.random((8, 16))
    left, right = np.ascontiguousarray(a[0]), b.astype("float32")
    for sketch in deep.task().sketches:
        drawn = sketch.space.sample(32, rng)
        schedule = sketch.close(int(drawn[sketch.legal(drawn)][0]))
        args = list(sketch.dag.args)
        out = nd.empty((12, 16))
        build(schedule, args, task.target)(nd.array(left), nd.array(right), out)
        np.testing.assert_allclose(out.numpy(), np.maximum(left @ right, 0), rtol=1e-5)


def test_a_structure_for_a_gpu_is_none_for_a_cpu(task: Any) -> None:
    gpu = auto_scheduler.SearchTask(func=product, args=(64, 64, 64), target=Target("cuda"))
    five = {"gpu_multi_level_tiling_structure": "SSSSRRSRSS"}
    assert 7 in {knob.num_output for knob in splits(policy(gpu, **five))}
    assert 7 not in {knob.num_output for knob in splits(policy(task, **five))}


@pytest.mark.slow
def test_innermost_tiles_and_vectors_are_bounded() -> None:
    task = auto_scheduler.SearchTask(
        func=product, args=(64, 64, 64), target=Target("llvm -vector-bytes=64")
    )
    rng = np.random.default_rng(0)

    def widest(**params: Any) -> tuple[int, int]:
        inner, lanes = 0, 0
        for sketch in policy(task, **params).generate_sketches():
            tiled = [k for k, v in sketch.space.space_map.items() if isinstance(v, SplitSpace)]
            drawn = sketch.space.sample(64, rng)
            for index in drawn[sketch.legal(drawn)][:16]:
                config = sketch.space.get(int(index))
                inner = max([inner, *(config[k].size[-1] for k in tiled)])
                schedule = sketch.close(int(index))
                bounds = LoopTree(schedule).bounds()
                for stage in schedule.stages:
                    said = stage.iter_var_attrs.items()
                    wide = [ax for ax, e in said if e.iter_type == IterVar.Vectorized]
                    lanes = max([lanes, *(bounds.extent[ax] for ax in wide)])
        return inner, lanes

    assert widest() > (8, 4)
    inner, lanes = widest(max_innermost_split_factor=8, max_vectorize_size=4)
    assert (inner, lanes) == (8, 4)


@pytest.mark.parametrize("share", (0.0, 0.5, 1.0))
def test_eps_greedy_is_the_share_at_random(task: Any, share: float) -> None:
    found = policy(task, eps_greedy=share)
    proposer = found.proposer(found.task())
    assert isinstance(proposer, ModelProposer)
    proposer._measured = 1  # before the first result half of a batch is at random anyway
    assert proposer._explorers(20) == round(20 * share)


@pytest.mark.slow
def test_a_model_of_the_user_is_asked_for_as_many_as_it_is_told(task: Any, options: Any) -> None:
    def asked(**params: Any) -> list[int]:
        model = Own(length)
        task.tune(options(4, num_measures_per_round=4), policy(task, model, **params))
        return [count for _, count, _ in model.asked]

    few = asked(evolutionary_search_population=12, evolutionary_search_num_iters=1)
    many = asked(evolutionary_search_population=48, evolutionary_search_num_iters=5)
    assert len(many) == 3 * len(few) and sum(few) < sum(many) / 3


@pytest.mark.slow
def test_without_mutations_children_are_of_their_parents(task: Any) -> None:
    found = policy(task, evolutionary_search_mutation_prob=0.0)
    proposer = found.proposer(found.task())
    assert isinstance(proposer, ModelProposer)
    proposer.suggest(8)
    for at, pool in enumerate(proposer.pools):
        if len(proposer.population[at]) < 2 or pool.listed is not None:
            continue
        proposer._looked_around[at] = set(proposer.population[at].indices.tolist())
        score = proposer.model.predict(
            proposer.population[at].features, proposer.population[at].machine
        )
        parents = proposer.population[at].indices[np.argsort(score, kind="stable")[:16]]
        own, bred = (pool.sketch.space.positions(i) for i in (parents, proposer._bred(at)))
        for new, old in zip(bred.tolist(), own.tolist(), strict=True):
            assert set(new) <= set(old)


@pytest.mark.slow
def test_sizes_of_what_is_drawn_first(task: Any) -> None:
    assert len(policy(task, sample_init_min_population=7).sample_initial_population()) == 7
    model = Own(length)
    found = policy(task, model, evolutionary_search_num_iters=2)
    states = found.sample_initial_population(4)
    model.asked.clear()
    found.evolutionary_search(states, 3)
    assert len(model.asked) == 2


def test_a_scheduler_passes_them_on(options: Any) -> None:
    task = auto_scheduler.SearchTask(func=product, args=(8, 8, 8), target=Target("llvm"))
    scheduler = auto_scheduler.TaskScheduler([task], callbacks=[])
    with pytest.raises(SpaceError, match="eps_greedy"):
        scheduler.tune(options(4), search_policy_params={"eps_greedy": 2})


@pytest.mark.slow
@pytest.mark.parametrize("name", PARAMETERS)
@pytest.mark.parametrize("value", (-1, 1.5, "RS", None, True, [], 1 << 40))
def test_wrong_values_are_told(task: Any, name: str, value: Any) -> None:
    with pytest.raises(SpaceError, match=rf"SketchPolicy\(params=.*{name}"):
        policy(task, **{name: value})


@pytest.mark.parametrize("text", ("", "SSRS ", "SRS", "SSRSR", "SSRRRS", "SSSS", "SSRSRX"))
def test_structures_that_are_none(task: Any, text: str) -> None:
    with pytest.raises(SpaceError, match=r"Begin with SS, end with S.*SSRSRS"):
        policy(task, cpu_multi_level_tiling_structure=text)
