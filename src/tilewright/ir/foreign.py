"""Calls of functions that others wrote, as statements.

In: a function's name, places and numbers.  Out: `Foreign`.  Read next: `lowering/intrinsics.py`,
which makes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import STATEMENTS, Buffer, Parts, Stmt


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Foreign(Stmt):
    """A call of a function of others, which does what `means` does: interpreters run that.

    form:    of its arguments, in order: "p" a place, "n" a number
    places:  buffers; offsets: where in each of them a place is; numbers: the others
    result:  the type that the function returns, which nobody looks at
    """

    name: str
    form: str
    places: tuple[Buffer, ...]
    offsets: tuple[Expr, ...]
    numbers: tuple[Expr, ...]
    result: DType
    means: Stmt


STATEMENTS[Foreign] = Parts(statements=("means",), expressions=("offsets", "numbers"))
