"""`transform.PassContext`, as in the tutorials: options for `relay.build` and `build`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilewright.base import context


@dataclass
class PassContext:
    """opt_level: below 2 operators are not fused, below 3 batch norms are not folded into weights.

    config: further options by name; unknown ones are kept and ignored, as TVM's often do not apply.
    """

    opt_level: int = 3
    config: dict[str, Any] = field(default_factory=dict)

    def __enter__(self) -> PassContext:
        context.push("pass", self)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("pass")

    @staticmethod
    def current() -> PassContext:
        return context.current("pass") or PassContext()
