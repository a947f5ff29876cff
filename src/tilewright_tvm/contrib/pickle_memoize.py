"""`contrib.pickle_memoize.memoize`: reference data that scripts of TVM compute once.

In: a function of plain arguments.  Out: the same, its results kept in memory; nothing is written.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

__all__ = ["memoize"]


def memoize(key: str, save_at_exit: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: what the function returns is computed once for each of its arguments, and for
    each value of the variables around it; key, save_at_exit: of TVM's file, not needed here."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        made: dict[str, Any] = {}

        @functools.wraps(function)
        def remembered(*args: Any, **kwargs: Any) -> Any:
            place = repr((args, sorted(kwargs.items())))
            if place not in made:
                made[place] = function(*args, **kwargs)
            return copy.deepcopy(made[place])

        return remembered

    return decorate
