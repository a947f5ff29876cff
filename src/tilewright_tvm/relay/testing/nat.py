"""`relay.testing.nat`: natural numbers of the prelude's `nat`, as Python has them.

In: a `Prelude` whose module has nat.rly, numbers.  Out: values, expressions, numbers.
Read next: `../functional/standard.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright_tvm.relay.functional.values import ConstructorValue
from tilewright_tvm.relay.prelude import Prelude


def count(prelude: Prelude, n: ConstructorValue) -> int:
    """Which number a value of `nat` is.  Raises ModelError for another type."""
    _, z, s = prelude.mod.get_type("nat")
    found = 0
    while n.constructor is s:
        found, n = found + 1, n.fields[0]
    if n.constructor is not z:
        raise ModelError("relay.testing.count", f"it is a {n.constructor.belong_to}", "Give a nat.")
    return found


def make_nat_value(prelude: Prelude, n: int) -> ConstructorValue:
    """The number `n` as a value of `nat`."""
    _, z, s = prelude.mod.get_type("nat")
    value = ConstructorValue(z.tag, [], z)
    for _ in range(n):
        value = ConstructorValue(s.tag, [value], s)
    return value


def make_nat_expr(prelude: Prelude, n: int) -> Expr:
    """The number `n` as an expression.  Raises ModelError below 0."""
    if n < 0:
        raise ModelError(f"relay.testing.make_nat_expr({n})", "it is below 0", "Give 0 or more.")
    _, z, s = prelude.mod.get_type("nat")
    value: Expr = z()
    for _ in range(n):
        value = s(value)
    return value


__all__ = ["count", "make_nat_expr", "make_nat_value"]
