"""Arguments of a task as plain data, and back: a tensor is `["TENSOR", shape, dtype]`.

In: arguments of templates and operators.  Out: what a log stores, and what a template is called
with.  Read next: `template.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.te.tensor import Tensor, placeholder

TENSOR = "TENSOR"


def plain(value: Any) -> Any:
    """An argument as JSON has it: tuples become lists."""
    if isinstance(value, Tensor):
        return [TENSOR, list(value.shape), value.dtype]
    return [plain(v) for v in value] if isinstance(value, (tuple, list)) else value


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
