"""`relay.build`: what it computes, where schedules come from, what it reports, files."""

from __future__ import annotations

import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from msgspec import structs

from graph.cases import CASES, function, random_inputs
from graph.drawing import networks
from graph.small import database_of, image, residual, wanted
from tests.tiers import examples
from tilewright import cpu, device, te
from tilewright.base import context
from tilewright.base.errors import DeviceError, ModelError, RecordError, TargetError
from tilewright.measure.anchors import anchors_of
from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder
from tilewright.network import kernels as kernels_module
from tilewright.network.build import build
from tilewright.network.extract import fused_tasks
from tilewright.network.helpers import Helpers
from tilewright.runtime import Device, cuda, opencl
from tilewright.runtime.device import local_target
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.search.predictions import Predictions
from tilewright.targets import kind as kind_registry
from tilewright.targets.target import Target
from tilewright_tvm import autotvm, relay
from tilewright_tvm.autotvm.contractions import extract_from_program
from tilewright_tvm.transform import PassContext

DEVICES = [d for d in (cpu(), opencl(), cuda()) if d.exist]


def run(lib: relay.Library, dev: Device | None = None, **inputs) -> list[np.ndarray]:
    module = GraphModule(lib["default"](dev or cpu()))
    module.run(**inputs)
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def close(got: np.ndarray, want: np.ndarray, rtol: float = 1e-4) -> bool:
    return bool(np.all(np.abs(got - want) <= rtol * np.abs(want).max()))


@pytest.fixture(scope="module")
def library() -> relay.Library:
    mod, params = residual()
    return relay.build(mod, "llvm", params)


# -- what it computes ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dev", DEVICES, ids=str)
def test_a_residual_network_on_every_device(dev):
    mod, params = residual()
    lib = relay.build(mod, dev.target, params)
    data = image()
    assert close(run(lib, dev, data=data)[0], wanted(mod, params, data))
    assert all(k.verified and k.source == "default" for k in lib.report.kernels)


@pytest.mark.long
def test_resnet_18_of_small_images():
    mod, params = relay.testing.resnet.get_workload(image_shape=(3, 32, 32), num_classes=10)
    lib = relay.build(mod, "llvm", params, verify=False)
    data = image(shape=(1, 3, 32, 32))
    assert close(run(lib, data=data)[0], wanted(mod, params, data))
    assert lib.report.planned_bytes < lib.report.unshared_bytes / 3
    assert len(lib.plan.launches) == sum(k.count for k in lib.report.kernels) > len(lib.kernels)


@pytest.mark.sampled(42)
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_every_operator(case):
    f = function(case.build())
    inputs = random_inputs(f)
    want = relay.evaluate(f, inputs, "float64")
    (got,) = run(relay.build(f, "llvm", verify=False), **inputs)
    assert got.shape == want.shape and got.dtype.name == f.ret_type.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@examples(12)
@given(mod=networks())
def test_drawn_networks(mod):
    """Sums read twice, several results, values that share memory: in float64 to compare sharply."""
    inputs = random_inputs(mod["main"])
    want = relay.evaluate(mod, inputs)
    got = run(relay.build(mod, "llvm", verify=False), **inputs)
    for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_weights_of_one_element_are_weights():
    x, d = relay.var("x", shape=(1, 1, 4, 4)), relay.var("d", shape=(3, 1))
    two = relay.const(np.full((1, 1, 1, 1), 2.0, "float32"))
    body = relay.Tuple([relay.nn.conv2d(x, two), relay.nn.dense(d, relay.reshape(two, (1, 1)))])
    inputs = {"x": image(shape=(1, 1, 4, 4)), "d": image(shape=(3, 1))}
    got = run(relay.build(relay.Function([x, d], body), "llvm"), **inputs)
    np.testing.assert_allclose(got[0], 2 * inputs["x"])
    np.testing.assert_allclose(got[1], 2 * inputs["d"])


@pytest.mark.slow
@pytest.mark.parametrize("dev", DEVICES, ids=str)
def test_an_activation_that_reads_its_anchor_twice(dev):
    x, w = relay.var("x", shape=(1, 8, 6, 6)), relay.var("w", shape=(16, 8, 3, 3))
    y = relay.nn.conv2d(x, w, padding=1)
    f = relay.Function([x, w], y * relay.sigmoid(y) + relay.exp(-y))
    inputs = random_inputs(f)
    lib = relay.build(f, dev.target)
    assert len(lib.kernels) == 1
    want = relay.evaluate(f, inputs, "float64")
    np.testing.assert_allclose(run(lib, dev, **inputs)[0], want, rtol=1e-4, atol=1e-4)


