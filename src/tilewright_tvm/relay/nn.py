"""TVM's `relay.nn`: the operators of ours, and the names that only TVM has.

Read next: `gradients/functions.py`, `winograd.py`.
"""

import sys
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import Constant as Constant  # scripts say relay.nn.Constant
from tilewright.graph.functions.nn import *  # noqa: F403
from tilewright.graph.functions.nn import __all__ as _functions
from tilewright_tvm.relay.blocks import *  # noqa: F403
from tilewright_tvm.relay.contrib_blocks import *  # noqa: F403
from tilewright_tvm.relay.contrib_blocks import __all__ as _blocked
from tilewright_tvm.relay.functional.later import defer
from tilewright_tvm.relay.gradients.functions import (
    avg_pool2d_grad,
    conv2d_backward_weight,
    max_pool2d_grad,
)
from tilewright_tvm.relay.losses import *  # noqa: F403
from tilewright_tvm.relay.losses import __all__ as _losses
from tilewright_tvm.relay.regions import correlation
from tilewright_tvm.relay.resized import upsampling, upsampling3d
from tilewright_tvm.relay.signal import fifo_buffer
from tilewright_tvm.relay.winograd import *  # noqa: F403
from tilewright_tvm.relay.winograd import __all__ as _winograd

__all__ = [
    "avg_pool2d_grad", "conv2d_backward_weight", "correlation", "fifo_buffer", "max_pool2d_grad",
    *_winograd,
]  # fmt: skip
open_doors(globals(), __all__, ModelError)
__all__ += ["upsampling", "upsampling3d", *_blocked, *_functions, *_losses]
defer(globals(), __all__)

__path__: list[str] = []  # its modules are imported, too

_TRANSFORMED = "weights that are constant are transformed and packed when the network is built."
_BY_OPERATOR = {
    "conv2d": "conv2d_winograd_nnpack conv2d_gemm",
}
_ELSEWHERE = {
    f"contrib_{name}_{part}": f"Use relay.nn.{operator}: {_TRANSFORMED}"
    for operator, names in _BY_OPERATOR.items()
    for name in names.split()
    for part in ("weight_transform", "without_weight_transform")
} | {
    "contrib_dense_pack": f"Use relay.nn.dense: {_TRANSFORMED}",
    **dict.fromkeys(
        ("bitpack", "bitserial_conv2d", "bitserial_dense"),
        "Bits are not packed: relay.cast to int8, and use nn.conv2d or nn.dense.",
    ),
    "sparse_dense": "Networks have dense weights: use nn.dense, or topi.nn.sparse_dense alone.",
    "sparse_add": "Networks have dense weights: use relay.add.",
    "sparse_transpose": "Networks have dense weights: use relay.transpose.",
    "sparse_conv2d": "Networks have dense weights: use nn.conv2d.",
}


def __getattr__(name: str) -> Any:
    if name == "nn":  # TVM's file of the same name
        return sys.modules[__name__]
    raise absent("relay.nn", name, _ELSEWHERE)
