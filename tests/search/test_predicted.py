"""What trees of knowledge predict to be fastest runs where nothing was measured, in builds and as
the first of a search; what it costs, and what happens where it cannot be had."""

from __future__ import annotations

from concurrent.futures import Future

import numpy as np
import pytest

from graph.small import image, residual, wanted
from tilewright import cpu, knowledge, te, topi
from tilewright.cost.features import FEATURES
from tilewright.knowledge import store
from tilewright.knowledge.trees import Trees
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.network.extract import fused_tasks
from tilewright.runtime.device import local_target
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule import template
from tilewright.schedule.task import create, task_of_dag
from tilewright.schedule.template import anchor_sketches, anchor_template
from tilewright.search import predictions
from tilewright.search.jobs import candidate_of
from tilewright.search.loop import tune
from tilewright.search.predictions import Predictions, predict
from tilewright.search.propose.first_look import look
from tilewright.search.propose.model_proposer import ModelProposer, evaluate
from tilewright.search.report import Options
from tilewright.search.warm_start import Known, recalled
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm import relay

LLVM = local_target(Target("llvm"))[0]
KEYS = ((32, "k"), (32, "v"))
CODE = FEATURES.index("log_code")
LIMIT = 10.0  # of log2 of the bytes of straight-line code: on both sides there are candidates


def trees(below: float = 0.0, above: float = 0.0) -> Trees:
    """They add `below` to the log seconds of candidates with less code than `LIMIT`, or `above`."""
    arrays = {
        "feature": [CODE, -1, -1], "threshold": [LIMIT, 0, 0], "left": [1, 0, 0],
        "right": [2, 0, 0], "value": [0, below, above], "roots": [0],
    }  # fmt: skip
    return Trees(**{k: np.array(v) for k, v in arrays.items()}, base=0.0, features=tuple(FEATURES))


