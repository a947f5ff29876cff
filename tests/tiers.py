"""What of the tests runs: `-m "not slow"` the fast ones, by default all, with `--long` all of all.

`long` marks what the default leaves out altogether; `sampled(n)` keeps n cases of a function, the
same ones each time, which share few parameters.  Properties draw `examples(n)`, with
`--long` more and from fresh seeds.  What is asked for by name, with "::", is left out by neither.
In: options.  Out: what is drawn, and left out.  Read next: `conftest.py`.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, settings

_LONG = 300  # examples of a property, at most
_long = False


def begin(long: bool) -> None:
    """Before the tests are imported: how much they shall draw."""
    global _long
    _long = long
    settings.register_profile(
        "tilewright", deadline=None, derandomize=not long, print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )  # fmt: skip
    settings.load_profile("tilewright")


def examples(count: int) -> settings:
    """So many examples of a property; with `--long` eight times as many, or 300."""
    return settings(max_examples=min(8 * count, _LONG) if _long else count)


def left_out(items: Sequence[pytest.Item]) -> set[pytest.Item]:
    """What the default leaves out."""
    out, cases = set(), defaultdict(list)
    for item in items:
        if item.get_closest_marker("long") is not None:
            out.add(item)
        elif (mark := item.get_closest_marker("sampled")) is not None:
            cases[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, count), own in cases.items():
        out.update(set(own) - set(_spread(own, count)))
    return out


def _spread(cases: Sequence[pytest.Item], count: int) -> list[pytest.Item]:
    """So many of them, drawn, each the next with the most parameters that none before it has."""
    left, taken, seen = sorted(cases, key=_draw), [], set[tuple[int, str]]()
    parts = {item: _parts(item) for item in left}
    while left and len(taken) < count:
        taken.append(max(left, key=lambda item: len(parts[item] - seen)))
        left.remove(taken[-1])
        seen |= parts[taken[-1]]
    return taken


def _parts(item: pytest.Item) -> set[tuple[int, str]]:
    return set(enumerate(item.nodeid.partition("[")[2].removesuffix("]").split("-")))


def _draw(item: pytest.Item) -> tuple[int, str]:
    case = item.nodeid.partition("[")[2]
    return zlib.crc32(case.encode()), case
