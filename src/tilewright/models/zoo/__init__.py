"""The zoo: networks to try things on, by name.

In: a name and options.  Out: `(mod, params)`, random but repeatable weights.  Read next:
`resnet.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, IRModule
from tilewright.models.zoo import (
    dcgan,
    densenet,
    dqn,
    inception_v3,
    lstm,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_3d,
    resnet_v1,
    resnext,
    squeezenet,
    transformers,
    unet,
    vgg,
)

Workload = tuple[IRModule, dict[str, Array]]

NETWORKS: dict[str, Callable[..., Workload]] = {
    **{f"resnet-{n}": partial(resnet.get_workload, num_layers=n) for n in resnet.UNITS},
    **{f"resnet-{n}-v1": partial(resnet_v1.get_workload, num_layers=n) for n in resnet.UNITS},
    "resnext-50": resnext.get_workload,
    "resnext-101": partial(resnext.get_workload, num_layers=101, width_per_group=8),
    "mobilenet": mobilenet.get_workload,
    "mobilenet_v2": mobilenet_v2.get_workload,
    **{f"squeezenet-{v}": partial(squeezenet.get_workload, version=v) for v in squeezenet.VERSIONS},
    **{f"vgg-{n}": partial(vgg.get_workload, num_layers=n) for n in vgg.STACKS},
    "inception_v3": inception_v3.get_workload,
    **{
        f"densenet-{n}": partial(
            densenet.get_workload, densenet_size=n, batch_size=1, chained=False
        )
        for n in densenet.SIZES
    },
    **{f"resnet3d-{n}": partial(resnet_3d.get_workload, num_layers=n) for n in resnet_3d.UNITS},
    "dcgan": dcgan.get_workload,
    "mlp": mlp.get_workload,
    "dqn": dqn.get_workload,
    "unet": unet.get_workload,
    "lstm": lstm.get_workload,
    "vit-tiny": transformers.vit,
    "bert-tiny": transformers.bert,
    "gpt2-tiny": transformers.gpt2,
}


def get_network(name: str, **options: Any) -> Workload:
    """The network called `name` and its weights; options as for its `get_workload`.

    Raises ModelError naming the known networks.
    """
    if name not in NETWORKS:
        raise unknown_network(name)
    return NETWORKS[name](**options)


def unknown_network(name: str) -> ModelError:
    near = difflib.get_close_matches(name, NETWORKS, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return ModelError(
        f"network {name!r}", "there is no such network",
        f"{hint}Use one of {', '.join(NETWORKS)}, or the path of an .onnx file.",
    )  # fmt: skip
