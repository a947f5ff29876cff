"""`autotvm.graph_tuner`: layouts over a whole network, from records of its kernels.

In: a network, records of its convolutions in several layouts, the time of transformations between
them.  Out: one record for each convolution, in a file that `apply_graph_best` and `relay.build`
take.  `relay.build` makes the same choice by itself from any log that has these records
(`network/layouts.py`); this is AutoTVM's way to ask for it.
Read next: `network/layouts.py`, `network/assignment.py`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, RecordError, SpaceError
from tilewright.base.output import replacing
from tilewright.driver.build import resolve_target
from tilewright.farm.runner import FarmRunner
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.op import Op
from tilewright.graph.passes.bind import bind_params
from tilewright.measure.database import Database
from tilewright.measure.jobs import Runner
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.measure.record import LOG, Record
from tilewright.network import layouts as L
from tilewright.network.assignment import cheapest, total
from tilewright.network.costs import Costs, moved_bytes
from tilewright.network.decide import transformation_costs
from tilewright.network.evidence import Evidence
from tilewright.network.extract import FusedGroup, groups_of_body, ungrouped
from tilewright.schedule.default import generic_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.schedule.template import get_config, template
from tilewright.search.loop import tune as search
from tilewright.search.report import Options
from tilewright.search.rules.derive import default_sketch
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright_tvm.autotvm.dispatch import ApplyHistoryBest
from tilewright_tvm.relay.contextual import pass_options

__all__ = ["DPTuner", "PBQPTuner"]

MOST_ENTRIES = 1 << 20  # of a table of `DPTuner`: states of a convolution's neighbours together


@template("layout_transform")
def layout_transform(
    data: Tensor, src_layout: str, dst_layout: str
) -> tuple[Schedule, Sequence[Tensor]]:
    """The task of a transformation, by AutoTVM's name: elements are only moved, nothing is open."""
    get_config().add_flop(-1)
    moved = topi.layout_transform(data, src_layout, dst_layout)
    target = Target.current() or Target("llvm")
    return generic_schedule(ComputeDAG([data, moved]), target), [data, moved]


