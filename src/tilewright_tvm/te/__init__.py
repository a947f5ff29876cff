"""TVM's `te`: the names of ours, and those that only TVM has."""

from typing import Any

from tilewright import te
from tilewright.te import *  # noqa: F403
from tilewright_tvm.elsewhere import find

__all__ = list(te.__all__)

_ELSEWHERE = {
    "TensorIntrin": "Matrix instructions are not there yet; split, vectorize and unroll.",
    "create_prim_func": "Schedule tensors directly: te.create_schedule.",
    "decl_tensor_intrin": "Matrix instructions are not there yet; split, vectorize and unroll.",
    "extern_primfunc": "Declare the computation with te.compute.",
    "span": "Nothing needs it: leave it out.",
}


def __getattr__(name: str) -> Any:
    if name in te._LATER:
        return getattr(te, name)
    return find(__name__, name, _ELSEWHERE)
