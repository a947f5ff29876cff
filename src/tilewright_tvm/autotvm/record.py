"""`autotvm.record`: logs and single lines, read and written: `load_from_file`, `encode`, ..."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from msgspec import structs

from tilewright.base.doors import open_doors
from tilewright.base.errors import RecordError, SpaceError, TilewrightError, absent
from tilewright.measure import record as records
from tilewright.measure.database import Database, pick_best, readable
from tilewright.measure.importing import import_lines
from tilewright.measure.record import DagLine, Record, read
from tilewright.schedule.task import Task, create, task_of_dag
from tilewright.schedule.workload import arguments_of
from tilewright.search.rules.derive import with_rules
from tilewright.search.transfer import read_history
from tilewright.targets.target import Target
from tilewright_tvm.autotvm.dispatch import ApplyHistoryBest
from tilewright_tvm.autotvm.results import (
    MeasureInput,
    MeasureResult,
    measure_result,
    record_of,
)
from tilewright_tvm.logs.autotvm_line import AUTOTVM, read_autotvm, target_of
from tilewright_tvm.logs.history import index_of

__all__ = [
    "ApplyHistoryBest", "decode", "encode", "load_from_buffer", "load_from_file", "measure_str_key",
    "pick_best", "split_workload",
]  # fmt: skip


_LOG = "log"  # of a pair: the `Records` that gave it


class Pair(Record, frozen=True, dict=True, gc=True):
    """A record that is AutoTVM's pair, too: `inp, result = record`, see `pair_of`."""

    def __iter__(self) -> Iterator[Any]:
        yield from pair_of(self, self.__dict__.get(_LOG))

    def __getitem__(self, index: int) -> Any:
        return tuple(self)[index]


class Records(Iterator[Pair]):
    """The records of a log, oldest first.  database: the log, which tells what they computed."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._left = iter(database)
        self._tasks: dict[tuple[str, str, str], Task] = {}

    def __next__(self) -> Pair:
        pair = Pair(**structs.asdict(next(self._left)))
        pair.__dict__[_LOG] = self
        return pair

    def task_of(self, record: Record) -> Task:
        """The task that was measured, by its template's name or by the computation that the log
        tells.  Raises RecordError where neither is known."""
        told = record.task
        key = (told.dag, told.target, record.origin)
        if key not in self._tasks:
            self._tasks[key] = self._told(record)
        return self._tasks[key]

    def _told(self, record: Record) -> Task:
        told, target = record.task, Target(record.task.target)
        dag = self.database.computation(told.dag)
        try:
            named = _task(told.name, told.args, target)
            if dag is None or named.key == told.dag:
                return named
        except RecordError:
            if dag is None:
                raise
        found = task_of_dag(dag, target, told.name, tuple(told.args))
        return (
            found if any(s.origin == record.origin for s in found.sketches) else with_rules(found)
        )


def load_from_file(filename: str | os.PathLike[str]) -> Records:
    """The records of a log, oldest first; lines that cannot be read are left out, with a warning.

    `for inp, result in load_from_file(...)` takes records of templates apart, as `decode` does.
    `tuner.load_history` takes them.  Of a log of TVM, the lines that function templates of this
    process can be found for.  Raises RecordError for a log of another program.
    """
    return Records(read_history([filename]))


def load_from_buffer(file: Any) -> Iterator[Pair]:
    """The same of an open file, of text or bytes; lines of AutoTVM are imported where templates of
    their names are known, and never count as best."""
    if not hasattr(file, "readline"):
        raise RecordError(
            f"load_from_buffer({file!r:.100})", "it is no open file",
            "Open the log, or use load_from_file.",
        )  # fmt: skip
    found, foreign, dags = Database(), [], {}
    for text in file:
        line = text.encode(errors="surrogatepass") if isinstance(text, str) else text
        held, reason = read(line)
        if isinstance(held, DagLine):
            dags[held.hash] = held.dag
        elif isinstance(held, Record):
            found.append(held, dags.get(held.task.dag))
        elif reason == f"a line of {AUTOTVM}":
            foreign.append(line)
    import_lines(foreign, found)
    return Records(found)


def encode(inp: MeasureInput, result: MeasureResult, protocol: str = "json") -> str:
    """The line of a log for an input and what came of it."""
    if protocol != "json":
        raise RecordError(f"encode(protocol={protocol!r})", "logs are JSON lines", 'Use "json".')
    return records.encode(record_of(inp, result)).decode().rstrip("\n")


def decode(row: str | bytes, protocol: str = "json") -> tuple[MeasureInput, MeasureResult]:
    """The inverse of `encode`; also of a line of AutoTVM.

    Raises RecordError for what is no such line, and for one whose template is not known here.
    """
    if protocol != "json":
        raise RecordError(f"decode(protocol={protocol!r})", "logs are JSON lines", 'Use "json".')
    line = row.encode(errors="surrogatepass") if isinstance(row, str) else row
    held, reason = read(line)
    if isinstance(held, Record):
        return pair_of(held)
    if reason != f"a line of {AUTOTVM}":
        raise RecordError("decode", reason or "not a record", "Give one line of a log.")
    told = read_autotvm(line)
    task = _task(told.name, told.args, target_of(told.target))
    space = task.config_space
    config = space.get(index_of(space, told.config))
    costs, error, all_cost, timestamp = told.result
    return MeasureInput(task.target, task, config), MeasureResult(
        tuple(costs), int(error), float(all_cost), float(timestamp)
    )


def pair_of(record: Record, log: Records | None = None) -> tuple[MeasureInput, MeasureResult]:
    """A record in AutoTVM's words.  log: which tells the computation, where that makes the task.

    Raises RecordError where neither its template nor its computation is known.
    """
    if log is None:
        task = _task(record.task.name, record.task.args, Target(record.task.target))
    else:
        task = log.task_of(record)
    own = (s.space for s in task.sketches if s.origin == record.origin)
    space = next(own, None) or task.config_space
    config = space.get(space.index_of(record.decisions))
    return MeasureInput(task.target, task, config), measure_result(record)


def measure_str_key(inp: MeasureInput, include_config: bool = True) -> str:
    """The same for two inputs of one task, and of one configuration."""
    config = str(inp.config) if include_config else ""
    return "".join([str(inp.target), inp.task.name, str(inp.task.args), config])


def split_workload(in_file: str | os.PathLike[str], clean: bool = True) -> list[str]:
    """One log for each task of a log, beside it: `LOG.000.wkl`, `LOG.001.wkl`, ...

    clean: of several records of one configuration only the last.  Returns the paths.
    Raises RecordError for a log of another program.
    """
    whole = readable(in_file)
    paths = []
    for number, task in enumerate(whole.tasks()):
        found = whole.query(task=task)
        if clean:
            found = list({record.candidate: record for record in found}.values())
        paths.append(f"{os.fspath(in_file)}.{number:03d}.wkl")
        own = Database()
        for record in found:
            own.append(record, whole.dag(record.task.dag))
        own.save(paths[-1])
    return paths


def _task(name: str, args: Any, target: Target) -> Task:
    try:
        return create(name, arguments_of(args), target)
    except TilewrightError as error:
        raise RecordError(
            f"decode: task {name!r:.100}", error.reason,
            "Register the template of that name, or read the whole log with load_from_file.",
        ) from None  # fmt: skip


open_doors(globals(), __all__[1:], SpaceError)


def __getattr__(name: str) -> Any:
    raise absent("autotvm.record", name, {})
