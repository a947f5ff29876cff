"""What nodes ask of modules that are written on them, for networks: values are tensors and tuples.

In: nodes.  Out: the answers of `Extension`, by the modules that know; a language with more kinds of
values overrides some of them.  The package registers it, so that it is there with the first node.
Read next: `extension.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.graph.deferred import NotYet, like
from tilewright.graph.evaluate import known_value
from tilewright.graph.expr import Expr, Function
from tilewright.graph.extension import Extension
from tilewright.graph.op import call, same_dtype
from tilewright.graph.passes.extents import for_arguments


class Networks(Extension):
    """Answers for networks."""

    def call(self, operator: str, *args: Any, **attrs: Any) -> Expr:
        return call(operator, *args, **attrs)

    def operation(self, operator: str, lhs: Any, rhs: Any) -> Expr:
        return call(operator, *same_dtype(lhs, rhs))

    def numbers(self, node: Expr) -> Any:
        return known_value(node)

    def await_numbers(self, node: Expr, fits: Callable[[Any], bool]) -> None:
        if any(map(fits, like(node))):
            raise NotYet(node, by_value=True)

    def not_typed(self, node: Expr) -> Exception:
        return NotYet(node)

    def for_arguments(self, function: Function, args: Sequence[Expr]) -> Function:
        return for_arguments(function, args)
