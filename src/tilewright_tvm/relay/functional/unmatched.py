"""Which values no clause of a `match` looks like.

In: a match.  Out: patterns, such as Cons(_, Nil).  Read next: `nodes.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tilewright_tvm.relay.functional.nodes import (
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)

_ANY = PatternWildcard()


def unmatched(match: Match) -> list[Pattern]:
    """Patterns of all values that no clause looks like; none where each value has its clause.

    They are as deep as the clauses'.
    """
    clauses = [c.lhs for c in match.clauses]
    found: list[Pattern] = []
    stack: list[tuple[Pattern, int]] = [(_ANY, 0)]  # and how many clauses it is apart from
    while stack:
        case, apart = stack.pop()
        if apart == len(clauses):
            found.append(case)
            continue
        verdict = _looks_like(case, clauses[apart])
        if verdict is None:
            stack += [(more, apart) for more in reversed(_split(case, clauses[apart]))]
        elif not verdict:
            stack.append((case, apart + 1))
    return found


def _looks_like(case: Pattern, clause: Pattern) -> bool | None:
    """Whether all values of `case` do, or none; None where it has to be split."""
    if isinstance(clause, (PatternVar, PatternWildcard)):
        return True
    if isinstance(case, PatternWildcard):
        return None
    both = isinstance(clause, PatternConstructor) and isinstance(case, PatternConstructor)
    if both and clause.constructor is not case.constructor:  # type: ignore[attr-defined]
        return False
    pairs = zip(case.patterns, clause.patterns, strict=True)
    verdicts = [_looks_like(c, p) for c, p in pairs]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _split(case: Pattern, clause: Pattern) -> list[Pattern]:
    """`case`, told apart as far as the clause asks."""
    if isinstance(clause, (PatternVar, PatternWildcard)):
        return [case]
    if isinstance(clause, PatternTuple):
        inside = case.patterns or (_ANY,) * len(clause.patterns)
        return [PatternTuple(p) for p in _each_split(inside, clause.patterns)]
    assert isinstance(clause, PatternConstructor)
    if isinstance(case, PatternConstructor):
        parts = _each_split(case.patterns, clause.patterns)
        return [PatternConstructor(case.constructor, p) for p in parts]
    data = clause.constructor.belong_to.data
    constructors = (clause.constructor,) if data is None else data.constructors
    return [PatternConstructor(c, [_ANY] * len(c.inputs)) for c in constructors]


def _each_split(parts: Sequence[Pattern], clauses: Sequence[Pattern]) -> list[tuple[Pattern, ...]]:
    return list(product(*map(_split, parts, clauses)))


def pattern_text(pattern: Pattern) -> str:
    """Such as Cons(_, Nil)."""
    if isinstance(pattern, PatternVar):
        return pattern.var.name_hint
    inside = ", ".join(map(pattern_text, pattern.patterns))
    if isinstance(pattern, PatternConstructor):
        name = pattern.constructor.name_hint
        return f"{name}({inside})" if inside else name
    return f"({inside})" if isinstance(pattern, PatternTuple) else "_"