def product(n: int = 64) -> ComputeDAG:
    a, b = te.placeholder((n, 96), name="a"), te.placeholder((128, 96), name="b")
    return ComputeDAG([a, b, topi.nn.relu(topi.nn.dense(a, b))])


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of knowledge with trees and no records."""
    monkeypatch.setattr(store, "SHIPPED", tmp_path / "nothing ships")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    place = tmp_path / "site" / knowledge.device_class(LLVM)
    place.mkdir(parents=True)
    trees().save(place / "trees.msgpack")
    monkeypatch.setenv("TILEWRIGHT_KNOWLEDGE", str(tmp_path / "site"))
    return place


def built(**options):
    mod, params = residual()
    return relay.build(mod, "llvm", params, **options)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm -vector-bytes=32", "cuda -arch=sm_90"])
def test_trees_decide(target):
    dag, found = product(), {}
    task = task_of_dag(dag, Target(target))
    for name, known in (("less", trees(above=9.0)), ("more", trees(below=9.0))):
        told = predict(dag, task.target, known)
        assert told is not None
        candidate = candidate_of(task, told.origin, told.decisions)
        assert candidate is not None and not candidate.sketch.explain(candidate.index)
        rows, machine = evaluate(candidate.sketch, np.array([candidate.index]))
        assert told.seconds == pytest.approx(machine[0])
        found[name] = rows[0, CODE]
    assert found["less"] < LIMIT <= found["more"]


def attention() -> ComputeDAG:
    q, k, v = (te.placeholder((2, n, 16), "float16", name) for n, name in ((4, "q"), *KEYS))
    share = topi.nn.softmax(topi.nn.batch_matmul(q, k, transpose_b=True))
    return ComputeDAG([q, k, v, topi.nn.batch_matmul(share, v, transpose_b=False)])


@pytest.mark.parametrize("known", [trees(above=9.0), trees(below=9.0)])
def test_some_templates_are_not_overruled(known):
    """What was measured to be usual goes before trees; what computes all sums in one kernel goes
    before what gives some of them kernels of their own."""
    rows, target = product(1), Target("cuda -arch=sm_90")
    told = predict(rows, target, known)
    assert told is not None and told.origin == "template:dense.rows"
    sketch = anchor_sketches(rows, target)[0]
    candidate = candidate_of(task_of_dag(rows, target), told.origin, told.decisions)
    assert candidate is not None and candidate.index == sketch.fallback()
    a, b = (
        te.placeholder((n, 96), "float16", "ab"[c], constant=c > 0) for c, n in ((0, 8), (1, 64))
    )
    halves = predict(ComputeDAG([a, b, topi.nn.dense(a, b)]), target, known)
    assert halves is not None and halves.origin == "template:dense.few"  # rows have none of it
    whole = predict(attention(), target, known)
    assert whole is not None and whole.origin.startswith("template:attention")
    assert any("dense" in s.origin for s in anchor_sketches(attention(), target))


def test_nothing_is_predicted_without_a_template_or_without_trees():
    x = te.placeholder((8, 8), name="x")
    alone = ComputeDAG([x, te.compute((8, 8), lambda i, j: x[i, j] + 1.0)])
    assert predict(alone, LLVM, trees()) is None
    predictions = Predictions(LLVM, trees())
    assert predictions.get(alone) is None and predictions.get(product()) is not None
    assert Predictions(LLVM).get(product()) is None and not Predictions(LLVM)


class Called:
    """A helper that calls at once."""

    def call(self, target, function, *args, timeout):
        found = Future()
        found.set_result(function(*args))
        return found


@pytest.mark.slow
def test_looks_of_a_search_serve_predictions(site):
    """One process takes them for both; a search of another seed has others, and both are right."""
    dags, known = [product(n) for n in (16, 32, 48)], trees(above=9.0)
    proposers = [ModelProposer(task_of_dag(dag, LLVM), seed) for seed, dag in enumerate(dags)]
    requests = {d.hash: p.request for d, p in zip(dags, proposers, strict=True)}
    predictions = Predictions(LLVM, known, Called())
    looks = predictions.prefetch(dags, requests)
    for dag, proposer in zip(dags, proposers, strict=True):
        taken = looks[dag.hash]()
        (origin,) = proposer.request.origins
        mine = look(proposer.pools[0].sketch, (proposer.seed, 0), proposer.plan.first)
        np.testing.assert_array_equal(taken.found[origin].scored.indices, mine.scored.indices)
        assert taken.at(0, proposer.request) is taken.found[origin]
        assert predictions.get(dag) == predict(dag, LLVM, known)
    assert taken.at(0, proposers[0].request) is None  # of another seed


@pytest.mark.slow
def test_a_build_takes_what_is_predicted(site):
    lib = built()
    assert {"predicted", "default"} == lib.report.sources.keys()
    assert all(k.verified for k in lib.report.kernels)
    templates = {k.label for k in lib.report.kernels if k.source == "predicted"}
    assert any("conv2d" in label for label in templates) and "predicted" in str(lib.report)
    mod, params = residual()
    module, data = GraphModule(lib["default"](cpu())), image()
    module.run(data=data)
    want = wanted(mod, params, data)
    assert np.abs(module.get_output(0).numpy() - want).max() <= 1e-4 * np.abs(want).max()
    assert built(use_knowledge=False, verify=False).report.sources.keys() == {"default"}


@pytest.mark.long
def test_the_cache_knows_it(site, monkeypatch):
    first = built(verify=False).report.sources
    monkeypatch.setattr(predictions, "_predict_json", None)  # what workers call
    assert built(verify=False).report.sources == first
    trees(above=1.0).save(site / "trees.msgpack")  # others say other things
    assert built(verify=False).report.sources.keys() == {"default"}


@pytest.mark.long
def test_what_takes_too_long_or_fails_is_not_waited_for(site, monkeypatch):
    monkeypatch.setattr(predictions, "_SECONDS", 1e-3)
    assert built(verify=False).report.sources.keys() == {"default"}


@pytest.mark.slow
def test_damaged_trees_cost_a_note(site):
    (site / "trees.msgpack").write_bytes(b"none")
    report = built(verify=False).report
    assert report.sources.keys() == {"default"}
    assert any("these are no trees" in note for note in report.notes)


def test_a_template_of_the_user_is_not_overruled(site):
    @anchor_template("mine.llvm", kinds=("llvm",), tags=["dense"], fallback=lambda sketch, a: 0)
    def mine(cfg, a):
        cfg.define_knob("some", [1, 2])

    try:
        assert Predictions(LLVM, trees()).get(product()) is None
    finally:
        del template._anchors()["template:mine.llvm"]


@pytest.mark.slow
def test_a_search_tries_it_first(site):
    dag = product()
    task = task_of_dag(dag, LLVM, "product")
    known = recalled(LLVM)
    assert known.predictions is not None
    (chosen,) = known.untuned(task)
    told = known.predictions.get(dag)
    assert (chosen.sketch.origin, told.decisions) == (
        told.origin, {k: e.value for k, e in chosen.sketch.space.get(chosen.index).items()}
    )  # fmt: skip
    assert chosen != Known().untuned(task)[0]
    with LocalBuilder() as builder, LocalRunner() as runner, Pipeline(builder, runner) as pipeline:
        tune([task], pipeline, None, Options(trials=2))
        assert pipeline.database.records[0].decisions == told.decisions


def test_tasks_without_those_templates_are_not_predicted(site, monkeypatch):
    monkeypatch.setattr(predictions, "predict", None)
    named = create("dense_pack.x86", (("TENSOR", (64, 96), "float32"), ("TENSOR", (128, 96),
                   "float32"), None, "float32"), LLVM)  # fmt: skip
    known = recalled(LLVM)
    known.expect([named], {})
    assert known.untuned(named) == Known().untuned(named)


@pytest.mark.long
def test_worker_processes_find_the_same():
    mod, params = residual()
    dags = [t.dag for t in fused_tasks(mod, params, "llvm")]
    known = trees(above=0.5)
    with LocalBuilder(n_parallel=2) as builder:
        several, alone = Predictions(LLVM, known, builder), Predictions(LLVM, known)
        several.prefetch(dags)
        assert several._awaited
        found = [several.get(dag) for dag in dags]
        assert found == [predict(dag, LLVM, known) for dag in dags] and any(found)
        assert found == [alone.get(dag) for dag in dags]  # of the cache
