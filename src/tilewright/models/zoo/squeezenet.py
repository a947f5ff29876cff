"""SqueezeNet (Iandola et al., 2016): a few 1x1 channels in front of parallel 1x1 and 3x3 ones.

In: version, batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `vgg.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.models.zoo.layers import biased_conv2d, image, network, workload_of

# channels of each fire module: squeezed, and of each of the two convolutions that expand them
FIRES = (
    (16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256),
)  # fmt: skip


@dataclass(frozen=True)
class Version:
    """stem: channels, kernel size and padding of the first convolution; pools: the fire modules
    with a pooling in front of them, counted from 1.
    """

    stem: tuple[int, int, int]
    pools: tuple[int, ...]


VERSIONS = {"1.0": Version((96, 7, 3), (1, 4, 8)), "1.1": Version((64, 3, 1), (1, 3, 5))}


def fire(data: Expr, name: str, squeezed: int, expanded: int, layout: str) -> Expr:
    """A squeeze to `squeezed` channels, expanded by 1x1 and by 3x3, side by side."""
    x = nn.relu(biased_conv2d(data, f"{name}_squeeze1x1", squeezed, 1, layout=layout))
    left = nn.relu(biased_conv2d(x, f"{name}_expand1x1", expanded, 1, layout=layout))
    right = nn.relu(biased_conv2d(x, f"{name}_expand3x3", expanded, 3, 1, 1, layout))
    return tensor.concatenate((left, right), layout.index("C"))


def get_net(
    batch_size: int = 1,
    image_shape: tuple[int, ...] = (3, 224, 224),
    num_classes: int = 1000,
    version: str = "1.0",
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The function data -> class probabilities.

    version: "1.0" or "1.1"; image_shape: (C, H, W), or (H, W, C) for layout NHWC
    """
    place = "relay.testing.squeezenet"
    if version not in VERSIONS:
        raise ModelError(
            f"{place}(version={version!r})", "there is no such version",
            f"Use {' or '.join(map(repr, VERSIONS))}.",
        )  # fmt: skip
    channels, size, padding = VERSIONS[version].stem
    data = image(batch_size, image_shape, layout, dtype, place)
    x: Expr = nn.relu(biased_conv2d(data, "conv1", channels, size, 2, padding, layout))
    for k, (squeezed, expanded) in enumerate(FIRES, 1):
        if k in VERSIONS[version].pools:
            x = nn.max_pool2d(x, (3, 3), (2, 2), layout=layout)
        x = fire(x, f"fire{k + 1}", squeezed, expanded, layout)
    x = nn.dropout(x, 0.5)
    x = nn.relu(biased_conv2d(x, "conv10", num_classes, 1, layout=layout))
    x = nn.batch_flatten(nn.global_avg_pool2d(x, layout=layout))
    return network(data, nn.softmax(x))


get_workload = workload_of(get_net, "batch_size", "num_classes", "version")
