"""`tvmc` in Python: four calls from file to result; options have an effect or raise."""

from __future__ import annotations

import argparse
import importlib
import os
import tarfile

import numpy as np
import pytest
from tilewright_tvm.driver.tvmc.model import TVMCModel, TVMCPackage, TVMCResult

import tilewright
import tilewright_tvm
from tilewright.base.errors import TilewrightError
from tilewright.measure.database import Database
from tilewright.network import tune as tuning
from tilewright.network import tune_network
from tilewright.runtime.timing import BenchmarkResult
from tilewright.search import loop
from tilewright.targets.target import Target
from tilewright_tvm import autotvm, relay
from tilewright_tvm.auto_scheduler import HardwareParams, SearchTask
from tilewright_tvm.driver import tvmc
from tilewright_tvm.tvmc import runner


def network() -> tuple[relay.IRModule, dict[str, np.ndarray]]:
    """A convolution and a sum of all that it gives."""
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(8, 4, 3, 3))
    made = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    mod = relay.IRModule.from_expr(relay.Tuple([made, relay.argmax(made, axis=1)]))
    return mod, {"w": np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype("float32")}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    made = tmp_path_factory.mktemp("model") / "net.onnx"
    made.write_bytes(relay.to_onnx(*network()).SerializeToString())
    return made


@pytest.fixture
def model(path):
    return tvmc.load(path)


@pytest.fixture
def package(model):
    return tvmc.compile(model, target="llvm")


@pytest.fixture
def searched(monkeypatch):
    """What the search was called with."""
    seen = {}

    def search(tasks, pipeline, database, options, on_event, history, meanwhile):
        timing = pipeline.runner._options
        seen.update(
            tasks=[t.name for t in tasks], targets=[t.target for t in tasks], options=options,
            history=history, timing=timing[1:4], parallel=pipeline.builder.n_parallel,
            timeout=pipeline.builder.timeout,
            templates=[s.origin for t in tasks for s in t.sketches],
        )  # fmt: skip
        return loop.Report([loop.TaskReport(t) for t in tasks])

    monkeypatch.setattr(tuning, "search", search)
    for name in ("show_untuned", "confirm"):  # they build the network
        monkeypatch.setattr(tune_network, name, lambda *_: [])
    return seen


def test_it_has_both_names():
    assert tilewright_tvm.driver.tvmc is tvmc is tilewright_tvm.tvmc
    assert tvmc.runner is runner and runner.__spec__.name == "tilewright_tvm.tvmc.runner"
    assert tilewright_tvm.ir.transform is tilewright_tvm.transform
    assert importlib.import_module("tilewright_tvm.ir.module").IRModule is relay.IRModule
    assert autotvm.task.dispatcher.ApplyHistoryBest is autotvm.ApplyHistoryBest
    assert importlib.import_module("tilewright_tvm.relay.op.op") is relay.op is relay.op.op
    with pytest.raises(ImportError, match="follows its inputs' layouts"):
        importlib.import_module("tilewright_tvm.relay.transform.infer_layout_utils")
    with pytest.raises(AttributeError, match=r"Name the operator's layout in .*ConvertLayout"):
        relay.op.register_convert_op_layout("nn.conv2d")
    with pytest.raises(AttributeError, match="Use tvmc.tune"):
        tvmc.autotuner.tune_tasks([])
    assert tvmc.TVMCModel is TVMCModel and tvmc.TVMCException is TilewrightError


