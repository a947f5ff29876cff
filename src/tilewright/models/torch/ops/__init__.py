"""What each operator of ATen becomes, one file for each family.

In: a call as `node.Node` shows it.  Out: graph values.  Read next: `elementwise.py`.
"""

from __future__ import annotations

from tilewright.models.torch.node import Converter
from tilewright.models.torch.ops import (
    attention,
    complex,
    counted,
    creation,
    elementwise,
    indexing,
    linear,
    matrices,
    movement,
    normalize,
    ordering,
    quantized,
    reduction,
    refused,
    sampling,
    special,
    window,
)

_FAMILIES = (
    elementwise,
    reduction,
    creation,
    movement,
    indexing,
    counted,
    ordering,
    linear,
    attention,
    normalize,
    sampling,
    special,
    matrices,
    quantized,
    refused,
    window,
)
CONVERTERS: dict[str, Converter] = {
    name: converter for family in _FAMILIES for name, converter in family.CONVERTERS.items()
}
COMPLEX = complex.converters(CONVERTERS)  # where an argument or a result is complex
__all__ = ["COMPLEX", "CONVERTERS"]
