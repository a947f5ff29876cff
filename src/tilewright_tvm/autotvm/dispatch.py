"""Which configuration a template gets: `apply_history_best(log)` and AutoTVM's other contexts.

In: logs, ours and AutoTVM's, or configurations.  Out: contexts that templates and `relay.build`
ask, the innermost first.  What a log of AutoTVM recommends is built and verified like any record.
Read next: `logs/history.py`, `network/schedules.py`.
"""

from __future__ import annotations

import io
import json
import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from tilewright.base import context, plugins
from tilewright.base.errors import RecordError, SpaceError, TilewrightError
from tilewright.measure.database import Database, readable
from tilewright.measure.record import Key, Record
from tilewright.runtime.device import local_target
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigEntity, FallbackConfigEntity
from tilewright.schedule.task import Task, create
from tilewright.schedule.template import (
    anchor_key,
    anchor_sketches,
    anchor_templates,
    find_anchor,
    look_for_templates,
    sketch_of_anchor,
)
from tilewright.schedule.workload import plain
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm.logs.history import History, index_of
from tilewright_tvm.logs.sources import load_into

logger = logging.getLogger("autotvm")
_TAKEN, _PASSED_OVER = 1e-6, 1e5  # seconds that ApplyFixedConfig says of configurations


class _Current(type):
    @property
    def current(cls) -> DispatchContext:
        """The innermost context that was entered; outside all the one `FallbackContext`."""
        entered = context.current("dispatch")
        return entered if isinstance(entered, DispatchContext) else _OUTERMOST


class DispatchContext(metaclass=_Current):
    """Answers which configuration a workload, (name, *args), gets on a target.

    Subclasses have `_query_inside` (None where they do not know), and `lookup` where they know of
    kernels of networks, too.  Contexts nest: what the inner one does not know the outer one is
    asked.
    """

    def __init__(self) -> None:
        self._told: dict[str, Any] = {}
        self._outer: list[Any] = []

    def query(self, target: Any, workload: Sequence[Any]) -> Any:
        """The configuration, or None where neither this context nor one around it has one."""
        found = self._told.get(_spelled(target, workload))
        if found is None:
            found = self._query_inside(target, workload)
        if found is None and self._outer and self._outer[-1] is not None:
            found = self._outer[-1].query(target, workload)
        return found

    def update(self, target: Any, workload: Sequence[Any], cfg: Any) -> None:
        """What `query` answers for this workload from now on."""
        self._told[_spelled(target, workload)] = cfg

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """A schedule for a kernel of a network; here there is none."""
        return None

    def _query_inside(self, target: Any, workload: Sequence[Any]) -> Any:
        return None

    def __enter__(self) -> Any:
        self._outer.append(context.current("dispatch"))
        context.push("dispatch", self)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("dispatch")
        self._outer.pop()


def _spelled(target: Any, workload: Sequence[Any]) -> str:
    return json.dumps([str(Target(target)), plain(workload)], default=str)


class FallbackContext(DispatchContext):
    """The usual configuration of a template, the same at every query, with a warning for each
    workload unless `GLOBAL_SCOPE.silent`."""

    warned: ClassVar[set[str]] = set()

    def _query_inside(self, target: Any, workload: Sequence[Any]) -> FallbackConfigEntity:
        key = _spelled(target, workload)
        if key not in self.warned and not GLOBAL_SCOPE.silent:
            self.warned.add(key)
            logger.warning(
                "Cannot find config for target=%s, workload=%s. A fallback configuration is used, "
                "which may bring great performance regression.", target, tuple(workload),
            )  # fmt: skip
        usual = self._told[key] = FallbackConfigEntity()
        return usual

    def clear_cache(self, target: Any, workload: Sequence[Any]) -> None:
        """Forget the configuration of this workload."""
        self._told.pop(_spelled(target, workload), None)


@dataclass
class GlobalScope:
    """silent: no warnings of configurations that are not known
    in_tuning: False: what is tuned is what is built; constants are packed outside both
    """

    silent: bool = False
    in_tuning: ClassVar[bool] = False


GLOBAL_SCOPE = GlobalScope()
_OUTERMOST = FallbackContext()


def clear_fallback_cache(target: Any, workload: Sequence[Any]) -> None:
    """Forget what a `FallbackContext` around the caller, or the outermost, gave a workload."""
    every = [*context.every("dispatch"), _OUTERMOST]
    next(c for c in every if isinstance(c, FallbackContext)).clear_cache(target, workload)