@pytest.mark.slow
def test_from_file_to_result(model, tmp_path, capsys):
    records = tvmc.tune(model, target="llvm", trials=2, tuning_records=tmp_path / "log")
    assert records == str(tmp_path / "log")
    assert all(r.result.verified for r in Database.load(records))
    package = tvmc.compile(model, "llvm", tuning_records=records, package_path=tmp_path / "any")
    report = package.library.report  # in the whole network a record may lose
    assert "1 record" in report.summary() or "3 of its kernels as without the log" in repr(report)
    x = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype("float32")
    again = TVMCPackage(package_path=package.package_path)
    for each in (package, again):
        result = tvmc.run(each, device="cpu", inputs={"x": x}, repeat=3, number=1)
        wanted = relay.evaluate(model.mod, {"x": x, **model.params})
        for k, value in enumerate(wanted):
            assert np.allclose(result.get_output(f"output_{k}"), value, atol=1e-4)
        assert len(result.times.results) == 3
        assert "mean (ms)" in str(result) and "['output_0', 'output_1']" in str(result)
    assert isinstance(package.params, bytearray) and '"nodes"' in package.graph
    result.save(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as saved:
        assert np.array_equal(saved["output_1"], result.outputs["output_1"])
    model.summary()
    assert "nn.conv2d" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_takes_its_log_and_package_along(model, tmp_path, searched):
    tvmc.tune(model, target="llvm", trials=1)
    with Database(model.default_tuning_records_path()) as database:
        database.note_run(trials=1)  # as a search does
    tvmc.compile(model, target="llvm")
    model.save(tmp_path / "model.tar")
    again = TVMCModel(model_path=tmp_path / "model.tar")
    assert os.path.exists(again.default_tuning_records_path())
    assert tvmc.run(TVMCPackage(again.default_package_path()), benchmark=False).times is None
    x = np.ones((1, 4, 8, 8), "float32")
    one, two = (relay.evaluate(m.mod, {"x": x, **m.params}) for m in (model, again))
    assert all(np.allclose(a, b) for a, b in zip(one, two, strict=True))


def test_what_the_search_is_told(model, tmp_path, searched):
    with Database(tmp_path / "old") as database:
        database.note_run(trials=1)
    tvmc.tune(
        model, target="llvm", tuner="ga", trials=3, early_stopping=2, number=7, repeat=2,
        min_repeat_ms=1.5, timeout=9, parallel=3, prior_records=tmp_path / "old",
        desired_layout="NHWC", additional_target_options={"llvm": {"num-cores": 1}},
    )  # fmt: skip
    assert searched["options"].tuner == "ga" and searched["options"].early_stopping == 2
    assert searched["options"].trials == 3 * len(searched["tasks"])
    assert searched["timing"] == (7, 2, 1.5)
    assert (searched["parallel"], searched["timeout"]) == (3, 9)
    assert searched["history"] is not None and all("nhwc" in name for name in searched["tasks"])
    assert {t.limits.cores for t in searched["targets"]} == {1}


@pytest.mark.slow
def test_rules_tune_every_kernel(model, searched):
    tvmc.tune(model, target="llvm", trials=5)
    templates = searched["tasks"]
    params = HardwareParams(num_cores=1)
    tvmc.tune(
        model, "llvm", enable_autoscheduler=True, trials=5, hardware_params=params,
    )  # fmt: skip
    assert searched["options"].trials == 5 and len(searched["tasks"]) > len(templates)
    assert {t.limits.cores for t in searched["targets"]} == {1}
    assert any(origin.startswith("rules") for origin in searched["templates"])


def test_tasks_by_their_numbers(searched, capsys):
    x, w = relay.var("x", shape=(4, 8)), [relay.var(n, shape=(8, 8)) for n in "uv"]
    body = relay.nn.dense(relay.nn.softmax(relay.nn.dense(x, w[0])), w[1])
    weights = {n: np.ones((8, 8), "float32") for n in "uv"}
    model = TVMCModel(relay.IRModule.from_expr(body), weights)
    way = {"enable_autoscheduler": True, "include_simple_tasks": True}
    tvmc.tune(model, "llvm", tasks_filter="list", **way)
    lines = [line for line in capsys.readouterr().out.splitlines() if "candidates" in line]
    assert len(lines) >= 2 and not searched
    tvmc.tune(model, "llvm", tasks_filter="1", **way)
    assert len(searched["tasks"]) == 1 and searched["tasks"][0] in lines[1]
    with pytest.raises(TilewrightError, match="there are tasks 0 to"):
        tvmc.tune(model, "llvm", tasks_filter="0-99", **way)


def test_simple_kernels_are_tuned_on_demand(searched):
    x = relay.var("x", shape=(4, 8))
    softmax = relay.nn.softmax(relay.transpose(x))
    model = TVMCModel(relay.IRModule.from_expr(relay.transpose(softmax)), {})
    tvmc.tune(model, "llvm", enable_autoscheduler=True, trials=1)
    few = len(searched["tasks"])
    tvmc.tune(model, "llvm", enable_autoscheduler=True, trials=1, include_simple_tasks=True)
    assert len(searched["tasks"]) > few


@pytest.mark.slow
def test_options_of_a_compilation(model, tmp_path, capsys):
    passes = []

    @tilewright_tvm.instrument.pass_instrument
    class Note:
        def run_before_pass(self, mod, info):
            passes.append(info.name)

    package = tvmc.compile(
        model, "llvm", package_path=tmp_path / "net.tar", dump_code=["ll,asm", "relay"],
        instruments=[Note()], disabled_pass=["FoldConstant"], desired_layout="NHWC",
        print_pass_times=True, pass_context_configs=["tir.disable_vectorize=true"],
    )  # fmt: skip
    texts = {end: (tmp_path / f"net.tar.{end}").read_text() for end in ("ll", "asm", "relay")}
    assert "define " in texts["ll"] and "ret" in texts["asm"] and "NHWC" in texts["relay"]
    assert "CanonicalizeOps" in passes and "FoldConstant" not in passes
    assert "CanonicalizeOps: " in capsys.readouterr().out
    assert any("nhwc" in kernel.label for kernel in package.library.report.kernels)
    assert tarfile.is_tarfile(package.package_path)
    apart = tvmc.compile(model, "llvm", opt_level=0, output_format="tar")
    assert len(apart.library.kernels) > len(tvmc.compile(model, "llvm").library.kernels)


def test_a_shared_object(model, tmp_path):
    package = tvmc.compile(model, "llvm", package_path=tmp_path / "net", output_format="so")
    assert (tmp_path / "net").read_bytes()[:4] == b"\x7fELF"
    assert tvmc.run(package, benchmark=False).get_output("output_0").shape == (1, 8, 8, 8)


@pytest.mark.parametrize(("fill", "value"), [("ones", 1), ("zeros", 0)])
def test_inputs_that_are_not_given(package, fill, value):
    found = tvmc.run(package, fill_mode=fill, benchmark=False)
    given = tvmc.run(package, inputs={"x": np.full((1, 4, 8, 8), value, "float32")})
    assert np.array_equal(found.get_output("output_0"), given.get_output("output_0"))
    with pytest.raises(TilewrightError, match="no such mode"):
        tvmc.run(package, fill_mode="whatever")


def test_how_a_run_is_timed(package, monkeypatch):
    seen = {}

    def benchmark(self, device, **options):
        seen.update(options)
        return BenchmarkResult((1e-3,))

    monkeypatch.setattr(runner.GraphModule, "benchmark", benchmark)
    tvmc.run(package, repeat=3, number=4, end_to_end=True)
    assert seen == {"repeat": 3, "number": 4, "end_to_end": True}


def test_a_compiler_for_the_shared_object(model):
    with pytest.raises(TilewrightError, match="no-such-compiler"):
        tvmc.compile(model, "llvm", output_format="so", cross="no-such-compiler")


def test_profile(package, capsys):
    tvmc.run(package, profile=True, benchmark=False)
    assert "conv2d" in capsys.readouterr().out


def test_tasks_under_tvms_names(model):
    given = (model.mod, model.params, "llvm")
    assert {type(t) for t in tvmc.autotuner.autotvm_get_tuning_tasks(*given)} == {autotvm.task.Task}
    tasks, weights = tvmc.autotuner.autoscheduler_get_tuning_tasks(*given)
    assert {type(t) for t in tasks} == {SearchTask} and len(weights) == len(tasks)


@pytest.mark.parametrize(
    ("text", "kind", "host"),
    [
        ("llvm", "llvm", None), ("cuda -arch=sm_80", "cuda", None),
        ("opencl -device=mali, llvm -mtriple=aarch64-linux-gnu", "opencl", "llvm"),
        ("llvm -mattr=+avx2,+fma", "llvm", None),
    ],
)  # fmt: skip
def test_targets(text, kind, host):
    target, others = tvmc.target.target_from_cli(text)
    assert str(target.kind) == kind and others == []
    assert (None if target.host is None else str(target.host.kind)) == host


def test_options_of_targets_by_kind():
    target, _ = tvmc.target.target_from_cli("llvm", {"llvm": {"mcpu": "skylake"}})
    assert target.mcpu == "skylake"
    with pytest.raises(TilewrightError, match="the target is 'llvm'"):
        tvmc.target.target_from_cli("llvm", {"cuda": {"arch": "sm_80"}})


@pytest.mark.parametrize("text", ["a:[1,2] b:0:[3]", "a: [1, 2] b:0: [3]", "a:[1,2],b:0:[3]"])
def test_shapes(text):
    assert tvmc.common.parse_shape_string(text) == {"a": [1, 2], "b:0": [3]}
    (extent,) = tvmc.common.parse_shape_string("x:[-1]")["x"]
    assert isinstance(extent, relay.Any)


def test_argparse_tells_a_wrong_shape(capsys):
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", type=tvmc.common.parse_shape_string)
    assert parser.parse_args(["--shape", "x:[1,2]"]).shape == {"x": [1, 2]}
    with pytest.raises(SystemExit):
        parser.parse_args(["--shape", "x:5"])
    assert "it is no list of shapes" in capsys.readouterr().err


def test_what_a_result_says():
    result = TVMCResult({"output_0": np.array([[1, 3, 2]])}, BenchmarkResult((0.001, 0.003)))
    assert "2.0000" in result.format_times() and "3.0000" in result.format_times()
    places, values = tvmc.result_utils.get_top_results(result, 2)
    assert places.tolist() == [1, 2] and values.tolist() == [3, 2]


def test_layouts(model):
    text = str(tvmc.transform.convert_graph_layout(model.mod, "NHWC"))
    assert ('data_layout="NHWC"' in text and "layout_transform" in text) or "transpose" in text


REFUSED = {
    "it tells no format": (lambda m, p: tvmc.load("not/a/file.txt"), "its name tells no format"),
    "a format of others": (lambda m, p: tvmc.load("a.h5"), "models of keras are not read"),
    "no such file": (lambda m, p: tvmc.load("not/a/file.onnx"), "there is no such file"),
    "format": (lambda m, p: tvmc.load("a.onnx", model_format="x"), "there is no such format"),
    "paddle": (lambda m, p: tvmc.load("a.onnx", model_format="paddle"), "this format is not read"),
    "no onnx": (lambda m, p: tvmc.load(__file__, model_format="onnx"), "load|onnx"),
    "more": (lambda m, p: tvmc.load(p, bogus=1), "importer does not take this"),
    "nothing": (lambda m, p: TVMCModel(), "there is no network"),
    "no model": (lambda m, p: TVMCModel(model_path=__file__), "it is no saved model"),
    "unwritable": (lambda m, p: m.save("/nowhere/at/all"), "it cannot be written"),
    "no package": (lambda m, p: TVMCPackage(__file__), "no compiled network"),
    "no log": (lambda m, p: tvmc.compile(m, "llvm", tuning_records="no"), "there is no such file"),
    "mlf": (lambda m, p: tvmc.compile(m, "llvm", output_format="mlf"), "shared object or a tar"),
    "vm": (lambda m, p: tvmc.compile(m, "llvm", use_vm=True), "relay.vm.compile"),
    "cross": (lambda m, p: tvmc.compile(m, "llvm", cross_options="-a"), "called as it is named"),
    "dump": (lambda m, p: tvmc.compile(m, "llvm", dump_code="tir"), "no such text"),
    "config": (lambda m, p: tvmc.compile(m, "llvm", pass_context_configs=["a"]), "no name=value"),
    "place": (lambda m, p: tvmc.compile(m, "llvm", package_path="/no/where"), "cannot be written"),
    "targets": (lambda m, p: tvmc.compile(m, "cuda, opencl, llvm"), "no device and its host"),
    "twice": (lambda m, p: tvmc.compile(m, "llvm, llvm"), "no device and its host"),
    "kind": (lambda m, p: tvmc.compile(m, "ethos-n77"), "compilers of others are not"),
    "no kind": (lambda m, p: tvmc.compile(m, "ethos-x"), "unknown kind"),
    "tuner": (lambda m, p: tvmc.tune(m, "llvm", tuner="bogus"), "no such tuner"),
    "no trials": (lambda m, p: tvmc.tune(m, "llvm", trials=0), "nothing to try"),
    "timing": (lambda m, p: tvmc.tune(m, "llvm", repeat=0), "not more than zero"),
    "half a tracker": (lambda m, p: tvmc.tune(m, "llvm", hostname="h"), "a tracker need both"),
    "limits of rules": (
        lambda m, p: tvmc.tune(m, "llvm", hardware_params=HardwareParams()), "only rules look",
    ),
    "shapes": (lambda m, p: tvmc.common.parse_shape_string("x:5,10"), "no list of shapes"),
    "letters": (lambda m, p: tvmc.common.parse_shape_string("x:[a,10]"), "no list of shapes"),
    "output": (lambda m, p: TVMCResult({}).get_output("output_0"), "there is no such output"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case, model, path, searched):
    call, part = REFUSED[case]
    with pytest.raises(tvmc.TVMCException, match=part):
        call(model, path)


def test_refusals_of_a_run(package):
    with pytest.raises(TilewrightError, match="no input 'y'.* It has x"):
        tvmc.run(package, inputs={"y": 1})
    with pytest.raises(TilewrightError, match="built for llvm"):
        tvmc.run(package, device="opencl")
    with pytest.raises(TilewrightError, match="unknown kind 'mental'"):
        tvmc.run(package, device="mental")


def test_a_package_that_a_format_needs(monkeypatch, path):
    def missing(name, package=None):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(tvmc.TVMCImportError, match="pip install onnx"):
        tvmc.load(path)


def test_a_network_runs_on_a_device_of_a_farm(package, monkeypatch):
    """It is uploaded to what the key has there; the farm itself has its own tests."""
    seen = []

    class There:
        def __enter__(self):
            module = package.library["default"](tilewright.cpu())
            return runner.GraphModule(module), tilewright.cpu()

        def __exit__(self, *_):
            return None

    def there(farm, file, kind):
        seen.append((farm, str(file), kind))
        return There()

    monkeypatch.setattr(runner, "network_there", there)
    result = tvmc.run(package, hostname="10.0.0.1", port=9999, rpc_key="board")
    ((farm, file, kind),) = seen
    assert (farm.host, farm.port, farm.key, kind) == ("10.0.0.1", 9999, "board", "llvm")
    assert file == package.package_path and result.get_output("output_0").shape == (1, 8, 8, 8)
    assert Target(package.library.target).kind == "llvm"
