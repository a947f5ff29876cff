"""What users of tvmc type after `tune`: each option has its effect."""

import json
import sys
from contextlib import nullcontext

import numpy as np
import pytest

from search.spaces import cpu_task
from tilewright import cpu, front
from tilewright.base.errors import ModelError
from tilewright.cli.app import main
from tilewright.measure import Database
from tilewright.network import tune as tuning
from tilewright.network import tune_network
from tilewright.runtime import load_module
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.search import loop
from tilewright.search.propose.named import tuners
from tilewright.targets.target import Target
from tilewright_tvm import relay


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(front, "as_described", lambda target, *_: target)
    monkeypatch.setattr(front, "begun", lambda *_: nullcontext())
    monkeypatch.setattr(tuning, "with_layouts", lambda tasks, *_, **__: tasks)
    for name in ("show_untuned", "confirm"):  # they build the network
        monkeypatch.setattr(tune_network, name, lambda *_: [])

    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(list(args))
            sys.exit(0)
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture
def searched(monkeypatch, small_network):
    """What the search was called with."""
    seen = {}

    def search(tasks, pipeline, database, options, on_event, history, meanwhile):
        timing = dict(
            zip(("index", "number", "repeat", "ms"), pipeline.runner._options, strict=False)
        )
        seen.update(
            tasks=[t.name for t in tasks], options=options, history=history, timing=timing,
            parallel=pipeline.builder.n_parallel, timeout=pipeline.builder.timeout,
            trial=pipeline.runner.timeout,
        )  # fmt: skip
        return loop.Report([loop.TaskReport(t) for t in tasks])

    def tasks(*_, **__):
        found = [cpu_task(8, 8, 8), cpu_task(8, 8, 16), cpu_task(8, 16, 8), cpu_task(16, 8, 8)]
        for k, task in enumerate(found):
            task.name = f"t{k}"
        return found

    monkeypatch.setattr(tuning, "search", search)
    monkeypatch.setattr(tuning, "fused_tasks", tasks)
    return seen


def test_measuring(run, searched):
    code, _, err = run(
        "tune", "resnet-18", "--number", "7", "--repeat", "2", "--min-repeat-ms", "1.5",
        "--timeout", "9", "--parallel", "3", "--early-stopping", "40", "--trials", "5",
    )  # fmt: skip
    assert code == 0, err
    assert searched["timing"] == {"index": 0, "number": 7, "repeat": 2, "ms": 1.5}
    assert (searched["parallel"], searched["timeout"], searched["trial"]) == (3, 9, 9)
    assert searched["options"].early_stopping == 40
    run("tune", "resnet-18")
    assert searched["timing"] == {"index": 0, "number": 4, "repeat": 3, "ms": 20}
    assert searched["options"].early_stopping is None and searched["trial"] == 10


def test_tasks(run, searched):
    assert run("tune", "resnet-18", "--tasks", "0,2-3")[0] == 0
    assert searched["tasks"] == ["t0", "t2", "t3"]
    run("tune", "resnet-18", "--tasks", "all")
    assert len(searched["tasks"]) == 4
    searched.clear()
    code, out, _ = run("tune", "resnet-18", "--tasks", "list")
    assert code == 0 and not searched
    lines = out.splitlines()
    assert len(lines) == 4 and lines[2].startswith("  2  t2") and "candidates" in lines[2]
    code, _, err = run("tune", "resnet-18", "--tasks", "2-4")
    assert code == 1 and "there are tasks 0 to 3" in err
    for wrong in ("x", "1-", "-1", "3-2", "1,,2", "9" * 40):
        code, _, err = run("tune", "resnet-18", "--tasks", wrong)
        assert code == 2 and "--tasks" in err


@pytest.mark.parametrize("tuner", [*tuners(), "xgb-rank", "grid"])
def test_all_tuners_by_name(run, searched, tuner):
    assert run("tune", "resnet-18", "--tuner", tuner)[0] == 0
    assert searched["options"].tuner in tuners()


def test_history(run, searched, tmp_path):
    with Database("old.jsonl") as database:
        database.note_run(trials=1)
    code, _, err = run(
        "tune", "resnet-18", "--tuning-records", "old.jsonl", "--history", "old.jsonl"
    )
    assert code == 0, err
    assert searched["history"] is not None and len(searched["history"]) == 0
    (tmp_path / "bad.log").write_text(json.dumps({"a": 1}))
    code, _, err = run("tune", "resnet-18", "--history", "bad.log")
    assert code == 1 and "no line can be used" in err
    code, _, err = run("tune", "resnet-18", "--history", "missing")
    assert code == 2 and "there is no file 'missing'" in err


@pytest.mark.slow
def test_desired_layout(tmp_path):
    """Tasks are of convolutions in that layout, and what is built computes the same."""
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(8, 4, 3, 3))
    mod = relay.IRModule.from_expr(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1))))
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((8, 4, 3, 3)).astype("float32")
    target, found, data = Target("llvm"), {}, rng.standard_normal((1, 4, 8, 8)).astype("float32")
    for layout in (None, "NHWC"):
        net = front.load(mod, params={"w": weights}, layout=layout)
        (task,) = front.tasks_of(net, target, "xgb")
        path = tmp_path / f"{layout}.tar"
        front.compile(net, target).save(path)
        module = GraphModule(load_module(path)["default"](cpu()))
        module.run(x=data)
        found[layout] = task.name, module.get_output(0).numpy()
    assert "nhwc" in found["NHWC"][0] and "nhwc" not in found[None][0]
    assert np.allclose(found[None][1], found["NHWC"][1], atol=1e-5)
    with pytest.raises(ModelError, match="layout"):
        front.load(mod, params={"w": weights}, layout="NQHW")


@pytest.mark.parametrize("option", ["number", "repeat", "min-repeat-ms", "timeout", "parallel"])
def test_refusals(run, option):
    code, _, err = run("tune", "resnet-18", f"--{option}", "0")
    assert code == 2 and "0 is not more than zero" in err
