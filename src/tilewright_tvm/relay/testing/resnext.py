"""ResNeXt (Xie et al., 2016): ResNet "v1" whose 3x3 convolutions are in groups, as torchvision's.

In: depth, groups, batch, image.  Out: `(mod, params)`; parameters have torchvision's names.
Read next: `tilewright/models/zoo/resnet_v1.py`, which it is made of.
"""

from __future__ import annotations

from functools import partial

from tilewright.graph.expr import Function
from tilewright.models.zoo import resnet_v1
from tilewright.models.zoo.layers import workload_of
from tilewright.models.zoo.resnet import with_small_ends


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 50,
    groups: int = 32,
    width_per_group: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Function:
    """The function data -> logits.

    num_layers: 50, 101 or 152; groups, width_per_group: of the 3x3 convolutions of the first stage
    (32 of 4 for ResNeXt-50, 32 of 8 for ResNeXt-101); image_shape: (3, H, W)
    """
    return resnet_v1.get_net(
        batch_size, num_classes, num_layers, image_shape, "NCHW", dtype, groups, width_per_group
    )


get_workload = workload_of(get_net, weights=partial(with_small_ends, weight=".bn{}.weight"))
