"""`str(x)` and `x.astext()` of graphs.

In: expressions and modules.  Out: text.  Read next: `printer.py`, which writes it.
"""

from __future__ import annotations

from typing import Any


class Printed:
    """What `Expr` and `IRModule` have of it."""

    __slots__ = ()

    def __str__(self) -> str:
        from tilewright.graph.printer import text_of

        return text_of(self)

    def astext(self: Any, show_meta_data: bool = True) -> str:
        """The printed form, which `relay.parse` reads, and `relay.parse_expr` of an expression;
        show_meta_data: with all constants, which `print(mod)` shows by type only."""
        from tilewright.graph.printer import whole_text

        return whole_text(self, show_meta_data)
