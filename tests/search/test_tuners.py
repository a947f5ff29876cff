"""AutoTVM's spelling: tuners, callbacks, attributes, the lines on the screen."""

import logging
import re

import pytest

from search.spaces import answer, cpu_task, flagship
from tests.replay import NullBuilder, ReplayRunner
from tilewright.base.errors import SearchError, SpaceError
from tilewright.measure.jobs import RunResult
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult
from tilewright_tvm.autotvm.tuner import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    XGBTuner,
)
from tilewright_tvm.autotvm.tuners import format_si

LINE = re.compile(
    r"No: (\d+)\tGFLOPS: (\d+\.\d\d)/(\d+\.\d\d)\tresult: MeasureResult\(costs=\((.*),\), "
    r"error_no=(\d), all_cost=[\d.e-]+, timestamp=[\d.]+\)\t"
    r"\[\('tile_\w', \[.*\]\), .*\],,None,(\d+)"
)


@pytest.fixture
def option():
    made = []

    def make(result):
        builder, runner = NullBuilder(2), ReplayRunner(result)
        made.extend([builder, runner])
        return {"builder": builder, "runner": runner}

    yield make
    for one in made:
        one.close()


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [XGBTuner, RandomTuner, GridSearchTuner, GATuner, DropletTuner])
def test_tuning_finds_a_best_configuration(kind, option):
    task = cpu_task()
    seen = []

    def callback(tuner, inputs, results):
        seen.extend(zip(inputs, results, strict=True))
        assert tuner.task is task

    tuner = kind(task)
    tuner.tune(n_trial=24, measure_option=option(answer(task)), callbacks=[callback])
    assert len(seen) == 24 == tuner.ttl
    best = min(seen, key=lambda pair: pair[1].costs[0])
    assert tuner.best_config.index == best[0].config.index
    assert tuner.best_flops == pytest.approx(task.flop / best[1].costs[0])
    assert seen[tuner.best_iter - 1][0].config == tuner.best_config
    assert tuner.best_measure_pair[1].error_no == 0
    assert tuner.best_config.cost == best[1].costs[0]


@pytest.mark.slow
def test_the_lines_on_the_screen(option, caplog):
    task = flagship()

    def result(job):
        if job.trial == 2:
            return RunResult(error="run", message="illegal address\nat some place")
        return answer(task)(job)

    with caplog.at_level(logging.DEBUG, "autotvm"):
        XGBTuner(task).tune(n_trial=6, measure_option=option(result))
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("No:")]
    found = [LINE.fullmatch(line) for line in lines]
    assert len(lines) == 6 and all(found)
    assert [int(m[1]) for m in found] == [1, 2, 3, 4, 5, 6]
    best = 0.0
    for m in found:
        best = max(best, float(m[2]))
        assert float(m[3]) == best
    failed = found[2]
    assert failed[2] == "0.00" and failed[5] == "4" and "run: illegal address" in failed[4]
    assert 0 <= int(found[0][6]) < len(task.config_space)


@pytest.mark.long
def test_early_stopping(option):
    tuner = RandomTuner(flagship())
    tuner.tune(n_trial=300, measure_option=option(answer(flagship())), early_stopping=20)
    assert tuner.ttl < 300 and tuner.ttl >= tuner.best_iter + 20


@pytest.mark.slow
def test_history_is_learned_from_and_not_repeated(option):
    task = cpu_task()
    first, again = XGBTuner(task, seed=1), XGBTuner(task, seed=1)
    pairs = []
    first.tune(
        32, option(answer(task)), callbacks=[lambda t, i, r: pairs.extend(zip(i, r, strict=True))]
    )
    again.load_history(pairs)
    assert len(again.model) == 32 and again.model.trained
    new = []
    again.tune(16, option(answer(task)), callbacks=[lambda t, i, r: new.extend(i)])
    assert not {i.config.index for i in new} & {i.config.index for i, _ in pairs}
    records = [r.record for _, r in pairs]
    third = XGBTuner(task)
    third.load_history(records)
    assert len(third.model) == 32


