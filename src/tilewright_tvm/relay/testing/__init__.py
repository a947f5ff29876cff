"""Networks to try things on and checks, under TVM's name `relay.testing`.

In: a name or options.  Out: `(mod, params)`, random but repeatable weights.  Read next:
`checks.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.models import zoo
from tilewright.models.zoo import (
    get_network,
    layers,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_v1,
    squeezenet,
    transformers,
    unknown_network,
    vgg,
)
from tilewright.models.zoo.layers import create_workload
from tilewright_tvm.elsewhere import find
from tilewright_tvm.relay.testing import (
    dcgan,
    densenet,
    dqn,
    inception_v3,
    init,
    lstm,
    nat,
    networks,
    resnet_3d,
    resnext,
    synthetic,
    temp_op_attr,
    unet,
    yolo_detection,
)
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

__all__ = [
    "NETWORKS", "check_grad", "count", "count_ops", "create_workload", "ctx_list", "dcgan",
    "densenet", "dqn", "enabled_targets", "get_network", "inception_v3", "init", "layers", "lstm",
    "make_nat_expr", "make_nat_value", "mlp", "mobilenet", "mobilenet_v2", "nat", "rand", "resnet",
    "resnet_3d", "resnet_v1", "resnext", "run_infer_type", "run_opt_pass", "squeezenet",
    "synthetic", "temp_op_attr", "transformers", "unet", "unknown_network", "vgg", "yolo_detection",
]  # fmt: skip
NETWORKS = {**zoo.NETWORKS, **networks.NETWORKS}
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
