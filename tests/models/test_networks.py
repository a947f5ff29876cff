"""The networks: their architecture, their weights, and that passes keep what they compute."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
import pytest

from tilewright import cpu
from tilewright.base.errors import ModelError
from tilewright.driver.build import generate_source
from tilewright.graph.expr import post_order
from tilewright.graph.traversal import is_call, op_name
from tilewright.models import networks
from tilewright.models.zoo import network_names
from tilewright.network.extract import fused_groups, fused_tasks, prepare
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule.default import default_schedule
from tilewright.targets.target import Target
from tilewright_tvm import plugin, relay


def convolutions(body) -> list[tuple]:
    """What tells one convolution's work from another's, in order, each once."""
    found = {}
    for n in post_order(body):
        if is_call(n, "nn.conv2d"):
            a = n.attrs
            found[(n.args[0].shape, n.args[1].shape, a.strides, a.padding, a.groups)] = None
    return list(found)


def image_of(mod, seed=0) -> np.ndarray:
    data = mod["main"].params[0]
    return np.random.default_rng(seed).standard_normal(data.shape).astype("float32")


@pytest.mark.slow
def test_resnet_18_has_the_twelve_convolutions_of_the_tutorial():
    mod, params = relay.testing.resnet.get_workload(num_layers=18, batch_size=1)
    found = convolutions(mod["main"].body)
    assert len(found) == 12
    assert ((1, 512, 7, 7), (512, 512, 3, 3), (1, 1), (1, 1, 1, 1), 1) in found
    assert found[0] == ((1, 3, 224, 224), (64, 3, 7, 7), (2, 2), (3, 3, 3, 3), 1)
    fused = relay.optimize(mod, params)["main"]
    inside = [
        (n.op.body, n.op)
        for n in post_order(fused.body)
        if isinstance(n, relay.Call) and isinstance(n.op, relay.Function)
    ]
    shapes = {c for body, _ in inside for c in convolutions(body)}
    assert len(shapes) == 12
    assert mod["main"].ret_type == relay.TensorType((1, 1000))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "count", "distinct", "parameters"),
    [
        ("resnet-18-v1", 20, 11, 11_689_512), ("resnet-50-v1", 53, 23, 25_557_032),
        ("mobilenet", 27, 19, 4_231_976), ("squeezenet-1.0", 26, 22, 1_248_424),
        ("squeezenet-1.1", 26, 18, 1_235_496), ("inception_v3", 94, 43, 23_834_568),
        ("densenet-121", 120, 66, 7_978_856), ("densenet-161", 160, 86, 28_681_000),
        ("densenet-169", 168, 90, 14_149_480), ("densenet-201", 200, 106, 20_013_928),
        ("mobilenet_v2", 52, 30, 3_504_872), ("resnext-50", 53, 24, 25_028_904),
        ("resnext-101", 104, 19, 88_791_336), ("dqn", 3, 3, 1_693_362), ("mlp", 0, 0, 109_386),
    ],
)  # fmt: skip
def test_architectures(name, count, distinct, parameters):
    """Convolutions, distinct ones, and the published numbers of trained parameters."""
    check_architecture(relay.testing.get_network(name)[0]["main"], count, distinct, parameters)


@pytest.mark.parametrize(
    ("layers", "count", "distinct", "parameters"),
    [
        (11, 8, 7, 132_863_336), (13, 10, 9, 133_047_848), (16, 13, 9, 138_357_544),
        (19, 16, 9, 143_667_240),
    ],
)  # fmt: skip
def test_architectures_of_vgg(layers, count, distinct, parameters):
    check_architecture(relay.testing.vgg.get_net(num_layers=layers), count, distinct, parameters)


def check_architecture(f: relay.Function, count: int, distinct: int, parameters: int) -> None:
    assert sum(is_call(n, "nn.conv2d") for n in post_order(f.body)) == count
    assert len(convolutions(f.body)) == distinct
    statistics = ("running_mean", "running_var", "moving_mean", "moving_var")
    trained = [p for p in f.params[1:] if not p.name_hint.endswith(statistics)]
    assert sum(p.tensor_type.size for p in trained) == parameters


@pytest.mark.slow
def test_v1_parameters_have_the_names_of_a_torchvision_state_dict():
    _, params = relay.testing.get_network("resnet-50-v1", image_shape=(3, 64, 64))
    for name, shape in {
        "conv1.weight": (64, 3, 7, 7), "bn1.running_var": (64,), "fc.bias": (1000,),
        "layer1.0.downsample.0.weight": (256, 64, 1, 1), "layer4.2.conv2.weight": (512, 512, 3, 3),
        "layer2.0.bn3.bias": (512,),
    }.items():  # fmt: skip
        assert params[name].shape == shape


SMALL = {"image_shape": (3, 64, 64), "num_classes": 10}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet-18", "resnet-50-v1", "mobilenet", "squeezenet-1.1"])
def test_passes_keep_what_a_network_computes(name):
    mod, params = relay.testing.get_network(name, **SMALL)
    data = image_of(mod)
    wanted = relay.evaluate(mod, {**params, "data": data}, "float64")
    fused = relay.optimize(mod, params)
    found = relay.evaluate(fused, {"data": data}, "float64")
    np.testing.assert_allclose(found, wanted, atol=3e-6 * np.abs(wanted).max())
    text = str(fused)
    assert "batch_norm" not in text
    # of the first, the last norm scales a sum that a shortcut also reads: no convolution takes it
    assert text.count("multiply(%") == (name == "resnet-18")
    assert [p.name_hint for p in fused["main"].params] == ["data"]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet-18", "resnet-152-v1", "mobilenet", "squeezenet-1.0"])
def test_activations_stay_near_one(name):
    size = 64 if name.startswith("squeezenet") else 32
    mod, params = relay.testing.get_network(name, image_shape=(3, size, size), num_classes=10)
    sizes = []

    def observe(node, value):
        if op_name(node) in ("add", "nn.relu", "nn.conv2d"):
            sizes.append(float(np.sqrt(np.mean(value**2))))

    relay.evaluate(mod, {**params, "data": image_of(mod)}, observe=observe)
    assert min(sizes) > 0.05
    assert max(sizes) < 20


@pytest.mark.long
def test_layouts_are_the_same_network():
    """NHWC weights are the transposed NCHW ones, so the results agree."""
    for name, size in (("resnet-18", 32), ("mobilenet", 32), ("squeezenet-1.0", 64)):
        results = []
        for layout in ("NCHW", "NHWC"):
            shape = (3, size, size) if layout == "NCHW" else (size, size, 3)
            mod, params = relay.testing.get_network(
                name, image_shape=shape, num_classes=5, layout=layout
            )
            data = np.random.default_rng(0).standard_normal((1, 3, size, size))
            data = data if layout == "NCHW" else data.transpose(0, 2, 3, 1)
            results.append(relay.evaluate(mod, {**params, "data": data}, "float64"))
            fused = relay.optimize(mod, params)
            assert "batch_norm" not in str(fused)
        np.testing.assert_allclose(*results, rtol=1e-4)


@pytest.mark.slow
def test_weights_repeat_and_follow_the_seed():
    first = relay.testing.get_network("mobilenet", image_shape=(3, 32, 32))[1]
    again = relay.testing.get_network("mobilenet", image_shape=(3, 64, 64))[1]
    other = relay.testing.get_network("mobilenet", image_shape=(3, 32, 32), seed=1)[1]
    for name, value in first.items():
        np.testing.assert_array_equal(value, again[name])
    assert not np.array_equal(first["fc_weight"], other["fc_weight"])


@pytest.mark.slow
def test_batches_and_float64():
    mod, params = relay.testing.resnet.get_workload(
        batch_size=2, num_classes=7, image_shape=(3, 32, 32), dtype="float64"
    )
    assert mod["main"].ret_type == relay.TensorType((2, 7), "float64")
    assert all(v.dtype == "float64" for v in params.values())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relay.testing.get_network("resnet-20"), ["resnet-20", "mobilenet", ".onnx"]),
        (lambda: relay.testing.get_network("mobilenett"), ["Did you mean mobilenet?"]),
        (lambda: relay.testing.resnet.get_workload(num_layers=20), ["20", "18, 34"]),
        (lambda: relay.testing.squeezenet.get_workload(version="2"), ["'2'", "'1.0' or '1.1'"]),
        (lambda: relay.testing.vgg.get_workload(num_layers=12), ["12", "11, 13, 16, 19"]),
        (lambda: relay.testing.densenet.get_workload(120), ["120", "121, 161, 169, 201"]),
        (lambda: relay.testing.resnext.get_workload(num_layers=18), ["18", "50, 101 or 152"]),
        (lambda: relay.testing.mobilenet.get_workload(layout="NCWH"), ["NCWH", "NHWC"]),
        (lambda: relay.testing.mobilenet.get_workload(image_shape=(32, 32)), ["(32, 32)"]),
        (lambda: relay.testing.mobilenet.get_workload(batch_size=0), ["batch_size=0"]),
    ],
)
def test_unknown_networks_and_options_are_refused(make, words):
    with pytest.raises(ModelError) as e:
        make()
    assert all(w in str(e.value) for w in words)


def test_networks_of_packages_above_have_names_too():
    assert set(plugin.NETWORKS) == set(relay.testing.networks.NETWORKS)
    assert set(plugin.NETWORKS) <= set(network_names()) == set(relay.testing.NETWORKS)
    mod, params = networks.load("lstm")
    assert len(mod["main"].params) == 8 + len(params)
    with pytest.raises(ModelError, match=r"Did you mean dcgan\?"):
        networks.load("dcgam")


def test_a_workload_takes_what_its_network_takes_and_a_seed():
    small = (1, 7, (1, 4, 4))
    (mod, first), (_, same), (_, other) = (
        relay.testing.mlp.get_workload(*small, **seed) for seed in ({}, {"seed": 0}, {"seed": 1})
    )
    assert mod["main"].body.checked_type.shape == (1, 7)
    assert all((first[name] == same[name]).all() for name in first)
    assert any((first[name] != other[name]).any() for name in first)
    mod, _ = relay.testing.vgg.get_workload(1, 5, (3, 32, 32))  # as TVM's: classes come second
    assert mod["main"].ret_type == relay.TensorType((1, 5))
    with pytest.raises(TypeError, match="depth"):
        relay.testing.mlp.get_workload(depth=3)


def test_workload_of_a_network_of_ones_own():
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = relay.nn.conv2d(x, relay.var("w"), channels=4, kernel_size=3)
    y = relay.nn.bias_add(y, relay.var("b"))
    _, params = relay.testing.create_workload(relay.Function(relay.free_vars(y), y))
    mod, same = relay.testing.create_workload(y)  # an expression over variables
    assert mod["main"].body is y and all((same[name] == params[name]).all() for name in params)
    assert {n: v.shape for n, v in params.items()} == {"w": (4, 3, 3, 3), "b": (4,)}


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet-18", "resnet-18-v1", "squeezenet-1.1"])
def test_onnxruntime_computes_the_exported_network(name):
    mod, params = relay.testing.get_network(name, **SMALL)
    model = relay.to_onnx(mod, params)
    data = image_of(mod)
    wanted = relay.evaluate(mod, {**params, "data": data}, "float64")
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {"data": data})
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
    again, weights = relay.frontend.from_onnx(model)
    found = relay.evaluate(again, {**weights, "data": data}, "float64")
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


# Two of the 22 tasks the auto-scheduler tutorial prints for MobileNet in NHWC.
TUTORIAL_TASKS = (
    """\
