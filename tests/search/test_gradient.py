"""Who is next by an objective of the user's, and by Ansor's gradient."""

from __future__ import annotations

import numpy as np
import pytest

from search.spaces import Instant, answer, cpu_task
from tilewright.base.errors import SpaceError
from tilewright.search.gradient import Gradient, kind_of
from tilewright.search.loop import Options, tune


def trials(tasks, costs=None, **options):
    """How many each task got.  costs: of each, an endless iterator of seconds"""
    measurer = Instant(tasks)

    def told(of, task):
        plain = answer(task)

        def result(job):
            return type(plain(job))(costs=(float(next(of)),), verified=True)

        return result

    if costs is not None:
        measurer.of = {t.key: told(iter(c), t) for t, c in zip(tasks, costs, strict=True)}
    report = tune(tasks, measurer, None, Options(**options), verify=False)
    return [task.trials for task in report.tasks]


@pytest.mark.slow
def test_an_objective_decides_what_counts():
    tasks = [cpu_task(48, 64, 32), cpu_task(24, 64, 32)]
    only_second = trials(tasks, trials=80, batch=4, objective=lambda costs: costs[1])
    assert only_second[0] == 4 and only_second[1] > 40
    slowest = [np.full(999, 5e-5), np.linspace(1e-3, 9e-4, 999)]
    first, second = trials(tasks, slowest, trials=80, batch=4, objective=max)
    assert first <= 12 and second > 50


@pytest.mark.parametrize("objective", [lambda costs: None, lambda costs: float("nan")])
def test_an_objective_that_is_no_number(objective):
    with pytest.raises(SpaceError, match="takes a list of seconds"):
        trials([cpu_task()], trials=20, batch=4, objective=objective)


def test_what_a_round_may_save():
    rounds = [10.0, 8.0, 7.0, 4.0]
    assert Gradient(alpha=1, window=3).saved(rounds, 4.0, None) == 2.0
    assert Gradient(alpha=1, window=4).saved(rounds, 4.0, None) == 1.0
    assert Gradient(alpha=0).saved(rounds, 4.0, None) == 1.0
    assert Gradient(alpha=0, beta=2).saved(rounds, 4.0, 0.5) == 3.0
    assert Gradient(alpha=0, beta=2).saved(rounds, 4.0, 1.9) == 1.0
    assert Gradient(alpha=0.25, window=3).saved(rounds, 4.0, None) == 0.25 * 2 + 0.75 * 1


def test_alike_is_the_same_name_and_about_the_same_work():
    assert kind_of("dense", 1000) == kind_of("dense", 1100) != kind_of("dense", 4000)
    assert kind_of("dense", 1000) != kind_of("conv2d", 1000)


@pytest.mark.slow
def test_the_past_decides_with_alpha_1():
    stuck, moving = cpu_task(48, 64, 32), cpu_task(24, 64, 32)
    costs = [np.full(999, 1e-3), np.linspace(1, 0.2, 999) * 1e-4]
    gradient = Gradient(alpha=1.0, window=2)
    got = trials([stuck, moving], costs, trials=120, batch=4, gradient=gradient, negligible=0)
    assert got[1] > 3 * got[0]


@pytest.mark.long
def test_a_task_that_lags_behind_those_alike_is_next():
    """Both compute as much; the second is ten times slower, and hopes to catch up."""
    first, second = cpu_task(32, 64, 32), cpu_task(64, 32, 32)
    assert first.flop == second.flop and kind_of(first.name, first.flop) == kind_of(
        second.name, second.flop
    )
    costs = [np.full(999, 1e-4), np.full(999, 1e-3)]
    near = Gradient(alpha=0.0, beta=1.0)
    got = trials([first, second], costs, trials=200, batch=4, gradient=near, negligible=0)
    assert got[1] > 10 * got[0]


@pytest.mark.parametrize(
    "given", [{"alpha": -1}, {"alpha": 2}, {"beta": 0}, {"beta": float("inf")}, {"window": 0}]
)
def test_numbers_that_make_no_gradient(given):
    with pytest.raises(SpaceError):
        Gradient(**given)
