"""ResNet "v1" as torchvision builds it: activation after each sum, stride in the 3x3, logits out.

In: depth, batch, image.  Out: `(mod, params)`; parameters have torchvision's names, so a state dict
fits.  Read next: `mobilenet_v2.py`.
"""

from __future__ import annotations

from functools import partial

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.models.zoo import layers
from tilewright.models.zoo.resnet import units_of, with_small_ends

NORM_NAMES = (".weight", ".bias", ".running_mean", ".running_var")


def _conv(
    data: Expr, name: str, channels: int, size: int, strides: int, layout: str, groups: int = 1
) -> Expr:
    return layers.conv2d(
        data, name, channels, size, strides, size // 2, groups, layout, suffix=".weight"
    )


def _norm(data: Expr, name: str, layout: str) -> Expr:
    return layers.batch_norm(data, name, layout, names=NORM_NAMES)


def residual_unit(
    data: Expr, name: str, width: int, strides: int, project: bool, bottleneck: bool, layout: str,
    groups: int = 1, width_per_group: int = 64,
) -> Expr:  # fmt: skip
    """relu(data + convolutions of it); width: channels of the 3x3 convolutions, where they are in
    one group of `width_per_group` in the first stage."""
    steps: tuple[tuple[int, int, int], ...] = ((width, 3, strides), (width, 3, 1))
    if bottleneck:
        inside = width * width_per_group // 64 * groups
        steps = ((inside, 1, 1), (inside, 3, strides), (4 * width, 1, 1))
    x = data
    for k, (channels, size, step) in enumerate(steps, 1):
        split = groups if size == 3 else 1
        x = _conv(x, f"{name}.conv{k}", channels, size, step, layout, split)
        x = _norm(x, f"{name}.bn{k}", layout)
        x = nn.relu(x) if k < len(steps) else x
    if project:
        data = _conv(data, f"{name}.downsample.0", steps[-1][0], 1, strides, layout)
        data = _norm(data, f"{name}.downsample.1", layout)
    return nn.relu(tensor.add(x, data))


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
    groups: int = 1,
    width_per_group: int = 64,
) -> Function:
    """The function data -> logits.

    num_layers: 18, 34, 50, 101 or 152; image_shape: (C, H, W), or (H, W, C) for layout NHWC
    groups, width_per_group: of the 3x3 convolutions of the first stage, for networks of
        bottlenecks: 32 of 4 for ResNeXt-50, 32 of 8 for ResNeXt-101 (Xie et al., 2016)
    """
    place = "relay.testing.resnet_v1"
    units, bottleneck = units_of(num_layers, place)
    if groups != 1 and not bottleneck:
        raise ModelError(
            f"{place}(num_layers={num_layers}, groups={groups})",
            "only bottlenecks have convolutions in groups", "Use 50, 101 or 152 layers.",
        )  # fmt: skip
    data = layers.image(batch_size, image_shape, layout, dtype, place)
    x: Expr = nn.relu(_norm(_conv(data, "conv1", 64, 7, 2, layout), "bn1", layout))
    x = nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1), layout=layout)
    for stage, count in enumerate(units):
        for unit in range(count):
            strides = 2 if stage > 0 and unit == 0 else 1
            project = unit == 0 and (bottleneck or stage > 0)
            name = f"layer{stage + 1}.{unit}"
            x = residual_unit(
                x, name, 64 * 2**stage, strides, project, bottleneck, layout, groups,
                width_per_group,
            )  # fmt: skip
    x = nn.batch_flatten(nn.global_avg_pool2d(x, layout=layout))
    x = layers.dense(x, "fc", num_classes, (".weight", ".bias"))
    return layers.network(data, x)


get_workload = layers.workload_of(get_net, weights=partial(with_small_ends, weight=".bn{}.weight"))
