"""The deep Q network of Atari games (Mnih et al., Nature 518, 2015).

In: batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `unet.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn
from tilewright.models.zoo.layers import biased_conv2d, dense, image, network, workload_of

# of each convolution: channels, kernel size, stride
CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))


def get_net(
    batch_size: int = 1,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The function data -> value of each action.

    image_shape: (C, H, W), or (H, W, C) for layout NHWC
    """
    data = image(batch_size, image_shape, layout, dtype, "relay.testing.dqn")
    x: Expr = data
    for k, (channels, size, strides) in enumerate(CONVOLUTIONS, 1):
        x = nn.relu(biased_conv2d(x, f"conv{k}", channels, size, strides, layout=layout))
    x = nn.relu(dense(nn.batch_flatten(x), "dense1", 512))
    return network(data, dense(x, "dense2", num_actions))


get_workload = workload_of(get_net)