def test_results_may_be_inputs_constants_views_and_repeated():
    x = relay.var("x", shape=(2, 3))
    y = relay.nn.relu(x)
    body = relay.Tuple([x, relay.const(np.eye(2, dtype="float32")), relay.reshape(y, (6,)), y, y])
    data = np.arange(-3, 3, dtype="float32").reshape(2, 3)
    lib = relay.build(relay.Function([x], body), "llvm")
    want = [data, np.eye(2), data.clip(0).ravel(), data.clip(0), data.clip(0)]
    for got, expected in zip(run(lib, x=data), want, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert len(lib.plan.launches) == 1


@pytest.mark.slow
def test_weights_without_values_are_inputs():
    mod, params = residual()
    lib = relay.build(mod, "llvm", verify=False)
    data = image()
    assert close(run(lib, data=data, **params)[0], wanted(mod, params, data))
    assert not lib.constants and len(lib.plan.inputs) == len(params) + 1


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_opt_level(level, library):
    mod, params = residual()
    with PassContext(opt_level=level):
        lib = relay.build(mod, "llvm", params, verify=False)
    data = image()
    assert close(run(lib, data=data)[0], wanted(mod, params, data))
    labels = [k.label.split()[0] for k in lib.report.kernels]
    if level < 2:
        assert not any("+" in label for label in labels)
        assert len(lib.plan.launches) > len(library.plan.launches)
    elif level == 2:  # scales are multiplied, not folded
        assert any("multiply" in label for label in labels)
    else:
        assert not any("multiply" in label for label in labels)


def test_weights_are_packed_once_per_device():
    mod, params = residual()
    lib = relay.build(mod, "llvm", params)
    packed = [b for k in lib.kernels for b in k.source.buffers if b.packing]
    assert packed  # the templates for CPUs pack weights
    assert {c.shape for c in lib.constants} >= {b.shape for b in packed}
    loaded = lib["default"](cpu())
    again = lib["default"](cpu())
    assert (again.kernels, again.constants) == (loaded.kernels, loaded.constants)
    assert all(a is b for a, b in zip(again.constants, loaded.constants, strict=True))
    first, second = GraphModule(loaded), GraphModule(loaded)
    a, b = image(1), image(2)
    first.run(data=a)
    second.run(data=b)
    assert close(first.get_output(0).numpy(), wanted(mod, params, a))
    assert close(second.get_output(0).numpy(), wanted(mod, params, b))


def test_kernels_of_a_process_have_different_names(library):
    names = [i.name for k in library.kernels for i in k.source.kernels]
    assert len(names) == len(set(names))
    assert all(k.name in library.get_source() for k in library.report.kernels)


# -- where schedules come from ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def fused_records() -> Database:
    mod, params = residual()
    tasks = [t for t in fused_tasks(mod, params, "llvm") if t.sketches]
    return database_of(tasks)


def sources(lib: relay.Library) -> dict[str, str]:
    return {k.label.split()[0]: k.source for k in lib.report.kernels}


def check(lib: relay.Library) -> None:
    mod, params = residual()
    data = image()
    assert close(run(lib, data=data)[0], wanted(mod, params, data))


@pytest.mark.slow
def test_records_of_the_very_kernels_are_used(fused_records, tmp_path):
    mod, params = residual()
    lib = relay.build(mod, "llvm", params, fused_records)
    found = sources(lib)
    tuned = {r.task.name for r in fused_records}
    assert {name for name, source in found.items() if source == "record"} == tuned
    assert found["softmax"] == found["add+relu"] == "default"
    assert all(k.verified and k.seconds != 1e-3 for k in lib.report.kernels)  # as timed here
    check(lib)
    path = tmp_path / "log.jsonl"
    fused_records.save(path)
    assert sources(relay.build(mod, "llvm", params, str(path), verify=False)) == found
    with autotvm.apply_history_best(path):
        assert sources(relay.build(mod, "llvm", params, verify=False)) == found
    assert set(sources(relay.build(mod, "llvm", params, verify=False)).values()) == {"default"}


@pytest.mark.slow
def test_records_of_anchors_alone_are_taken_over():
    mod, params = residual()
    records = database_of(extract_from_program(mod, params, "llvm"))
    lib = relay.build(mod, "llvm", params, records)
    found = sources(lib)
    assert found["conv2d_nchw+add+relu"] == found["dense+add"] == "re-instantiated"
    assert found["conv2d_nchw"] == "record"  # the projection has nothing behind it
    assert all(k.verified for k in lib.report.kernels)
    assert "re-instantiated" in str(lib.report)
    check(lib)


@pytest.mark.slow
def test_anchors_of_a_log_are_found_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    mod, params = residual()
    first, again = (database_of(extract_from_program(mod, params, "llvm")) for _ in range(2))
    dags = {t.dag for t in first.tasks()}
    found = anchors_of(first, dags)
    assert set(found) == dags
    monkeypatch.setattr(Database, "computation", lambda self, dag: None)
    assert anchors_of(again, dags) == found
    assert anchors_of(again, list(dags)[:1]) == {}  # nothing is kept of what cannot be read
    monkeypatch.undo()
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    assert anchors_of(again, list(dags)[:1])


class Fixed:
    """A source with an answer for convolutions of one kind."""

    def __init__(self, answer) -> None:
        self.answer = answer
        self.asked = 0

    def lookup(self, dag, target):
        self.asked += 1
        return self.answer(dag) if any(op.combiner for op in dag.compute_ops) else None


def test_a_schedule_of_another_computation_is_refused():
    x = relay.var("x", shape=(4, 8))
    mod = relay.IRModule.from_expr(relay.sum(x, axis=1))

    def twice(dag):
        data = te.placeholder((4, 8), name="p0")
        k = te.reduce_axis((0, 8), "k")
        total = te.compute((4,), lambda i: te.sum(data[i, k] * 2.0, axis=k), name="total")
        return default_schedule(te.ComputeDAG([data, total]), Target("llvm"))

    for verify in (True, False):
        lib = relay.build(mod, "llvm", schedules=Fixed(twice), verify=verify)
        (kernel,) = lib.report.kernels
        assert kernel.source == "default" and kernel.verified is verify
        assert kernel.note == "record refused: it computes something else"
        assert kernel.note in str(lib.report)
        assert run(lib, x=np.ones((4, 8), "float32"))[0].tolist() == [8.0] * 4


@pytest.mark.slow
def test_a_schedule_that_does_not_compile_is_replaced():
    def for_gpus(dag):
        s = Schedule(dag)
        stage = s[dag.outputs[0]]
        stage.bind(stage.op.axis[0], "threadIdx.x")
        return s

    mod = relay.IRModule.from_expr(relay.sum(relay.var("x", shape=(4, 8)), axis=1))
    lib = relay.build(mod, "llvm", schedules=Fixed(for_gpus))
    (kernel,) = lib.report.kernels
    assert kernel.source == "default" and "record refused: bind(" in kernel.note


@pytest.mark.slow
def test_the_innermost_context_is_asked_first():
    mod = relay.IRModule.from_expr(relay.sum(relay.var("x", shape=(4, 8)), axis=1))
    inner = Fixed(lambda dag: default_schedule(dag, Target("llvm")))
    outer = Fixed(lambda dag: None)
    with context.scope("dispatch", outer), context.scope("dispatch", inner):
        lib = relay.build(mod, "llvm")
    assert lib.report.sources == {"record": 1} and (inner.asked, outer.asked) == (1, 0)


@pytest.mark.slow
def test_a_log_for_another_target_is_mentioned(fused_records):
    mod = relay.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(4,))))
    lib = relay.build(mod, "llvm -num-cores=1", schedules=fused_records)
    assert lib.report.notes == ("the log holds records for llvm, none for llvm -num-cores=1",)


