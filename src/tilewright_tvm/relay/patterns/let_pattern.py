"""Patterns of `relay.Let`, of which a graph keeps the body with the value in it.

In: patterns of the name, of its value and of what reads it.  Out: a pattern of that body.
Read next: `matching.py`, `relay/functional/scope.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilewright_tvm.relay.patterns.matching import DFPattern, Match


class LetPattern(DFPattern):
    """What `body` matches where `var` stands for a value that matches `value`.

    A value that nothing reads leaves no trace, so such a pattern matches what `body` does.
    """

    def __init__(self, var: DFPattern, value: DFPattern, body: DFPattern) -> None:
        self.var, self.value, self.body = var, value, body

    def parts(self) -> Sequence[DFPattern]:
        return [self.value, self.body]

    def fits(self, node: Any, found: Match) -> Iterator[None]:
        around = found.instead
        inside = {**around, self.var: self.value}
        found.instead = inside
        for _ in found.run(self.body, node):
            found.instead = around  # what is matched next is outside of the body
            yield
            found.instead = inside
        found.instead = around


def is_let(var: DFPattern, value: DFPattern, body: DFPattern) -> LetPattern:
    """`relay.Let(var, value, body)`, of which a graph keeps `body` with `value` in the place of
    `var`."""
    return LetPattern(var, value, body)
