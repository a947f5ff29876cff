"""What tuners and cost models tell of themselves, on the sample task of `testing.autotvm`."""

from __future__ import annotations

import numpy as np
import pytest
from tilewright_tvm.autotvm.tuner.xgboost_cost_model import XGBoostCostModel

from tilewright.base.errors import SpaceError
from tilewright_tvm import autotvm
from tilewright_tvm.autotvm.measure import MeasureResult
from tilewright_tvm.testing.autotvm import DummyRunner, get_sample_records, get_sample_task


def test_sample_tasks_and_records() -> None:
    task, target = get_sample_task(32)
    assert task.config_space.dims == [6, 6] and str(target) == "llvm"
    narrow = task.sketches[0].close(
        task.config_space.index_of({"tile_y": [-1, 4], "tile_x": [-1, 1]})
    )
    wide = task.sketches[0].close(
        task.config_space.index_of({"tile_y": [-1, 4], "tile_x": [-1, 8]})
    )
    assert [len(s.stages[-1].leaf_iter_vars) for s in (narrow, wide)] == [4, 5]
    records = get_sample_records(66)
    assert [inp.config.index for inp, _ in records] == [*range(64), 0, 1]
    assert [result.costs for _, result in records[:3]] == [(1,), (2,), (3,)]
    costs = [r.costs[0] for r in DummyRunner().run([records[0][0]] * 50, [])]
    assert len(set(costs)) == 50 and all(0 < cost <= 1 for cost in costs)


def test_generations_of_a_genetic_algorithm() -> None:
    task, _ = get_sample_task()
    space = task.config_space
    tuner = autotvm.tuner.GATuner(task, pop_size=20)
    assert tuner.pop_size == len(tuner.genes) == len(tuner.visited) == 20
    assert {space.knob2point(gene) for gene in tuner.genes} == tuner.visited
    first = tuner.next_batch(20)
    assert {config.index for config in first} == tuner.visited  # they are what is proposed
    task.config_space.multi_filter(lambda cfg: cfg["tile_x"].size[1] * cfg["tile_y"].size[1] < 8)
    task.sketches[0].space.multi_filter(lambda cfg: True)
    filtered = autotvm.tuner.GATuner(task, pop_size=100)
    assert filtered.pop_size == len(filtered.genes) == len(task.config_space) == 6
    assert all(space.is_index_valid(space.knob2point(gene)) for gene in filtered.genes)


def test_where_tuners_by_index_are() -> None:
    task, _ = get_sample_task()
    tuner = autotvm.tuner.GridSearchTuner(task)
    assert (tuner.begin_idx, tuner.end_idx, tuner.index, tuner.visited_max) == (0, 64, 0, 64)
    tuner.next_batch(3)
    assert tuner.index == 3
    task.config_space.multi_filter(lambda cfg: cfg["tile_x"].size[1] * cfg["tile_y"].size[1] >= 32)
    found = [k for k in range(64) if task.config_space.is_index_valid(k)]
    within = [k for k in found if 8 <= k <= 15]
    tuner = autotvm.tuner.GridSearchTuner(task, range_idx=(8, 15))
    assert (tuner.begin_idx, tuner.end_idx) == (8, 16)
    assert (tuner.index, tuner.visited_max) == (within[0], len(within))
    tuner.next_batch(8)
    assert tuner.index == 16 and not tuner.has_next()
    assert autotvm.tuner.RandomTuner(task).visited_max == len(found)


def test_how_far_a_droplet_is() -> None:
    task, target = get_sample_task()
    tuner = autotvm.tuner.DropletTuner(task, start_position=[3, 3])
    assert (tuner.execution, tuner.step, tuner.batch, tuner.total_execution) == (1, 1, 16, 8)
    assert tuner.best_choice == (-1, [0, 0], [float("inf")])
    assert tuner.next == [(27, [3, 3])]

    def tell(configs: list[autotvm.ConfigEntity], cost: float) -> None:
        given = [autotvm.MeasureInput(target, task, config) for config in configs]
        tuner.update(given, [MeasureResult((cost,), 0, 0.1, 0.0)] * len(configs))

    tell(tuner.next_batch(1), 1.0)
    assert tuner.batch == 1 and tuner.best_choice == (27, [3, 3], [1.0])
    around = tuner.next_batch(6)
    moved = [np.subtract(task.config_space.point2knob(c.index), 3).tolist() for c in around]
    assert sorted(moved) == [[-1, -1], [-1, 0], [0, -1], [0, 1], [1, 0], [1, 1]]
    tell(around, 2.0)  # none is faster
    assert tuner.has_next() and tuner.execution == 2 and len(tuner.next) == 6
    tell(tuner.next_batch(1), 0.5)
    assert tuner.best_choice[2] == [0.5] and tuner.best_choice[0] != 27


