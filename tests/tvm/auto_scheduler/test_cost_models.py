"""Models of users: what they are told, what their scores do; and the models that are here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tvm.auto_scheduler.workloads import three
from tilewright.base.errors import SpaceError
from tilewright_tvm import auto_scheduler


class Own(auto_scheduler.PythonBasedModel):
    """Likes what `taste` of the number of steps says."""

    def __init__(self, taste: Any) -> None:
        super().__init__()
        self.taste, self.told, self.asked = taste, [], []

    def update(self, inputs: Any, results: Any) -> None:
        self.told += [(i.task, i.state, r.costs) for i, r in zip(inputs, results, strict=True)]

    def predict(self, task: Any, states: Any) -> Any:
        self.asked.append((task, len(states), len(self.told)))
        return [self.taste(state) for state in states]


def length(state: Any) -> int:
    return len(str(state.to_json()))


def measured(task: Any, options: Any, taste: Any, trials: int = 24) -> tuple[Own, list[int]]:
    model, lengths = Own(taste), []
    policy = auto_scheduler.SketchPolicy(task, model)

    def note(policy: Any, inputs: Any, results: Any) -> None:
        lengths.extend(length(i.state) for i in inputs)

    task.tune(options(trials, note), policy)
    return model, lengths


@pytest.mark.slow
def test_its_scores_say_what_is_measured(task: Any, options: Any) -> None:
    long, short = (measured(task, options, t)[1] for t in (length, lambda s: -length(s)))
    assert len(long) == len(short) == 24
    assert min(sorted(long)[3:]) > max(sorted(short)[:-3])  # but for those at random


@pytest.mark.slow
def test_it_is_told_every_trial_once_before_it_is_asked_again(task: Any, options: Any) -> None:
    model, _ = measured(task, options, length)
    assert len(model.told) == 24
    assert len({str(state.to_json()) for _, state, _ in model.told}) == 24
    assert all(own is task for own, _, _ in model.told)
    assert [told for _, _, told in model.asked] == sorted(told for _, _, told in model.asked)
    assert model.asked[0][2] == 0 and model.asked[-1][2] > 0


@pytest.mark.slow
def test_what_it_scores_minus_infinity_is_not_measured(task: Any, options: Any) -> None:
    middle = sorted(
        length(s) for s in auto_scheduler.SketchPolicy(task).sample_initial_population()
    )
    most = middle[len(middle) // 2]
    _, lengths = measured(task, options, lambda s: -np.inf if length(s) > most else 0.0)
    assert lengths and max(lengths) <= most


@pytest.mark.slow
def test_it_learns_from_the_log_to_go_on_from(task: Any, options: Any, log: str) -> None:
    model = Own(length)
    preload = auto_scheduler.PreloadMeasuredStates(log)
    task.tune(options(2), auto_scheduler.SketchPolicy(task, model, init_search_callbacks=[preload]))
    assert model.asked[0][2] == 3 and len(model.told) == 5


@pytest.mark.slow
def test_one_serves_the_tasks_of_a_network(options: Any) -> None:
    tasks, model = three(8, 12, 16), Own(length)
    policies = [auto_scheduler.SketchPolicy(task, model) for task in tasks]
    scheduler = auto_scheduler.TaskScheduler(tasks, callbacks=[])
    report = scheduler.tune(options(24, num_measures_per_round=4), policies)
    assert report.trials == len(model.told) == 24
    assert {id(task) for task, _, _ in model.told} == {id(task) for task in tasks}


@pytest.mark.slow
@pytest.mark.parametrize("answer", [[1.0], [[1.0]], "best", [float("nan")], None])
def test_a_score_for_each_state(task: Any, options: Any, answer: Any) -> None:
    class Wrong(Own):
        def predict(self, task: Any, states: Any) -> Any:
            return answer if answer != [float("nan")] else np.full(len(states), np.nan)

    with pytest.raises(SpaceError, match=r"Wrong\.predict"):
        task.tune(options(2), auto_scheduler.SketchPolicy(task, Wrong(length)))


@pytest.mark.slow
def test_a_model_needs_to_predict_and_may_learn(task: Any, options: Any) -> None:
    with pytest.raises(TypeError, match="predict"):
        type("Half", (auto_scheduler.PythonBasedModel,), {"update": lambda *_: None})()
    fixed = {"predict": lambda self, task, states: [0.0] * len(states)}
    model = type("Fixed", (auto_scheduler.PythonBasedModel,), fixed)()
    model.update([], [])
    policy = auto_scheduler.SketchPolicy(task, model)
    assert isinstance(policy, auto_scheduler.search_policy.SearchPolicy)
    assert task.tune(options(2), policy).trials == 2


@pytest.mark.slow
def test_a_subclass_of_a_model_that_is_here_counts(task: Any, options: Any) -> None:
    class Short(auto_scheduler.XGBModel):
        def predict(self, task: Any, states: Any) -> Any:
            assert np.isfinite(super().predict(task, states)).all()
            return [-length(state) for state in states]

    lengths: list[int] = []
    model = Short()
    task.tune(
        options(16, lambda _, inputs, __: lengths.extend(length(i.state) for i in inputs)),
        auto_scheduler.SketchPolicy(task, model),
    )
    _, short = measured(task, options, lambda s: -length(s), 16)
    assert lengths == short and len(model.model) == 16


@pytest.mark.slow
def test_scores_of_the_model_that_is_here(task: Any, options: Any, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel())
    task.tune(options(60, auto_scheduler.RecordToFile(log)), policy)
    pairs = auto_scheduler.load_records(log)
    inputs, results = [i for i, _ in pairs], [r for _, r in pairs]
    model = auto_scheduler.XGBModel()
    states = [i.state for i in inputs]
    assert model.predict(task, states).max() == 1.0
    model.update(inputs, results)
    costs = np.array([r.costs[0] for r in results])
    good = np.isfinite(costs)
    speeds = costs[good].min() / costs[good]
    scores = model.predict(task, states)[good]
    assert np.corrcoef(speeds, scores)[0, 1] > 0.6
    with pytest.raises(SpaceError, match="59 inputs and 60 results"):
        model.update(inputs[1:], results)
    with pytest.raises(SpaceError, match="scored as a whole"):
        model.predict_stages(task, states)
    random = auto_scheduler.RandomModel()
    random.update(inputs, results)
    assert len(set(random.predict(task, states))) == len(states)
