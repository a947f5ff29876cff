"""Operator definitions in `te`, under TVM's names: `topi.add`, `topi.nn.conv2d`, `topi.testing`.

In: `te` tensors.  Out: `te` tensors, one stage or a few each.  Importing this room also gives
`te.Tensor` its arithmetic (`conv + bias`).  Read next: `stage.py`, `nn/`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ExpressionError
from tilewright.topi import nn, operators
from tilewright.topi.broadcast import (
    add,
    arange,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    broadcast_to,
    divide,
    elemwise_sum,
    equal,
    expand_like,
    floor_divide,
    full,
    full_like,
    greater,
    greater_equal,
    left_shift,
    less,
    less_equal,
    logical_and,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mod,
    multiply,
    not_equal,
    power,
    right_shift,
    subtract,
    trunc_divide,
    trunc_mod,
    where,
)
from tilewright.topi.data_dependent import argwhere, unique
from tilewright.topi.elementwise import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bitwise_not,
    cast,
    ceil,
    clip,
    cos,
    cosh,
    erf,
    exp,
    fast_erf,
    fast_exp,
    fast_tanh,
    floor,
    identity,
    isfinite,
    isinf,
    isnan,
    log,
    log2,
    log10,
    logical_not,
    negative,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
)
from tilewright.topi.fourier import dft
from tilewright.topi.gather import gather, gather_nd, take
from tilewright.topi.nn.dense import matmul, tensordot
from tilewright.topi.ranking import argmax, argmin, sort
from tilewright.topi.reduction import all, any, max, mean, min, prod, sum
from tilewright.topi.resize import Resizing, resize
from tilewright.topi.sampling import grid_sample, roi_align
from tilewright.topi.scan import cumprod, cumsum
from tilewright.topi.scatter import scatter_elements, scatter_nd
from tilewright.topi.transform import (
    concatenate,
    expand_dims,
    flatten,
    layout_transform,
    mirror_pad,
    reshape,
    split,
    squeeze,
    stack,
    strided_set,
    strided_slice,
    transpose,
)
from tilewright_tvm.topi import arm_cpu as arm_cpu
from tilewright_tvm.topi import bifrost as bifrost
from tilewright_tvm.topi import cuda as cuda
from tilewright_tvm.topi import generic as generic
from tilewright_tvm.topi import gpu as gpu
from tilewright_tvm.topi import hls as hls
from tilewright_tvm.topi import image as image
from tilewright_tvm.topi import intel_graphics as intel_graphics
from tilewright_tvm.topi import mali as mali
from tilewright_tvm.topi import of_networks as later
from tilewright_tvm.topi import random as random
from tilewright_tvm.topi import rocm as rocm
from tilewright_tvm.topi import sparse as sparse
from tilewright_tvm.topi import tag as tag
from tilewright_tvm.topi import testing
from tilewright_tvm.topi import utils as util  # noqa: F401  # its name before TVM 0.8
from tilewright_tvm.topi import utils as utils
from tilewright_tvm.topi import vision as vision
from tilewright_tvm.topi import x86 as x86
from tilewright_tvm.topi.utils import equal_const_int as equal_const_int
from tilewright_tvm.topi.utils import get_const_float as get_const_float
from tilewright_tvm.topi.utils import get_const_int as get_const_int
from tilewright_tvm.topi.utils import get_const_tuple as get_const_tuple
from tilewright_tvm.topi.utils import traverse_inline as traverse_inline

operators.install()
floor_mod = mod
broadcast_add, broadcast_sub, broadcast_mul, broadcast_div = add, subtract, multiply, divide
broadcast_maximum, broadcast_minimum, broadcast_mod = maximum, minimum, mod
broadcast_power = power

__all__ = [
    "Resizing",
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "any",
    "arange",
    "argmax",
    "argmin",
    "argwhere",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "clip",
    "concatenate",
    "cos",
    "cosh",
    "cumprod",
    "cumsum",
    "dft",
    "divide",
    "elemwise_sum",
    "equal",
    "erf",
    "exp",
    "expand_dims",
    "expand_like",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "flatten",
    "floor",
    "floor_divide",
    "floor_mod",
    "full",
    "full_like",
    "gather",
    "gather_nd",
    "greater",
    "greater_equal",
    "grid_sample",
    "identity",
    "isfinite",
    "isinf",
    "isnan",
    "layout_transform",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "matmul",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "mirror_pad",
    "mod",
    "multiply",
    "negative",
    "nn",
    "not_equal",
    "power",
    "prod",
    "reshape",
    "resize",
    "right_shift",
    "roi_align",
    "round",
    "rsqrt",
    "scatter_elements",
    "scatter_nd",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sort",
    "split",
    "sqrt",
    "squeeze",
    "stack",
    "strided_set",
    "strided_slice",
    "subtract",
    "sum",
    "take",
    "tan",
    "tanh",
    "tensordot",
    "testing",
    "transpose",
    "trunc",
    "trunc_divide",
    "trunc_mod",
    "unique",
    "where",
]  # fmt: skip

open_doors(globals(), __all__, ExpressionError)
__all__ += later.NAMES["topi"]


def __getattr__(name: str) -> Any:
    return later.find("topi", name)
