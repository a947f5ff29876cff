"""DenseNet (Huang et al., 2016): each layer of a block reads all layers before it.

TVM's network of this name is another one: there a layer reads only the one before it, and a block
is the concatenation of its layers without what it began with.  Both are here, since tasks of the
tutorials are those of TVM's.

In: depth, batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `inception_v3.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.models.zoo.layers import (
    active,
    conv2d,
    dense,
    image,
    network,
    workload_of,
)

# depth -> channels of the stem, channels that a layer adds, layers of each block
SIZES: dict[int, tuple[int, int, tuple[int, ...]]] = {
    121: (64, 32, (6, 12, 24, 16)), 161: (96, 48, (6, 12, 36, 24)),
    169: (64, 32, (6, 12, 32, 32)), 201: (64, 32, (6, 12, 48, 32)),
}  # fmt: skip
BOTTLENECK = 4  # channels of a layer's 1x1, in units of what it adds


def layer(data: Expr, index: str, growth: int) -> Expr:
    """The channels that one layer adds."""
    x = conv2d(active(data, f"batch_1_{index}"), f"conv2d_1_{index}", BOTTLENECK * growth, 1)
    return conv2d(active(x, f"batch_2_{index}"), f"conv2d_2_{index}", growth, 3, padding=1)


def block(data: Expr, index: int, count: int, growth: int, chained: bool) -> Expr:
    """`count` layers and, unless chained, what they began with, concatenated."""
    made: list[Expr] = [] if chained else [data]
    x = data
    for k in range(count):
        made.append(layer(x, f"{index}_{k}", growth))
        x = made[-1] if chained else tensor.concatenate(tuple(made), 1)
    return tensor.concatenate(tuple(made), 1) if chained else x


def get_net(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    chained: bool = True,
) -> Function:
    """The function data -> logits.

    densenet_size: 121, 161, 169 or 201; image_shape: (3, H, W), at least 224 high and wide
    chained: a layer reads the layer before it only, as in TVM's network of this name; False: all
        layers before it, as published
    """
    place = "relay.testing.densenet"
    if densenet_size not in SIZES:
        raise ModelError(
            f"{place}(densenet_size={densenet_size})", "there is no such depth",
            f"Use {', '.join(map(str, SIZES))}.",
        )  # fmt: skip
    stem, growth, counts = SIZES[densenet_size]
    data = image(batch_size, image_shape, "NCHW", dtype, place)
    x = active(conv2d(data, "conv1", stem, 7, 2, 3), "batch1")
    x = nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1))
    features = stem
    for k, count in enumerate(counts):
        x = block(x, k, count, growth, chained)
        features += count * growth
        if k < len(counts) - 1:
            features //= 2
            x = conv2d(active(x, f"batch_t_{k}"), f"conv_t_{k}", features, 1)
            x = nn.avg_pool2d(x, (2, 2), (2, 2))
    x = nn.avg_pool2d(active(x, "batch2"), (7, 7), (1, 1))
    return network(data, dense(nn.batch_flatten(x), "dense", classes))


get_workload = workload_of(get_net)
