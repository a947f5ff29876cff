"""Ranges of the loops of a kernel: what passes and printers know of its variables.

In: a kernel.  Out: the inclusive range of each loop and thread variable.  Read next: `affine.py`.
"""

from __future__ import annotations

from tilewright.ir import symbols
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import For, Kernel, statements


def loop_ranges(kernel: Kernel) -> dict[Expr, tuple[int, int]]:
    """Inclusive range of every loop and thread variable of the kernel."""
    known = symbols.ranges(g.var for g in kernel.given if g.sized)
    least = Simplifier(known)
    known |= {t.var: (0, symbols.last(t.extent, least)) for t in kernel.threads}
    loops = (s for s in statements(kernel.body) if isinstance(s, For))
    return known | {s.var: (0, symbols.last(s.extent, least)) for s in loops}
