"""Logs of TVM: lines of AutoTVM 0.2 and of the auto-scheduler (Ansor, v0.6) as our records.

In: lines, and what their names stand for (`Workloads`).  Out: records that carry a candidate and
what it cost in TVM, `origin` "import:...".  They are not verified, so none is ever the best of its
task; a line that cannot be used is counted by reason.
Read next: `foreign/ansor_steps.py`, `record.py`, `database.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tilewright.base.errors import RecordError, TilewrightError
from tilewright.measure.database import Database
from tilewright.measure.failures import blotted
from tilewright.measure.lines import DAMAGE, Skipped, decoded, read_lines
from tilewright.measure.record import (
    ANSOR,
    AUTOTVM,
    OWN,
    Key,
    Record,
    Result,
    TaskId,
    decode,
    encode,
    make_record,
    own_versions,
    written_by,
)
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.trace import REFUSALS
from tilewright.schedule.task import Task, create
from tilewright.schedule.template import (
    anchor_key,
    find_anchor,
    named_template,
    sketch_of_anchor,
)
from tilewright.schedule.tree.legality import REASONS, judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.schedule.workload import arguments_of, plain
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright_tvm.logs.ansor_steps import replay_ansor
from tilewright_tvm.logs.autotvm_line import (
    AUTOTVM_VERSION,
    autotvm_line,
    costs_of,
    decoded_line,
    refuse,
    target_of,
    time_of,
)

ANSOR_VERSIONS = tuple(f"v0.{n}" for n in range(1, 7))  # one format; newer tasks say more
PREFIX = "import:"
Function = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Workloads:
    """What the names in old logs stand for.

    functions: name of a registered workload -> its function, which returns inputs and outputs
    dags:      workload key, as the log has it -> computation
    lookup:    the same as a function; None where it does not know the key
    tasks:     of a network.  AutoTVM's lines find them by name and arguments, Ansor's hashed keys
               by `workload_key`, or by the shapes of inputs and outputs that one task only has

    AutoTVM's lines also find every function template that is registered, and every template by
    TVM's name; one of those is good for all kernels of `tasks` with its computation as anchor.
    """

    functions: Mapping[str, Function] = field(default_factory=dict)
    dags: Mapping[str, ComputeDAG] = field(default_factory=dict)
    lookup: Callable[[str], ComputeDAG | None] | None = None
    tasks: Sequence[Task] = ()


@dataclass
class ImportReport:
    """lines: read, less comments and empty ones; unusable: of these, by reason

    imported: new records of each of `tasks`; a line may be good for several kernels of a network
    known:    lines that an earlier import had put into the database
    """

    lines: int = 0
    known: int = 0
    tasks: dict[Key, TaskId] = field(default_factory=dict)
    imported: Counter[Key] = field(default_factory=Counter)
    unusable: Skipped = field(default_factory=Skipped)


def import_lines(
    lines: Iterable[str | bytes | None],
    database: Database,
    workloads: Workloads | None = None,
    target: Target | None = None,
) -> ImportReport:
    """Append to `database` every line that makes a legal schedule here.

    lines:  of a log; None stands for one that is too long.  `log_lines` reads them from a file
    target: what the records are filed under; only lines of its kind are used.  None: what each line
            names, less what it says of the device's limits
    """
    importer = _Importer(workloads or Workloads(), target)
    origins = filter(_is_import, database.origins())
    own = [record for origin in origins for record in database.query(origin=origin)]
    known = {(r.key, r.candidate, r.timestamp) for r in own}
    report = ImportReport()
    for number, line in enumerate(lines, 1):
        data = line.encode(errors="surrogatepass") if isinstance(line, str) else line
        if data is not None and (not data.strip() or data[:1] in b"# "):
            continue
        report.lines += 1
        try:
            found = [(one, _record(one)) for one in importer.read(data)]
        except TilewrightError as error:
            report.unusable.note(_reason(error), number)
            continue
        new = [(one, r) for one, r in found if (r.key, r.candidate, r.timestamp) not in known]
        report.known += not new
        for one, record in new:
            known.add((record.key, record.candidate, record.timestamp))
            database.append(record, one.schedule.dag.to_json())
            report.tasks.setdefault(record.key, record.task)
            report.imported[record.key] += 1
    return report


def _broken(found: _Found) -> str:
    """Why the device of its target cannot run it; ""."""
    target = Target(found.task.target).native()
    reasons = judge(Resources(LoopTree(found.schedule).bounds(), target)).reasons()
    return REASONS[reasons[0]] if reasons else ""


def _record(found: _Found) -> Record:
    """Raises RecordError for one that our own readers would skip: its labels are endless, say."""
    record = make_record(
        found.task, Result(costs=found.costs), origin=found.origin, decisions=found.decisions,
        steps=found.schedule.to_json(), device=found.device, timestamp=found.timestamp,
        versions=own_versions() | found.versions,
    )  # fmt: skip
    decode(encode(record))
    return record


def is_imported(record: Record) -> bool:
    """Whether another program measured it."""
    return _is_import(record.origin)


def _is_import(origin: str) -> bool:
    return origin.startswith(PREFIX)


def log_lines(path: str | os.PathLike[str]) -> Generator[bytes | None]:
    """The lines of a file, with bounded memory.  Raises RecordError where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:
            for _, line, _ in read_lines(file.fileno()):
                yield line
    except OSError as error:
        raise RecordError(
            f"log {os.fspath(path)!r}", error.strerror or str(error), "Check the path."
        ) from None


