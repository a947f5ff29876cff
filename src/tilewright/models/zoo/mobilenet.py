"""MobileNet v1 (Howard et al., 2017): depthwise 3x3 and pointwise 1x1 convolutions in turn.

In: batch, image.  Out: `(mod, params)` with seeded weights.  Read next: `squeezenet.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Function
from tilewright.graph.functions import nn
from tilewright.models.zoo.layers import (
    active,
    conv2d,
    dense,
    image,
    network,
    workload_of,
)

# of each separable block: channels of its result, stride of its depthwise convolution
BLOCKS = (
    (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2),
    (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1),
)  # fmt: skip


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The function data -> class probabilities.

    image_shape: (C, H, W), or (H, W, C) for layout NHWC
    """
    data = image(batch_size, image_shape, layout, dtype, "relay.testing.mobilenet")
    x = conv2d(data, "conv_block_1_conv", 32, 3, 2, 1, layout=layout)
    x = active(x, "conv_block_1_bn", layout)
    for k, (channels, strides) in enumerate(BLOCKS, 1):
        name, width = f"separable_conv_block_{k}", x.shape[layout.index("C")]
        x = conv2d(x, f"{name}_depthwise_conv1", width, 3, strides, 1, width, layout)
        x = active(x, f"{name}_bn1", layout)
        x = conv2d(x, f"{name}_conv2", channels, 1, layout=layout)
        x = active(x, f"{name}_bn2", layout)
    x = nn.batch_flatten(nn.global_avg_pool2d(x, layout=layout))
    x = nn.softmax(dense(x, "fc", num_classes))
    return network(data, x)


get_workload = workload_of(get_net, "batch_size", "num_classes", "image_shape", "dtype")
