"""The only process-wide state: the stacks behind `with target:`, configurations and pass options.

Each thread (and each asyncio task) has its own, which begin empty.  Only entry points (`build`,
`relay.build`, the tutorial facades) and templates may read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_STACKS: dict[str, ContextVar[tuple[Any, ...]]] = {
    kind: ContextVar(kind, default=())
    for kind in ("target", "config", "dispatch", "pass", "outside", "tracer", "tag")
}  # fmt: skip


def current(kind: str, default: Any = None) -> Any:
    """The innermost value of `kind`, one of the names above, or `default`."""
    stack = _STACKS[kind].get()
    return stack[-1] if stack else default


def every(kind: str) -> tuple[Any, ...]:
    """All values entered for `kind`, innermost first."""
    return _STACKS[kind].get()[::-1]


def push(kind: str, value: Any) -> None:
    _STACKS[kind].set((*_STACKS[kind].get(), value))


def pop(kind: str) -> Any:
    *rest, last = _STACKS[kind].get()
    _STACKS[kind].set(tuple(rest))
    return last


@contextmanager
def scope(kind: str, value: Any) -> Iterator[Any]:
    """Make `value` the current one of `kind` for the length of a `with` block."""
    push(kind, value)
    try:
        yield value
    finally:
        pop(kind)