def _reason(error: TilewrightError) -> str:
    """The same for lines that fail alike."""
    step = re.match(r'Ansor step \d+ \["(\w*)"', error.place)
    if step is not None:
        return blotted(f"Ansor step {step[1]}: {error.reason}")
    return error.reason


@dataclass(frozen=True)
class _Found:
    """A usable line.  device: the target as the line has it: the log does not name the device"""

    task: TaskId
    schedule: Schedule
    decisions: dict[str, Any]
    costs: tuple[float, ...]
    origin: str
    device: str
    timestamp: float
    versions: dict[str, str]


class _Importer:
    """Reads lines; what they share (computations, spaces) is made once."""

    def __init__(self, workloads: Workloads, target: Target | None) -> None:
        self.workloads, self.target = workloads, target
        self.dags = {_normal(key): dag for key, dag in workloads.dags.items()}
        self._made: dict[str, ComputeDAG | TilewrightError] = {}
        self._tasks: dict[tuple[str, str], list[Task] | TilewrightError] = {}

    def read(self, line: bytes | None) -> list[_Found]:
        """What the line says, of one computation or of several kernels that it is good for.

        Raises a TilewrightError saying why the line is of no use.
        """
        data = decoded_line(line)
        program = written_by(data)
        if program not in (AUTOTVM, ANSOR):
            raise refuse(
                "a line of Tilewright's own log, which needs no import" if program == OWN
                else "no line of AutoTVM or of the auto-scheduler"
            )  # fmt: skip
        try:
            found = [self._ansor(data)] if program == ANSOR else self._autotvm(data)
            broken = [_broken(one) for one in found]
        except TilewrightError:  # says why; some of these are ValueErrors, too
            raise
        except DAMAGE:
            raise refuse(f"a damaged line of {program}") from None
        if all(broken):
            raise refuse(f"not legal on {found[0].task.target}: {broken[0]}")
        return [one for one, reason in zip(found, broken, strict=True) if not reason]

    # -- the auto-scheduler ------------------------------------------------------------------------
    def _ansor(self, data: dict[str, Any]) -> _Found:
        version = data["v"]
        if version not in ANSOR_VERSIONS:
            raise refuse(f"auto-scheduler log version {version!r}, known are v0.1 to v0.6")
        (key, old_target, *_), (_, steps) = data["i"]
        costs = costs_of(data["r"])
        target = self._target(old_target)
        name, *args = parsed(key)
        schedule = replay_ansor(self._dag(key), steps, target)
        task = TaskId(str(name), args, schedule.dag.hash, str(target))
        return _Found(
            task, schedule, {}, costs, f"{PREFIX}ansor-{version}", old_target, time_of(data["r"]),
            {"log": version},
        )  # fmt: skip

    def _dag(self, key: str) -> ComputeDAG:
        if key not in self._made:
            try:
                self._made[key] = self._find(key)
            except TilewrightError as error:
                self._made[key] = error
        made = self._made[key]
        if isinstance(made, TilewrightError):
            raise made
        return made

    def _find(self, key: str) -> ComputeDAG:
        given = self.workloads
        known = self.dags.get(_normal(key))
        if known is None and given.lookup is not None:
            known = given.lookup(key)
        if known is not None:
            return known
        name, *args = parsed(key)
        if name in given.functions:
            try:
                return ComputeDAG(list(given.functions[name](*arguments_of(args))))
            except Exception as error:  # the function is the user's
                raise refuse(f"the workload function {name} failed ({error})") from None
        if len(name) != 32 or set(name) - set("0123456789abcdef"):
            raise refuse(f"no workload function {name!r}")
        named = [t.dag for t in given.tasks if t.dag.workload_key() == _normal(key)]
        if named:
            return named[0]
        fitting = {t.key: t.dag for t in given.tasks if _numbers(_shapes(t.dag)) == _numbers(args)}
        if len(fitting) == 1:
            return next(iter(fitting.values()))
        raise refuse(
            "several tasks of the network have its shapes" if fitting
            else "a hashed workload key that matches nothing given"
        )  # fmt: skip

    # -- AutoTVM -----------------------------------------------------------------------------------
    def _autotvm(self, data: dict[str, Any]) -> list[_Found]:
        line = autotvm_line(data)
        costs, target = line.costs, self._target(line.target)
        knobs = [knob for knob, _ in line.config.items()]
        tasks = self._tasks_of(line.name, line.args, target)
        found = []
        for task in tasks:
            fitting = (s for s in task.sketches if set(s.space.space_map) == set(knobs))
            if (sketch := next(fitting, None)) is not None:
                index = sketch.space.index_of(line.config)
                decisions = {n: e.value for n, e in sketch.space.get(index).items()}
                found.append(_Found(
                    TaskId(task.name, plain(task.args), task.key, str(target)), sketch.close(index),
                    decisions, costs, f"{PREFIX}autotvm-{AUTOTVM_VERSION}", line.target,
                    line.timestamp, {"tvm": line.tvm},
                ))  # fmt: skip
        if not found:
            told = ", ".join(sorted(knobs)) or "none"
            raise refuse(f"{line.name} has other knobs here than {told}")
        return found

    def _tasks_of(self, name: str, args: list[Any], target: Target) -> list[Task]:
        key = json.dumps([name, args]), str(target)
        if key not in self._tasks:
            try:
                self._tasks[key] = self._make_tasks(name, args, target)
            except TilewrightError as error:
                self._tasks[key] = error
            except Exception as error:  # the template is the user's
                self._tasks[key] = refuse(f"the template {name} failed ({error})")
        tasks = self._tasks[key]
        if isinstance(tasks, TilewrightError):
            raise tasks
        return tasks

    def _make_tasks(self, name: str, args: list[Any], target: Target) -> list[Task]:
        """Of the network those that the line is of by name, else one by its own name, and with a
        template by TVM's name all kernels of the network that have its computation as anchor."""
        text = json.dumps(args)
        named = [
            t for t in self.workloads.tasks
            if t.name == name and t.target == target and json.dumps(list(t.args)) == text
        ]  # fmt: skip
        if named:
            return named
        own = create(name, arguments_of(args), target)
        registered, anchor = named_template(name), find_anchor(own.dag)
        if registered is None or anchor is None:
            return [own]
        structure = anchor_key(anchor)[0]
        kernels = [own]
        for task in self.workloads.tasks:
            found = find_anchor(task.dag)
            if found is None or task.key == own.key or anchor_key(found)[0] != structure:
                continue
            with suppress(*REFUSALS):
                sketch = sketch_of_anchor(registered, task.dag, target)
                kernels.append(Task(task.name, task.args, task.dag, target, [sketch]))
        return kernels

    # -- both --------------------------------------------------------------------------------------
    def _target(self, text: str) -> Target:
        target = target_of(text)
        if self.target is None:
            return target
        if self.target.kind != target.kind:
            raise refuse(f"of target kind {target.kind}, not {self.target.kind}")
        return self.target


def parsed(key: str) -> Any:
    """A workload key as a value.  Raises RecordError for what is no JSON, or too deep."""
    return decoded(key.encode(errors="replace"), "workload key")


def _normal(key: str) -> str:
    try:
        return json.dumps(parsed(key))
    except RecordError:
        return key


def _shapes(dag: ComputeDAG) -> list[list[int]]:
    return [list(t.shape) for t in dag.args]


def _numbers(nested: Any) -> list[Any]:
    """All entries in order: old keys list shapes flat, newer ones one by one."""
    return [n for v in nested for n in _numbers(v)] if isinstance(nested, list) else [nested]
