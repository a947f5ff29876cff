"""`autotvm.apply_history_best(log)`: the best records, for templates and for `relay.build`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tilewright.base import context
from tilewright.measure.database import Database, readable
from tilewright.measure.record import Key
from tilewright.runtime.device import local_target
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.config_space import ConfigEntity
from tilewright.schedule.task import create
from tilewright.search.jobs import plain
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG


class ApplyHistoryBest:
    """Usable as a context (`with apply_history_best(log):`) and on its own (`.query`)."""

    def __init__(self, records: str | os.PathLike[str] | Database) -> None:
        self.database = records if isinstance(records, Database) else readable(records)

    def query(self, target: Any, workload: Sequence[Any]) -> ConfigEntity | None:
        """The best configuration for a workload (name, *args), or None where no record fits."""
        name, args, chosen = workload[0], tuple(workload[1:]), Target(target)
        keys = self.database.keys(name, plain(list(args)), str(chosen))
        here = local_target(chosen)[0].fingerprint
        keys = {Key(k.dag, k.target, here) for k in keys}
        (sketch,) = create(name, args, chosen).sketches
        origin = sketch.origin  # one of another origin has other knobs
        bests = [best for key in keys if (best := self.database.best(key, origin)) is not None]
        if not bests:
            return None
        best = min(bests, key=lambda r: r.seconds)
        space = sketch.space
        config = space.get(space.index_of(best.decisions))
        config.cost = best.seconds
        return config

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """The schedule of the best record of exactly this computation."""
        return self.database.lookup(dag, target)

    def __enter__(self) -> ApplyHistoryBest:
        context.push("dispatch", self)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("dispatch")


def apply_history_best(records: str | os.PathLike[str] | Database) -> ApplyHistoryBest:
    """The best records of a log file (or of a `Database`).

    Raises RecordError for a log of another program; `tilewright records import` makes one of TVM's.
    """
    return ApplyHistoryBest(records)
