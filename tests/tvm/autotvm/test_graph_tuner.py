"""Layouts over a network by AutoTVM's names, and without asking, from one short tuning run."""

from pathlib import Path

import numpy as np
import pytest

from tests.network.test_layout_choice import BLOCKS, TARGET, layouts_of, network
from tilewright import cpu
from tilewright.base.errors import TilewrightError
from tilewright.measure.database import Database
from tilewright.network import layouts as L
from tilewright.network.decide import chosen_layouts
from tilewright.network.extract import ungrouped
from tilewright.network.tune import tasks_of, tune, with_layouts
from tilewright.search.report import Options
from tilewright_tvm import autotvm, relay
from tilewright_tvm.autotvm.graph_tuner import DPTuner, PBQPTuner
from tilewright_tvm.contrib.graph_executor import GraphModule
from tilewright_tvm.relay import nn

SHAPES = {"x": (1, 16, 10, 10)}
MOD = network()
CONV2D = [relay.op.get("nn.conv2d")]
DATA = np.random.default_rng(3).standard_normal(SHAPES["x"]).astype("float32")


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> Path:
    """Records of all that a choice asks for, two candidates of each kernel."""
    path = tmp_path_factory.mktemp("tuned") / "log.jsonl"
    tasks = tasks_of([MOD], None, TARGET, False)
    tasks = with_layouts(tasks, [MOD], None, TARGET, Options())
    with Database(path) as database:
        options = Options(trials=2 * len(tasks), tuner="random", batch=2, leaders=1, seed=1)
        report = tune(tasks, database, options)
    assert report.trials >= len(tasks) and not any(t.fruitless for t in report.tasks)
    return path


def check(library) -> None:
    run = GraphModule(library["default"](cpu()))
    run.set_input("x", DATA)
    run.run()
    wanted = relay.evaluate(MOD, {"x": DATA})
    np.testing.assert_allclose(run.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)


def kernels(library) -> list[str]:
    return [k.name for k in library.report.kernels]


@pytest.mark.long
def test_a_build_chooses_by_the_log_the_same_each_time(log):
    libraries = [relay.build(MOD, "llvm", schedules=str(log)) for _ in range(2)]
    assert kernels(libraries[0]) == kernels(libraries[1])
    check(libraries[0])


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", [DPTuner, PBQPTuner])
def test_a_graph_tuner_writes_what_a_build_takes(log, tmp_path, kind, capfd):
    tuner = kind(MOD["main"], SHAPES, str(log), CONV2D, "llvm", log_file=tmp_path / "messages.log")
    tuner.benchmark_layout_transform(min_exec_num=2)  # the log has them
    with pytest.raises(TilewrightError, match=r"Call run\(\) first"):
        tuner.get_optimal_records()
    tuner.run()
    records = tuner.get_optimal_records()
    assert len(records) == 3 and all(r.result.ok for r in records)
    tuner.write_opt_sch2record_file(tmp_path / "chosen.log")
    assert "3 convolutions" in (tmp_path / "messages.log").read_text() + capfd.readouterr().err
    with autotvm.apply_graph_best(tmp_path / "chosen.log") as chosen:
        assert [r.candidate for r in chosen.records[:3]] == [r.candidate for r in records]
        library = relay.build(MOD, "llvm")
    check(library)
    own = [r.task.name.replace("+", "_") for r in records]
    assert [k.rpartition("_")[0] for k in kernels(library) if "conv" in k] == own


@pytest.mark.slow
def test_only_what_is_not_known_is_measured(log, tmp_path):
    with Database(log) as database:
        convolutions = [r for r in database if "conv2d" in r.task.name or "dense" in r.task.name]
        few = Database()
        for record in convolutions:
            few.append(record, database.dag(record.task.dag))
    tuner = DPTuner(MOD, SHAPES, few, ["nn.conv2d"], "llvm", verbose=False, log_file=None)
    tuner.benchmark_layout_transform(min_exec_num=1)
    names = {r.task.name.partition("+")[0] for r in tuner._moves}
    assert names == {"pool2d", "transpose"}
    known = len(tuner._moves)
    tuner.benchmark_layout_transform(min_exec_num=1)
    assert len(tuner._moves) == known
    again = PBQPTuner(MOD, SHAPES, few, CONV2D, "llvm", 1, verbose=False, log_file=None)
    some = Database()
    for record in list(tuner._moves)[:3]:
        some.append(record, tuner._moves.dag(record.task.dag))
    again.benchmark_layout_transform(layout_records=some, infer_layout=True)
    assert len(again._moves) == 3
    again.run()
    assert len(again.get_optimal_records()) == 3


@pytest.mark.slow
def test_what_has_no_choice_is_refused(log):
    def make(graph=MOD, shapes=SHAPES, records=str(log), ops=CONV2D, target="llvm", **options):
        return DPTuner(graph, shapes, records, ops, target, verbose=False, log_file=None, **options)

    with pytest.raises(TilewrightError, match="only convolutions have layouts"):
        make(ops=[relay.op.get("nn.dense")])
    with pytest.raises(TilewrightError, match="no such input"):
        make(shapes={"y": (1, 2)})
    with pytest.raises(TilewrightError, match="the input has type"):
        make(shapes={"x": (1, 16, 9, 9)})
    with pytest.raises(TilewrightError, match="nothing is left"):
        make(max_sch_num=0)
    with pytest.raises(TilewrightError, match="no convolution whose layout"):
        make(relay.IRModule.from_expr(nn.relu(relay.var("x", shape=SHAPES["x"]))))
    with pytest.raises(TilewrightError, match="no convolution whose layout"):
        make(target="cuda -arch=sm_90")
    with pytest.raises(TilewrightError, match="no record is one of nn.conv2d"):
        make(records=Database()).run()
    with pytest.raises(TilewrightError, match="has no transformation of this network"):
        make(records=Database()).benchmark_layout_transform(infer_layout=True)
    with pytest.raises(TilewrightError, match="device_key is not given"):
        make(records=Database()).benchmark_layout_transform(use_rpc=True)
    with pytest.raises(TilewrightError, match="it has no options"):
        make().run(fast=True)


@pytest.mark.slow
def test_the_choice_is_that_of_the_costs():
    plain = ungrouped(MOD, None)[0]
    choice = chosen_layouts(plain, TARGET, lambda g: 1e-6 if "NCHWc" in g.name else 1e-3)
    assert layouts_of(L.in_layouts(plain, choice)) == [BLOCKS] * 3
