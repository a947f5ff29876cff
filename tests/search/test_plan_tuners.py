"""Tuners by AutoTVM's names: each option has its effect, or is refused."""

import logging

import numpy as np
import pytest

from search.spaces import Instant, answer, cost_of, cpu_task, flagship
from tests.replay import NullBuilder, ReplayRunner
from tilewright.base.errors import ModelError, SpaceError
from tilewright.cost.features import FEATURES
from tilewright.search.loop import tune
from tilewright.search.propose.cost_model import CostModel
from tilewright.search.propose.cost_model import Options as ModelOptions
from tilewright.search.propose.droplet import DropletProposer, chance_of_difference
from tilewright.search.propose.losses import DEGREES, relevance
from tilewright.search.propose.named import tuner_name, tuners
from tilewright.search.propose.proposers import Candidate, Outcome
from tilewright.search.report import Options
from tilewright_tvm.autotvm.annealing import SimulatedAnnealingOptimizer
from tilewright_tvm.autotvm.plan_model import PlanModel, Told, recall
from tilewright_tvm.autotvm.plan_proposer import Planning, PlanProposer
from tilewright_tvm.autotvm.planned import PLANNED, Learning
from tilewright_tvm.autotvm.tuner import DropletTuner, XGBTuner

SEEDS_NAMES = [
    "xgb", *(f"xgb_{f}" for f in ("knob", "itervar", "curve")),
    *(f"xgb_{loss}{f}" for loss in ("rank", "rank_binary")
      for f in ("", "_knob", "_itervar", "_curve")),
    "ga", "random", "gridsearch",
]  # fmt: skip


def drive(proposer, task, trials, batch=8):
    """Outcomes of so many trials, in order."""
    found = []
    while len(found) < trials:
        told = [Outcome(c, cost_of(c, task)) for c in proposer.suggest(batch)]
        if not told:
            break
        proposer.update(told)
        found += told
    return found


def test_all_names_are_there():
    assert {*SEEDS_NAMES, "droplet"} == {*tuners()} and {*PLANNED} <= {*tuners()}
    assert tuner_name("xgb-rank") == "xgb_rank" and tuner_name("grid") == "gridsearch"
    with pytest.raises(SpaceError, match="no such tuner.*xgb_rank_binary_curve"):
        tuner_name("magic")


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", tuners())
def test_every_name_runs_a_search(name):
    task = cpu_task(24, 32, 16)
    measurer = Instant([task])
    options = Options(trials=72, tuner=name, negligible=0, fruitless=0)
    report = tune([task], measurer, options=options, verify=False)
    assert report.trials == 72 or report.tasks[0].exhausted
    chosen = [str(r.decisions) for r in measurer.records]
    assert len(set(chosen)) == len(chosen)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("features", ["knob", "itervar", "curve"])
@pytest.mark.parametrize("loss", ["reg", "rank", "rank-binary"])
def test_plans_are_better_than_chance(features, loss):
    task = cpu_task()
    proposer = PlanProposer(task, 1, Planning(features, loss, size=32))
    seconds = [o.seconds for o in drive(proposer, task, 96)]
    assert np.median(seconds[32:62]) < np.median(seconds[:32])
    assert proposer.model.trained


@pytest.mark.slow
def test_a_plan_ends_with_random_candidates_and_covers_knobs_if_asked():
    task = flagship()
    plans = {}
    for diversity in (None, 4):
        proposer = PlanProposer(task, 0, Planning("knob", size=40, diversity=diversity))
        drive(proposer, task, 40)
        assert len(proposer._plan) == 38  # and two random ones
        space = task.config_space
        positions = space.positions(np.array([c.index for c in proposer._plan]))
        plans[diversity] = sum(len(np.unique(row)) for row in positions)
    assert plans[4] > plans[None]