def test_records_of_another_device_are_not_used_and_mentioned(fused_records):
    mod, params = residual()
    other = Database()
    for record in fused_records:
        task = structs.replace(record.task, fingerprint="another processor")
        other.append(structs.replace(record, task=task))
    lib = relay.build(mod, "llvm", params, other, verify=False)
    assert lib.report.sources.keys() == {"default"}
    noted = "the log holds records of another processor, none of this device"
    assert lib.report.notes == (noted,)


def test_many_kernels_are_compiled_in_worker_processes(monkeypatch, library):
    mod, params = residual()
    eager = replace(kind_registry.kind("llvm"), kernels_per_process=6)
    monkeypatch.setitem(kind_registry._KINDS, "llvm", eager)
    monkeypatch.setattr(kernels_module.os, "sched_getaffinity", lambda _: {0, 1})
    lib = relay.build(mod, "llvm", params, verify=False)
    assert [k.source for k in lib.kernels] == [k.source for k in library.kernels]


def test_processes_and_predictions_of_a_search_serve_a_build(monkeypatch):
    mod, params = residual()
    eager = replace(kind_registry.kind("llvm"), kernels_per_process=6)
    monkeypatch.setitem(kind_registry._KINDS, "llvm", eager)
    monkeypatch.setattr(kernels_module.os, "sched_getaffinity", lambda _: {0, 1})
    target, _ = local_target(Target("llvm"))
    with LocalBuilder(n_parallel=2) as builder:
        mine, other = Predictions(target, None, builder), Predictions(Target("llvm -mcpu=x"), None)
        helpers = Helpers(builder, mine)
        assert helpers.predicted(target) is mine
        assert Helpers(builder, other).predicted(target) is None
        monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
        lib = build(mod, "llvm", params, verify=False, helpers=helpers)
        (pool,) = builder._pools.values()
        assert lib.kernels and pool._threads and pool._finalizer.alive


