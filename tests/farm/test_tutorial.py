"""The tutorials' farm parts: three servers, two keys, both tuners; a seed fixes the sequence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from farm.processes import Farm
from tilewright import te
from tilewright.cli.app import cli
from tilewright.measure.database import Database
from tilewright_tvm import auto_scheduler, autotvm, relay


@autotvm.template("farm/matmul")
def matmul(n: int) -> Any:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    r = te.reduce_axis((0, n), "r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")
    s, cfg = te.create_schedule(c.op), autotvm.get_config()
    i, j = s[c].op.axis
    cfg.define_split("tile_i", i, num_outputs=2)
    cfg.define_split("tile_j", j, num_outputs=2)
    io, ii = cfg["tile_i"].apply(s, c, i)
    jo, ji = cfg["tile_j"].apply(s, c, j)
    s[c].reorder(io, jo, s[c].op.reduce_axis[0], ii, ji)
    return s, [a, b, c]


def tuned(made: Farm, log: Path) -> list[tuple[int, Any]]:
    task = autotvm.task.create("farm/matmul", args=(32,), target="llvm")
    option = autotvm.measure_option(
        builder=autotvm.LocalBuilder(timeout=60),
        runner=autotvm.RPCRunner(
            "1080ti", "127.0.0.1", made.port, number=2, repeat=3, timeout=30, min_repeat_ms=1,
            cooldown_interval=0,
        ),
    )  # fmt: skip
    tuner = autotvm.tuner.RandomTuner(task, seed=3)
    callbacks = [autotvm.callback.log_to_file(str(log))]
    tuner.tune(n_trial=8, measure_option=option, callbacks=callbacks)
    option["runner"].close()
    records = [r for r in Database.load(log) if not r.result.final]
    assert all(r.result.verified or r.result.raced for r in records)
    return sorted((r.trial, r.decisions) for r in records)


def test_autotvm_on_two_devices_of_a_key(shared_farm: Farm, tmp_path: Path):
    first, second = (tuned(shared_farm, tmp_path / name) for name in ("one.json", "two.json"))
    assert len(first) == 8 and first == second


def test_the_auto_scheduler_on_the_other_key(shared_farm: Farm, tmp_path: Path):
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[i, j] * 2.0 + 1.0, name="B")
    task = auto_scheduler.SearchTask(compute_dag=[a, b], target="llvm")
    log = str(tmp_path / "log.json")
    runner = auto_scheduler.RPCRunner(
        "titanx", host="127.0.0.1", port=shared_farm.port, repeat=3, timeout=50, min_repeat_ms=1
    )
    options = auto_scheduler.TuningOptions(
        num_measure_trials=4, builder=auto_scheduler.LocalBuilder(timeout=60), runner=runner,
        measure_callbacks=[auto_scheduler.RecordToFile(log)], verbose=0,
    )  # fmt: skip
    task.tune(options)
    runner.close()
    assert any(r.result.ok for r in Database.load(log))


def test_the_command_tunes_and_times_a_network_there(
    shared_farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    onnx = pytest.importorskip("onnx")
    x, w = relay.var("x", shape=(4, 16)), relay.var("w", shape=(8, 16))
    mod = relay.IRModule.from_expr(relay.nn.relu(relay.nn.dense(x, w)))
    weights = {"w": np.ones((8, 16), "float32")}
    onnx.save(relay.to_onnx(mod, weights), tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    there = ["--farm", shared_farm.address, "--key", "titanx"]
    done = CliRunner().invoke(
        cli, ["tune", "net.onnx", "--trials", "3", "--tuner", "random", *there]
    )
    assert done.exit_code == 0, done.output
    assert len(Database.load("net.llvm.jsonl")) >= 3
    following = done.output.partition("Next: ")[2].partition("tilewright ")[2].split()
    assert following[-4:] == there
    done = CliRunner().invoke(cli, following)
    assert done.exit_code == 0, done.output
    assert "on cpu(0) of titanx at" in done.output and "Execution time" in done.output
    done = CliRunner().invoke(cli, ["bench", "net.onnx", "--key", "titanx"])
    assert done.exit_code == 2 and "belong together" in done.output