@pytest.mark.parametrize("loss", ["rank", "rank-binary"])
def test_an_order_takes_two_valid_results(loss):
    rows = np.random.default_rng(0).random((8, 3), np.float32)
    seconds = np.full(8, np.inf)
    model = PlanModel(loss)
    assert not model.fit(Told(rows, seconds), 4)
    seconds[3] = 1e-3
    assert not model.fit(Told(rows, seconds), 4) and not model.predict(rows).any()
    seconds[5] = 2e-3
    assert model.fit(Told(rows, seconds), 4) and model.trained
    with_one = CostModel(ModelOptions(loss=loss))
    features = np.random.default_rng(1).random((32, len(FEATURES)), np.float32)
    machine = np.full(32, 1e-3)
    with_one.add("t", features, machine, np.where(np.arange(32) == 4, 1e-3, np.inf))
    with_one.fit()
    assert not with_one.trained
    assert np.allclose(with_one.predict(features, machine), np.log(machine))


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["rank", "rank-binary"])
def test_the_default_model_learns_an_order(loss, tmp_path):
    rng = np.random.default_rng(0)
    features = rng.random((200, len(FEATURES)), np.float32)
    seconds = 1e-3 * np.exp(3 * features[:, 2])
    model = CostModel(ModelOptions(loss=loss))
    model.add("a", features, np.full(200, 1e-3), seconds)
    model.add("b", features, np.full(200, 1e-1), 100 * seconds)
    model.fit()
    found = model.predict(features, np.full(200, 1e-3))
    fast, slow = seconds < np.median(seconds) / 2, seconds > 2 * np.median(seconds)
    assert found[fast].mean() < found[slow].mean()
    model.save(tmp_path / "m.json")
    with pytest.raises(ModelError, match=f"its loss is '{loss}'"):
        CostModel().load(tmp_path / "m.json")


def test_labels():
    speed = np.array([0.0, 0.2, 0.5, 0.6, 1.0])
    assert relevance("reg", speed) is speed
    assert relevance("rank-binary", speed).tolist() == [0, 0, 0, 1, 1]
    degrees = relevance("rank", np.linspace(0, 1, 300))
    assert degrees[-1] == DEGREES - 1 and degrees[0] == 0 and (np.diff(degrees) >= 0).all()
    assert len(np.unique(degrees[-4:])) == 4  # finer among the fast


def test_recall():
    speeds = np.array([1.0, 0.5, 0.25, 0.0])
    assert recall(speeds, speeds, 3) == 1.0
    assert recall(-speeds, speeds, 2) == 0.0
    assert recall([0.5, 1.0, 0, 0], speeds, 2) == pytest.approx(0.5)  # 0 of 1, 2 of 2


def test_history_fades():
    rng = np.random.default_rng(0)
    rows = rng.random((400, 4), np.float32)
    model = PlanModel()
    model.fit_base([Told(rows, 1 / (0.1 + rows[:, 0]))])
    assert np.corrcoef(model.predict(rows), rows[:, 0])[0, 1] > 0.9
    own = rows[:300]
    model.fit(Told(own, 1 / (0.1 + own[:, 1])), 32)
    assert np.corrcoef(model.predict(rows), rows[:, 1])[0, 1] > 0.9


def test_annealing_finds_the_greatest_score():
    space = flagship().config_space

    class Model:
        def predict(self, indices):
            positions = space.positions(np.asarray(indices))
            score = -np.abs(positions - 3).sum(axis=0).astype(float)
            return np.where(positions[0] % 2 == 0, -np.inf, score)  # refused

    found = SimulatedAnnealingOptimizer(space).find_maximums(Model(), 5, {7})
    assert len(found) == 5 == len({*found}) and 7 not in found
    scores = Model().predict(np.array(found))
    sample = Model().predict(space.sample(5000, np.random.default_rng(0)))
    assert scores[0] == scores.max() and np.isfinite(scores).all() and scores[0] > sample.max()
    again = SimulatedAnnealingOptimizer(space).find_maximums(Model(), 5, {*found})
    assert not {*again} & {*found}


def run(tuner, task, trials):
    builder, runner = NullBuilder(2), ReplayRunner(answer(task))
    seen = []
    option = {"builder": builder, "runner": runner}
    try:
        tuner.tune(trials, option, callbacks=[lambda t, i, r: seen.extend(i)])
    finally:
        builder.close()
        runner.close()
    return [given.config.index for given in seen]


def test_an_optimizer_of_ones_own():
    task = cpu_task()
    asked = []

    class First:
        def find_maximums(self, model, num, exclusive):
            asked.append((num, set(exclusive)))
            legal = [i for i in range(task.config_space.range_length) if i not in exclusive]
            scores = model.predict(np.array(legal[:200]))
            return [i for i, s in zip(legal, scores, strict=False) if np.isfinite(s)][:num]

    tuner = XGBTuner(task, plan_size=16, feature_type="knob", optimizer=First())
    chosen = run(tuner, task, 40)
    assert asked[0][0] == 16 and asked[0][1] >= {*chosen[:16]}
    legal = np.flatnonzero(task.sketches[0].legal(np.arange(task.config_space.range_length)))
    fresh = [i for i in legal if i not in asked[0][1]]
    assert {*chosen} >= {int(i) for i in fresh[:8]}

    class Wrong:
        def find_maximums(self, model, num, exclusive):
            return [-1]

    with pytest.raises(SpaceError, match="Wrong.find_maximums.*it gave"):
        run(XGBTuner(task, plan_size=16, feature_type="knob", optimizer=Wrong()), task, 40)


