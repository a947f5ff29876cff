"""Kernels carry the names of the layers of the model that they compute."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.graph.expr import Constant, Function, TensorType, Var
from tilewright.graph.functions import nn, tensor
from tilewright.graph.layers import adopt, layers_of
from tilewright.measure.record import RunLine, layers_told
from tilewright.models.onnx.export import to_onnx
from tilewright.network.extract import fused_groups, fused_tasks, groupings
from tilewright.targets.target import Target

EXPORTED = (
    "mlp", "dqn", "lstm", "bert-tiny", "gpt2-tiny", "vit-tiny", "squeezenet-1.1", "mobilenet",
    "mobilenet_v2", "resnet-18", "densenet-121", "unet",
)  # fmt: skip


def layers_of_kernels(net, target="llvm"):
    """The names of each launch of each network that a build may choose."""
    chosen = Target(target)
    return [
        layers_of(call)
        for grouped in groupings(net.modules[0], net.params, target=chosen)
        for group in fused_groups(grouped["main"])
        for call in group.calls
    ]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTED)
def test_every_kernel_of_an_exported_network_names_nodes_of_it(name):
    made = tw.load(name)
    proto = to_onnx(made.modules[0], made.params)
    names = {node.name for node in proto.graph.node}
    found = layers_of_kernels(tw.load(proto))
    assert found and all(found)
    assert {name for layers in found for name in layers} <= names


@pytest.mark.slow
@pytest.mark.parametrize("name", ["block", "encoder", "waves"])
def test_every_kernel_of_a_module_of_pytorch_names_modules_or_calls_of_it(name):
    networks = pytest.importorskip("models.torch_networks")
    module, inputs = networks.network(name)
    found = layers_of_kernels(tw.load(module, inputs))
    assert found and all(found)
    modules = {path for path, _ in module.named_modules()} - {""}
    if name != "waves":  # which calls functions only
        assert sum(layers[0] in modules for layers in found) >= 0.5 * len(found)


def test_the_anchor_is_named_first_and_what_was_folded_into_it_last(tmp_path):
    x = Var("x", TensorType((1, 4, 6, 6), "float32"))
    weight = Constant(np.ones((4, 4, 1, 1), "float32"))
    shift = Constant(np.ones((4, 1, 1), "float32"))
    before = adopt(nn.relu(x), ("first",))
    conv = adopt(nn.conv2d(before, weight), ("stem.conv",))
    added = adopt(tensor.add(conv, shift), ("stem.norm",))
    out = adopt(nn.relu(added), ("stem.act",))
    net = tw.load(Function([x], out))
    run = tw.compile(net, "llvm", verify=False)
    launches = run.library.plan.launches
    assert [launch.layers for launch in launches] == [
        ("first",), ("stem.conv", "stem.norm", "stem.act"),
    ]  # fmt: skip
    assert [k.layers for k in run.library.report.kernels] == [("first",), ("stem.conv",)]
    run.save(tmp_path / "net.so")
    opened = tw.open(tmp_path / "net.so")
    profile = opened.profile(np.ones((1, 4, 6, 6), "float32"))
    assert [k.layers for k in profile.launches] == [launch.layers for launch in launches]


def test_tasks_say_whose_they_are_and_logs_keep_it():
    net = tw.load("mlp")
    tasks = fused_tasks(net.modules[0], net.params, "llvm")
    assert [t.layers for t in tasks if t.name.startswith("dense")] == [("fc1",), ("fc2",), ("fc3",)]
    old, strange = RunLine(options={}), RunLine(options={"layers": {"k": 3, "l": ["a", "b"]}})
    assert layers_told([old, strange, RunLine(options={"layers": {"l": ["b", "c"]}})]) == {
        "l": ("a", "b", "c")
    }
