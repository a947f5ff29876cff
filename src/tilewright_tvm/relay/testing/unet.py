"""U-Net (Ronneberger et al., 2015): a path down to a small image and back, with shortcuts across.

In: batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `lstm.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.graph.leaves import var
from tilewright.models.zoo.layers import (
    batch_norm,
    biased_conv2d,
    conv2d,
    image,
    network,
    workload_of,
)


def _double(data: Expr, name: str, channels: int) -> Expr:
    x = data
    for k in (1, 2):
        x = conv2d(x, f"{name}_conv{k}", channels, 3, padding=1)
        x = nn.relu(batch_norm(x, f"{name}_bn{k}"))
    return x


def _up(data: Expr, name: str, channels: int) -> Expr:
    return nn.conv2d_transpose(
        data, var(f"{name}_weight", dtype=data.dtype), (2, 2), (0, 0), channels=channels,
        kernel_size=(2, 2),
    )  # fmt: skip


def get_net(
    batch_size: int = 1,
    num_classes: int = 2,
    image_shape: tuple[int, ...] = (3, 128, 128),
    channels: int = 32,
    depth: int = 4,
    dtype: str = "float32",
) -> Function:
    """The function data -> logits of each pixel.

    image_shape: (C, H, W), both a multiple of 2^depth; channels: of the largest image; depth: how
    often the image is halved
    """
    data = image(batch_size, image_shape, "NCHW", dtype, "relay.testing.unet")
    shortcuts: list[Expr] = []
    x: Expr = data
    for k in range(depth):
        x = _double(x, f"down{k}", channels * 2**k)
        shortcuts.append(x)
        x = nn.max_pool2d(x, (2, 2), (2, 2))
    x = _double(x, "middle", channels * 2**depth)
    for k in reversed(range(depth)):
        x = tensor.concatenate((shortcuts[k], _up(x, f"up{k}_deconv", channels * 2**k)), 1)
        x = _double(x, f"up{k}", channels * 2**k)
    return network(data, biased_conv2d(x, "head", num_classes, 1))


get_workload = workload_of(get_net)
