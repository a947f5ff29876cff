"""What `tune` and `bench` do with a network, by calls into the rooms below.

In: the name or file of a model, a target, a database.  Out: more records; a `BenchReport`.
Read next: the rooms `search` and `relay`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError, named
from tilewright.cli.files import check_model as check_model
from tilewright.targets.target import Target

if TYPE_CHECKING:
    from tilewright.cli.tables import BenchReport
    from tilewright.farm.address import Devices
    from tilewright.measure.database import Database
    from tilewright.network.tune import Measuring
    from tilewright.runtime.network.library import Library
    from tilewright.schedule.task import Task
    from tilewright.search.progress import Progress
    from tilewright.search.report import Options


def check_output(file: Path) -> None:
    """Raises ModelError for what `compile` must not write, before it builds for minutes."""
    from tilewright.base import output
    from tilewright.runtime.own_files import LIBRARY

    place = f"compile -o {file}"
    if file.suffix not in (".so", ".tar"):
        raise ModelError(place, "its name says no kind of library", "End it in .so or .tar.")
    output.check(file, LIBRARY, place, ModelError)


def load_sizes(
    model: str, batch: Sequence[int] = (), shapes: Mapping[str, Any] | None = None
) -> tuple[list[Any], dict[str, Any]]:
    """The network for each batch size and each number of its open extents.  Raises ModelError."""
    from tilewright.models.networks import load_sizes as load

    with named(model, "from_onnx", f"from_onnx({model!r})", f"network {model!r}", "batch_sizes"):
        return load(model, batch, shapes)


def prepared(
    model: str, batch: Sequence[int], shapes: Mapping[str, Any] | None, dtype: str,
    layout: str | None,
) -> tuple[list[Any], dict[str, Any]]:  # fmt: skip
    """The network for each size, in its element type and layout.  Raises ModelError."""
    from tilewright.network.conversion import converted

    mods, params = load_sizes(model, batch, shapes)
    return converted(mods, params, dtype, layout)


def real_target(target: Target, farm: Devices | None = None) -> Target:
    """`target` with what the device reports.  Raises TargetError or DeviceError without one."""
    from tilewright.network.tune import as_described

    return as_described(target, farm)


def found_tasks(
    model: str, target: Target, tuner: str, dtype: str = "float32", batch: Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None, layout: str | None = None, templates: bool = True,
    options: Options | None = None,
) -> list[Task]:  # fmt: skip
    """The tasks of the network, see `tune`; with options, in the layouts that the budget allows
    to compare, see `with_layouts`.  Raises ModelError where there is none."""
    from tilewright.network.tune_network import network_tasks

    mods, params = prepared(model, batch, shapes, dtype, layout)
    return network_tasks(mods, params, target, tuner, templates, options, f"tune {model!r}")


def list_tasks(model: str, target: Target, **what: Any) -> list[str]:
    """A line for each task, with the number that `tune(tasks=)` takes."""
    from tilewright.network.tune_network import task_lines

    return task_lines(found_tasks(model, target, **what))


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
    """
    from tilewright.network.tune_network import chosen_tasks, network_tasks, tune_network
    from tilewright.search.report import Options

    options = Options(
        trials=trials, seconds=seconds, tuner="xgb" if tuner == "auto-scheduler" else tuner,
        seed=seed, early_stopping=early_stopping,
    )  # fmt: skip
    others = options if tasks == "all" and layout is None else None
    mods, params = prepared(model, batch, shapes, dtype, layout)
    every = network_tasks(mods, params, target, tuner, templates, others, f"tune {model!r}")
    try:
        found = [every[k] for k in chosen_tasks(tasks, len(every))]
    except ValueError as error:
        raise ModelError("--tasks", str(error), "--tasks list shows them.") from None
    so_far = f"results in {database.path} ({len(database)} so far)"
    progress.note(f"tuning {model} for {target}, {so_far}")
    tune_network(
        found, database, options, networks=mods, params=params, history=history, history_of=every,
        measuring=measuring, farm=farm, progress=progress,
    )  # fmt: skip


def schedules_of(log: Path, target: Target) -> Any:
    """What a log, ours or AutoTVM's, has for kernels of `target`.

    Raises RecordError for one that has something, but nothing for this target.
    """
    from tilewright.measure.database import Database
    from tilewright.measure.sources import check_history, source_of
    from tilewright.runtime.device import local_target

    source = source_of(log)
    if isinstance(source, Database):
        here, _ = local_target(target)
        known = {t.target for t in source.tasks()}
        check_history(source, log, here if str(here) in known else target, "a kernel")
    return source


def compile_model(
    model: str,
    target: Target,
    schedules: Any,
    output: Path,
    networks: tuple[list[Any], dict[str, Any]],
) -> Library:
    """Build the network with the best that `schedules` know, and write it to `output`.

    networks: those of `prepared`
    """
    from tilewright.network.build import build

    mods, params = networks
    with named(model, "relay.build"):
        library = build(mods, target, params, schedules)
    name = str(output)
    inner = (f"export_library({file!r})" for file in (name, output.name, "net.so"))
    with named(f"-o {name}", *inner):
        library.export_library(output)
    return library


def bench(
    model: str,
    target: Target,
    database: Database | None,
    networks: tuple[list[Any], dict[str, Any]],
    dtype: str = "float32",
    layout: str | None = None,
) -> Iterator[BenchReport]:
    """Time the network untuned, with the best records, and in onnxruntime and PyTorch if there,
    once for each size of it.

    networks: those of `load_sizes`
    """
    from tilewright.cli.bench import bench_network
    from tilewright.network.conversion import in_type

    mods, params = networks
    for mod in mods:
        inputs = [p for p in mod["main"].params if p.name_hint not in params]
        sizes = " ".join(f"{p.name_hint}:[{','.join(map(str, p.shape))}]" for p in inputs)
        title = model if len(mods) == 1 else f"{model}, {sizes}"
        narrow = None if dtype == "float32" else (dtype, in_type(mod, params, dtype))
        with named(model, "relay.build"):
            yield bench_network(title, mod, params, target, database, narrow, layout)


def bench_there(
    model: str,
    target: Target,
    log: Path | None,
    farm: Devices,
    dtype: str = "float32",
    batch: Sequence[int] = (),
    shapes: Mapping[str, Any] | None = None,
    layout: str | None = None,
) -> Iterator[str]:
    """Build the network here, run it on a device of the farm, and tell how long it takes there,
    for each of its sizes.

    Inputs are drawn at random, of integers zeros.  Raises DeviceError without a free device.
    """
    import tempfile

    from tilewright.farm.network_there import network_there
    from tilewright.network.build import build
    from tilewright.runtime.network.archives import complete

    mods, params = prepared(model, batch, shapes, dtype, layout)
    with named(model, "relay.build"):
        library = build(mods, target, params, None if log is None else str(log))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.tar")
        library.export_library(path)
        with network_there(farm, path, str(target.kind)) as (module, device):
            yield f"{library!r} on {device}"
            for plan in library.plans:
                module.run(**complete({}, plan.inputs, "random", f"bench {model!r}"))
                if len(library.plans) > 1:
                    yield ", ".join(map(str, plan.inputs))
                yield str(module.benchmark(device, repeat=5, min_repeat_ms=100))
