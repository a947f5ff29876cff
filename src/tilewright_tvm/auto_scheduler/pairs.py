"""Logs by the auto-scheduler's names: what was measured, and what came of it.

In: the path of a log.  Out: (MeasureInput, MeasureResult) pairs.  Read next: `records.py`,
`measure/record.py`, `measure_record.py` (the command).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import msgspec

from tilewright.base.doors import door
from tilewright.base.errors import RecordError, TilewrightError
from tilewright.measure.database import Database, pick_best
from tilewright.measure.lines import from_log
from tilewright.measure.record import DagLine, Key, Record, decode, encode
from tilewright.measure.sources import key_of
from tilewright.targets.target import Target, TargetLike
from tilewright_tvm.auto_scheduler.compatible import Compatible
from tilewright_tvm.auto_scheduler.compute_dag import ComputeDAG
from tilewright_tvm.auto_scheduler.records import (
    Path,
    best_record,
    dag_of,
    hashes_of,
    read_log,
    trials_of,
)
from tilewright_tvm.auto_scheduler.results import MeasureInput, MeasureResult, record_of
from tilewright_tvm.auto_scheduler.search_task import SearchTask
from tilewright_tvm.auto_scheduler.workload_registry import knows

Pair = tuple[MeasureInput, MeasureResult]


class RecordReader:
    """The trials of a log: iterate, or `read_lines`.

    A trial that was timed again at the end, with the other leaders, has that result.  Of a log of
    TVM the trials of workloads that are registered here, see `read_log`.
    Raises RecordError for a log of another program.
    """

    def __init__(self, filename: Path) -> None:
        self.filename = os.fspath(filename)

    def __iter__(self) -> Iterator[Pair]:
        database = read_log(self.filename)
        told: dict[Key, tuple[ComputeDAG | None, SearchTask | None]] = {}
        for record in trials_of(database):
            if record.key not in told:
                told[record.key] = _computed(database, record)
            yield MeasureInput.of(record, *told[record.key]), MeasureResult.of(record)

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """Inputs and results of `max_lines` trials (default: all) after the first `skip_lines`."""
        end = None if max_lines is None or max_lines < 0 else skip_lines + max_lines
        pairs = list(self)[skip_lines:end]
        return [given for given, _ in pairs], [result for _, result in pairs]


def load_records(filename: Path) -> list[Pair]:
    """All trials of a log, oldest first."""
    return list(RecordReader(filename))


def save_records(
    filename: Path, inputs: Iterable[MeasureInput], results: Iterable[MeasureResult]
) -> None:
    """Append trials to a log: inputs with the results given for them, their own or others.

    Raises RecordError unless there is one result for each input.
    """
    inputs, results = list(inputs), list(results)
    if len(inputs) != len(results):
        raise RecordError(
            f"save_records({os.fspath(filename)!r})",
            f"{len(inputs)} inputs and {len(results)} results",
            "Pass pairs as load_records gives them.",
        )  # fmt: skip
    with Database(filename) as database:
        for given, result in zip(inputs, results, strict=True):
            record = record_of(given, result)
            database.append(record, given.dag.to_json() if given.dag else None)


def load_best_record(
    filename: Path,
    workload_key: str | None = None,
    target: TargetLike | None = None,
    include_compatible: bool = False,
) -> Pair:
    """The fastest verified trial of a workload on a target; None: of any.

    include_compatible: where there is none, that of the same computation of smaller sizes, whose
                        steps apply; the workload and the target must then be given and known
    Raises RecordError where there is none, telling what the log holds instead.
    """
    database = Database.load(filename)
    wanted = None if target is None else str(Target(target))
    hashes = None if workload_key is None else hashes_of(database, workload_key)
    what = "any workload" if workload_key is None else f"workload key {workload_key}"
    try:
        best = best_record(database, filename, hashes, wanted, what)
    except RecordError:
        if not include_compatible or target is None or not workload_key or not knows(workload_key):
            raise
        others = Compatible(database).applying(ComputeDAG(workload_key), Target(target))
        found = next(others, None)
        if found is None:
            raise
        best = found[0]
    return MeasureInput.of(best, *_computed(database, best)), MeasureResult.of(best)


def load_best(
    filename: Path, workload_key: str | None = None, target: TargetLike | None = None
) -> Pair:
    """An older name of `load_best_record`."""
    return load_best_record(filename, workload_key, target)


@door(RecordError)
def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """The lines of a log for a pair: its computation, where that is known, and the trial."""
    record = record_of(inp, res)
    lines = b""
    if inp.dag is not None:
        dag = DagLine(hash=record.task.dag, dag=msgspec.Raw(msgspec.json.encode(inp.dag.to_json())))
        lines = encode(dag)
    return (lines + encode(record)).decode()


@door(RecordError)
def load_record_from_string(record: str) -> Pair:
    """The pair of which these are the lines.  Raises RecordError for anything else."""
    told, found, dag = Database(), None, None
    for line in map(decode, record.splitlines()):
        if isinstance(line, DagLine):
            dag = line
        elif isinstance(line, Record):
            known = dag.dag if dag is not None and dag.hash == line.task.dag else None
            told.append(line, known)
            found = line
    if found is None:
        raise RecordError(
            "load_record_from_string", "there is no trial in it",
            "Give what dump_record_to_string returned.",
        )  # fmt: skip
    return MeasureInput.of(found, *_computed(told, found)), MeasureResult.of(found)


def _computed(database: Database, record: Record) -> tuple[ComputeDAG | None, SearchTask | None]:
    """What a record computes, where the log tells it."""
    dag, key = dag_of(database, record.task.dag), key_of(record.task)
    if dag is None:
        return None, None
    named = key if knows(key) else None  # else it is only a label
    try:
        with from_log(f"workload {record.task.name}"):
            return dag, SearchTask(compute_dag=dag, workload_key=named, target=record.task.target)
    except TilewrightError:  # such as a target that this version does not know
        return dag, None


def distill_record_file(in_file: Path, out_file: Path) -> int:
    """Write the best record of each task to `out_file`; returns how many there are.

    What `out_file` holds already takes part.  Raises RecordError for a log that is none of ours.
    """
    return pick_best(in_file, out_file)
