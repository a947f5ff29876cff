"""`te.var` and `te.size_var` with the names that TVM gives where a script gives none.

In: a name.  Out: a variable of `te`.  Read next: `ir/symbols.py`.
"""

from typing import Any

from tilewright import te
from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import Expr


@door(ExpressionError, "te.var")
def var(name: str = "tindex", dtype: str = "int32", span: Any = None) -> Expr:
    """Declare a variable that calls give; span: accepted and not kept."""
    return te.var(name, dtype)


@door(ExpressionError, "te.size_var")
def size_var(name: str = "size", dtype: str = "int32", span: Any = None) -> Expr:
    """Declare a variable that is at least 1; span: accepted and not kept."""
    return te.size_var(name, dtype)
