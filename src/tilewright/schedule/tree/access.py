"""Where a stage reads: every index of its reads as an affine form over its own axes.

In: the body of a stage after inlining.  Out: `Access` per index; no numbers of a schedule yet.
Read next: `bounds.py`, which turns accesses into regions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.affine import Linear, Simplifier
from tilewright.ir.expr import Expr
from tilewright.te.tensor import IterVar


@dataclass(frozen=True, eq=False)
class DivMod:
    """`access // k` or `access % k` inside an access; k is a constant of the computation."""

    kind: str  # "div" or "mod"
    access: Access
    k: int


@dataclass(frozen=True, eq=False)
class Access:
    """One index: sum of coefficient * (root axis or DivMod) + constant.

    constant: an int, or an expression of what calls give
    """

    terms: tuple[tuple[int, IterVar | DivMod], ...]
    constant: int


def simplified_indices(body: Expr, simple: Simplifier) -> Expr:
    """`body` with the indices of its reads and its conditions simplified."""

    def rule(node: Expr) -> Expr | None:
        if node.op == "read":
            return E.rebuild(node, tuple(simple(i) for i in node.args))
        if node.dtype == "bool":
            return simple(node)
        return None

    return E.transform(body, rule)


def affine_access(form: Linear, axes: Mapping[Expr, IterVar], simple: Simplifier) -> Access | None:
    """The index `form` over axes; None where an atom is neither an axis nor `// k` or `% k`."""
    terms: list[tuple[int, IterVar | DivMod]] = []
    constant: Any = form.constant
    for atom, c in form.terms.items():
        if not any(n in axes or n.op == "read" for n in E.walk(atom)):
            constant = atom * c + constant
        elif atom.op == "var":
            terms.append((c, axes[atom]))
        elif (
            atom.op in ("floordiv", "floormod")
            and atom.args[1].op == "const"
            and atom.args[1].attr > 0
        ):
            inner = affine_access(simple.linear(atom.args[0]), axes, simple)
            if inner is None:
                return None
            kind = "div" if atom.op == "floordiv" else "mod"
            terms.append((c, DivMod(kind, inner, int(atom.args[1].attr))))
        else:
            return None
    return Access(tuple(terms), constant)
