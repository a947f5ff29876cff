"""Logs of TVM: lines of AutoTVM 0.2 and of the auto-scheduler (Ansor, v0.6), read.

In: decoded lines, and what their names stand for (`Workloads`).  Out: of each what it says, for
`measure/importing.py`, which makes records of it.
Read next: `autotvm_line.py`, `ansor_steps.py`, `plugin.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tilewright.base.errors import RecordError, TilewrightError
from tilewright.measure.failures import blotted
from tilewright.measure.formats import Format, Found, Workloads, refuse
from tilewright.measure.lines import decoded
from tilewright.measure.record import TaskId, value_of
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.trace import REFUSALS
from tilewright.schedule.task import Task, create
from tilewright.schedule.template import (
    anchor_key,
    find_anchor,
    named_template,
    sketch_of_anchor,
)
from tilewright.schedule.workload import arguments_of, plain
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm.logs.ansor_steps import replay_ansor
from tilewright_tvm.logs.autotvm_line import (
    AUTOTVM,
    AUTOTVM_VERSION,
    autotvm_line,
    costs_of,
    target_of,
    time_of,
    wrote_autotvm,
)
from tilewright_tvm.logs.sources import recommended

ANSOR_VERSIONS = tuple(f"v0.{n}" for n in range(1, 7))  # one format; newer tasks say more


def wrote_ansor(line: Mapping[str, Any]) -> bool:
    """Whether a line, whose values may still be text, is the auto-scheduler's."""
    return "i" in line and "r" in line and isinstance(value_of(line.get("v")), str)


class AnsorReader:
    """Reads lines of the auto-scheduler; computations are made once."""

    def __init__(self, workloads: Workloads, target: Target | None) -> None:
        self.workloads, self.target = workloads, target
        self.dags = {_normal(key): dag for key, dag in workloads.dags.items()}
        self._made: dict[str, ComputeDAG | TilewrightError] = {}

    def __call__(self, data: dict[str, Any]) -> list[Found]:
        version = data["v"]
        if version not in ANSOR_VERSIONS:
            raise refuse(f"auto-scheduler log version {version!r}, known are v0.1 to v0.6")
        (key, old_target, *_), (_, steps) = data["i"]
        costs = costs_of(data["r"])
        target = _target(self.target, old_target)
        name, *args = parsed(key)
        schedule = _replayed(self._dag(key), steps, target)
        task = TaskId(str(name), args, schedule.dag.hash, str(target))
        return [Found(
            task, schedule, {}, costs, f"ansor-{version}", old_target, time_of(data["r"]),
            {"log": version},
        )]  # fmt: skip

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


class AutotvmReader:
    """Reads lines of AutoTVM; tasks, with their spaces, are made once.

    They find, beside what is given, every function template that is registered, and every template
    by TVM's name; one of those is good for all kernels of the tasks given with its computation as
    anchor.
    """

    def __init__(self, workloads: Workloads, target: Target | None) -> None:
        self.workloads, self.target = workloads, target
        self._tasks: dict[tuple[str, str], list[Task] | TilewrightError] = {}

    def __call__(self, data: dict[str, Any]) -> list[Found]:
        line = autotvm_line(data)
        costs, target = line.costs, _target(self.target, line.target)
        knobs = [knob for knob, _ in line.config.items()]
        tasks = self._tasks_of(line.name, line.args, target)
        found = []
        for task in tasks:
            fitting = (s for s in task.sketches if set(s.space.space_map) == set(knobs))
            if (sketch := next(fitting, None)) is not None:
                index = sketch.space.index_of(line.config)
                decisions = {n: e.value for n, e in sketch.space.get(index).items()}
                found.append(Found(
                    TaskId(task.name, plain(task.args), task.key, str(target)), sketch.close(index),
                    decisions, costs, f"autotvm-{AUTOTVM_VERSION}", line.target,
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


LOG_OF_AUTOTVM = Format(AUTOTVM, "AutoTVM", wrote_autotvm, AutotvmReader, recommended)
LOG_OF_ANSOR = Format("TVM's auto-scheduler log", "the auto-scheduler", wrote_ansor, AnsorReader)


def _target(asked: Target | None, text: str) -> Target:
    """What a record is filed under whose line names the target `text`."""
    target = target_of(text)
    if asked is None:
        return target
    if asked.kind != target.kind:
        raise refuse(f"of target kind {target.kind}, not {asked.kind}")
    return asked


def _replayed(dag: ComputeDAG, steps: Sequence[Any], target: Target) -> Schedule:
    """Raises a TilewrightError, the same for lines that fail alike."""
    try:
        return replay_ansor(dag, steps, target)
    except TilewrightError as error:
        step = re.match(r'Ansor step \d+ \["(\w*)"', error.place)
        if step is None:
            raise
        raise refuse(blotted(f"Ansor step {step[1]}: {error.reason}")) from None


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
