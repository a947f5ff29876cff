"""Records of computations that differ in their sizes only: their steps, on other sizes.

In: a log, a computation.  Out: records whose steps apply to it, the most promising first.
Read next: `dispatcher.py`, `pairs.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress

from tilewright.base.errors import TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.record import Key, Record
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG

_NUMBERS = re.compile(r"\b\d+\b")


class Compatible:
    """A source of schedules: `lookup` as `relay.build` asks it, the first that applies.

    label: what the build's report calls them
    """

    label = "re-instantiated"

    def __init__(self, database: Database) -> None:
        self.records = database

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        return next((s for _, s in self.applying(dag, target)), None)

    def applying(self, dag: ComputeDAG, target: Target) -> Iterator[tuple[Record, Schedule]]:
        """Records of the device (of any, where `target` is of none), with their steps on `dag`.

        A record counts where its computation has the same stages, which differ in numbers only, and
        every extent of an argument of `dag` is a multiple of the extent there.  What it took, times
        how much more `dag` computes, decides which comes first.
        """
        kind, structure = target.kind, _structure(dag)
        found: list[tuple[float, int, Record]] = []
        for task in dict.fromkeys((t.dag, t.target) for t in self.records.tasks()):
            if task[0] == dag.hash or _kind_of(task[1]) != kind:
                continue
            best = self.records.best(Key(*task, target.fingerprint))
            computed = self.records.computation(task[0])
            if best is None or computed is None or not _is_multiple(dag, computed):
                continue
            if _structure(computed) == structure:
                seconds = best.seconds * dag.flop_ct / max(computed.flop_ct, 1.0)
                found.append((seconds, len(found), best))
        for _, _, record in sorted(found, key=lambda item: item[:2]):
            with suppress(TilewrightError):
                schedule = Schedule.replay(dag, record.steps)
                LoopTree(schedule).bounds()
                yield record, schedule


def _kind_of(target: str) -> str:
    """ "" for the text of no target."""
    try:
        return str(Target(target).kind)
    except TilewrightError:
        return ""


def _structure(dag: ComputeDAG) -> str:
    """What is computed, without numbers; stages and axes have the names that steps have."""
    return _NUMBERS.sub("#", dag.key_text())


def _is_multiple(dag: ComputeDAG, other: ComputeDAG) -> bool:
    """Whether each extent of an argument is one of the other's, or several times that."""
    if len(dag.args) != len(other.args):
        return False
    for mine, theirs in zip(dag.args, other.args, strict=True):
        same = mine.ndim == theirs.ndim and mine.dtype is theirs.dtype
        if not same or any(a % b for a, b in zip(mine.shape, theirs.shape, strict=True)):
            return False
    return True
