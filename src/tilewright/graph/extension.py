"""What a language with more kinds of values than networks adds to their nodes.

In: an `Extension`, which the package of the language registers when it is imported.  Out: what
nodes ask of it.  Without one, values are tensors and tuples of them.
Read next: `expr.py`, which asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from tilewright.graph.expr import Expr, IRModule
    from tilewright.graph.types import AnyType

Graph = TypeVar("Graph", bound="Expr")


class Writer(Protocol):
    """Writes bodies and functions that are more than operators of tensors."""

    def expression(self, body: Any) -> list[str]: ...
    def function(self, head: str, function: Any) -> str: ...


class Extension:
    """Answers for networks; a language overrides what it answers otherwise."""

    def called(self, function: Any, args: Sequence[Any]) -> Expr | None:
        """Make the call of a value, or of a function with more than tensors among `args`; None
        where it is a call of a `Function` with tensors."""
        return None

    def type_of(self, node: Expr, partly: bool) -> AnyType | None:
        """Give the type of a node that waits, where it follows from its parts; partly: or some of
        it."""
        return None

    def reason(self, node: Expr) -> str:
        """Say why a node has no type, where neither values nor variables decide it."""
        return ""

    def typed(self, graph: Graph) -> Graph:
        """Give `graph` the types that its operators tell variables without one."""
        return graph

    def network(self, mod: IRModule, place: str) -> IRModule:
        """Drop functions that are of no network.  Raises ModelError where main is one or calls
        one; place: of that error."""
        return mod

    def computed(self, operator: Callable[..., Expr], lhs: Any, rhs: Any) -> Expr:
        """Call `operator(lhs, rhs)`, which Python's `lhs + rhs` is."""
        return operator(lhs, rhs)

    def writer(self, printer: Any, node: Expr) -> Writer | None:
        """Give what writes `node`, a function or a body, where the printer of networks does not."""
        return None


_known = [Extension()]


def extend(extension: Extension) -> None:
    """Register what is asked from here on."""
    _known[0] = extension


def extension() -> Extension:
    """Give what is registered."""
    return _known[0]
