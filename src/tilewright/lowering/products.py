"""Which products a multiply-add may not take unrounded.

In: the stages of a schedule, their bodies as they are after inlining.  Out: what to compute in
place of their products.  A multiply-add rounds once where a product and a sum round twice, which is
wanted nearly everywhere.  Where the same product is also taken rounded, by a maximum, a comparison,
another function, the two would differ: of exp(a*c - max(a*c)) the exponent, at most 0, would be
positive by what the maximum was rounded, and overflow for a great c.  There it is rounded wherever
it is used.  Read next: `accesses.py`, which puts them in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor

SUMS = ("add", "sub")


def rounded_products(bodies: Iterable[tuple[Tensor, Expr]]) -> dict[Expr, Expr]:
    """For each product that must be rounded by itself its value, as a call of "product".

    bodies: of each stage that is stored, with its tensor
    Two products are the same where they multiply the same tensors, wherever they read them.
    """
    bodies = list(bodies)
    summed: dict[Expr, None] = {}
    taken: dict[Expr, None] = {}
    for _, body in bodies:
        for node in E.walk(body):
            kind = summed if _adds(node) else taken
            kind |= dict.fromkeys(a for a in node.args if _is_product(a))
        if _is_product(body):
            taken[body] = None
    if not summed or not taken:
        return {}
    names = _Names({tensor: body.attr for tensor, body in bodies if body.op == "read"})
    rounded = {names.of(node) for node in taken}
    found: dict[Expr, Expr] = {}
    for node in E.walk(*summed):
        if node in summed and names.of(node) in rounded:
            found[node] = E.call("product", *(E.substitute(a, found) for a in node.args))
    return found


def _is_product(node: Expr) -> bool:
    return node.op == "mul" and node.dtype.is_float


def _adds(node: Expr) -> bool:
    """Whether the operands of a node are summands."""
    return node.op in SUMS or (node.op == "reduce" and node.attr[0].name == "sum")


class _Names:
    """Equal for expressions of the same tensors; indices do not count.

    copies: tensors that are copies of others
    """

    def __init__(self, copies: Mapping[Tensor, Tensor]) -> None:
        self._copies = copies
        self._known: dict[Expr, Any] = {}

    def of(self, node: Expr) -> Any:
        if node not in self._known:
            self._known[node] = self._of(node)
        return self._known[node]

    def _of(self, node: Expr) -> Any:
        if node.op == "read":
            tensor = node.attr
            while tensor in self._copies:
                tensor = self._copies[tensor]
            return "read", tensor
        if node.op == "var":
            return ("var",)
        operands = [self.of(a) for a in node.args]
        if node.op in ("add", "mul"):
            operands.sort(key=hash)
        about = node.attr[0].name if node.op == "reduce" else node.attr
        return node.op, about, str(node.dtype), *operands