class BaseGraphTuner:
    """Chooses a layout for each convolution of `graph`.

    graph:        the network: a function or a module; what `input_shapes` does not name is a weight
    input_shapes: of its inputs, by name
    records:      of its kernels, or of their convolutions alone, in the layouts to choose from: a
                  log's path, a `Database`, records or pairs of inputs and results
    target_ops:   operators whose layouts are chosen: nn.conv2d, depthwise ones too
    max_sch_num:  layouts of one convolution that take part at most, its fastest
    dtype:        of the inputs; verbose, log_file, log_level, name: of the messages
    Raises ModelError or SpaceError for a network or records without a choice.
    """

    most: int | None = None

    def __init__(
        self,
        graph: IRModule | Function,
        input_shapes: Mapping[str, Sequence[int]],
        records: Any,
        target_ops: Sequence[Op | str],
        target: Target | str,
        max_sch_num: int = 20,
        dtype: str = "float32",
        verbose: bool = True,
        log_file: str | os.PathLike[str] | None = "graph_tuner.log",
        log_level: int = logging.DEBUG,
        name: str = "graph_tuner",
    ) -> None:
        place = type(self).__name__
        names = [op.name if isinstance(op, Op) else op for op in target_ops]
        if set(names) != {"nn.conv2d"}:
            raise SpaceError(
                f"{place}(target_ops={names})", "only convolutions have layouts to choose from",
                'Give [relay.op.get("nn.conv2d")].',
            )  # fmt: skip
        if max_sch_num < 1:
            raise SpaceError(f"{place}(max_sch_num={max_sch_num})", "nothing is left", "Use 20.")
        self.target = resolve_target(target)
        self._max_sch_num = max_sch_num
        self._log = _messages(name, log_level, log_file, verbose)
        self._database = ApplyHistoryBest(records).database
        self._moves = Database()
        self._spellings = (str(self.target), str(target))
        self._look_up()
        module = _with_weights(graph, input_shapes, dtype, place)
        self._module = ungrouped(module, None, replace(pass_options(), opt_level=3))[0]
        self._units = L.units_of(self._module, L.candidate_layouts(self.target))
        self._convolutions = [u for u in self._units if any(map(L.may_choose, u.steps))]
        if not self._convolutions or not L.candidate_layouts(self.target):
            raise ModelError(
                place, f"there is no convolution whose layout could be chosen on {self.target}",
                "Give a network with nn.conv2d and a target of kind llvm.",
            )  # fmt: skip
        # transformations, and kernels that only follow
        rivals = L.rivals(self._module, self.target)
        self._followers = {r.group.key: r.group for r in rivals if not r.instead_of}
        self._rate: float | None = None
        self._chosen: list[int] = []

    # -- what AutoTVM's users call -----------------------------------------------------------------
    def benchmark_layout_transform(
        self,
        min_exec_num: int = 100,
        timeout: float = 10,
        use_rpc: bool = False,
        device_key: str | None = None,
        host: str = "127.0.0.1",
        port: int = 9190,
        n_parallel: int = 1,
        build_func: Any = "default",
        layout_records: Any = None,
        target_host: Any = None,
        infer_layout: bool = False,
        runner: Runner | None = None,
    ) -> None:
        """Measure the transformations between layouts, and what only follows convolutions.

        min_exec_num: runs of each; timeout: in seconds
        use_rpc, device_key, host, port: on a device of a farm; runner: one of the user's
        layout_records: of an earlier time: what is in them is not measured again
        infer_layout: nothing more is measured: time goes by the bytes of what `layout_records` have
        n_parallel, build_func: of the builder; target_host: that of the target
        """
        if layout_records is not None:
            for record, dag in _pairs(ApplyHistoryBest(layout_records).database):
                self._moves.append(record, dag)
            self._look_up()
        missing = [g for g in self._followers.values() if self._evidence.seconds(g.dag) is None]
        if infer_layout:
            known = [
                g for g in self._followers.values() if self._evidence.seconds(g.dag) is not None
            ]
            times = [(self._evidence.seconds(g.dag) or 0.0) / moved_bytes(g.dag) for g in known]
            if not times:
                raise RecordError(
                    "benchmark_layout_transform(infer_layout=True)",
                    "layout_records has no transformation of this network",
                    "Leave infer_layout out: they are measured.",
                )  # fmt: skip
            self._rate = float(np.median(times))
            return
        if not missing:
            return
        tasks = [_default_task(g, self.target) for g in missing]
        builder = LocalBuilder(timeout=timeout, n_parallel=n_parallel, build_func=build_func)
        options = Options(trials=len(tasks), tuner="random", batch=1, leaders=1)
        with ExitStack() as opened:
            own: Any = runner
            if own is None:
                own = _runner(use_rpc, device_key, host, port, min_exec_num, timeout)
                opened.enter_context(own)
            opened.enter_context(builder)
            pipeline = opened.enter_context(Pipeline(builder, own, self._moves))
            search(tasks, pipeline, self._moves, options)
        self._look_up()
        self._log.info("measured %d transformations and followers", len(tasks))

    def run(self, **options: Any) -> None:
        """Choose.  options: accepted for AutoTVM's spelling, where nobody names any.

        Raises SpaceError where a convolution has no record at all.
        """
        if options:
            raise SpaceError(
                f"{type(self).__name__}.run({', '.join(options)})", "it has no options",
                "Call run().",
            )  # fmt: skip
        cost = Costs(self._seconds)
        costs = [self._costs_of(unit, cost) for unit in self._units]
        pairs = transformation_costs(self._units, cost)
        self._chosen, exact = cheapest(costs, pairs, self.most)
        spent = total(self._chosen, costs, pairs)
        self._log.info(
            "%d convolutions: %.1f us by the records%s", len(self._convolutions), spent * 1e6,
            "" if exact else "; not every choice was weighed",
        )  # fmt: skip

    def get_optimal_records(self) -> list[Record]:
        """The record of each convolution, in the order of the network."""
        return [self._record(unit, k) for unit, k in self._decided() if unit in self._convolutions]

    def write_opt_sch2record_file(
        self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log"
    ) -> None:
        """Write them, and behind them what the choice rests on, so that `relay.build` makes it.

        Raises RecordError where the file cannot be written, and where one is there that is no log.
        """
        chosen = self.get_optimal_records()
        place = f"log {os.fspath(record_file)!r}"
        with replacing(record_file, LOG, place, RecordError) as made, Database(made) as log:
            for record in chosen:
                log.append(record, self._database.dag(record.task.dag))
            for group in self._followers.values():
                known = self._evidence.best(group.dag)
                if known is not None:
                    log.append(known, group.dag.to_json())
        self._log.info("wrote %d records to %s", len(chosen), record_file)

    def _look_up(self) -> None:
        """Read all records there are now."""
        sources = [self._database, self._moves]
        self._evidence = Evidence(sources, self._spellings, self.target.fingerprint)

    # -- costs -------------------------------------------------------------------------------------
    def _seconds(self, group: FusedGroup) -> float | None:
        """Of the kernel; of its convolution alone where only that was measured."""
        ask = self._evidence.seconds if group.is_simple else self._evidence.expected_seconds
        found = ask(group.dag)
        if found is None and self._rate is not None and group.key in self._followers:
            found = self._rate * moved_bytes(group.dag)
        return found

    def _costs_of(self, unit: L.Unit, cost: Costs) -> list[float]:
        found = [cost.of_body(o.body) for o in unit.options]
        if unit not in self._convolutions:
            return [0.0 if t == inf and k == 0 else t for k, t in enumerate(found)]
        if min(found) == inf:
            raise SpaceError(
                f"{type(self).__name__}.run", f"no record is one of {L.name_of(unit)}",
                "Tune the convolutions of the network, and of its AlterOpLayout, first.",
            )  # fmt: skip
        kept = sorted(found)[: self._max_sch_num][-1]
        return [t if t <= kept else inf for t in found]

    def _decided(self) -> Iterable[tuple[L.Unit, int]]:
        if not self._chosen:
            raise SpaceError(
                f"{type(self).__name__}.get_optimal_records", "nothing is chosen yet",
                "Call run() first.",
            )  # fmt: skip
        return zip(self._units, self._chosen, strict=True)

    def _record(self, unit: L.Unit, k: int) -> Record:
        """The best of the kernel, else of its convolution alone."""
        (group,) = groups_of_body(unit.options[k].body)
        found = self._evidence.best(group.dag) or self._evidence.best_of_anchor(group.dag)
        assert found is not None  # it had a cost
        return found


