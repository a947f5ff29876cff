"""What kernels cost: as measured, else as guessed from what they move.

In: groups, and who knows seconds of them.  Out: seconds, and the difference between two ways to
build a network.  Read next: `decide.py`, `evidence.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.cost.machine_model import seconds
from tilewright.graph.expr import Expr
from tilewright.graph.printer import expression_text
from tilewright.network.extract import FusedGroup, groups_of_body
from tilewright.schedule.default import default_schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

Seconds = Callable[[FusedGroup], float | None]

RATE, LAUNCH = 1e10, 2e-6  # bytes a second and seconds: of kernels that nobody measured


class Costs:
    """Knows seconds of kernels: measured, otherwise guessed, see `guessed_seconds`.

    guess: whether anything is
    """

    def __init__(self, seconds: Seconds, guess: bool = True) -> None:
        self._seconds, self._guess = seconds, guess
        self._known: dict[str, float] = {}
        self._of_text: dict[str, float] = {}

    def of(self, group: FusedGroup) -> float:
        """Give the seconds of one call."""
        if group.key not in self._known:
            found = self._seconds(group)
            if found is None:
                found = guessed_seconds(group) if self._guess else inf
            self._known[group.key] = found
        return self._known[group.key]

    def of_body(self, body: Expr) -> float:
        """Give the seconds of all kernels of a body; equal bodies are asked for once."""
        text = expression_text(body)
        if text not in self._of_text:
            groups = groups_of_body(body)
            self._of_text[text] = sum(self.of(g) * len(g.calls) for g in groups)
        return self._of_text[text]

    def difference(
        self, usual: Sequence[FusedGroup], other: Sequence[FusedGroup]
    ) -> tuple[float, float]:
        """Give what the kernels take that only `other` has, and those that only `usual` has."""
        every = {g.key: g for g in (*usual, *other)}
        more = Counter({g.key: len(g.calls) for g in other})
        more.subtract({g.key: len(g.calls) for g in usual})
        gained = sum(n * self.of(every[k]) for k, n in more.items() if n > 0)
        return gained, sum(-n * self.of(every[k]) for k, n in more.items() if n < 0)


def modelled_seconds(dag: ComputeDAG, target: Target) -> float | None:
    """Give what the machine model says of a kernel that runs untuned; None where it has no number
    for that."""
    if dag.symbols:
        return None
    try:
        tree = LoopTree(default_schedule(dag, target))
        resources = Resources(tree.bounds(), target)
    except TilewrightError:
        return None
    return float(seconds(resources, 1)[0])


def guessed_seconds(group: FusedGroup) -> float:
    """Guess what a call takes that nobody measured; infinite where it computes much."""
    return LAUNCH + moved_bytes(group.dag) / RATE if group.is_simple else inf


def moved_bytes(dag: ComputeDAG) -> int:
    """Count what a kernel reads and writes, each of it once."""
    return sum(int(np.prod(t.shape, dtype=np.int64)) * t.dtype.bytes for t in dag.args)