@pytest.mark.slow
def test_what_a_tuner_was_told() -> None:
    task, _ = get_sample_task()
    tuner = autotvm.tuner.XGBTuner(task)
    pairs = get_sample_records(5)
    failed = MeasureResult((ValueError(),), 4, 0.1, 0.0)
    tuner.update([inp for inp, _ in pairs], [*(res for _, res in pairs[:4]), failed])
    assert tuner.xs == [0, 1, 2, 3, 4] and set(tuner.xs) <= tuner.visited
    assert tuner.ys == [*(task.flop / seconds for seconds in (1, 2, 3, 4)), 0.0]
    option = autotvm.measure_option(builder="local", runner=DummyRunner())
    tuner.tune(3, option)
    assert len(tuner.xs) == len(set(tuner.xs)) == 8 and max(tuner.ys) == tuner.best_flops
    tuner.reset()
    assert tuner.xs == [] == tuner.ys


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("features", [None, "knob"])
def test_a_tuners_model_and_the_one_it_began_with(features: str | None) -> None:
    task, _ = get_sample_task()
    records = get_sample_records(64)
    for least, known in ((64, True), (65, False)):
        tuner = autotvm.tuner.XGBTuner(task, feature_type=features)
        assert tuner.cost_model.base_model is None
        tuner.load_history(iter(records), min_seed_records=least)
        base = tuner.cost_model.base_model
        assert (base is not None) is known
    told = tuner.cost_model.predict(range(64))
    assert told.shape == (64,)


@pytest.mark.parametrize("loss", ["reg", "rank"])
def test_a_cost_model_learns_which_configurations_are_fast(loss: str) -> None:
    task, _ = get_sample_task()
    space = task.config_space
    model = XGBoostCostModel(task, feature_type="knob", loss_type=loss)
    assert model.predict([3, 5]).tolist() == [0.0, 0.0]
    wide = np.array([space.get(i)["tile_x"].size[1] for i in range(64)])
    speeds = 1e9 * wide
    speeds[7] = 0.0  # a failure
    assert model.fit(range(64), speeds, plan_size=16)
    scores = model.predict(range(64))
    assert scores[wide == 128].min() > scores[wide == 1].max()


def test_a_cost_model_begins_with_another() -> None:
    task, _ = get_sample_task()
    before = XGBoostCostModel(task, "itervar")
    records = get_sample_records(200)
    assert not before.fit_log(records, min_seed_records=201)
    assert before.fit_log(records, plan_size=32)
    model = before.spawn_base_model()
    assert model.base_model is None and model.feature_type == "itervar"
    model.load_basemodel(before)
    scores = model.predict(range(64))
    assert model.base_model is before and scores.tolist() == before.predict(range(64)).tolist()
    assert np.corrcoef(scores, -np.arange(64))[0, 1] > 0.3  # the first ones were the fast ones
    model.fit(range(64), np.arange(1, 65) * 1e9, plan_size=32)  # the task's own say the opposite
    assert np.corrcoef(model.predict(range(64)), np.arange(64))[0, 1] > 0.8


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit([1, 2], [3.0], 4), "2 configurations, and 1 results"),
        (lambda m: m.predict([64]), "indices below 64"),
        (lambda m: m.predict([0.5]), "indices below 64"),
        (lambda m: m.load_basemodel(XGBoostCostModel(m.task, "knob")), "spawn_base_model"),
        (lambda m: XGBoostCostModel(m.task, "leaves"), "Use one of"),
    ],
)
def test_what_a_cost_model_refuses(call: object, message: str) -> None:
    task, _ = get_sample_task()
    with pytest.raises(SpaceError, match=message):
        call(XGBoostCostModel(task))  # type: ignore[operator]
