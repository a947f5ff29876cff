"""`x.astext()`: text that can be read alone.

In: expressions and modules.  Out: text that `relay.parse` reads.  Read next: `reader.py`,
`graph/printer.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.graph.expr import Expr, IRModule
from tilewright.graph.printer import Printer
from tilewright_tvm.relay.functional.definitions import types_of
from tilewright_tvm.relay.text.constants import metadata_text

VERSION = '#[version = "0.0.5"]\n'


Annotate = Callable[[Expr], str]


class _Annotated(Printer):
    """annotate: gives what stands behind the line of a node, instead of its type."""

    def __init__(self, annotate: Annotate) -> None:
        super().__init__()
        self.annotate = annotate

    def note(self, node: Expr, is_opened: bool) -> str:
        text = str(self.annotate(node) or "")
        return f" {text}" if text else ""


def astext(
    graph: Expr | IRModule, show_meta_data: bool = True, annotate: Annotate | None = None
) -> str:
    """The printed form, which `relay.parse` reads, and `relay.parse_expr` of an expression, with a
    version and free variables.

    show_meta_data: with all constants, which `print(mod)` shows by type only
    annotate: gives what stands behind the line of a call, instead of its type: a comment, where
    the text shall be read back
    """
    printer = Printer() if annotate is None else _Annotated(annotate)
    if isinstance(graph, IRModule):
        parts = [*map(str, types_of(graph).values()), printer.module(graph)]
        text = "\n\n".join(filter(None, parts))
    else:
        text = printer.declarations(graph) + printer.expression(graph)
    return VERSION + text + (metadata_text(printer.constants) if show_meta_data else "")
