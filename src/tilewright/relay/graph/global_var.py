"""Names of functions in a module.

In: strings.  Out: strings.  Read next: `expr.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.errors import ModelError


class GlobalVar(str):
    """The name of a function in a module: a string, which TVM wraps."""

    def __new__(cls, name_hint: str) -> GlobalVar:
        if not isinstance(name_hint, str):
            raise ModelError(f"relay.GlobalVar({name_hint!r})", "it is no name", 'Give "main".')
        return super().__new__(cls, name_hint)

    @property
    def name_hint(self) -> str:
        return str(self)

    def __call__(self, *_: Any) -> Any:
        raise ModelError(
            f"relay.GlobalVar({str(self)!r})(...)", "functions do not call each other by name",
            "Call the relay.Function itself: f(x).",
        )  # fmt: skip
