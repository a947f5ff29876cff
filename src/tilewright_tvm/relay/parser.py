"""Relay's text by TVM's names: `relay.parse`, `relay.fromtext`, `relay.parse_expr`.

In: what `print(mod)` and `mod.astext()` give, here or in TVM.  Out: the module, the expression.
Read next: `text/reader.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import IRModule
from tilewright_tvm.relay.functional import definitions
from tilewright_tvm.relay.functional.definitions import types_of
from tilewright_tvm.relay.text.lexer import Source
from tilewright_tvm.relay.text.reader import Reader


def parse(
    source: str,
    source_name: str = "from_string",
    init_module: IRModule | None = None,
    init_meta_table: Mapping[str, Sequence[Any]] | None = None,
) -> IRModule:
    """The module that `source` says.

    source_name: what errors call the text
    init_module: whose functions the text may call, and which are in the result, too
    init_meta_table: constants by kind, `{"relay.Constant": [...]}`, for `meta[relay.Constant][k]`
    Raises ModelError with line and column.
    """
    given = definitions.IRModule() if init_module is None else init_module
    text, table = Source(source, source_name), init_meta_table or {}
    return Reader(text, given.functions, table, types_of(given)).module()


def fromtext(source: str, source_name: str = "from_string") -> IRModule:
    """`parse(source)`."""
    return parse(source, source_name)


def parse_expr(source: str) -> Any:
    """The expression that `source` says: a value, a function, or an operator's row for its name.

    Variables that are no parameters are declared before it: `free_var %x: Tensor[(2), float32];`.
    Raises ModelError with line and column.
    """
    return Reader(Source(source, "from_string"), {}, {}).expression_text()


__all__ = ["fromtext", "parse", "parse_expr"]
open_doors(globals(), __all__, ModelError)


def __getattr__(name: str) -> Any:
    raise absent("relay.parser", name, {"SpanCheck": "Where a text was written is not kept."})
