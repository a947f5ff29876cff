"""Measuring candidates: records and their log, worker processes, builder, runner, the pipeline.

In: candidates as data.  Out: `Record`s.  Read next: `record.py`, `database.py`, `pipeline.py`.
"""

from tilewright.measure.database import Database, pick_best
from tilewright.measure.record import Record, Result, TaskId

__all__ = ["Database", "Record", "Result", "TaskId", "pick_best"]
