"""Loading networks by name, the reference outputs, and the engines that `bench` compares with."""

from __future__ import annotations

import builtins

import numpy as np
import pytest

from graph.cases import CASES, function, random_inputs
from graph.small import image, residual, wanted
from tilewright.base.errors import ModelError
from tilewright.graph.samples import sample_inputs
from tilewright.models import networks
from tilewright.models.peers import engines
from tilewright_tvm import relay

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


@pytest.mark.parametrize("measure", [engines.onnxruntime_benchmark, engines.torch_benchmark])
def test_peers_are_timed(measure):
    peer = measure(*residual(), ONE_THREAD, number=1, repeat=2)
    if measure is engines.torch_benchmark and "not installed" in peer.note:
        pytest.skip(peer.note)
    assert peer.result is not None and peer.result.min > 0, peer.note
    assert len(peer.result.results) == 2 and "1 threads" in peer.note


@pytest.mark.parametrize(
    ("measure", "package"),
    [(engines.onnxruntime_benchmark, "onnxruntime"), (engines.torch_benchmark, "torch")],
)
def test_peers_that_are_not_installed(measure, package, monkeypatch):
    without(monkeypatch, package)
    peer = measure(*residual(), ONE_THREAD)
    assert peer.result is None and "not installed" in peer.note and "pip install" in peer.note


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
    real = builtins.__import__

    def refuse(name, *rest, **options):
        if name.partition(".")[0] == package:
            raise ImportError(f"No module named {package!r}", name=package)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
