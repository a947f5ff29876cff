"""Ansor's order of tasks: what a round of trials is predicted to save, from its past and a hope.

In: the best seconds of each task after each of its rounds.  Out: seconds that the next round of a
task may save.  The search's own prediction is in `portfolio.py`; this one decides where it is asked
for.  Source: Zheng et al., Ansor, OSDI 2020, appendix A.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.base.errors import SpaceError

_ALIKE = 1.618  # tasks of one name whose work differs by less than this factor are alike


@dataclass(frozen=True)
class Gradient:
    """alpha: how much the past counts, the rest is the hope
    beta:  a task is hoped to reach 1 / beta of the speed of the fastest one that is alike
    window: rounds of the past
    """

    alpha: float = 0.2
    beta: float = 2.0
    window: int = 3

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise SpaceError(f"alpha={self.alpha!r}", "it is no share", "Give one from 0 to 1.")
        if not (self.beta > 0 and math.isfinite(self.beta)):
            raise SpaceError(f"beta={self.beta!r}", "it is not above 0", "2 is the usual one.")
        if not isinstance(self.window, int) or self.window < 1:
            raise SpaceError(
                f"backward_window_size={self.window!r}", "it is no number of rounds",
                "Give a whole number of at least 1.",
            )  # fmt: skip

    def saved(self, rounds: Sequence[float], best: float, reached: float | None) -> float:
        """Seconds that the next round may save.

        rounds:  best seconds after each round so far; best: now
        reached: seconds at the speed of the fastest task that is alike; None: none is
        """
        hope = best / max(len(rounds), 1)
        if reached is not None:
            hope = max(hope, best - self.beta * reached)
        past = hope  # of a task that has too little of it
        if len(rounds) > self.window:
            past = (rounds[-1 - self.window] - rounds[-1]) / self.window
        return self.alpha * past + (1 - self.alpha) * hope


def kind_of(name: str, flop: float) -> tuple[str, int]:
    """Equal for tasks that are alike: the same operators, about the same work."""
    return name, int(math.log(flop + 1, _ALIKE))