class ApplyConfig(DispatchContext):
    """One configuration for everything that has its knobs."""

    def __init__(self, config: ConfigEntity) -> None:
        super().__init__()
        self.config = config

    def _query_inside(self, target: Any, workload: Sequence[Any]) -> Any:
        return self.config

    def update(self, target: Any, workload: Sequence[Any], cfg: Any) -> None:
        """What every workload gets from now on."""
        self.config = cfg

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """By the first template that fits and has these knobs."""
        knobs = {name for name, _ in self.config.items()}
        for sketch in _sketches(dag, target):
            if set(sketch.space.space_map) == knobs:
                with suppress(TilewrightError):
                    return sketch.close(sketch.space.index_of(self.config))
        return None


class ApplyFixedConfig(DispatchContext):
    """Templates of the names given, with their usual configurations, for the workloads of `tasks`.

    tasks: as `extract_from_program` gives them; schedule_names: one or several
    """

    def __init__(self, tasks: Iterable[Task], schedule_names: str | Iterable[str]) -> None:
        super().__init__()
        names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)
        self.tasks, self.schedule_names = list(tasks), names
        for task in self.tasks:
            if not isinstance(task, Task):
                raise SpaceError(
                    "ApplyFixedConfig(tasks)", f"a {type(task).__name__} is no task",
                    "Give what autotvm.task.extract_from_program returns.",
                )  # fmt: skip
        anchors = [find_anchor(task.dag) for task in self.tasks]
        self._anchors = {anchor_key(op)[0] for op in anchors if op is not None}

    def _query_inside(self, target: Any, workload: Sequence[Any]) -> Any:
        """Costing next to nothing for templates of the names, much for others of the tasks."""
        named = workload[0] in self.schedule_names
        task = next((t for t in self.tasks if t.name == workload[0]), None)
        if task is None:
            return FallbackConfigEntity() if named else None
        index = task.sketches[0].fallback() if task.sketches else None
        return _costing(task.config_space.get(index or 0), _TAKEN if named else _PASSED_OVER)

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        anchor = find_anchor(dag)
        if anchor is None or anchor_key(anchor)[0] not in self._anchors:
            return None
        for sketch in _sketches(dag, target, self.schedule_names):
            index = sketch.fallback()
            if index is not None:
                return sketch.close(index)
        return None


def _sketches(dag: ComputeDAG, target: Target, names: Sequence[str] | None = None) -> list[Sketch]:
    """Of all templates that fit, also those that are taken by name only."""
    plugins.every("templates")
    if names is None:
        found = anchor_sketches(dag, target)
        wanted = [t for t in anchor_templates(dag, target) if not t.offered]
    else:
        found, wanted = [], [t for t in anchor_templates(dag, target) if t.name in names]
    for registered in wanted:
        with suppress(TilewrightError):
            found.append(sketch_of_anchor(registered, dag, target))
    return found


class ApplyHistoryBest(DispatchContext):
    """Usable as a context (`with apply_history_best(log):`) and on its own (`.query`).

    records: see `apply_history_best`; None: nothing yet
    """

    def __init__(self, records: Any = ()) -> None:
        super().__init__()
        self.database, self.foreign = Database(), History()
        if isinstance(records, Database):
            self.database = records
        elif records is not None:
            self.load(records)

    def load(self, records: Any) -> None:
        """Add what `records` say to what is known."""
        if not _is_one(records) and not isinstance(records, Iterable):
            raise RecordError(
                f"apply_history_best({records!r:.100})", "these are no records",
                "Give the path of a log, an open one, a Database, or pairs of input and result.",
            )  # fmt: skip
        given = [records] if _is_one(records) else list(records)
        if len(given) == 1 and not len(self.database) and _is_path(given[0]):
            own = load_into(None, self.foreign, given[0])
            if own:
                self.database = readable(given[0])
            return
        for one in given:
            load_into(self.database, self.foreign, one)

    def _query_inside(self, target: Any, workload: Sequence[Any]) -> ConfigEntity | None:
        """The best configuration for a workload (name, *args), or None where no record fits."""
        name, args, chosen = workload[0], plain(workload[1:]), Target(target)
        keys = self.database.keys(name, args, str(chosen))
        recommended = self.foreign.configurations(chosen, name, args)
        if not keys and not recommended:
            return None
        (sketch,) = create(name, tuple(workload[1:]), chosen).sketches
        here = local_target(chosen)[0].fingerprint
        own = {Key(k.dag, k.target, here) for k in keys}
        bests = [r for key in own if (r := self.database.best(key, sketch.origin)) is not None]
        if bests:
            best = min(bests, key=lambda r: r.seconds)
            return _costing(sketch.space.get(sketch.space.index_of(best.decisions)), best.seconds)
        for told in recommended:
            with suppress(SpaceError):
                return _costing(sketch.space.get(index_of(sketch.space, told.config)), told.seconds)
        return _best_said(self.database, keys, sketch)

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """The schedule of the best record of exactly this computation, else what a log of AutoTVM
        recommends for its anchor."""
        return self.database.lookup(dag, target) or self.foreign.lookup(dag, target)


