"""ResNet "v2" (He et al., "Identity Mappings in Deep Residual Networks", 2016).

Each convolution comes after normalisation and activation.  The network of TVM's tutorials, with
the names it has there.

In: depth, batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `resnet_v1.py`.
"""

from __future__ import annotations

import math
from functools import partial

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.models.zoo.layers import (
    Workload,
    batch_norm,
    conv2d,
    create_workload,
    dense,
    image,
    network,
    workload_of,
)

# depth -> (units per stage, whether a unit is a bottleneck of 1x1, 3x3, 1x1)
UNITS: dict[int, tuple[tuple[int, ...], bool]] = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
EPSILON = 2e-5


def units_of(num_layers: int, place: str) -> tuple[tuple[int, ...], bool]:
    if num_layers in UNITS:
        return UNITS[num_layers]
    raise ModelError(
        f"{place}(num_layers={num_layers})",
        "there is no such depth",
        f"Use {', '.join(map(str, UNITS))}.",
    )


def with_small_ends(net: Function, seed: int, weight: str) -> Workload:
    """`net` and weights; those that end a branch are small, so that sums of many stay near 1.

    weight: how the name of a unit's k-th weight ends, with {} for k; a unit has two or three
    """
    names = [p.name_hint for p in net.params]
    second, third = ([n for n in names if n.endswith(weight.format(k))] for k in (2, 3))
    ends = third or second  # one of each unit
    gains = dict.fromkeys(ends, 1 / math.sqrt(len(ends)))
    return create_workload(net, seed, gains=gains)


def residual_unit(
    data: Expr, name: str, channels: int, strides: int, project: bool, bottleneck: bool, layout: str
) -> Expr:
    """data + convolutions of it; project: a 1x1 convolution gives the data the result's shape."""

    def active(x: Expr, k: int) -> Expr:
        return nn.relu(batch_norm(x, f"{name}_bn{k}", layout, EPSILON))

    def conv(x: Expr, suffix: str, width: int, size: int, step: int = 1) -> Expr:
        return conv2d(x, f"{name}_{suffix}", width, size, step, size // 2, layout=layout)

    first = active(data, 1)
    if bottleneck:
        x = conv(first, "conv1", channels // 4, 1, strides)
        x = conv(active(x, 2), "conv2", channels // 4, 3)
        x = conv(active(x, 3), "conv3", channels, 1)
    else:
        x = conv(first, "conv1", channels, 3, strides)
        x = conv(active(x, 2), "conv2", channels, 3)
    return tensor.add(x, conv(first, "sc", channels, 1, strides) if project else data)


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The function data -> class probabilities; images up to 32 high get a 3x3 stem.

    num_layers: 18, 34, 50, 101 or 152; image_shape: (C, H, W), or (H, W, C) for layout NHWC
    """
    place = "relay.testing.resnet"
    units, bottleneck = units_of(num_layers, place)
    data = image(batch_size, image_shape, layout, dtype, place)
    x = batch_norm(data, "bn_data", layout, EPSILON, scale=False)
    if data.shape[layout.index("H")] <= 32:
        x = conv2d(x, "conv0", 64, 3, 1, 1, layout=layout)
    else:
        x = conv2d(x, "conv0", 64, 7, 2, 3, layout=layout)
        x = nn.relu(batch_norm(x, "bn0", layout, EPSILON))
        x = nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1), layout=layout)
    for stage, count in enumerate(units):
        channels = 64 * 2**stage * (4 if bottleneck else 1)
        for unit in range(count):
            strides = 2 if stage > 0 and unit == 0 else 1
            name = f"stage{stage + 1}_unit{unit + 1}"
            x = residual_unit(x, name, channels, strides, unit == 0, bottleneck, layout)
    x = nn.relu(batch_norm(x, "bn1", layout, EPSILON))
    x = nn.batch_flatten(nn.global_avg_pool2d(x, layout=layout))
    x = nn.softmax(dense(x, "fc1", num_classes))
    return network(data, x)


get_workload = workload_of(get_net, weights=partial(with_small_ends, weight="conv{}_weight"))
