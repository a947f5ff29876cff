"""`ApplyHistoryBest(log)`: the best records, for `relay.build`.

In: a log, or (MeasureInput, MeasureResult) pairs.  Out: a context that `relay.build` asks.
Read next: `network/schedules.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from tilewright.base.errors import RecordError
from tilewright.measure.database import Database, readable
from tilewright.runtime.device import local_target
from tilewright.targets.target import Target
from tilewright_tvm.auto_scheduler.compatible import Compatible
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.records import best_record, dag_of, hashes_of, trials_of
from tilewright_tvm.auto_scheduler.results import (
    MeasureInput,
    MeasureResult,
    record_of,
    replayed,
)
from tilewright_tvm.auto_scheduler.workload_registry import knows
from tilewright_tvm.autotvm import dispatch


class ApplyHistoryBest(dispatch.ApplyHistoryBest):
    """Usable as a context (`with ApplyHistoryBest(log):`) and on its own (`.query`).

    records: a log's path, several, a `Database`, or pairs as `load_records` gives them, in any
             iterable
    n_lines: use the first so many records only
    include_compatible: where there is no record of a workload, use one of the same computation of
                        smaller sizes whose multiples the workload has, see `compatible.py`
    Raises RecordError for a log that is missing, or of which no line can be read.
    """

    def __init__(
        self, records: Any, n_lines: int | None = None, include_compatible: bool = False
    ) -> None:
        super().__init__(Database())
        self.include_compatible = include_compatible
        self.load(records, n_lines)

    def load(self, records: Any, n_lines: int | None = None) -> None:
        """Add records to those known."""
        found = _database(records)
        if n_lines is None and found is not records and not len(self.database):
            self.database = found
            return
        for record in trials_of(found, n_lines):
            self.database.append(record, found.dag(record.task.dag))

    @property
    def also(self) -> Compatible | None:
        """What `relay.build` asks where this has no record."""
        return Compatible(self.database) if self.include_compatible else None

    def query(self, target: Any, workload: Any, *_: Any) -> Any:
        """The best schedule of a workload key; of AutoTVM's workload its best configuration.

        None where nothing fits.
        """
        if not isinstance(workload, str):
            return super().query(target, workload)
        hashes = hashes_of(self.database, workload)
        chosen = Target(target)
        device = local_target(chosen)[0].device
        also = self.also
        try:
            best = best_record(self.database, "", hashes, str(chosen), "", device)
            return replayed(best, dag_of(self.database, best.task.dag))
        except RecordError:
            if also is None or not knows(workload):
                return None
            return also.lookup(ComputeDAG(workload), local_target(chosen)[0])


def _database(records: Any) -> Database:
    if isinstance(records, Database):
        return records
    one = isinstance(records, (str, os.PathLike)) or not isinstance(records, Iterable)
    records = [records] if one else list(records)
    if all(isinstance(r, (str, os.PathLike)) for r in records):
        return readable(*records)
    found = Database()
    for pair in records:
        given, *rest = pair if isinstance(pair, (tuple, list)) else (pair,)
        if not isinstance(given, MeasureInput):
            raise RecordError(
                f"ApplyHistoryBest({given!r})", "neither a log nor a record",
                "Give the path of a log.",
            )  # fmt: skip
        told = rest and isinstance(rest[0], MeasureResult)
        record = record_of(given, rest[0]) if told else given.record
        found.append(record, None if given.dag is None else given.dag.to_json())
    return found
