"""The networks that TVM's `relay.testing` has and the compiler's zoo has not, by name.

In: a name and options.  Out: `(mod, params)` with seeded weights.  `tilewright_tvm/plugin.py` tells
the names.  Read next: `resnet_3d.py`, `dcgan.py`, `lstm.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.models.zoo.layers import Workload
from tilewright_tvm.relay.testing import dcgan, densenet, dqn, inception_v3, lstm, resnet_3d, unet

NETWORKS: dict[str, Callable[..., Workload]] = {
    **{f"resnet3d-{n}": partial(resnet_3d.get_workload, num_layers=n) for n in resnet_3d.UNITS},
    **{
        f"densenet-{n}": partial(
            densenet.get_workload, densenet_size=n, batch_size=1, chained=False
        )
        for n in densenet.SIZES
    },
    "dcgan": dcgan.get_workload,
    "dqn": dqn.get_workload,
    "inception_v3": inception_v3.get_workload,
    "lstm": lstm.get_workload,
    "unet": unet.get_workload,
}


def get_network(name: str, **options: Any) -> Workload:
    """The network called `name` and its weights; options as for its `get_workload`."""
    return NETWORKS[name](**options)
