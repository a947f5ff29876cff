"""`relay.Span` and `relay.SourceName`: where in a source text something is, for scripts that say.

Nodes take a span and do not keep it: errors name operators and arguments instead.
In: names and numbers.  Out: the same.  Read next: `functional/nodes.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SourceName:
    """name: of a file, or of an operator of the model that was read"""

    name: str


@dataclass(frozen=True)
class Span:
    """source_name: of the text; line, end_line, column, end_column: from where to where"""

    source_name: SourceName
    line: int
    end_line: int
    column: int
    end_column: int
