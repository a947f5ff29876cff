"""MobileNet v2 (Sandler et al., 2018): blocks that widen, filter each channel, and narrow again.

In: batch, image.  Out: `(mod, params)`; parameters have torchvision's names, so a state dict fits.
Read next: `mobilenet.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.models.zoo import layers
from tilewright.models.zoo.resnet_v1 import NORM_NAMES

# of each stage: how much wider inside, channels of its result, blocks, stride of the first
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
STEM, HEAD = 32, 1280


def _conv(
    data: Expr, name: tuple[str, str], channels: int, size: int, strides: int, groups: int,
    layout: str,
) -> Expr:  # fmt: skip
    """A convolution and its normalisation; name: of the two."""
    x = layers.conv2d(
        data, name[0], channels, size, strides, size // 2, groups, layout, suffix=".weight"
    )
    return layers.batch_norm(x, name[1], layout, names=NORM_NAMES)


def _active(data: Expr, name: str, channels: int, size: int, strides: int, groups: int,
            layout: str) -> Expr:  # fmt: skip
    x = _conv(data, (f"{name}.0", f"{name}.1"), channels, size, strides, groups, layout)
    return tensor.clip(x, 0.0, 6.0)


def inverted_residual(
    data: Expr, name: str, widen: int, channels: int, strides: int, layout: str
) -> Expr:
    """data + a narrow, wide, narrow sequence of it, where that has the data's shape."""
    width = data.shape[layout.index("C")]
    inside, x, k = widen * width, data, 0
    if widen > 1:
        x, k = _active(x, f"{name}.conv.0", inside, 1, 1, 1, layout), 1
    x = _active(x, f"{name}.conv.{k}", inside, 3, strides, inside, layout)
    x = _conv(x, (f"{name}.conv.{k + 1}", f"{name}.conv.{k + 2}"), channels, 1, 1, 1, layout)
    return tensor.add(data, x) if strides == 1 and channels == width else x


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The function data -> logits of torchvision's network; image_shape: as for `mobilenet`."""
    data = layers.image(batch_size, image_shape, layout, dtype, "relay.testing.mobilenet_v2")
    x, k = _active(data, "features.0", STEM, 3, 2, 1, layout), 1
    for widen, channels, count, first in STAGES:
        for unit in range(count):
            strides = first if unit == 0 else 1
            x = inverted_residual(x, f"features.{k}", widen, channels, strides, layout)
            k += 1
    x = _active(x, f"features.{k}", HEAD, 1, 1, 1, layout)
    x = nn.dropout(nn.batch_flatten(nn.global_avg_pool2d(x, layout=layout)), 0.2)
    return layers.network(data, layers.dense(x, "classifier.1", num_classes, (".weight", ".bias")))


get_workload = layers.workload_of(get_net)
