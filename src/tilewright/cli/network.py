"""What `tune` and `bench` do with a network, by calls into the rooms below.

In: the name or file of a model, a target, a database.  Out: more records; a `BenchReport`.
Read next: the rooms `search` and `relay`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError
from tilewright.cli.layouts import in_layout
from tilewright.cli.tables import task_label
from tilewright.targets.target import Target

if TYPE_CHECKING:
    from tilewright.cli.progress import Progress, TaskRow
    from tilewright.cli.tables import BenchReport
    from tilewright.farm.address import Devices
    from tilewright.measure.database import Database
    from tilewright.relay.compile.tune import Measuring
    from tilewright.runtime.network.library import Library
    from tilewright.schedule.task import Task
    from tilewright.search.report import Options


def check_model(model: str) -> None:
    """Raises ModelError for a name that is no network and a file that is not there."""
    from tilewright.relay.exchange.networks import check

    check(model)


def load_model(model: str, shapes: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """The network as `(mod, params)`; shapes: of the inputs of a file.  Raises ModelError."""
    from tilewright.relay.exchange.networks import load

    return load(model, shapes)


def load_sizes(
    model: str, batch: Sequence[int], shapes: Mapping[str, Any] | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """The network for each batch size and each number of its open extents.  Raises ModelError."""
    from tilewright.relay.exchange.networks import load_sizes as load

    return load(model, batch, shapes)


def in_type(mod: Any, params: dict[str, Any], dtype: str) -> Any:
    """The network with its weights inside and its contractions in `dtype`.

    Batch norms are folded before anything is rounded.  Raises ModelError.
    """
    from tilewright.relay.passes import PASSES, fold_constants, fuse, optimize
    from tilewright.relay.passes.mixed_precision import to_mixed_precision

    folded = optimize(mod, params, [p for p in PASSES if p is not fuse])
    return fold_constants(to_mixed_precision(folded, dtype))


def prepared(
    model: str, batch: Sequence[int], shapes: Mapping[str, Any] | None, dtype: str,
    layout: str | None,
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """The network for each size, in its element type and layout.  Raises ModelError."""
    mods, params = load_sizes(model, batch, shapes)
    if dtype != "float32":
        mods, params = [in_type(mod, params, dtype) for mod in mods], {}
    return [in_layout(mod, layout) for mod in mods], params


def real_target(target: Target, farm: Devices | None = None) -> Target:
    """`target` with what the device reports.  Raises TargetError or DeviceError without one."""
    from tilewright.relay.compile.tune import as_described

    return as_described(target, farm)


def found_tasks(
    model: str, target: Target, tuner: str, dtype: str = "float32", batch: Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None, layout: str | None = None, templates: bool = True,
    options: Options | None = None,
) -> list[Task]:  # fmt: skip
    """The tasks of the network, see `tune`; with options, in the layouts that the budget allows
    to compare, see `with_layouts`.  Raises ModelError where there is none."""
    from tilewright.relay.compile.tune import tasks_of, with_layouts

    mods, params = prepared(model, batch, shapes, dtype, layout)
    found = tasks_of(mods, params, target, tuner == "auto-scheduler", templates)
    if not found:
        raise ModelError(
            f"tune {model!r}", "no kernel of the network has a template to tune",
            "--tuner auto-scheduler needs none.",
        )  # fmt: skip
    if options is None:
        return found
    rules = tuner == "auto-scheduler"
    return with_layouts(found, mods, params, target, options, rules, templates)


def list_tasks(model: str, target: Target, **what: Any) -> list[str]:
    """A line for each task, with the number that `tune(tasks=)` takes."""
    found = found_tasks(model, target, **what)
    return [
        f"{k:3d}  {task_label(task)}  x{task.weight}  "
        f"{sum(s.space.range_length for s in task.sketches):,} candidates"
        for k, task in enumerate(found)
    ]


def chosen_tasks(text: str, count: int | None) -> list[int]:
    """Numbers of tasks, as "all", "3" or "0,2-4" say it.

    count: how many there are, None: not known yet.  Raises ValueError for what is no such list
    """
    if text in ("all", "list"):
        return list(range(count or 0))
    chosen: list[int] = []
    for part in text.replace(" ", ",").split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(part) > 12:
            raise ValueError(f"{text!r} is no list such as 0,2-4, all or list")
        end = int(last) if dash else int(first)
        if end < int(first) or (count is not None and end >= count):
            raise ValueError(
                f"{part!r}: there are tasks 0 to {'?' if count is None else count - 1}"
            )
        chosen += range(int(first), min(end, 10**6) + 1)
    return list(dict.fromkeys(chosen))


def tune(
    model: str,
    target: Target,
    database: Database,
    *,
    trials: int | None,
    seconds: float | None,
    tuner: str,
    dtype: str = "float32",
    batch: Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    layout: str | None = None,
    templates: bool = True,
    seed: int,
    tasks: str = "all",
    early_stopping: int | None = None,
    history: Sequence[Path] = (),
    measuring: Measuring | None = None,
    farm: Devices | None = None,
    progress: Progress,
) -> None:
    """Tune every task of the network until `trials` candidates or `seconds` are spent.

    dtype:     of contractions and what follows them
    batch:     sizes to tune it for; none: as it is
    shapes:    of the inputs of a file, by name
    layout:    of convolutions; None: as the network has them
    tuner:     "auto-scheduler" tunes every kernel, by rules; others those that have a template
    templates: whether templates compete with rules
    tasks:     which of them, see `chosen_tasks`; all: of other layouts, too
    early_stopping: a task ends after so many candidates without a faster one
    history:   logs of other networks or devices to start from
    farm:      where candidates are timed, instead of this machine's device
    Raises SearchError where every trial failed.
    Calls `progress.start(rows)` once, `progress.record(index, record)` for each result, and
    `progress.again()` for each leader that is timed again.
    """
    from tilewright.relay.compile.tune import tune as search
    from tilewright.search.report import Event, Options
    from tilewright.search.transfer import read_history

    options = Options(
        trials=trials, seconds=seconds, tuner="xgb" if tuner == "auto-scheduler" else tuner,
        seed=seed, early_stopping=early_stopping,
    )  # fmt: skip
    others = options if tasks == "all" and layout is None else None
    every = found_tasks(model, target, tuner, dtype, batch, shapes, layout, templates, others)
    try:
        found = [every[k] for k in chosen_tasks(tasks, len(every))]
    except ValueError as error:
        raise ModelError(
            f"tune {model!r}, --tasks", str(error), "--tasks list shows them."
        ) from None
    past = read_history(history, every) if history else None
    progress.start([_row(task, database) for task in found])

    def on_event(event: Event) -> None:
        if event.kind == "trial" and event.record is not None:
            progress.record(event.task, event.record)
        elif event.message:
            progress.note(event.message)
        elif event.kind == "final":
            progress.again()
        else:
            progress.redraw()

    report = search(
        found, database, options, on_event, lambda e: progress.note(str(e)), farm, progress.note,
        past, measuring,
    )  # fmt: skip
    progress.settle([told.best_seconds for told in report.tasks])
    for told in report.tasks:
        if told.fruitless:
            label = task_label(told.task)
            progress.note(
                f"{label} keeps its default: none of {told.trials} candidates was valid.  "
                f"The last: {told.failure}"
            )
    if report.interrupted:
        raise KeyboardInterrupt
    report.check()
    if all(t.exhausted for t in report.tasks):
        progress.note("Every sensible candidate of every task has been measured.")


def compile_model(
    model: str,
    target: Target,
    log: Path | None,
    output: Path,
    dtype: str,
    batch: Sequence[int],
    shapes: Mapping[str, Any] | None = None,
    layout: str | None = None,
) -> Library:
    """Build the network with the best records of `log`, and write it to `output`."""
    from tilewright.relay.compile.build import build

    mods, params = prepared(model, batch, shapes, dtype, layout)
    library = build(mods, target, params, None if log is None else str(log))
    library.export_library(output)
    return library


def _row(task: Task, database: Database) -> TaskRow:
    """A task with what earlier runs left in the log; leaders timed again count once, what other
    programs measured does not.
    """
    from tilewright.cli.progress import TaskRow
    from tilewright.foreign.tvm_logs import is_imported
    from tilewright.search.jobs import task_id

    identity = task_id(task)
    known = [r for r in database.query(identity) if not r.result.final and not is_imported(r)]
    best = database.best(identity)
    failed = sum(r.result.error is not None for r in known)
    seconds = None if best is None else best.seconds
    return TaskRow(
        task_label(task), task.weight, task.flop, len(known), failed, seconds, task.family
    )


def bench(
    model: str,
    target: Target,
    database: Database | None,
    dtype: str = "float32",
    shapes: Mapping[str, Any] | None = None,
    layout: str | None = None,
) -> BenchReport:
    """Time the network untuned, with the best records, and in onnxruntime and PyTorch if there."""
    from tilewright.cli.bench import bench_network

    mod, params = load_model(model, shapes)
    narrow = None if dtype == "float32" else (dtype, in_type(mod, params, dtype))
    return bench_network(model, mod, params, target, database, narrow, layout)


def bench_there(
    model: str,
    target: Target,
    log: Path | None,
    farm: Devices,
    dtype: str = "float32",
    shapes: Mapping[str, Any] | None = None,
    layout: str | None = None,
) -> str:
    """Build the network here, run it on a device of the farm, and tell how long it takes there.

    Inputs are drawn at random, of integers zeros.  Raises DeviceError without a free device.
    """
    import tempfile

    import numpy as np

    from tilewright.base.dtype import DType
    from tilewright.farm.session import request_remote
    from tilewright.relay.compile.build import build
    from tilewright.runtime.network.graph_executor import GraphModule

    mod, params = load_model(model, shapes)
    if dtype != "float32":
        mod, params = in_type(mod, params, dtype), {}
    library = build(in_layout(mod, layout), target, params, None if log is None else str(log))
    rng = np.random.default_rng(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        request_remote(farm.key, farm.host, farm.port, timeout=600) as remote,
    ):
        path = Path(folder, "network.tar")
        library.export_library(path)
        remote.upload(path)
        device = remote.device(str(target.kind))
        loaded: Any = remote.load_module(path.name)
        module = GraphModule(loaded["default"](device))
        for spec in library.plan.inputs:
            drawn = rng.standard_normal(spec.shape) if DType(spec.dtype).is_float else np.zeros(1)
            module.set_input(spec.name, np.broadcast_to(drawn, spec.shape).astype(spec.dtype))
        module.run()
        return f"{library!r} on {device}\n{module.benchmark(device, repeat=5, min_repeat_ms=100)}"
