"""A hybrid script before it is called: its text, and what its names mean that it does not set.

In: a Python function.  Out: a `Source`.  Read next: `parser.py`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ExpressionError


@dataclass(frozen=True, eq=False)
class Source:
    """A script before it is called.  outside: what its names mean that it does not set."""

    name: str
    tree: ast.FunctionDef
    outside: Mapping[str, Any]

    @staticmethod
    def of(pyfunc: Callable[..., Any]) -> Source:
        place = f"hybrid script {getattr(pyfunc, '__name__', '?')}"
        try:
            text = textwrap.dedent(inspect.getsource(pyfunc))
        except (OSError, TypeError):
            raise ExpressionError(
                place, "its text is nowhere", "Write it into a file, with def."
            ) from None
        tree = parsed(text, place).body[0]
        if not isinstance(tree, ast.FunctionDef):
            raise ExpressionError(place, "it is no function", "Write it with def.")
        ast.increment_lineno(tree, pyfunc.__code__.co_firstlineno - 1)
        return Source(pyfunc.__name__, tree, _Outside(pyfunc))


def parsed(text: str, place: str) -> ast.Module:
    """Raises ExpressionError for what is no Python."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise ExpressionError(place, f"it is no Python: {error}") from None


class _Outside(Mapping[str, Any]):
    """Names around a function: read when they are asked for, as Python does."""

    def __init__(self, pyfunc: Callable[..., Any]) -> None:
        self.pyfunc = pyfunc

    def __getitem__(self, name: str) -> Any:
        free = self.pyfunc.__code__.co_freevars
        if name in free:
            try:
                return (self.pyfunc.__closure__ or ())[free.index(name)].cell_contents
            except ValueError:  # it has no value yet
                raise KeyError(name) from None
        found = self.pyfunc.__globals__
        return found[name] if name in found else vars(builtins)[name]

    def __iter__(self) -> Iterator[str]:
        yield from (*self.pyfunc.__code__.co_freevars, *self.pyfunc.__globals__)

    def __len__(self) -> int:
        return sum(1 for _ in self)
