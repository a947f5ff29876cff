"""Where values go in sorted sequences.

In: graph values.  Out: comparisons and sums.  Read next: `indexing.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor


def searchsorted(
    sorted_sequence: Expr, values: Expr, right: bool = False, dtype: str = "int32"
) -> Expr:
    """Where each value would go in a sorted sequence, in front of equal elements, or behind them.

    It compares each value with each element.
    """
    place = f"searchsorted(sorted_sequence={sorted_sequence.shape}, values={values.shape})"
    rank = len(values.shape)
    if len(sorted_sequence.shape) == 1:
        rows = tensor.as_shape(sorted_sequence, [1] * rank + [-1])
    elif sorted_sequence.shape[:-1] == values.shape[:-1] and rank:
        rows = tensor.expand_dims(sorted_sequence, rank - 1)
    else:
        raise ModelError(place, "the values are of other rows", "Give one sequence, or one a row.")
    each = tensor.expand_dims(values, rank)
    before = tensor.less_equal(rows, each) if right else tensor.less(rows, each)
    return tensor.sum(tensor.cast(before, dtype), axis=-1)


__all__ = ["searchsorted"]
