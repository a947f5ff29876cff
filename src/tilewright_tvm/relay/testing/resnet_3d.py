"""ResNet of three axes for video (Hara et al., 2018): `resnet.py` with a time axis.

In: depth, batch, clip.  Out: `(mod, params)` with seeded weights.  Read next: `dcgan.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, Expr, Function, IRModule
from tilewright.graph.functions import nn, tensor
from tilewright.graph.leaves import var
from tilewright.models.zoo.layers import batch_norm, create_workload, dense, network
from tilewright.models.zoo.resnet import EPSILON

KERNEL_LAYOUT = {"NCDHW": "OIDHW", "NDHWC": "DHWIO"}
# depth -> (units per stage, whether a unit is a bottleneck), for clips higher than SMALL
UNITS: dict[int, tuple[tuple[int, ...], bool]] = {
    18: ((2, 2, 2, 2), False), 34: ((3, 4, 6, 3), False), 50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True), 152: ((3, 8, 36, 3), True), 200: ((3, 24, 36, 3), True),
    269: ((3, 30, 48, 8), True),
}  # fmt: skip
SMALL = 28  # lower clips have three stages, narrow ones
Size = tuple[int, int, int]


def _conv(
    data: Expr, name: str, channels: int, size: Size, strides: Size, padding: Size, layout: str
) -> Expr:
    return nn.conv3d(
        data, var(f"{name}_weight", dtype=data.dtype), strides, padding, channels=channels,
        kernel_size=size, data_layout=layout, kernel_layout=KERNEL_LAYOUT[layout],
    )  # fmt: skip


def _cube(data: Expr, name: str, channels: int, size: int, step: int, layout: str) -> Expr:
    """A convolution that is alike in each axis."""
    half = size // 2
    return _conv(data, name, channels, (size,) * 3, (step,) * 3, (half,) * 3, layout)


def _active(data: Expr, name: str, layout: str) -> Expr:
    return nn.relu(batch_norm(data, name, layout, EPSILON))


def residual_unit(
    data: Expr, name: str, channels: int, strides: int, project: bool, bottleneck: bool, layout: str
) -> Expr:
    """data + convolutions of it; project: a 1x1x1 convolution gives the data the result's shape."""
    first = _active(data, f"{name}_bn1", layout)
    inside = channels // 4
    steps = ((channels, 3, strides), (channels, 3, 1))
    if bottleneck:
        steps = ((inside, 1, strides), (inside, 3, 1), (channels, 1, 1))  # type: ignore[assignment]
    x = first
    for k, (width, size, step) in enumerate(steps, 1):
        x = x if k == 1 else _active(x, f"{name}_bn{k}", layout)
        x = _cube(x, f"{name}_conv{k}", width, size, step, layout)
    shortcut = _cube(first, f"{name}_sc", channels, 1, strides, layout) if project else data
    return tensor.add(x, shortcut)


def _stages(num_layers: int, height: int) -> tuple[int, list[tuple[int, int]], bool]:
    """Channels of the stem, (channels, units) of each stage, whether units are bottlenecks."""
    if height > SMALL and num_layers in UNITS:
        units, bottleneck = UNITS[num_layers]
        widest = 256 if bottleneck else 64
        return 64, [(widest * 2**k, n) for k, n in enumerate(units)], bottleneck
    for deep, unit, widths in ((True, 9, (64, 128, 256)), (False, 6, (16, 32, 64))):
        if height <= SMALL and (num_layers >= 164) == deep and (num_layers - 2) % unit == 0:
            return 16, [(w, (num_layers - 2) // unit) for w in widths], deep
    ways = "6 n + 2 layers, or 9 n + 2 from 164 on" if height <= SMALL else f"one of {list(UNITS)}"
    raise ModelError(
        f"relay.testing.resnet_3d(num_layers={num_layers})",
        f"there is no such depth for clips {height} high", f"Use {ways}.",
    )  # fmt: skip


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> Function:
    """The function data -> class probabilities; clips up to 32 high get a 3x3x3 stem."""
    if layout not in KERNEL_LAYOUT or len(image_shape) != 4 or batch_size < 1:
        raise ModelError(
            f"relay.testing.resnet_3d(batch_size={batch_size}, image_shape={image_shape}, "
            f"layout={layout!r})", "not a batch of clips with four dimensions in a known layout",
            'Example: image_shape=(3, 16, 112, 112), layout="NCDHW".',
        )  # fmt: skip
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    height = data.shape[layout.index("H")]
    stem, stages, bottleneck = _stages(num_layers, height)
    x = batch_norm(data, "bn_data", layout, EPSILON, scale=False)
    if height <= 32:
        x = _cube(x, "conv0", stem, 3, 1, layout)
    else:
        x = _conv(x, "conv0", stem, (3, 7, 7), (1, 2, 2), (1, 3, 3), layout)
        x = _active(x, "bn0", layout)
    for stage, (channels, count) in enumerate(stages):
        for unit in range(count):
            strides = 2 if stage > 0 and unit == 0 else 1
            name = f"stage{stage + 1}_unit{unit + 1}"
            x = residual_unit(x, name, channels, strides, unit == 0, bottleneck, layout)
    x = _active(x, "bn1", layout)
    x = nn.batch_flatten(nn.global_avg_pool3d(x, layout=layout))
    return network(data, nn.softmax(dense(x, "fc1", num_classes)))


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
    seed: int = 0,
    **_: Any,
) -> tuple[IRModule, dict[str, Array]]:
    """ResNet of three axes and its weights.

    num_layers: 18, 34, 50, 101, 152, 200 or 269; image_shape: (C, D, H, W), or (D, H, W, C) for
    layout NDHWC.  Clips up to 28 high have a network of three stages, whose depth is 6 n + 2, or
    9 n + 2 from 164 on.
    """
    net = get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype)
    return create_workload(net, seed)
