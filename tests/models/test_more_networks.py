"""Networks for more than images: video, generators, attention, recurrence; and their memory."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import cpu
from tilewright.base.errors import ModelError
from tilewright.graph.expr import post_order
from tilewright.graph.samples import sample_inputs
from tilewright.graph.traversal import is_call
from tilewright.network.extract import fused_tasks, prepare
from tilewright.network.memory import lifetimes, plan_memory
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay

SMALL = {
    "dcgan": {"ngf": 4, "batch_size": 2},
    "unet": {"image_shape": (3, 16, 16), "channels": 4, "depth": 2},
    "vit-tiny": {"image_shape": (3, 32, 32), "depth": 1, "batch_size": 2},
    "dqn": {"image_shape": (4, 36, 36), "batch_size": 2},
    "mobilenet_v2": {"image_shape": (3, 32, 32), "num_classes": 5},
    "lstm": {"iterations": 3, "num_hidden": 8, "batch_size": 2},
    "bert-tiny": {"length": 6, "depth": 1, "batch_size": 2},
    "gpt2-tiny": {"length": 6, "depth": 1, "vocabulary": 50},
}  # fmt: skip


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_the_compiled_network_computes_the_network(name):
    mod, params = relay.testing.get_network(name, **SMALL[name])
    inputs = sample_inputs(mod, params)
    wanted = relay.evaluate(mod, {**params, **inputs}, "float64")
    module = GraphModule(relay.build(mod, "llvm", params)["default"](cpu()))
    module.run(**inputs)
    found = module.get_output(0).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    assert 1e-3 < np.abs(found).max() < 100


def convolutions(f: relay.Function) -> int:
    return sum(is_call(n, "nn.conv3d") for n in post_order(f.body))


@pytest.mark.slow
def test_resnet_3d():
    """As many convolutions as ResNet with a projection in each stage, none of them pooled."""
    for layers, count in ((18, 21), (34, 37), (50, 53), (200, 203)):
        assert convolutions(relay.testing.resnet_3d.get_net(num_layers=layers)) == count
    for layout, shape in (("NCDHW", (3, 16, 112, 112)), ("NDHWC", (16, 112, 112, 3))):
        f = relay.testing.resnet_3d.get_net(image_shape=shape, layout=layout)
        assert f.ret_type == relay.TensorType((1, 1000))
    small = relay.testing.resnet_3d.get_net(num_layers=20, image_shape=(3, 8, 28, 28))
    assert convolutions(small) == 1 + 18 + 3


@pytest.mark.long
def test_resnet_3d_has_the_tasks_of_its_two_dimensional_namesake():
    """But for the pooling of the stem."""
    tasks = [
        [t.weight for t in fused_tasks(mod, params, "llvm")]
        for mod, params in (
            relay.testing.resnet_3d.get_workload(num_layers=18, image_shape=(3, 4, 64, 64)),
            relay.testing.resnet.get_workload(num_layers=18, image_shape=(3, 64, 64)),
        )
    ]
    assert sum(tasks[0]) == sum(tasks[1]) - 1 and len(tasks[0]) == len(tasks[1]) - 1


def test_dcgan_makes_images():
    mod, params = relay.testing.dcgan.get_workload(3, ngf=8)
    assert mod["main"].ret_type == relay.TensorType((3, 3, 64, 64))
    assert params["g2_deconv_weight"].shape == (64, 32, 4, 4)
    assert len([t for t in fused_tasks(mod, params, "llvm") if "transpose" in t.name]) == 4


def test_an_lstm_is_its_equations():
    mod, params = relay.testing.lstm.get_workload(2, 3, batch_size=2)
    inputs = sample_inputs(mod, params)
    assert sorted(inputs) == ["data", "data1"]
    h = c = np.zeros((2, 3))
    for k in range(2):
        x2h = inputs[("data", "data1")[k]] @ params[f"i2h_{k}_weight"].T + params[f"i2h_{k}_bias"]
        gates = x2h + h @ params[f"h2h_{k}_weight"].T + params[f"h2h_{k}_bias"]
        i, f, g, o = np.split(gates, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-v)) for v in (i, f, o))
        c = f * c + i * np.tanh(g)
        h = o * np.tanh(c)
    np.testing.assert_allclose(relay.evaluate(mod, {**params, **inputs}), h, rtol=1e-5)


def test_a_causal_transformer_does_not_look_ahead():
    mod, params = relay.testing.get_network("gpt2-tiny", length=5, depth=2, vocabulary=11)
    data = np.array([[3, 1, 4, 1, 5]], "int32")
    first = relay.evaluate(mod, {**params, "data": data})
    data[0, 3] = 9
    second = relay.evaluate(mod, {**params, "data": data})
    np.testing.assert_array_equal(first[:, :3], second[:, :3])
    assert np.abs(first[:, 3:] - second[:, 3:]).max() > 1e-3


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["resnet-50", "resnet3d-50", "inception_v3", "mobilenet_v2", "densenet-121", "unet",
             "dcgan", "vit-tiny", "bert-tiny", "gpt2-tiny", "squeezenet-1.1"]
)  # fmt: skip
def test_memory_is_near_what_is_alive_at_once(name):
    mod, params = relay.testing.get_network(name)
    plan = plan_memory([*lifetimes(prepare(mod, params)["main"]).values()])
    assert plan.planned_bytes <= 1.1 * plan.peak_bytes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relay.testing.resnet_3d.get_workload(num_layers=20), ["20", "18, 34, 50"]),
        (lambda: relay.testing.resnet_3d.get_workload(num_layers=18, image_shape=(3, 8, 28, 28)),
         ["18", "28 high", "6 n + 2"]),
        (lambda: relay.testing.resnet_3d.get_workload(layout="NCHW"), ["NCHW", "NCDHW"]),
        (lambda: relay.testing.lstm.get_workload(0, 4), ["iterations=0", "at least 1"]),
        (lambda: relay.testing.dcgan.get_workload(1, oshape=(3, 32, 32)), ["(3, 32, 32)", "64"]),
    ],
)  # fmt: skip
def test_refusals(make, words):
    with pytest.raises(ModelError) as e:
        make()
    assert all(w in str(e.value) for w in words)
