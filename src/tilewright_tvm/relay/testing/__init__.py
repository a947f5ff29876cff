"""Networks to try things on, under TVM's name `relay.testing`.

In: a name or options.  Out: `(mod, params)`, random but repeatable weights.  Read next:
`resnet.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from functools import partial
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, IRModule
from tilewright.models.zoo import (
    dcgan,
    densenet,
    dqn,
    inception_v3,
    layers,
    lstm,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_3d,
    resnet_v1,
    resnext,
    squeezenet,
    synthetic,
    transformers,
    unet,
    vgg,
    yolo_detection,
)
from tilewright.models.zoo.layers import create_workload
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.testing import init, nat, temp_op_attr
from tilewright_tvm.relay.testing.checks import (
    count_ops,
    ctx_list,
    enabled_targets,
    rand,
    run_infer_type,
    run_opt_pass,
)
from tilewright_tvm.relay.testing.gradients import _np_randn_from_type as _np_randn_from_type
from tilewright_tvm.relay.testing.gradients import check_grad
from tilewright_tvm.relay.testing.nat import count, make_nat_expr, make_nat_value

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


__all__ = [
    "NETWORKS", "check_grad", "count", "count_ops", "create_workload", "ctx_list", "dcgan",
    "densenet", "dqn", "enabled_targets", "get_network", "inception_v3", "init", "layers", "lstm",
    "make_nat_expr", "make_nat_value", "mlp", "mobilenet", "mobilenet_v2", "nat", "rand", "resnet",
    "resnet_3d", "resnet_v1", "resnext", "run_infer_type", "run_opt_pass", "squeezenet",
    "synthetic", "temp_op_attr", "transformers", "unet", "unknown_network", "vgg", "yolo_detection",
]  # fmt: skip
_CHECKS = (
    "check_grad", "count", "count_ops", "make_nat_expr", "make_nat_value", "rand",
    "run_infer_type", "run_opt_pass",
)  # fmt: skip
open_doors(globals(), _CHECKS, ModelError)

_ELSEWHERE = {
    "Prelude": "It is relay.prelude.Prelude.",
    "to_python": "relay.evaluate computes a graph with numpy.",
    "run_as_python": "relay.evaluate computes a graph with numpy.",
}


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)
