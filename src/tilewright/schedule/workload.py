"""Arguments of a task as plain data, and back: a tensor is `["TENSOR", shape, dtype]`.

In: arguments of templates and operators.  Out: what a log stores, and what a template is called
with.  Read next: `template.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.te.tensor import placeholder

TENSOR = "TENSOR"


def plain(value: Any) -> Any:
    """`value` as JSON: tuples become lists, numpy's numbers Python's, tensors ["TENSOR", shape,
    dtype]."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return [TENSOR, list(value.shape), str(value.dtype)]
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def arguments_of(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments as they were given: lists of JSON were tuples, or tensors."""

    def one(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            return value
        if len(value) == 3 and isinstance(value[0], str) and value[0] == TENSOR:
            names.append(f"placeholder_{len(names)}" if names else "placeholder")
            return placeholder(value[1], value[2], names[-1])
        return tuple(one(v) for v in value)

    names: list[str] = []
    return tuple(one(v) for v in args)
