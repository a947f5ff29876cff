"""Tasks of whole networks against lists that are derived from the networks' published definitions.

A list is what TVM's partition makes of a network: a convolution, product or pooling takes the
elementwise steps that follow it and have its shape; a normalisation behind a convolution leaves an
addition, one in front of convolutions too, one in front of a pooling a product and an addition.
Nothing here reads `relay.testing`: each list is made of stages, channels and sizes.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest

from tilewright_tvm import auto_scheduler, autotvm, relay

Shape = tuple[int, ...]


class Kernel(NamedTuple):
    """data, result: batch, channels, image; window: of its weight, or () where it has none."""

    anchor: str
    data: Shape
    window: Shape
    result: Shape
    then: str


class Net:
    """The kernels of a network, in order; `shape` is what the last one gave, without its batch."""

    def __init__(self, *shape: int, batch: int = 1) -> None:
        self.shape, self.batch, self.kernels = shape, batch, []

    def _add(self, anchor: str, window: Shape, result: Shape, then: str) -> Net:
        before = (self.batch, *self.shape)
        self.kernels.append(Kernel(anchor, before, window, (self.batch, *result), then))
        self.shape = result
        return self

    def conv(
        self, channels: int, size: int | Shape, step: int | Shape = 1, pad: int | None = None,
        then: str = "add relu", depthwise: bool = False,
    ) -> Net:  # fmt: skip
        """pad: default: as much as keeps the size where the step is 1"""
        rank = len(self.shape) - 1
        sizes, steps = (_all(x, rank) for x in (size, step))
        pads = tuple(k // 2 for k in sizes) if pad is None else (pad,) * rank
        image = tuple(
            (n + 2 * p - k) // s + 1
            for n, k, s, p in zip(self.shape[1:], sizes, steps, pads, strict=True)
        )
        kind = "depthwise_conv" if depthwise else "conv"
        return self._add(f"{kind}{rank}d", sizes, (channels, *image), then)

    def grow(self, channels: int, then: str) -> Net:
        """A transposed convolution that doubles the image."""
        image = tuple(2 * n for n in self.shape[1:])
        return self._add("conv2d_transpose", (4, 4), (channels, *image), then)

    def pool(self, size: int, step: int, pad: int = 0, then: str = "") -> Net:
        image = tuple((n + 2 * pad - size) // step + 1 for n in self.shape[1:])
        return self._add("pool2d", (), (self.shape[0], *image), then)

    def mean(self) -> Net:
        return self._add("adaptive_pool", (), (self.shape[0], *[1] * (len(self.shape) - 1)), "")

    def dense(self, units: int, then: str = "add") -> Net:
        self.shape = (prod(self.shape),)
        return self._add("dense", (), (units,), then)

    def softmax(self) -> Net:
        return self._add("softmax", (), self.shape, "")

    def at(self, *shape: int) -> Net:
        """Go on from another value."""
        self.shape = shape
        return self


def _all(x: int | Shape, rank: int) -> Shape:
    return (x,) * rank if isinstance(x, int) else x


# -- the networks ----------------------------------------------------------------------------------

UNITS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def resnet(depth: int, batch: int = 1, video: bool = False) -> Net:
    """Pre-activated: a sum is normalised for the next unit in the kernel that makes it only where
    nothing else reads it, which is before a projection and at the end."""
    deep = depth >= 50
    if video:
        net = Net(3, 16, 112, 112, batch=batch).conv(
            64, (3, 7, 7), (1, 2, 2), then="add relu add relu"
        )
    else:
        net = Net(3, 224, 224, batch=batch).conv(64, 7, 2).pool(3, 2, 1, "add relu")
    for stage, count in enumerate(UNITS[depth]):
        width = 64 * 2**stage
        out = 4 * width if deep else width
        for unit in range(count):
            step = 2 if stage and not unit else 1
            before = net.shape
            if not unit:
                net.conv(out, 1, step, 0, then="").at(*before)
            last = unit == count - 1
            then = "add multiply add relu" if last and stage == 3 else "add add relu"
            then = then if last else "add"
            if deep:
                net.conv(width, 1, step, 0).conv(width, 3).conv(out, 1, then=then)
            else:
                net.conv(width, 3, step).conv(out, 3, then=then)
    return net.mean().dense(1000).softmax()


def mobilenet(batch: int = 1) -> Net:
    net = Net(3, 224, 224, batch=batch).conv(32, 3, 2)
    for channels, step in (
        (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *5 * [(512, 1)], (1024, 2),
        (1024, 1),
    ):  # fmt: skip
        net.conv(net.shape[0], 3, step, depthwise=True).conv(channels, 1)
    return net.mean().dense(1000).softmax()


def mobilenet_v2() -> Net:
    net = Net(3, 224, 224).conv(32, 3, 2, then="add clip")
    for widen, channels, count, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1),
    ):  # fmt: skip
        for unit in range(count):
            before = net.shape[0]
            if widen > 1:
                net.conv(before * widen, 1, then="add clip")
            net.conv(before * widen, 3, 1 if unit else first, then="add clip", depthwise=True)
            net.conv(channels, 1, then="add add" if unit else "add")
    return net.conv(1280, 1, then="add clip").mean().dense(1000)


def vgg(depth: int) -> Net:
    net = Net(3, 224, 224)
    counts = {11: (1, 1, 2, 2, 2), 13: (2,) * 5, 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}[depth]
    for channels, count in zip((64, 128, 256, 512, 512), counts, strict=True):
        for _ in range(count):
            net.conv(channels, 3)
        net.pool(2, 2)
    return net.dense(4096, "add relu").dense(4096, "add relu").dense(1000).softmax()


def squeezenet(version: str) -> Net:
    net = Net(3, 224, 224)
    net = net.conv(96, 7, 2) if version == "1.0" else net.conv(64, 3, 2)
    pools = {"1.0": (0, 3, 7), "1.1": (0, 2, 4)}[version]
    for k, (few, many) in enumerate(
        ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))
    ):
        if k in pools:
            net.pool(3, 2)
        squeezed = net.conv(few, 1).shape
        net.conv(many, 1).at(*squeezed).conv(many, 3)
        net.at(2 * many, *squeezed[1:])
    return net.conv(1000, 1).mean().at(1000).softmax()


def inception_v3() -> Net:
    net = Net(3, 299, 299).conv(32, 3, 2, 0).conv(32, 3, pad=0).conv(64, 3).pool(3, 2)
    net.conv(80, 1).conv(192, 3, pad=0).pool(3, 2)
    row, column = (1, 7), (7, 1)

    def towers(*each: Any, pool: int, project: int = 0) -> None:
        """Each tower: (channels, size[, step]) in turn; a size of two shapes is a fork."""
        before, out, image = net.shape, 0, net.shape[1:]
        for tower in each:
            net.at(*before)
            for channels, size, *step in tower:
                if isinstance(size, list):
                    here = net.shape
                    for part in size:
                        net.at(*here).conv(channels, part)
                    out += channels
                else:
                    net.conv(channels, size, *step, **({"pad": 0} if step else {}))
            out, image = out + net.shape[0], net.shape[1:]
        net.at(*before).pool(3, pool, 1 if pool == 1 else 0)
        out += net.conv(project, 1).shape[0] if project else net.shape[0]
        net.at(out, *image)

    for project in (32, 64, 64):
        towers([(64, 1)], [(48, 1), (64, 5)], [(64, 1), (96, 3), (96, 3)], pool=1, project=project)
    towers([(384, 3, 2)], [(64, 1), (96, 3), (96, 3, 2)], pool=2)
    for width in (128, 160, 160, 192):
        twice = [(width, column), (width, row)]
        towers(
            [(192, 1)], [(width, 1), (width, row), (192, column)],
            [(width, 1), *twice, (width, column), (192, row)], pool=1, project=192,
        )  # fmt: skip
    towers([(192, 1), (320, 3, 2)], [(192, 1), (192, row), (192, column), (192, 3, 2)], pool=2)
    for _ in range(2):
        fork = (384, [(1, 3), (3, 1)])
        towers([(320, 1)], [(384, 1), fork], [(448, 1), (384, 3), fork], pool=1, project=192)
    return net.pool(8, 1).dense(1000).softmax()


def densenet() -> Net:
    """TVM's: a layer reads the one before it; a block ends as the concatenation of its layers."""
    net = Net(3, 224, 224, batch=4).conv(64, 7, 2).pool(3, 2, 1, "add relu")
    features = 64
    for block, count in enumerate((6, 12, 24, 16)):
        for _ in range(count):
            net.conv(128, 1).conv(32, 3, then="")
        features = features + 32 * count
        net.at(32 * count, *net.shape[1:])
        if block < 3:
            features //= 2
            net.conv(features, 1, then="").pool(2, 2, then="add relu")
    return net.pool(7, 1).dense(1000)


