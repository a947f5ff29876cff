"""The zoo: networks to try things on, by name.

In: a name and options.  Out: `(mod, params)`, random but repeatable weights.  Packages above may
have more of them (`base/plugins.py`, kind "networks"): functions of a name and options.  Read next:
`resnet.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from tilewright.base import plugins
from tilewright.base.errors import ModelError
from tilewright.base.model_files import is_path
from tilewright.models.zoo import (
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_v1,
    squeezenet,
    transformers,
    vgg,
)
from tilewright.models.zoo.layers import Workload

NETWORKS: dict[str, Callable[..., Workload]] = {
    **{f"resnet-{n}": partial(resnet.get_workload, num_layers=n) for n in resnet.UNITS},
    **{f"resnet-{n}-v1": partial(resnet_v1.get_workload, num_layers=n) for n in resnet.UNITS},
    "resnext-50": partial(resnet_v1.get_workload, num_layers=50, groups=32, width_per_group=4),
    "resnext-101": partial(resnet_v1.get_workload, num_layers=101, groups=32, width_per_group=8),
    "mobilenet": mobilenet.get_workload,
    "mobilenet_v2": mobilenet_v2.get_workload,
    **{f"squeezenet-{v}": partial(squeezenet.get_workload, version=v) for v in squeezenet.VERSIONS},
    **{f"vgg-{n}": partial(vgg.get_workload, num_layers=n) for n in vgg.STACKS},
    "mlp": mlp.get_workload,
    "vit-tiny": transformers.vit,
    "bert-tiny": transformers.bert,
    "gpt2-tiny": transformers.gpt2,
}


def get_network(name: str, **options: Any) -> Workload:
    """The network called `name` and its weights; options as for its `get_workload`.

    Raises ModelError naming the known networks.
    """
    if name in NETWORKS:
        return NETWORKS[name](**options)
    if not is_network(name):
        raise unknown_network(name)
    made: Workload = plugins.find("networks", name)(name, **options)
    return made


def network_names() -> tuple[str, ...]:
    """Of all networks, those of packages above among them."""
    return (*NETWORKS, *plugins.names("networks"))


def is_network(name: str) -> bool:
    """Whether a network is called so; for what is a path, packages above are not asked."""
    return name in NETWORKS or (not is_path(name) and name in network_names())


def unknown_network(name: str, others: Iterable[str] = ()) -> ModelError:
    """others: names that are networks, too"""
    known = (*network_names(), *others)
    near = difflib.get_close_matches(name, known, 1)
    hint = f"Did you mean {near[0]}? " if near else ""
    return ModelError(
        f"network {name!r}", "there is no such network",
        f"{hint}Use one of {', '.join(known)}; or give an .onnx or a .pt2 file, or "
        "SCRIPT.py:FUNCTION.",
    )  # fmt: skip
