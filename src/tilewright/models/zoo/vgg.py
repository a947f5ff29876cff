"""VGG (Simonyan and Zisserman, 2014): stacks of 3x3 convolutions between poolings.

In: depth, batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `mlp.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn
from tilewright.models.zoo import layers

# depth -> convolutions of each stack; the channels of the stacks
STACKS: dict[int, tuple[int, ...]] = {
    11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4),
}  # fmt: skip
CHANNELS = (64, 128, 256, 512, 512)
HIDDEN = 4096


def get_net(
    batch_size: int = 1,
    image_shape: tuple[int, ...] = (3, 224, 224),
    num_classes: int = 1000,
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The function data -> class probabilities.

    num_layers: 11, 13, 16 or 19; batch_norm: one behind each convolution; image_shape: (C, H, W),
    or (H, W, C) for layout NHWC, at least 32 high and wide
    """
    place = "relay.testing.vgg"
    if num_layers not in STACKS:
        raise ModelError(
            f"{place}(num_layers={num_layers})", "there is no such depth",
            f"Use {', '.join(map(str, STACKS))}.",
        )  # fmt: skip
    data = layers.image(batch_size, image_shape, layout, dtype, place)
    x: Expr = data
    for stack, (count, channels) in enumerate(zip(STACKS[num_layers], CHANNELS, strict=True), 1):
        for k in range(1, count + 1):
            x = _convolution(x, f"{stack}_{k}", channels, batch_norm, layout)
        x = nn.max_pool2d(x, (2, 2), (2, 2), layout=layout)
    x = nn.batch_flatten(x)
    for name in ("fc6", "fc7"):
        x = nn.dropout(nn.relu(layers.dense(x, name, HIDDEN)), 0.5)
    return layers.network(data, nn.softmax(layers.dense(x, "fc8", num_classes)))


def _convolution(data: Expr, number: str, channels: int, normalised: bool, layout: str) -> Expr:
    x = layers.biased_conv2d(data, f"conv{number}", channels, 3, 1, 1, layout)
    return nn.relu(layers.batch_norm(x, f"bn{number}", layout) if normalised else x)


get_workload = layers.workload_of(get_net, "batch_size", "num_classes")
