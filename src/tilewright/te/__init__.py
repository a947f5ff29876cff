"""Tensor expressions, as in the TVM tutorials: `te.placeholder`, `te.compute`, `te.sum`, ...

In: shapes and Python functions.  Out: tensors, and the `ComputeDAG` they form.
Read next: `tensor.py`, `reductions.py`, `dag.py`, `evaluate.py`.
"""

from typing import Any

from tilewright.base import forward, plugins
from tilewright.base.doors import door, open_doors
from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import (
    Expr,
    all_of,
    any_of,
    cast,
    const,
    if_then_else,
    maximum,
    minimum,
    select,
)
from tilewright.ir.symbols import declared as _declared
from tilewright.te.dag import ComputeDAG
from tilewright.te.functions import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    clz,
    copysign,
    cos,
    cosh,
    div,
    erf,
    exp,
    exp2,
    exp10,
    floor,
    floordiv,
    floormod,
    fmod,
    hypot,
    indexdiv,
    indexmod,
    infinity,
    isfinite,
    isinf,
    isnan,
    ldexp,
    log,
    log1p,
    log2,
    log10,
    max_value,
    min_value,
    nearbyint,
    popcount,
    power,
    round,
    rsqrt,
    sigmoid,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
    trunc,
    truncdiv,
    truncmod,
)
from tilewright.te.recurrence import ScanOp
from tilewright.te.reductions import comm_reducer, max, min, prod, sum
from tilewright.te.tensor import (
    Combiner,
    ComputeOp,
    IterVar,
    PlaceholderOp,
    Tensor,
    compute,
    placeholder,
    reduce_axis,
    thread_axis,
)

all = all_of
any = any_of
var = door(ExpressionError, "te.var")(_declared)
size_var = door(ExpressionError, "te.size_var")(_declared)
open_doors(
    globals(), ("placeholder", "compute", "thread_axis", "reduce_axis", "comm_reducer"),
    ExpressionError,
)  # fmt: skip

__all__ = [
    "Combiner",
    "ComputeDAG",
    "ComputeOp",
    "Expr",
    "IterVar",
    "PlaceholderOp",
    "ScanOp",
    "Tensor",
    "abs",
    "acos",
    "acosh",
    "all",
    "any",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cast",
    "ceil",
    "clz",
    "comm_reducer",
    "compute",
    "const",
    "copysign",
    "cos",
    "cosh",
    "div",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "floor",
    "floordiv",
    "floormod",
    "fmod",
    "hypot",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "infinity",
    "isfinite",
    "isinf",
    "isnan",
    "ldexp",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_value",
    "maximum",
    "min",
    "min_value",
    "minimum",
    "nearbyint",
    "placeholder",
    "popcount",
    "power",
    "prod",
    "reduce_axis",
    "round",
    "rsqrt",
    "select",
    "sigmoid",
    "sin",
    "sinh",
    "size_var",
    "sqrt",
    "sum",
    "tan",
    "tanh",
    "thread_axis",
    "trunc",
    "truncdiv",
    "truncmod",
    "var",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    found = plugins.placed("names of te", name)
    return forward.find(__name__, name) if found is None else found