def test_options_choose_the_tuner():
    task = cpu_task()
    assert XGBTuner(task).name == "xgb" == XGBTuner(task, loss_type="reg").name
    assert XGBTuner(task, loss_type="rank").name == "xgb_rank"
    assert XGBTuner(task, optimizer="sa").name == "xgb_itervar"
    tuner = XGBTuner(
        task, feature_type="curve", loss_type="rank-binary", plan_size=8, num_threads=2,
        diversity_filter_ratio=2, log_interval=None,
    )  # fmt: skip
    assert tuner.name == "xgb_rank_binary_curve"
    planning = tuner.proposer.planning
    assert planning == Planning("curve", "rank-binary", 8, 2, None, 2, None)
    wide = XGBTuner(task, diversity_filter_ratio=3, num_threads=2, plan_size=24)
    assert wide.proposer.plan.wide == 48 and wide.model.options.threads == 2
    assert Learning("knob", "rank-binary").name == "xgb_rank_binary_knob"


@pytest.mark.slow
def test_the_plan_size_is_when_the_model_learns(caplog):
    task = cpu_task()
    tuner, fits = XGBTuner(task, plan_size=20), []
    start = tuner.model.start_fit
    tuner.model.start_fit = lambda **k: fits.append(len(tuner.model)) or start(**k)
    run(tuner, task, 64)
    assert len(fits) == 3 or fits[1] - fits[0] == 20
    with caplog.at_level(logging.DEBUG, "autotvm"):
        run(XGBTuner(task, plan_size=20, feature_type="knob", log_interval=2), task, 24)
    assert any("tr-a-recall@20" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize(
    "options",
    [
        {"plan_size": 0}, {"num_threads": 0}, {"diversity_filter_ratio": 0.5}, {"log_interval": 0},
        {"feature_type": "magic"}, {"loss_type": "magic"}, {"optimizer": "magic"},
    ],
)  # fmt: skip
def test_refusals(options):
    with pytest.raises(SpaceError, match="XGBTuner"):
        XGBTuner(cpu_task(), **options)


@pytest.mark.slow
def test_droplet_goes_downhill_to_a_place_without_faster_neighbours():
    task = cpu_task()
    proposer = DropletProposer(task, start=[0, 0, 0, 0])
    told = drive(proposer, task, 10_000)
    assert proposer.exhausted and proposer.suggest(4) == []
    legal = np.flatnonzero(task.sketches[0].legal(np.arange(task.config_space.range_length)))
    every = sorted(cost_of(Candidate(task.sketches[0], int(i)), task) for i in legal)
    best = min(o.seconds for o in told)
    assert best <= every[len(every) // 20] and len(told) < len(legal)


def test_droplet_waits_for_what_is_on_its_way():
    task = cpu_task(24, 32, 16)
    proposer = DropletProposer(task)
    first = proposer.suggest(10_000)
    assert first and proposer.suggest(4) == [] and not proposer.exhausted
    proposer.update([Outcome(c, 1.0 + k) for k, c in enumerate(first)])
    assert proposer.exhausted or proposer.suggest(4)


def test_droplet_believes_only_what_is_unlikely_to_be_luck():
    task = cpu_task()
    proposer = DropletProposer(task, p_value=0.05)
    (a, b, c) = proposer.suggest(1) + proposer.suggest(2)
    proposer.update([Outcome(a, 1.0, (0.9, 1.0, 1.1))])
    proposer.update([Outcome(b, 0.99, (0.89, 0.99, 1.09))])
    (drop,) = proposer._drops
    assert drop.best.candidate == a
    proposer.update([Outcome(c, 0.5, (0.49, 0.5, 0.51))])
    assert drop.best.candidate == c


def test_the_t_test():
    """Values of a table: two samples of 3 whose t is 2.776 differ as much 5 times in 100."""
    a = np.array([-1.0, 0.0, 1.0])
    shift = 2.776 * np.sqrt(2 / 3)
    assert chance_of_difference(a, a + shift) == pytest.approx(0.05, abs=2e-3)
    assert chance_of_difference(a, a) == pytest.approx(1.0, abs=1e-2)
    assert chance_of_difference([1.0, 1.0], [2.0, 2.0]) == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda t: DropletTuner(t, pvalue=0.0),
        lambda t: DropletTuner(t, start_position=[0]),
        lambda t: DropletTuner(t, start_position=[10**6, 0, 0, 0]),
    ],
)
def test_droplet_refuses(make):
    with pytest.raises(SpaceError):
        make(cpu_task())
