"""Loading networks by name, the reference outputs, and the engines that `bench` compares with."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from graph.cases import CASES, function, random_inputs
from graph.small import image, residual, wanted
from tilewright.base.errors import ModelError
from tilewright.graph.samples import sample_inputs
from tilewright.models import networks
from tilewright.models.peers import engines
from tilewright_tvm import relay

RNG = np.random.default_rng(0)
ONE_THREAD = "llvm -num-cores=1"


def test_networks_by_name_and_from_files(tmp_path):
    mod, params = networks.load("mobilenet")
    assert mod["main"].ret_type == relay.TensorType((1, 1000)) and params
    path = tmp_path / "net.onnx"
    path.write_bytes(relay.to_onnx(*residual()).SerializeToString())
    mod, params = networks.load(path)
    data = image()
    np.testing.assert_allclose(
        wanted(mod, params, data), wanted(*residual(), data), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("resnet18", ("no such network", "Did you mean resnet-18?", ".onnx")),
        ("none.onnx", ("none.onnx", "no such file")),
        ("some/where", ("some/where", "no such file")),
    ],
)
def test_networks_that_are_not_there(name, parts):
    with pytest.raises(ModelError) as caught:
        networks.load(name)
    assert all(part in str(caught.value) for part in parts)


def test_a_truncated_file(tmp_path):
    path = tmp_path / "net.onnx"
    data = relay.to_onnx(*residual()).SerializeToString()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="truncated"):
        networks.load(path)


def test_the_reference_is_onnxruntime_or_numpy(monkeypatch):
    mod, params = residual()
    inputs = sample_inputs(mod, params, seed=3)
    assert list(inputs) == ["data"]
    first = engines.reference(mod, params, inputs)
    assert first.engine.startswith("onnxruntime")
    without(monkeypatch, "onnxruntime")
    second = engines.reference(mod, params, inputs)
    assert second.engine == "numpy float64" and second.outputs[0].dtype == np.float64
    np.testing.assert_allclose(first.outputs[0], second.outputs[0], rtol=1e-4, atol=1e-6)


def test_the_reference_is_numpy_where_onnxruntime_fails(monkeypatch):
    def fails(*_):
        raise RuntimeError("NOT_IMPLEMENTED")

    monkeypatch.setattr(engines, "_session", fails)
    mod, params = residual()
    assert engines.reference(mod, params, sample_inputs(mod, params)).engine == "numpy float64"


def test_a_choice_of_bools_goes_to_onnxruntime():
    given = {n: RNG.random((3, 4)) < 0.5 for n in "abc"}
    parts = [relay.var(n, shape=(3, 4), dtype="bool") for n in given]
    mod = relay.IRModule.from_expr(relay.Function(parts, relay.where(*parts)))
    found = engines.reference(mod, {}, given)
    assert found.engine.startswith("onnxruntime")
    np.testing.assert_array_equal(found.outputs[0], np.where(*given.values()))


HERE = [engines.onnxruntime_benchmark, engines.openvino_benchmark, engines.torch_benchmark]


@pytest.mark.parametrize("measure", HERE)
def test_peers_are_timed(measure):
    peer = measure(*residual(), ONE_THREAD, number=1, repeat=2)
    if measure is not engines.onnxruntime_benchmark and "not installed" in peer.note:
        pytest.skip(peer.note)
    assert peer.result is not None and peer.result.min > 0, peer.note
    assert len(peer.result.results) == 2 and "1 threads" in peer.note


@pytest.mark.parametrize(
    ("measure", "package"),
    [
        (engines.onnxruntime_benchmark, "onnxruntime"), (engines.torch_benchmark, "torch"),
        (engines.openvino_benchmark, "openvino"), (engines.tensorrt_benchmark, "tensorrt"),
        (engines.torch_compile_benchmark, "torch"), (engines.openvino_benchmark, "onnx"),
    ],
)  # fmt: skip
def test_peers_that_are_not_installed(measure, package, monkeypatch):
    without(monkeypatch, package)
    peer = measure(*residual(), ONE_THREAD)
    assert peer.result is None and peer.note.startswith("not installed: ")
    assert peer.note.endswith(package) or package.startswith("onnx"), "a command and no more"


def test_each_kind_of_device_has_its_peers(monkeypatch):
    for package in ("onnxruntime", "openvino", "tensorrt", "torch"):
        without(monkeypatch, package)
    on_cpu = [peer.engine for peer in engines.peer_times(*residual(), ONE_THREAD)]
    assert on_cpu == ["onnxruntime", "OpenVINO", "PyTorch"]
    on_gpu = [peer.engine for peer in engines.peer_times(*residual(), "cuda -arch=sm_90")]
    assert on_gpu == ["onnxruntime", "TensorRT", "torch.compile", "PyTorch"]


def test_openvino_computes_the_network():
    pytest.importorskip("openvino")
    from tilewright.models.peers import openvino

    mod, params = residual()
    inputs = sample_inputs(mod, params, seed=3)
    want = engines.reference(mod, params, inputs).outputs
    (found,) = openvino.runner(engines._model(mod, params), inputs, 1)().values()
    np.testing.assert_allclose(found, want[0], rtol=1e-4, atol=1e-5)


def test_what_is_compiled_by_pytorch_computes_the_network():
    """By a compiler that changes nothing: the way there is ours, inductor needs a device."""
    pytest.importorskip("torch")
    from tilewright.models.peers import pytorch

    mod, params = residual()
    inputs = sample_inputs(mod, params, seed=3)
    with pytorch.compiled(mod, params, inputs, "cpu", backend="eager") as run:
        found = run().numpy()
    np.testing.assert_allclose(found, wanted(mod, params, inputs["data"]), rtol=1e-4, atol=1e-5)


def test_a_network_that_tensorrt_refuses_says_why(monkeypatch):
    refusing = SimpleNamespace(
        parse=lambda model: False, num_errors=1, get_error=lambda k: "node 3: no such layer"
    )
    builder = SimpleNamespace(create_network=lambda flags: None)
    trt = SimpleNamespace(
        Builder=lambda logger: builder,
        OnnxParser=lambda network, logger: refusing,
        NetworkDefinitionCreationFlag=SimpleNamespace(STRONGLY_TYPED=1), __version__="11",
    )  # fmt: skip
    trt.Logger = type("Logger", (), {"ERROR": 1, "__init__": lambda self, level: None})
    trt.Runtime = lambda logger: SimpleNamespace(deserialize_cuda_engine=lambda plan: None)
    monkeypatch.setitem(sys.modules, "tensorrt", trt)
    peer = engines.tensorrt_benchmark(*residual(), "cuda -arch=sm_90")
    assert peer.result is None and "TensorRT: node 3: no such layer" in peer.note


def test_a_peer_that_lacks_an_operator():
    pytest.importorskip("torch")
    f = relay.Function([x := relay.var("x", shape=(4,))], relay.floor(x))
    peer = engines.torch_benchmark(f, {}, ONE_THREAD)
    assert peer.result is None and "no rule for floor" in peer.note


def test_torch_computes_what_the_operators_mean(request):
    """One case of each, with `--long` all."""
    pytest.importorskip("torch")
    from tilewright.models.peers import pytorch

    known, seen, done = set(pytorch._rules()), 0, set()
    for case in CASES:
        if case.op not in known or (case.op in done and not request.config.option.long):
            continue
        f = function(case.build())
        inputs = random_inputs(f)
        try:
            module, given = pytorch.traced(relay.IRModule.from_expr(f), {}, inputs, "cpu")
        except ModelError as refused:
            assert "average pooling" in str(refused)
            continue
        want = relay.evaluate(f, inputs, "float64")
        np.testing.assert_allclose(
            module(*given).numpy(), want, rtol=1e-4, atol=1e-5, err_msg=case.id
        )
        done.add(case.op)
        seen += 1
    assert seen > 40


def without(monkeypatch, package: str) -> None:
    """Let `import package` fail."""
    monkeypatch.setitem(sys.modules, package, None)