def dcgan() -> Net:
    net = Net(100).dense(16384, "relu").at(1024, 4, 4)
    for channels in (512, 256, 128):
        net.grow(channels, "multiply add relu")
    return net.grow(3, "tanh")


def dqn() -> Net:
    net = Net(4, 84, 84).conv(32, 8, 4, 0).conv(64, 4, 2, 0).conv(64, 3, pad=0)
    return net.dense(512, "add relu").dense(18)


def mlp() -> Net:
    return Net(784).dense(128, "add relu").dense(64, "add relu").dense(10).softmax()


def lstm() -> Net:
    """Of each step one product takes the sum of both; the first has no state to multiply."""
    net = Net(128)
    for step in range(8):
        net.at(128).dense(512, "add add" if step else "add")
        if step:
            net.at(128).dense(512)
    return net


# -- the comparison --------------------------------------------------------------------------------

testing = relay.testing
NETS: dict[str, tuple[Any, dict[str, Any], Net]] = {
    "resnet-18": (testing.resnet, {}, resnet(18)),
    "resnet-18 NHWC": (
        testing.resnet, {"layout": "NHWC", "image_shape": (224, 224, 3)}, resnet(18)
    ),
    "resnet-18 of 8, float16": (
        testing.resnet, {"batch_size": 8, "dtype": "float16"}, resnet(18, 8)
    ),
    "resnet-34": (testing.resnet, {"num_layers": 34}, resnet(34)),
    "resnet-50": (testing.resnet, {"num_layers": 50}, resnet(50)),
    "resnet-50 NHWC": (testing.resnet, {"num_layers": 50, "layout": "NHWC"}, resnet(50)),
    "resnet-101": (testing.resnet, {"num_layers": 101}, resnet(101)),
    "resnet3d-18": (testing.resnet_3d, {}, resnet(18, video=True)),
    "resnet3d-50 NDHWC": (
        testing.resnet_3d, {"num_layers": 50, "layout": "NDHWC", "image_shape": (16, 112, 112, 3)},
        resnet(50, video=True),
    ),
    "mobilenet": (testing.mobilenet, {}, mobilenet()),
    "mobilenet NHWC of 4": (testing.mobilenet, {"layout": "NHWC", "batch_size": 4}, mobilenet(4)),
    "mobilenet_v2": (testing.mobilenet_v2, {}, mobilenet_v2()),
    "vgg-11": (testing.vgg, {}, vgg(11)),
    "vgg-13": (testing.vgg, {"num_layers": 13}, vgg(13)),
    "vgg-16": (testing.vgg, {"num_layers": 16}, vgg(16)),
    "vgg-19": (testing.vgg, {"num_layers": 19}, vgg(19)),
    "vgg-11 normalised": (testing.vgg, {"batch_norm": True}, vgg(11)),
    "squeezenet-1.0": (testing.squeezenet, {}, squeezenet("1.0")),
    "squeezenet-1.1": (testing.squeezenet, {"version": "1.1"}, squeezenet("1.1")),
    "inception_v3": (testing.inception_v3, {}, inception_v3()),
    "densenet-121": (testing.densenet, {}, densenet()),
    "dcgan": (testing.dcgan, {"batch_size": 1}, dcgan()),
    "dqn": (testing.dqn, {"batch_size": 1}, dqn()),
    "mlp": (testing.mlp, {"batch_size": 1}, mlp()),
    "lstm": (testing.lstm, {"iterations": 8, "num_hidden": 128}, lstm()),
}  # fmt: skip


