"""What nodes ask of modules that are written on them, and who answers.

In: an `Extension`: `answers.py` has one for networks, and the package of a language with more kinds
of values registers its own when it is imported.  Out: what nodes ask of it.
Read next: `expr.py`, which asks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from tilewright.graph.expr import Expr, Function, IRModule
    from tilewright.graph.types import AnyType

Graph = TypeVar("Graph", bound="Expr")


class Writer(Protocol):
    """Writes bodies and functions that are more than operators of tensors."""

    def expression(self, body: Any) -> list[str]: ...
    def function(self, head: str, function: Any) -> str: ...


class Extension(Protocol):
    """Answers what nodes ask."""

    # -- by modules above the nodes
    def call(self, operator: str, *args: Any, **attrs: Any) -> Expr:
        """Call an operator by its name."""

    def operation(self, operator: str, lhs: Any, rhs: Any) -> Expr:
        """Call an operator that Python spells `lhs + rhs`, of which one may be a number."""

    def numbers(self, node: Expr) -> Any:
        """Give a number or a list of them where `node` is known before anything runs, else None."""

    def await_numbers(self, node: Expr, fits: Callable[[Any], bool]) -> None:
        """Raise NotYet where `fits` takes such numbers as `node` may have."""

    def not_typed(self, node: Expr) -> Exception:
        """Give the NotYet for who needs the type of `node`."""

    def for_arguments(self, function: Function, args: Sequence[Expr]) -> Function:
        """Give `function`, of open extents, for the shapes of `args`."""

    # -- by languages; of networks, whose values are tensors and tuples of them, this
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

    def writer(self, printer: Any, node: Expr) -> Writer | None:
        """Give what writes `node`, a function or a body, where the printer of networks does not."""
        return None


_known: list[Extension] = []


def extend(extension: Extension) -> None:
    """Register what is asked from here on."""
    _known[:] = [extension]


def extension() -> Extension:
    """Give what is registered."""
    return _known[0]