def test_the_best_of_an_earlier_run_stays(option):
    task = cpu_task()
    tuner = GridSearchTuner(task)
    tuner.tune(8, option(answer(task)))
    best = tuner.best_config, tuner.best_flops, tuner.best_measure_pair
    tuner.tune(8, option(lambda job: RunResult(costs=(1.0,), verified=True)))
    assert (tuner.best_config, tuner.best_flops, tuner.best_measure_pair) == best
    tuner.tune(8, option(lambda job: RunResult(costs=(1e-9,), verified=True)))
    assert tuner.best_flops == pytest.approx(task.flop / 1e-9)


def test_history_of_another_task_teaches_the_model_and_nothing_else(option):
    """Even where its configurations have the same knobs and inner sizes."""
    task, other = cpu_task(48, 64, 32), cpu_task(48, 64, 16)
    pairs = []
    RandomTuner(other).tune(
        24, option(answer(other)), callbacks=[lambda t, i, r: pairs.extend(zip(i, r, strict=True))]
    )
    tuner = XGBTuner(task)
    tuner.update([i for i, _ in pairs], [r for _, r in pairs])
    assert len(tuner.model) == 0
    tuner.load_history(pairs, min_seed_records=500)
    assert len(tuner.model) == 0
    tuner.load_history(pairs)
    assert len(tuner.model) == 24 and tuner.model.trained
    (pool,) = tuner.proposer.pools
    assert len(pool.visited) == 0


def test_one_may_write_a_loop_of_ones_own():
    task = cpu_task()
    tuner = XGBTuner(task)
    seen = set()
    for _ in range(3):
        assert tuner.has_next()
        batch = tuner.next_batch(8)
        seen |= {c.index for c in batch}
        inputs = [MeasureInput(task.target, task, c) for c in batch]
        results = [MeasureResult((1e-4 * (1 + k),), 0, 0.1, 0.0) for k in range(len(batch))]
        tuner.update(inputs, results)
    assert len(seen) == 24 == len(tuner.model)


def test_a_run_without_success_tells_where_the_messages_are(option, caplog):
    task = cpu_task()
    tuner = RandomTuner(task)
    tuner.set_error_threshold(5)
    wrong = RunResult(error="wrong", message="output C is wrong")
    with caplog.at_level(logging.WARNING, "autotvm"):
        with pytest.raises(SearchError, match="none of 8 trials succeeded.*output C is wrong"):
            tuner.tune(8, option(lambda job: wrong))
    text = caplog.text
    assert "6 trials in a row failed" in text and "No trial of" in text
    path = re.search(r"messages are in (\S+)", text)[1]
    with open(path) as f:
        assert f.read().count("output C is wrong") == 8
    assert tuner.best_config is None


def test_results_print_as_users_know_them():
    result = MeasureResult((0.0015,), 0, 3.5, 1553483919.8)
    assert repr(result) == (
        "MeasureResult(costs=(0.0015,), error_no=0, all_cost=3.5, timestamp=1553483919.8)"
    )
    costs, error_no, *_ = result
    assert costs == (0.0015,) and error_no == 0


def test_options_of_autotvm_are_accepted(option):
    task = cpu_task()
    tuner = XGBTuner(
        task, plan_size=32, feature_type="knob", loss_type="rank", num_threads=4, optimizer="sa",
        diversity_filter_ratio=2, log_interval=10,
    )  # fmt: skip
    tuner.tune(n_trial=8, measure_option=option(answer(task)), si_prefix="M")
    assert tuner.ttl == 8


@pytest.mark.parametrize(
    "make",
    [
        lambda t: XGBTuner(t, feature_type="magic"),
        lambda t: XGBTuner(t, loss_type="magic"),
        lambda t: GATuner(t, pop_size=2, elite_num=3),
        lambda t: GridSearchTuner(t, range_idx=(10, 5)),
        lambda t: RandomTuner(t, range_idx=(0, 10**9)),
        lambda t: RandomTuner(t).tune(4, {}, si_prefix="X"),
    ],
)
def test_refusals(make):
    with pytest.raises(SpaceError):
        make(cpu_task())


def test_si_prefixes():
    assert format_si(2.5e9, "G") == 2.5 and format_si(7.0, "") == 7.0