def network(kind: str) -> tuple[relay.Function, dict[str, Any]]:
    """The function and a number for its weights: drawing them takes a while."""
    room, options, _ = NETS[kind]
    net = room.get_net(**options)
    weights = [p for p in net.params if not p.name_hint.startswith(("data", "inputs"))]
    return net, {p.name_hint: np.full(p.shape, 0.5, str(p.dtype)) for p in weights}


def kernel(name: str, shapes: list[Shape], layout: str) -> Kernel:
    """What a task is, from its name and the shapes of its arguments."""
    anchor, _, then = name.partition("+")
    last = layout.endswith("C")
    data, result = (
        (s[0], s[-1], *s[1:-1]) if last and len(s) > 2 else s for s in (shapes[0], shapes[-1])
    )
    window: Shape = ()
    if "conv" in anchor:
        anchor = anchor.removesuffix(f"_{layout.lower()}")
        window = shapes[1][: len(data) - 2] if last else shapes[1][2:]
    return Kernel(anchor, data, window, result, then.replace("+", " "))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", NETS)
def test_tasks_and_weights_are_those_of_the_definition(kind):
    net, params = network(kind)
    image = "NCDHW" if "3d" in kind else "NCHW"
    layout = NETS[kind][1].get("layout", image)
    tasks, weights = auto_scheduler.extract_tasks(net, params, "llvm")
    found: Counter[Kernel] = Counter()
    for task, weight in zip(tasks, weights, strict=True):
        shapes = [t.shape for t in task.compute_dag.tensors]
        found[kernel(task.desc, shapes, layout)] += weight
    assert found == Counter(NETS[kind][2].kernels)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize(
    "target", ["cuda -arch=sm_80", "llvm", "opencl -device=mali", "llvm -mtriple=aarch64-linux-gnu"]
)
@pytest.mark.parametrize("kind", ["mobilenet", "squeezenet-1.1", "dcgan", "dqn"])
def test_without_what_follows_equal_anchors_are_one_task_in_order(kind, target):
    net, params = network(kind)
    tasks = autotvm.task.extract_from_program(net, params, target)
    found = [kernel(t.name, [x.shape for x in t.dag.args], "NCHW") for t in tasks]
    anchors = (k._replace(then="") for k in NETS[kind][2].kernels)
    assert found == list(
        dict.fromkeys(k for k in anchors if "conv" in k.anchor or k.anchor == "dense")
    )
    for task in tasks:
        data, weight = (["TENSOR", list(t.shape), "float32"] for t in task.dag.args[:2])
        assert task.workload[:3] == (task.name, data, weight) and task.workload[-1] == "float32"
        assert task.sketches
