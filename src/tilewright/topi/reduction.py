"""Reductions over axes of a tensor.

In: a tensor, axes (None: all), keepdims.  Out: one stage `<input>_red` with tag "comm_reduce".
Read next: `transform.py`; `ranking.py` has argmax and argmin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import elementwise
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensors,
    normal_axes,
    require,
    require_float,
    stage,
    wide,
)


def _reduction(
    name: str, reducer: Callable[..., Any], value: Callable[[Expr], Expr] = lambda v: v
) -> Callable[..., Tensor]:
    def operator(data: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
        place = call_text(name, data=data, axis=axis)
        check_tensors(place, data=data)
        require(
            data.ndim > 0,
            place,
            "a zero-dimensional tensor has no axis to reduce",
            "Leave the reduction out.",
        )
        axes = normal_axes(axis, data.ndim, place)
        rest = [k for k in range(data.ndim) if k not in axes]
        inner = {k: te.reduce_axis((0, data.shape[k]), f"k{k}") for k in axes}
        named = range(data.ndim) if keepdims else rest
        shape = [1 if k in inner else data.shape[k] for k in named]

        def body(i: Indices) -> Any:
            outer = dict(zip(named, i, strict=True))
            source = tuple(inner[k] if k in inner else outer[k] for k in range(data.ndim))
            return reducer(value(data[source]), axis=list(inner.values()))

        return stage(shape, body, f"{data.name}_red", "comm_reduce")

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = (
        f"The {name} over `axis` (int, tuple or None for all); keepdims leaves extents of 1."
    )
    return operator


_one_holds = te.comm_reducer(lambda a, b: te.any(a, b), lambda t: te.const(0, t), "any")
_each_holds = te.comm_reducer(lambda a, b: te.all(a, b), lambda t: te.const(1, t), "all")
sum = _reduction("sum", te.sum)
prod = _reduction("prod", te.prod)
max = _reduction("max", te.max)
min = _reduction("min", te.min)
any = _reduction("any", _one_holds, lambda v: v.astype("bool"))
all = _reduction("all", _each_holds, lambda v: v.astype("bool"))
_wide_sum = _reduction("mean", te.sum, wide)


def mean(data: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean over `axis`: a sum (float32 for float16 and bfloat16) and a division."""
    place = call_text("mean", data=data, axis=axis)
    check_tensors(place, data=data)
    require_float(data, "the mean", place)
    total = _wide_sum(data, axis, keepdims)
    several: Any = math.prod(data.shape[k] for k in normal_axes(axis, data.ndim, place))
    count = several.astype("float32") if isinstance(several, Expr) else float(several)
    return elementwise(total, lambda v: (v / count).astype(data.dtype), "T_divide")
