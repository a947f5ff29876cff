"""TVM's `te`: the names of ours, and those that only TVM has.

Read next: `extern.py`, `scan.py`, `gradient.py`, `hybrid/__init__.py`, `ir_builder.py`.
"""

from typing import Any

from tilewright import te
from tilewright.schedule.schedule import create_schedule
from tilewright.te import *  # noqa: F403
from tilewright_tvm.elsewhere import adopt, find
from tilewright_tvm.te import hybrid as hybrid
from tilewright_tvm.te import schedule as schedule
from tilewright_tvm.te.extern import ExternOp, extern
from tilewright_tvm.te.gradient import gradient
from tilewright_tvm.te.scan import scan
from tilewright_tvm.te.tag_scope import tag_scope
from tilewright_tvm.te.tensor_intrin import TensorIntrin, decl_tensor_intrin
from tilewright_tvm.te.variables import size_var, var

__all__ = [
    "ExternOp", "TensorIntrin", "create_schedule", "decl_tensor_intrin", "extern", "gradient",
    "scan", "size_var", "tag_scope", "var",
]  # fmt: skip
__all__ += [name for name in te.__all__ if name not in __all__]

_ELSEWHERE = {
    "create_prim_func": "Schedule tensors directly: te.create_schedule.",
    "extern_primfunc": "Declare the computation with te.compute.",
    "span": "Nothing needs it: leave it out.",
}


def __getattr__(name: str) -> Any:
    return find(__name__, name, _ELSEWHERE)


adopt(__name__)
