"""A perceptron of three layers, for images of digits.

In: batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `transformers.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn
from tilewright.models.zoo.layers import dense, image, network, workload_of

HIDDEN = (128, 64)


def get_net(
    batch_size: int = 1,
    num_classes: int = 10,
    image_shape: tuple[int, ...] = (1, 28, 28),
    dtype: str = "float32",
) -> Function:
    """The function data -> class probabilities; image_shape: (C, H, W)."""
    data = image(batch_size, image_shape, "NCHW", dtype, "relay.testing.mlp")
    x: Expr = nn.batch_flatten(data)
    for k, units in enumerate(HIDDEN, 1):
        x = nn.relu(dense(x, f"fc{k}", units))
    return network(data, nn.softmax(dense(x, f"fc{len(HIDDEN) + 1}", num_classes)))


get_workload = workload_of(get_net)
