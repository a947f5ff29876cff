"""Trees out of a cost model and back: the same predictions, whatever the trees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.spaces import Instant, cpu_task
from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright.cost.features import ATOM_COLUMNS, FEATURES, PLAIN
from tilewright.knowledge.trees import Trees
from tilewright.search.loop import Options as SearchOptions
from tilewright.search.loop import tune
from tilewright.search.propose import prior
from tilewright.search.propose.cost_model import CostModel, Lesson, Options, train
from tilewright.search.propose.model_proposer import evaluate
from tilewright.search.warm_start import Known


def rows(rng, count):
    return rng.normal(size=(count, len(FEATURES))).astype(np.float32)


def lesson(features, labels):
    ones = np.ones(len(labels))
    return Lesson(features, labels, ones, [len(labels)], np.zeros(len(labels)))


@pytest.mark.slow
@examples(10)
@given(seed=st.integers(0, 99), trees=st.integers(1, 20), depth=st.integers(1, 8))
def test_trees_of_a_model_predict_the_same(tmp_path_factory, seed, trees, depth):
    rng = np.random.default_rng(seed)
    seen = rows(rng, 300)
    labels = seen[:, 0] * seen[:, 1] + rng.normal(size=300)
    booster = train(lesson(seen, labels), Options(trees=trees, depth=depth))
    path = tmp_path_factory.mktemp("prior") / "trees"
    prior.trees_of(booster).save(path)
    found, asked = Trees.load(path), rows(rng, 64)
    want = booster.inplace_predict(asked)
    np.testing.assert_array_equal(prior.booster_of(found).inplace_predict(asked), want)
    np.testing.assert_allclose(prior.predict(found, asked), want, atol=1e-5)


def taught(task, count=400):
    """A model that has seen candidates of `task`, whose costs `Instant` gives."""
    model, measurer = CostModel(), Instant([task])
    report = tune([task], measurer, None, SearchOptions(trials=count, tuner="random"), verify=False)
    assert report.trials == count
    indices = np.array([r.index for r in _members(task, measurer.records)])
    rows, machine = evaluate(task.sketches[0], indices)
    model.add("a", rows, machine, np.array([r.seconds for r in measurer.records]))
    model.fit()
    return model


def _members(task, records):
    space = task.sketches[0].space
    return [space.get(space.index_of(r.decisions)) for r in records]


@pytest.mark.long
def test_a_search_begins_with_what_trees_know(monkeypatch):
    """The first batch is better than without them, on a task of another size."""
    trees = prior.trees_of(taught(cpu_task(48, 64, 32)).booster)
    task, found = cpu_task(96, 64, 64), {}
    for name, known in (("with", Known(trees)), ("without", Known())):
        monkeypatch.setattr("tilewright.search.loop.recalled", lambda *_, known=known: known)
        best = []
        for seed in range(5):
            measurer = Instant([task])
            options = SearchOptions(trials=8, batch=8, seed=seed)
            tune([task], measurer, None, options, verify=False)
            best.append(min(r.seconds for r in measurer.records))
        found[name] = np.median(best)
    assert found["with"] < 0.9 * found["without"]


@pytest.mark.slow
def test_a_model_learns_what_its_trees_leave():
    rng = np.random.default_rng(0)
    seen = rows(rng, 400)
    shift = np.where(seen[:, 3] > 0, 1.0, -1.0)
    before, model = CostModel(), CostModel()
    before.add("a", seen, np.full(400, 1e-3), 1e-3 * np.exp(seen[:, 0]))
    before.fit()
    model.begin_with(prior.trees_of(before.booster))
    assert model.trained
    first = model.predict(seen, np.full(400, 1e-3))
    assert np.corrcoef(first, seen[:, 0])[0, 1] > 0.95
    model.add("b", seen, np.full(400, 1e-3), 1e-3 * np.exp(seen[:, 0] + shift))
    model.fit()
    assert np.corrcoef(model.predict(seen, np.full(400, 1e-3)), seen[:, 0] + shift)[0, 1] > 0.95


def test_trees_that_a_model_cannot_begin_with():
    rng = np.random.default_rng(0)
    other = train(lesson(rows(rng, 50), rng.normal(size=50)), Options(trees=1))
    trees = prior.trees_of(other)
    model = CostModel()
    model.add("a", rows(rng, 20), np.ones(20), np.ones(20))
    with pytest.raises(ModelError, match="it has rows"):
        model.begin_with(trees)
    with pytest.raises(ModelError, match="other features"):
        CostModel().begin_with(Trees(**{**vars(trees), "features": ("a",)}))


# -- columns that came later -----------------------------------------------------------------------


def older(names):
    """Trees of a version whose rows had these columns: by the first one alone."""
    arrays = {
        "feature": [0, -1, -1], "threshold": [0.5, 0, 0], "left": [1, 0, 0], "right": [2, 0, 0],
        "value": [0, -1.0, 1.0], "roots": [0],
    }  # fmt: skip
    return Trees(**{k: np.array(v) for k, v in arrays.items()}, base=0.0, features=tuple(names))


def with_atoms_in(rows, marks):
    rows[:, [FEATURES.index(name) for name in ATOM_COLUMNS]] = 0
    rows[marks, FEATURES.index("log_atoms")] = 5.0
    return rows


@pytest.mark.parametrize("names", [PLAIN, PLAIN[::-1], PLAIN[7:9]])
def test_trees_without_columns_of_atoms_go_on_for_kernels_without_atoms(names):
    seen = with_atoms_in(rows(np.random.default_rng(1), 40), slice(0, 10))
    model = CostModel()
    model.begin_with(older(names))
    found = model.predict(seen, np.ones(40))
    wanted = np.where(seen[:, FEATURES.index(names[0])] < 0.5, -1.0, 1.0)
    np.testing.assert_allclose(found[10:], wanted[10:], atol=1e-6)
    np.testing.assert_array_equal(found[:10], 0.0)  # they saw no such kernel


def test_trees_that_know_atoms_correct_all_kernels():
    seen = with_atoms_in(rows(np.random.default_rng(2), 40), slice(0, 10))
    model = CostModel()
    model.begin_with(older(FEATURES))
    assert (np.abs(model.predict(seen, np.ones(40))) > 0.5).all()


def test_a_model_of_kernels_without_atoms_has_no_columns_of_them(tmp_path):
    """Its trees, and files of them, are those that they were before such columns were there."""
    model, seen = CostModel(), with_atoms_in(rows(np.random.default_rng(3), 64), slice(0, 0))
    model.add("a", seen, np.ones(64), np.exp(seen[:, 0]))
    model.fit()
    assert prior.trees_of(model.booster).features == PLAIN
    model.save(tmp_path / "model.json")
    other = CostModel()
    other.load(tmp_path / "model.json")
    np.testing.assert_array_equal(*(m.predict(seen, np.ones(64)) for m in (model, other)))
    more = with_atoms_in(rows(np.random.default_rng(4), 64), slice(0, 32))
    model.add("b", more, np.ones(64), np.exp(more[:, 0]))
    model.fit()
    assert prior.trees_of(model.booster).features == FEATURES
    assert model.predict(more, np.ones(64)).shape == (64,)


def test_trees_of_both_kinds_each_tell_of_theirs(tmp_path):
    """Also where one of them is of both kinds already, and where one is missing."""
    rng = np.random.default_rng(3)
    seen, asked = rows(rng, 200), rows(rng, 80)
    column = FEATURES.index("log_atoms")
    asked[::2, column], asked[1::2, column] = 0, 3.0
    booster = train(lesson(seen[:, : len(PLAIN)], seen[:, 2]), Options(trees=5))
    plain = prior.trees_of(booster)
    atoms = prior.trees_of(train(lesson(seen, seen[:, 4] * 2), Options(trees=7)))
    both = prior.by_kind(plain, atoms)
    again = prior.by_kind(both, prior.by_kind(None, atoms))
    with_none = prior.predict(atoms, asked)
    want = np.where(asked[:, column] > 0, with_none, prior.predict(plain, asked[:, : len(PLAIN)]))
    assert len(plain.features) < len(atoms.features)
    assert np.abs(want - with_none).max() > 0.1
    for trees in (both, again):
        trees.save(tmp_path / "trees")
        known = prior.Prior(Trees.load(tmp_path / "trees"))
        np.testing.assert_allclose(known.predict(asked), want, atol=1e-5)
        alone = [known.predict(row[None])[0] for row in asked]  # xgboost has a way for one row
        np.testing.assert_allclose(alone, want, atol=1e-5)
    alone = prior.predict(prior.by_kind(None, atoms), asked)
    np.testing.assert_allclose(alone, np.where(asked[:, column] > 0, with_none, 0), atol=1e-5)
    told = prior.predict(prior.both_of(plain, both), asked)
    np.testing.assert_allclose(told, prior.predict(plain, asked) + want, atol=1e-5)
    assert prior.both_of(plain, plain).features == PLAIN