# -- reports, files, refusals ----------------------------------------------------------------------


def test_the_report_is_a_table(library):
    text = str(library.report)
    assert f"{len(library.kernels)} kernels for llvm ({len(library.kernels)} default)" in text
    assert "conv2d_nchw+add+relu 1x3x12x12 8x3x3x3" in text
    assert library.report.expected_seconds > 0
    assert "MiB of weights" in text and "(alive at once" in text


def test_without_the_device_nothing_is_run():
    missing = next((k for k in ("cuda", "opencl") if not device(k).exist), None)
    if missing is None:
        pytest.skip("every kind of device is here")
    mod = relay.IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(4,))))
    lib = relay.build(mod, f"{missing} -arch=sm_80" if missing == "cuda" else missing)
    assert not any(k.verified for k in lib.report.kernels)
    assert "want of a device" in lib.report.notes[0]


def test_a_saved_library_is_loaded_again(library, tmp_path):
    path = tmp_path / "net.tar"
    library.export_library(path)
    again = relay.load(path)
    assert again.report == library.report and again.plan == library.plan
    data = image()
    np.testing.assert_array_equal(run(again, data=data)[0], run(library, data=data)[0])


def test_files_that_are_no_library(library, tmp_path):
    path = tmp_path / "net.tar"
    with pytest.raises(ModelError, match="No such file"):
        relay.load(path)
    with pytest.raises(ModelError, match="cannot be written"):
        library.save(tmp_path / "nowhere" / "net.tar")
    library.save(path)
    whole = path.read_bytes()
    at = whole.index(library.constants[0].tobytes())
    for damaged in (b"", whole[: len(whole) // 2], b"text", _flipped(whole, at + 2)):
        path.write_bytes(damaged)
        with pytest.raises(ModelError, match="damaged"):
            relay.load(path)
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("network.json", '{"format": "tilewright network 0"}')
    with pytest.raises(ModelError, match="network 0"):
        relay.load(path)


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def test_refusals(library, tmp_path):
    mod, params = residual()
    with pytest.raises(TargetError, match="no target"):
        relay.build(mod, params=params)
    with pytest.raises(ModelError, match="no such parameter"):
        relay.build(mod, "llvm", {"nope": np.zeros(3)})
    with pytest.raises(ModelError, match="no lookup"):
        relay.build(mod, "llvm", params, schedules=3)
    with pytest.raises(RecordError, match="No such file"):
        relay.build(mod, "llvm", params, schedules=tmp_path / "none.jsonl")
    with pytest.raises(ModelError, match="no such function"):
        library["main"]
    with pytest.raises(DeviceError, match="built for llvm"):
        library["default"](cuda())
    with pytest.raises(DeviceError, match="no device"):
        library["default"]("llvm")