class DPTuner(BaseGraphTuner):
    """Weighs every combination of neighbours' layouts, where tables of them stay small."""

    most = MOST_ENTRIES


class PBQPTuner(BaseGraphTuner):
    """Eliminates convolutions with up to two neighbours exactly, others by what they cost at best:
    for networks in which many values meet."""

    most = None


def _messages(
    name: str, level: int, file: str | os.PathLike[str] | None, verbose: bool
) -> logging.Logger:
    """A logger that writes to `file` (None: to none), and to the terminal if `verbose`."""
    log = logging.getLogger(f"tilewright.{name}")
    log.setLevel(level)
    log.propagate = False
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    wanted: list[logging.Handler] = [logging.StreamHandler()] if verbose else []
    if file is not None:
        wanted.append(logging.FileHandler(file, delay=True))
    for handler in wanted or [logging.NullHandler()]:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        log.addHandler(handler)
    return log


def _with_weights(
    graph: IRModule | Function, shapes: Mapping[str, Sequence[int]], dtype: str, place: str
) -> IRModule:
    """The network with numbers for its weights: kernels depend on where they are constants, not on
    what they hold."""
    main = graph["main"] if isinstance(graph, IRModule) else graph
    known = {p.name_hint: p for p in main.params}
    for name, shape in shapes.items():
        if name not in known:
            raise ModelError(
                f"{place}(input_shapes={{{name!r}: ...}})", "the network has no such input",
                f"It has {', '.join(list(known)[:8])}.",
            )  # fmt: skip
        if tuple(shape) != known[name].shape or dtype != known[name].dtype:
            raise ModelError(
                f"{place}(input_shapes={{{name!r}: {tuple(shape)}}})",
                f"the input has type {known[name].checked_type}",
                "Give its shape and dtype, or import the network for the other ones.",
            )  # fmt: skip
    rng = np.random.default_rng(0)
    weights = {
        n: rng.uniform(0.5, 1.5, p.shape).astype(str(p.dtype)) for n, p in known.items()
        if n not in shapes
    }  # fmt: skip
    return bind_params(IRModule({"main": main}), weights)


def _default_task(group: FusedGroup, target: Target) -> Task:
    sketches = [default_sketch(group.dag, target)]
    return Task(group.name, group.args, group.dag, target, sketches)


def _runner(
    use_rpc: bool, key: str | None, host: str, port: int, number: int, timeout: float
) -> LocalRunner | FarmRunner:
    if not use_rpc:
        return LocalRunner(timeout=timeout, number=number, repeat=1)
    if key is None:
        raise SpaceError(
            "benchmark_layout_transform(use_rpc=True)", "device_key is not given",
            "Give the key that the device has in the farm.",
        )  # fmt: skip
    return FarmRunner(key, host, port, timeout=timeout, number=number, repeat=1)


def _pairs(database: Database) -> Iterable[tuple[Record, Any]]:
    return ((record, database.dag(record.task.dag)) for record in list(database))


open_doors(globals(), __all__, SpaceError)

__path__: list[str] = []  # so that imports of other names say what to use, too
