"""The only process-wide state: the stacks behind `with target:`, configurations and pass options.

Only entry points (`build`, `relay.build`, the tutorial facades) and templates may read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_STACKS: dict[str, list[Any]] = {}


def current(kind: str, default: Any = None) -> Any:
    """The innermost value of `kind` ("target", "config", "dispatch", "pass"), or `default`."""
    stack = _STACKS.get(kind)
    return stack[-1] if stack else default


def every(kind: str) -> tuple[Any, ...]:
    """All values entered for `kind`, innermost first."""
    return tuple(reversed(_STACKS.get(kind, ())))


def push(kind: str, value: Any) -> None:
    _STACKS.setdefault(kind, []).append(value)


def pop(kind: str) -> Any:
    return _STACKS[kind].pop()


@contextmanager
def scope(kind: str, value: Any) -> Iterator[Any]:
    """Make `value` the current one of `kind` for the length of a `with` block."""
    push(kind, value)
    try:
        yield value
    finally:
        pop(kind)
