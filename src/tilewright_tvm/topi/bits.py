"""`topi.reinterpret`: the bits of one element type read as another.

In: a tensor.  Out: a tensor of `te.extern` that a function of the module's process makes, so on
CPUs.  Read next: `runtime/calls.py`.
"""

from __future__ import annotations

from tilewright.base.doors import open_doors
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.te.tensor import Tensor
from tilewright_tvm.te.extern import call_packed, extern

__all__ = ["reinterpret"]


def reinterpret(x: Tensor, dtype: str) -> Tensor:
    """The bits of `x` as elements of `dtype`, which has as many; NaN keep theirs.

    Raises ExpressionError for a type of another size.
    """
    if DType(dtype).bits != DType(x.dtype).bits:
        raise ExpressionError(
            f"reinterpret({x.name}, {dtype!r})", f"{x.dtype} has {DType(x.dtype).bits} bits",
            "topi.cast converts values.",
        )  # fmt: skip
    made: Tensor = extern(
        x.shape, [x],
        lambda ins, outs: call_packed("tilewright.same_bits", ins[0], outs[0]),
        name="reinterpret", dtype=dtype,
    )  # fmt: skip
    return made


open_doors(globals(), __all__, ExpressionError)
