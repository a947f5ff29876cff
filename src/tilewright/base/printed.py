"""Text of values that is written elsewhere: what is printed stands below its printer.

In: classes that are `Printed`, and the functions that a printer registers for them.  Out:
`str(value)`.  Read next: `ir/printer.py`, `graph/printer.py`, which register.
"""

from __future__ import annotations

from functools import singledispatch


@singledispatch
def text_of(value: object) -> str:
    """Write `value` as the printer of its class does."""
    return object.__repr__(value)


class Printed:
    """A value that a printer writes, which its room imports with it."""

    __slots__ = ()

    def __str__(self) -> str:
        return text_of(self)
