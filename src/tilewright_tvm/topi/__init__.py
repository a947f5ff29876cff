"""TVM's `topi`: the operators of ours, and the names that only TVM has.

Read next: `by_target.py`, `of_networks.py`.
"""

from importlib import import_module
from typing import Any

from tilewright import topi
from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi import *  # noqa: F403
from tilewright_tvm.elsewhere import adopt
from tilewright_tvm.topi import arm_cpu as arm_cpu
from tilewright_tvm.topi import bifrost as bifrost
from tilewright_tvm.topi import cuda as cuda
from tilewright_tvm.topi import generic as generic
from tilewright_tvm.topi import gpu as gpu
from tilewright_tvm.topi import hls as hls
from tilewright_tvm.topi import image as image
from tilewright_tvm.topi import intel_graphics as intel_graphics
from tilewright_tvm.topi import mali as mali
from tilewright_tvm.topi import of_networks, testing
from tilewright_tvm.topi import random as random
from tilewright_tvm.topi import rocm as rocm
from tilewright_tvm.topi import sparse as sparse
from tilewright_tvm.topi import tag as tag
from tilewright_tvm.topi import utils as util  # noqa: F401  # its name before TVM 0.8
from tilewright_tvm.topi import utils as utils
from tilewright_tvm.topi import vision as vision
from tilewright_tvm.topi import x86 as x86
from tilewright_tvm.topi.bits import reinterpret
from tilewright_tvm.topi.data_dependent import argwhere, sort_by_key, unique
from tilewright_tvm.topi.fourier import dft
from tilewright_tvm.topi.utils import equal_const_int as equal_const_int
from tilewright_tvm.topi.utils import get_const_float as get_const_float
from tilewright_tvm.topi.utils import get_const_int as get_const_int
from tilewright_tvm.topi.utils import get_const_tuple as get_const_tuple
from tilewright_tvm.topi.utils import traverse_inline as traverse_inline

nn = import_module("tilewright_tvm.topi.nn")  # not ours, which came with the others
__all__ = ["argwhere", "dft", "reinterpret", "sort_by_key", "unique"]
open_doors(globals(), __all__, ExpressionError)
__all__ += [*topi.__all__, "testing", *of_networks.NAMES["topi"]]


def __getattr__(name: str) -> Any:
    return of_networks.find("topi", name)


adopt(__name__)