p0 = PLACEHOLDER [1, 56, 56, 128]
pad_temp(i0, i1, i2, i3) = p0[i0, i1, i2, i3]
p1 = PLACEHOLDER [1, 1, 128, 128]
conv2d_nhwc(nn, yy, xx, ff) += (pad_temp[nn, (yy + ry), (xx + rx), rc]*p1[ry, rx, rc, ff])
p2 = PLACEHOLDER [1, 1, 1, 128]
T_add(ax0, ax1, ax2, ax3) = (conv2d_nhwc[ax0, ax1, ax2, ax3] + p2[ax0, 0, 0, ax3])
T_relu(ax0, ax1, ax2, ax3) = max(T_add[ax0, ax1, ax2, ax3], 0f)
""",
    """\
p0 = PLACEHOLDER [1, 1024]
p1 = PLACEHOLDER [1000, 1024]
T_matmul_NT(i, j) += (p0[i, k]*p1[j, k])
p2 = PLACEHOLDER [1, 1000]
T_add(ax0, ax1) = (T_matmul_NT[ax0, ax1] + p2[ax0, ax1])
""",
)


@pytest.mark.slow
def test_mobilenet_has_the_tasks_of_the_tutorial():
    mod, params = relay.testing.get_network("mobilenet", layout="NHWC")
    tasks = fused_tasks(mod, params, "llvm")
    assert len(tasks) == 22
    texts = {str(task.dag) for task in tasks}
    assert texts.issuperset(TUTORIAL_TASKS)
    found = {tuple(t.shape for t in task.dag.args) for task in tasks}
    pointwise = {
        ((1, size, size, a), (1, 1, a, b), (1, 1, 1, b), (1, size, size, b))
        for size, a, b in (
            (112, 32, 64), (56, 64, 128), (56, 128, 128), (28, 128, 256), (28, 256, 256),
            (14, 256, 512), (14, 512, 512), (7, 512, 1024), (7, 1024, 1024),
        )
    }  # fmt: skip
    depthwise = {
        ((1, size, size, c), (3, 3, c, 1), (1, 1, 1, c), (1, after, after, c))
        for size, c, after in (
            (112, 32, 112), (112, 64, 56), (56, 128, 56), (56, 128, 28), (28, 256, 28),
            (28, 256, 14), (14, 512, 14), (14, 512, 7), (7, 1024, 7),
        )
    }  # fmt: skip
    others = {
        ((1, 224, 224, 3), (3, 3, 3, 32), (1, 1, 1, 32), (1, 112, 112, 32)),
        ((1, 7, 7, 1024), (1, 1, 1, 1024)),
        ((1, 1024), (1000, 1024), (1, 1000), (1, 1000)),
        ((1, 1000), (1, 1000)),
    }
    assert found == pointwise | depthwise | others


@dataclass(frozen=True)
class Case:
    """A network that is built and run at a small size."""

    name: str
    size: int
    options: dict[str, Any]


BUILT = {
    "resnet-50 NHWC": Case("resnet-50", 32, {"layout": "NHWC"}),
    "mobilenet NHWC": Case("mobilenet", 32, {"layout": "NHWC"}),
    "squeezenet 1.0": Case("squeezenet-1.0", 64, {}),
    "squeezenet 1.1 NHWC": Case("squeezenet-1.1", 64, {"layout": "NHWC"}),
    "vgg-11": Case("vgg-11", 32, {"batch_norm": True}),
}


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("kind", BUILT)
def test_networks_compute_what_numpy_does(kind):
    case = BUILT[kind]
    shape = (3, case.size, case.size)
    mod, params = relay.testing.get_network(
        case.name, image_shape=shape, num_classes=10, **case.options
    )
    data = image_of(mod)
    wanted = relay.evaluate(mod, {**params, "data": data}, "float64")
    lib = relay.build(mod, "llvm", params, verify=False)
    module = GraphModule(lib["default"](cpu()))
    module.run(data=data)
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda -arch=sm_90", "opencl"])
@pytest.mark.parametrize("name", ["squeezenet-1.1", "resnet-50"])
def test_every_kernel_of_a_network_is_legal_on_gpus(name, target):
    mod, params = relay.testing.get_network(name, layout="NHWC")
    for group in fused_groups(prepare(mod, params)["main"]):
        schedule = default_schedule(group.dag, Target(target))
        assert generate_source(schedule, Target(target), "k").kernels
