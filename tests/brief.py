"""What times itself is timed briefly: tests ask whether it runs, not how fast.

A network is timed for seconds where users want to know, and a process that times one computes all
the while.  Folders of `workers.OWN` time as users do, and so does `--long`.
In: `keep` while a test runs.  Out: the same numbers, less sure.  Read next:
`tilewright.network.confirm`, `tilewright.runtime.timing`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from tilewright.network import confirm
from tilewright.runtime.sequence import LaunchSequence

_MOST_MS = 2.0  # of a repeat
_SECONDS = 0.02  # of comparing networks; each runs a few times in any case


@contextlib.contextmanager
def keep() -> Iterator[None]:
    """Meanwhile repeats are short, and networks are compared for a moment."""
    time, trials = LaunchSequence.time, confirm.Trials.__init__

    def briefly(
        self: LaunchSequence, number: int = 10, repeat: int = 1, min_repeat_ms: float = 0,
        **options: Any,
    ) -> Any:  # fmt: skip
        return time(self, number, repeat, min(min_repeat_ms, _MOST_MS), **options)

    def for_a_moment(self: confirm.Trials, *args: Any, **options: Any) -> None:
        if len(args) < 5:
            options.setdefault("seconds", _SECONDS)
        trials(self, *args, **options)

    LaunchSequence.time = briefly  # type: ignore[method-assign]
    confirm.Trials.__init__ = for_a_moment  # type: ignore[method-assign]
    try:
        yield
    finally:
        LaunchSequence.time, confirm.Trials.__init__ = time, trials  # type: ignore[method-assign]
