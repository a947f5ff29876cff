"""The cost model: learns, tells how well on rows it had not seen, is the same every time."""

import copy

import numpy as np
import pytest

from tilewright.cost.features import FEATURES
from tilewright.search.propose.cost_model import MIN_ROWS, CostModel, Options, rank_correlation


def rows(n, seed=0):
    """Features, machine seconds, and measured seconds that the features explain."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n, len(FEATURES))).astype(np.float32)
    machine = np.exp(rng.standard_normal(n)) * 1e-4
    a, b, c = features[:, 3], features[:, 10], features[:, 20]
    residual = a * 0.7 + np.abs(b) - c * a * 0.2
    return features, machine, machine * np.exp(residual)


def test_before_the_first_fit_it_is_the_machine_model():
    model = CostModel()
    features, machine, _ = rows(20)
    np.testing.assert_allclose(model.predict(features, machine), np.log(machine))
    model.add("t", features[:4], machine[:4], machine[:4])
    model.fit()
    assert not model.trained and len(model) == 4 < MIN_ROWS


@pytest.mark.long
def test_it_learns_what_the_machine_model_misses():
    model = CostModel()
    model.add("t", *rows(400))
    model.fit()
    features, machine, measured = rows(300, seed=1)
    learned = rank_correlation(model.predict(features, machine), measured)
    assert learned > 0.93 > rank_correlation(machine, measured)


@pytest.mark.slow
def test_the_same_data_and_seed_give_the_same_model():
    features, machine, _ = rows(100, seed=2)
    found = []
    for seed in (1, 1, 2):
        model = CostModel(Options(seed=seed))
        model.add("t", *rows(100))
        model.fit()
        found.append(model.predict(features, machine))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.any(found[0] != found[2])


@pytest.mark.slow
def test_fitting_in_the_background_changes_nothing_until_it_is_finished():
    model, other = CostModel(), CostModel()
    for m in (model, other):
        m.add("t", *rows(64))
    other.fit()
    model.start_fit()
    assert not model.trained
    model.add("t", *rows(64, seed=9))  # not part of the fit that is under way
    assert model.finish_fit() and not model.finish_fit()
    assert model.trained
    features, machine, _ = rows(50, seed=3)
    np.testing.assert_array_equal(
        model.predict(features, machine), other.predict(features, machine)
    )
    model.close()


@pytest.mark.slow
def test_failures_count_as_slow():
    features, machine, measured = rows(200)
    bad = features[:, 5] > 0.5
    model = CostModel()
    model.add("t", features, machine, np.where(bad, np.inf, measured))
    model.fit()
    fresh, base, _ = rows(200, seed=4)
    found = model.predict(fresh, base) - np.log(base)
    assert found[fresh[:, 5] > 0.7].mean() > found[fresh[:, 5] < 0.3].mean() + 1


def test_a_task_without_any_success_is_no_obstacle():
    features, machine, measured = rows(40)
    model = CostModel()
    model.add("dead", features, machine, np.full(40, np.inf))
    model.add("alive", features, machine, measured)
    model.fit()
    assert np.isfinite(model.predict(features, machine)).all()


@pytest.mark.slow
def test_the_correlation_is_over_rows_not_seen_before():
    model = CostModel()
    model.add("t", *rows(100))
    assert model.correlation() is None
    model.fit()
    assert model.correlation() is None  # training rows do not count
    model.add("t", *rows(100, seed=5))
    found = model.correlation()
    assert found is not None and 0.8 < found < 1.0
    model.start_fit(background=False)
    model.add("t", *rows(100, seed=6))  # while it learns: the model in force judges them
    late = copy.copy(model)
    late._added, late._judged = [*model._added], model._judged.copy()
    model.finish_fit()
    assert model.correlation() == late.correlation() != found


@pytest.mark.parametrize(
    "a, b, expected",
    [([1, 2, 3], [2, 4, 9], 1), ([1, 2, 3], [3, 2, 1], -1), ([1, 1, 1], [1, 2, 3], 0)],
)
def test_rank_correlation(a, b, expected):
    assert rank_correlation(a, b) == pytest.approx(expected)


def test_ties_share_their_rank():
    assert rank_correlation([1, 1, 2, 2], [1, 2, 3, 4]) == pytest.approx(0.8944, abs=1e-4)
