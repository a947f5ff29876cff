"""TVM's `topi.nn`: the operators of ours, and the names that only TVM has."""

from typing import Any

from tilewright.topi import nn
from tilewright.topi.nn import *  # noqa: F403
from tilewright_tvm.topi import of_networks
from tilewright_tvm.topi.nn import utils as util  # noqa: F401  # its name before TVM 0.8
from tilewright_tvm.topi.nn import utils as utils
from tilewright_tvm.topi.nn.qnn import SQNN_DTYPE_TO_CODE as SQNN_DTYPE_TO_CODE

__all__ = [*nn.__all__, *of_networks.NAMES["topi.nn"]]


def __getattr__(name: str) -> Any:
    return of_networks.find("topi.nn", name)
