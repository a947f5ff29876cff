"""A device kind is one registration: `c_kind.py` adds one, and everything works on it.

In: `c_kind.py`, by import.  Out: what users do, by the public API only.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graph.small import image, residual, wanted
from targets.c_kind import COMPILER, KIND
from tilewright import te
from tilewright.base.errors import DeviceError, TargetError, TilewrightError
from tilewright.codegen import generate
from tilewright.driver.build import build
from tilewright.driver.doctor import diagnose
from tilewright.lowering.pipeline import lower_schedule
from tilewright.measure import LocalBuilder, LocalRunner, Pipeline
from tilewright.measure.database import Database
from tilewright.measure.pool import WorkerPool
from tilewright.runtime.device import device
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import create, task_of_dag
from tilewright.search.loop import tune
from tilewright.search.report import Options
from tilewright.search.rules.derive import with_rules
from tilewright.targets import kind as kind_module
from tilewright.targets.kind import DeviceKind, is_absent, kind, kinds, origins, register
from tilewright.te.tensor import Tensor
from tilewright_tvm import autotvm, nd, relay
from tilewright_tvm.contrib.graph_executor import GraphModule
from tilewright_tvm.target import Target

pytestmark = pytest.mark.skipif(not COMPILER, reason="there is no C compiler")
N = 24


@autotvm.template("tests/targets/product")
def product(n: int) -> tuple[Schedule, list[Tensor]]:
    a, b = te.placeholder((n, n), name="a"), te.placeholder((n, n), name="b")
    r = te.reduce_axis((0, n), name="r")
    c = te.compute((n, n), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="c")
    s = te.create_schedule([c.op])
    cfg = autotvm.get_config()
    i, j = s[c].op.axis
    cfg.define_split("tile_i", i, num_outputs=2)
    cfg.define_split("tile_j", j, num_outputs=2)
    io, ii = cfg["tile_i"].apply(s, c, i)
    jo, ji = cfg["tile_j"].apply(s, c, j)
    s[c].reorder(io, jo, s[c].op.reduce_axis[0], ii, ji)
    s[c].vectorize(ji)
    s[c].parallel(io)
    return s, [a, b, c]


def check_product(module) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, N, N)).astype("float32")
    dev = device("ctext")
    a, b, c = nd.array(x, dev), nd.array(y, dev), nd.empty((N, N), device=dev)
    module(a, b, c)
    np.testing.assert_allclose(c.numpy(), x @ y, rtol=1e-4, atol=1e-5)


def test_a_matrix_product_is_built_and_run() -> None:
    schedule, args = product(N)
    module = build(schedule, args, "ctext")
    assert "for (int i_outer" in module.get_source()
    check_product(module)
    timed = module.time_evaluator(module.entry_name, device("ctext"), number=2)
    arrays = [nd.empty((N, N), device=device("ctext")) for _ in range(3)]
    assert timed(*arrays).mean > 0


@pytest.mark.slow
def test_it_is_tuned_in_worker_processes_and_built_from_its_log(tmp_path: Path) -> None:
    """The workers import the module that registered the kind, and nothing else of ours."""
    log = tmp_path / "log.jsonl"
    task = autotvm.task.create("tests/targets/product", args=(N,), target="ctext")
    tuner = autotvm.tuner.RandomTuner(task)
    option = autotvm.measure_option(LocalBuilder(n_parallel=1), LocalRunner(number=2, repeat=1))
    tuner.tune(6, option, callbacks=[autotvm.callback.log_to_file(str(log))])
    found = Database.load(log)
    assert found.counts().ok == 6, found.failures()
    best = found.best((task.key, "ctext"))
    assert best.result.verified and best.device == "whatever runs C"
    with autotvm.apply_history_best(str(log)), Target("ctext"):
        schedule, args = product(N)
    check_product(build(schedule, args, "ctext"))


@pytest.mark.slow
def test_rules_and_cpu_templates_tune_it(tmp_path: Path) -> None:
    """Any computation, by the loop that serves every kind; records tell the device."""
    dag = create("tests/targets/product", (N,), "ctext").dag
    task = with_rules(task_of_dag(dag, "ctext"))
    assert {s.origin.partition(":")[0] for s in task.sketches} >= {"rules"}
    with (
        LocalBuilder(n_parallel=1) as builder, LocalRunner(number=1, repeat=1) as runner,
        Database(tmp_path / "log") as database, Pipeline(builder, runner, database) as pipeline,
    ):  # fmt: skip
        report = tune([task], pipeline, database, Options(trials=8, tuner="xgb", leaders=2))
    assert report.tasks[0].best is not None, database.failures()
    assert {r.task.fingerprint for r in database} == {"c-machine"}


@pytest.mark.long
def test_a_network_runs_on_it() -> None:
    mod, params = residual()
    library = relay.build(mod, "ctext", params)
    assert all(k.verified for k in library.report.kernels)
    module = GraphModule(library["default"](device("ctext")))
    module.set_input("data", image())
    module.run()
    got = module.get_output(0).numpy()
    np.testing.assert_allclose(got, wanted(mod, params, image()), rtol=1e-3, atol=1e-4)


def test_the_doctor_tries_it() -> None:
    findings = {f.what: f for f in diagnose()}
    assert (
        findings["compile for ctext"].works and "system's" in findings["compile for ctext"].detail
    )
    assert "a small kernel is right" in findings["device ctext(0)"].detail


def test_element_types_that_it_has_not_are_refused_once() -> None:
    a = te.placeholder((8,), name="a", dtype="float16")
    b = te.compute((8,), lambda i: a[i] + a[i], name="b")
    with pytest.raises(TargetError, match="build a for ctext: its code does not compute float16"):
        build(te.create_schedule([b.op]), [a, b], "ctext")


# -- the registry ----------------------------------------------------------------------------------


def test_an_unknown_kind_is_one_error_that_lists_the_known() -> None:
    names = ", ".join(k.name for k in kinds())
    assert names.startswith("llvm, cuda, opencl") and "ctext" in names
    for ask in (kind, Target, lambda name: kind(name, "place")):
        with pytest.raises(TargetError, match=f"unknown kind 'mental'. Use one of {names}"):
            ask("mental")
    with pytest.raises(DeviceError, match="unknown kind 'mental'. Use one of cpu, llvm"):
        device("mental")


def test_a_kind_that_is_registered_is_not_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_absent("metal") and not is_absent("cuda") and not is_absent("mental")
    own = dataclasses.replace(kind("llvm"), name="metal", device="apple")
    monkeypatch.setitem(kind_module._KINDS, "metal", own)
    assert not is_absent("metal") and device("metal").kind == "apple"


def test_words_of_a_kind_are_its_own() -> None:
    def again(**changes: object) -> DeviceKind:
        fields = {"name": "other", "limits": KIND.limits, "printer": "p", "compiler": "c",
                  "driver": "d"}  # fmt: skip
        return DeviceKind(**{**fields, **changes})

    with pytest.raises(TargetError, match="the kind llvm has the word 'cpu'"):
        register(again(device="cpu"))
    with pytest.raises(TargetError, match="there is a kind of that name"):
        register(again(name="cuda"))
    script = {"__name__": "__main__", "register": register, "new": again()}
    with pytest.raises(TargetError, match="a module of its own"):
        exec("register(new)", script)
    assert "other" not in {k.name for k in kinds()}


@pytest.mark.slow
def test_a_provider_that_is_not_there_says_so(tmp_path: Path) -> None:
    path = tmp_path / "kind_in_a_file.py"
    path.write_text(
        "from tilewright.targets.kind import DeviceKind, register\n"
        "from tilewright.targets.limits import Limits\n"
        "register(DeviceKind(name='toy', limits=lambda o, d: Limits(), printer='nowhere:p',\n"
        "                    compiler='c', driver='tilewright.runtime:d'))\n"
    )
    spec = importlib.util.spec_from_file_location("kind_in_a_file", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["kind_in_a_file"] = module
    spec.loader.exec_module(module)

    error = device("toy").why_not()
    assert isinstance(error, TilewrightError) and "cannot be imported" in str(error)
    a = te.placeholder((8,), name="a")
    schedule = te.create_schedule([te.compute((8,), lambda i: a[i] + 1, name="b").op])
    with pytest.raises(TargetError, match="nowhere:p: it cannot be imported"):
        generate(lower_schedule(schedule, Target("toy")), Target("toy"))

    # What cannot be imported by name is loaded from its file, by workers.
    assert {o.module: bool(o.file) for o in origins()} == {
        "targets.c_kind": False, "kind_in_a_file": True,
    }  # fmt: skip
    with WorkerPool(1) as pool:
        assert str(pool.submit(Target, "toy -cores=3", timeout=30).result()) == "toy -cores=3"


def test_naming_a_target_loads_no_compiler_and_no_driver() -> None:
    code = (
        "import sys; from tilewright.targets.target import Target; Target('llvm'), Target('cuda')\n"
        "bad = [m for m in sys.modules if m.startswith(('llvmlite', 'cuda', 'pyopencl', "
        "'tilewright.driver', 'tilewright.runtime', 'tilewright.codegen'))]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
