"""How TVM's tests name what they run with: values at the top of a file, and fixtures of them.

In: values.  Out: what `plugin.py` makes into runs of each test whose arguments have these names.
Read next: `plugin.py`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, eq=False)  # values may be arrays, which have no one answer
class Group:
    """sets: for each run, one value for each of its names; ids: how the runs are called"""

    sets: tuple[tuple[Any, ...], ...]
    ids: tuple[str, ...] | None


@dataclass(frozen=True)
class Parameter:
    """One name of a group: the values at `index` of its sets."""

    group: Group
    index: int


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> Any:
    """`a, b = testing.parameters((1, 2), (3, 4))`: tests of `a` and `b` run with 1, 2 and 3, 4."""
    count = len(value_sets[0]) if value_sets else 0
    if not count or any(len(values) != count for values in value_sets):
        raise ValueError("testing.parameters: give sets of values that are equally long")
    group = Group(tuple(map(tuple, value_sets)), None if ids is None else tuple(ids))
    return [Parameter(group, k) for k in range(count)]


def parameter(
    *values: Any, ids: Sequence[str] | None = None, by_dict: dict[str, Any] | None = None
) -> Parameter:
    """`a = testing.parameter(1, 2)`: tests of `a` run with 1 and 2; by_dict: by their ids."""
    if by_dict is not None:
        values, ids = tuple(by_dict.values()), list(by_dict)
    return Parameter(Group(tuple((v,) for v in values), None if ids is None else tuple(ids)), 0)


def fixture(function: Callable[..., Any] | None = None, *, cache_return_value: bool = False) -> Any:
    """A fixture of pytest; cache_return_value: computed once for each value of its arguments, of
    which every test gets a copy of its own."""
    import pytest

    if function is None:
        return functools.partial(fixture, cache_return_value=cache_return_value)
    if not cache_return_value:
        return pytest.fixture(function)
    made: dict[str, Any] = {}
    compute = function

    @functools.wraps(compute)
    def cached(*owner: Any, **arguments: Any) -> Any:
        key = repr(sorted(arguments.items()))
        if key not in made:
            made[key] = compute(*owner, **arguments)
        return copy.deepcopy(made[key])

    return pytest.fixture(cached)
