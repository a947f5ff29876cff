"""Measuring candidates: records and their log, worker processes, builder, runner, the pipeline.

In: candidates as data.  Out: `Record`s.  Read next: `record.py`, `database.py`, `jobs.py`,
`pipeline.py`.
"""

from tilewright.measure.database import Database, pick_best
from tilewright.measure.jobs import Built, Job, RunJob, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import Record, Result, TaskId, make_record
from tilewright.measure.reference import Reference, ReferenceStore

__all__ = [
    "Built", "Database", "Job", "LocalBuilder", "LocalRunner", "Pipeline", "Record",
    "Reference", "ReferenceStore", "Result", "RunJob", "RunResult", "TaskId",
    "make_record", "pick_best",
]  # fmt: skip