def _best_said(database: Database, keys: Iterable[Key], sketch: Sketch) -> ConfigEntity | None:
    """Of records that nobody verified, or of another device: good for a template, whatever they
    compute, but for no kernel of a network."""
    every = (r for key in keys for r in database.query(task=key))
    for record in sorted((r for r in every if r.result.ok), key=lambda r: r.seconds):
        with suppress(SpaceError):
            index = sketch.space.index_of(record.decisions)
            return _costing(sketch.space.get(index), record.seconds)
    return None


def _costing(config: ConfigEntity, seconds: float) -> ConfigEntity:
    config.cost = seconds
    return config


class ApplyGraphBest(DispatchContext):
    """The records that a graph tuner chose, one for each node in the order of the network.

    records: a log of ours, or what `load_from_file` gives.  A query gets the next one, `lookup` the
    first one of its computation.  `relay.build` finds the layouts that they were chosen for, and
    their kernels, in `database`.
    """

    def __init__(self, records: Any) -> None:
        super().__init__()
        self.database = Database()
        load_into(self.database, History(), records)
        self.records = list(self.database)
        if not self.records:
            raise SpaceError(
                f"ApplyGraphBest({records!r:.100})", "there is no record in it",
                "Give the file that the graph tuner wrote.",
            )  # fmt: skip
        self._next = 0

    def _query_inside(self, target: Any, workload: Sequence[Any]) -> ConfigEntity | None:
        if self._next >= len(self.records):
            raise SpaceError(
                f"ApplyGraphBest.query({workload[0]})",
                f"the network has more than {len(self.records)} nodes to tune",
                "Use the records of this very network.",
            )  # fmt: skip
        record = self.records[self._next]
        self._next += 1
        task = create(workload[0], tuple(workload[1:]), Target(target))
        return task.config_space.get(task.config_space.index_of(record.decisions))

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        own = (r for r in self.records if r.task.dag == dag.hash and r.steps)
        record = next(own, None)
        if record is not None:
            return self.database.replay(record, dag)
        return self._by_anchor(dag, target)

    def _by_anchor(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """By the template of the first record whose computation has the same anchor."""
        look_for_templates(self.database.origins())
        anchor = find_anchor(dag)
        if anchor is None:
            return None
        templates = {t.origin: t for t in anchor_templates(dag, target)}
        for record in self.records:
            computed = self.database.computation(record.task.dag)
            other = find_anchor(computed) if computed is not None else None
            if other is None or anchor_key(other)[0] != anchor_key(anchor)[0]:
                continue
            with suppress(TilewrightError, KeyError):
                sketch = sketch_of_anchor(templates[record.origin], dag, target)
                return sketch.close(sketch.space.index_of(record.decisions))
        return None


def _is_path(value: Any) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_one(records: Any) -> bool:
    """One source, not several of them."""
    return _is_path(records) or isinstance(records, (io.IOBase, Record, Database))


def apply_history_best(records: Any) -> ApplyHistoryBest:
    """The best records of logs.

    records: the path of a log, an open file, a `Database`, records as `load_from_file` gives them,
    (input, result) pairs, or a list of these.  A log may be of AutoTVM: its configurations are used
    where no record of ours fits.
    Raises RecordError for a log of another program.
    """
    return ApplyHistoryBest(records)


def apply_graph_best(records: Any) -> ApplyGraphBest:
    """The choices of a graph tuner, see `ApplyGraphBest`."""
    return ApplyGraphBest(records)


def apply_fixed_config(
    tasks: Iterable[Task], schedule_names: str | Iterable[str]
) -> ApplyFixedConfig:
    """Templates of these names, see `ApplyFixedConfig`."""
    return ApplyFixedConfig(tasks, schedule_names)
