"""`tilewright tune`: its options, those of TVM's `tvmc tune` among them, and how a run ends.

In: a command line.  Out: a call of `front.search`, the command to go on with.
Read next: `../front.py`.
"""

from __future__ import annotations

import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import TilewrightError
from tilewright.base.terminal import say
from tilewright.cli.models import loaded
from tilewright.cli.options import (
    MODEL_HELP,
    File,
    check_log,
    check_positive,
    default_log,
    devices_of,
    farm_options,
    network_options,
    typed_path,
    typed_shapes,
    typed_target,
)
from tilewright.cli.report import after_tuning, report_option

if TYPE_CHECKING:
    from tilewright.targets.target import Target

DEFAULT_MINUTES = 5.0  # as front.MINUTES, which takes longer to import
RULES = "auto-scheduler"
_LAST_SEED = 2**31 - 1  # that all generators of numbers take
_BUILDS = click.IntRange(max=1024)  # processes


class _TunerType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click
    name = "tuner"

    def convert(self, value: Any, param: Any, ctx: Any) -> str:
        from tilewright.search.propose.named import tuner_name

        try:
            return value if value == RULES else tuner_name(value)
        except TilewrightError as error:
            self.fail(f"{error}  Or {RULES}.", param, ctx)


def _check_tasks(ctx: click.Context, param: click.Parameter, value: str) -> str:
    from tilewright.network.tune_network import chosen_tasks

    try:
        chosen_tasks(value, None)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx=ctx, param=param) from None
    return value


def _measuring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How candidates are built and timed."""
    options = (
        ("--number", int, "Runs back to back in each repeat.  [default: 4]"),
        ("--repeat", int, "Repeats; the median counts.  [default: 3]"),
        ("--min-repeat-ms", float, "A repeat lasts as long at least.  [default: 20]"),
        ("--timeout", float, "Seconds for building a candidate, and for timing it.  [default: 10]"),
        ("--parallel", _BUILDS, "Candidates built at once.  [default: one per core]"),
    )
    for name, kind, text in reversed(options):
        command = click.option(name, type=kind, callback=check_positive, help=text)(command)
    return command


@click.command(epilog=MODEL_HELP, short_help="Search for fast kernels for MODEL.")
@network_options
@click.option("--trials", type=int, callback=check_positive, help="Candidates to measure, in all.")
@click.option(
    "--minutes", type=float, callback=check_positive,
    help=f"Time to spend.  [default: {DEFAULT_MINUTES:g}, unless --trials is given]",
)  # fmt: skip
@click.option(
    "--early-stopping", type=int, callback=check_positive,
    help="A task ends after so many candidates without a faster one.",
)  # fmt: skip
@click.option(
    "--log", "--output", "-o", "log", type=File(),
    help="File of the results; more are added to it.  [default: MODEL.TARGET.jsonl]",
)  # fmt: skip
@click.option(
    "--history", "--tuning-records", "history", multiple=True, callback=check_log, type=File(),
    help="Log of other networks or devices, of TVM's perhaps, that the search starts from; several "
    "times for several.",
)  # fmt: skip
@click.option(
    "--tuner", type=_TunerType(), default="xgb", show_default=True,
    help="How candidates are chosen: xgb, xgb_rank, xgb_rank_binary, each also with _knob, "
    "_itervar or _curve for AutoTVM's features; ga, random, gridsearch, droplet; auto-scheduler: "
    "those that rules derive, for every kernel.",
)  # fmt: skip
@click.option(
    "--templates/--no-templates", default=True, show_default=True,
    help="Whether templates compete with the rules of --tuner auto-scheduler.",
)  # fmt: skip
@click.option(
    "--tasks", default="all", callback=_check_tasks, metavar="all|list|N,N-N,...",
    help="Tasks to tune, by their numbers in the list.  [default: all]",
)  # fmt: skip
@click.option(
    "--seed", type=click.IntRange(0, _LAST_SEED), default=0, show_default=True,
    help="Of the search.",
)  # fmt: skip
@_measuring_options
@report_option
@farm_options
@click.option("--builders", metavar="KEY", help="Builders of --farm, which then build instead.")
def tune(
    model: str, target: Target, dtype: str, batch: tuple[int, ...], shape: dict[str, Any],
    layout: str | None, weights: str | None, trials: int | None, minutes: float | None,
    log: Path | None, tuner: str, templates: bool, seed: int, farm: str | None, key: str | None,
    builders: str | None, tasks: str, reports: tuple[Path, ...], **more: Any,
) -> None:  # fmt: skip
    """Search for fast kernels for MODEL and write every result to a log.

    Started again with the same log, it goes on where it was: after Ctrl-C, a crash, or to search
    longer.
    """
    early = None
    if farm is None and tasks != "list" and not target.device_kind.shares_host:
        from tilewright.measure.local import started

        begun = started(target, more["timeout"] or 10.0, more["parallel"])
        early = click.get_current_context().with_resource(begun)  # what follows takes seconds
    from tilewright import front
    from tilewright.measure.database import Database
    from tilewright.models import networks, scripts
    from tilewright.network.tune_network import task_lines
    from tilewright.schedule.task import Task
    from tilewright.search.progress import Progress
    from tilewright.search.propose.prior import import_alone

    networks.check(model)
    if not templates and tuner != RULES:
        raise click.UsageError("--no-templates leaves nothing to search but with auto-scheduler")
    if trials is None and minutes is None:
        minutes = DEFAULT_MINUTES
    seconds = None if minutes is None else minutes * 60
    path = log or default_log(model, target, dtype)
    devices = devices_of(farm, key, builders)

    def load() -> front.Network | Task:
        return loaded(
            model, target, batch=batch, shape=shape, dtype=dtype, layout=layout, weights=weights
        )

    if tasks == "list":
        target = front.as_described(target, devices)
        what = load()
        listed = (
            [what] if isinstance(what, Task) else front.tasks_of(what, target, tuner, templates)
        )
        for line in task_lines(listed):
            click.echo(line)
        return
    search = _search_options(more)
    with (
        Progress(trials, seconds) as progress,
        front.begun(target, devices, search["measuring"], early) as helpers,
        _termination_as_interrupt(),
        Database(path, on_error=front.warn) as database,
    ):
        try:
            if scripts.parts_of(model) is None:
                import_alone()  # nobody else's code runs in this process
                what = load()  # while the device is opened
            target = front.as_described(target, devices, helpers)
            if scripts.parts_of(model) is not None:  # what it declares is for the device
                what = load()
            alone = isinstance(what, Task)
            progress.what = "best" if alone else "network"
            front.search(
                what, None if alone else target, database, trials=trials, seconds=seconds,
                tuner=tuner, templates=templates, tasks=tasks, seed=seed, farm=devices,
                helpers=helpers, progress=progress, **search,
            )  # fmt: skip
        except KeyboardInterrupt:
            progress.note(
                f"Stopped.  {len(database)} results are in {path}; the same command goes on:\n"
                f"  {_command_line()}"
            )
            raise
    after_tuning(reports, path, None if isinstance(what, Task) else what)
    there = [] if farm is None or key is None else ["--farm", farm, "--key", key]
    following = [
        *shlex.split(program()),
        "bench",
        typed_path(model),
        "--target",
        typed_target(target),
    ]
    following += ["--log", typed_path(path), *there]
    following += ["--dtype", dtype] if dtype != "float32" else []
    following += ["--desired-layout", layout] if layout is not None else []
    following += ["--weights", weights] if weights is not None else []
    following += ["--batch", ",".join(map(str, batch))] if batch else []
    say(f"Done.  Next: {shlex.join([*following, *typed_shapes(shape)])}")


def _search_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Early stopping, history, and how candidates are measured, where that was given."""
    from tilewright.network.tune import Measuring

    timing = ("number", "repeat", "min_repeat_ms", "timeout", "parallel")
    measuring = Measuring(**{name: given[name] for name in timing if given[name] is not None})
    return {
        "early_stopping": given["early_stopping"], "history": given["history"],
        "measuring": measuring,
    }  # fmt: skip


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """A request to terminate ends the run as Ctrl-C does: with everything written."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # only that may set handlers
        yield
        return
    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _command_line() -> str:
    return f"{program()} {shlex.join(sys.argv[1:])}"


def program() -> str:
    """Give what a shell runs as this command here."""
    return "tilewright" if shutil.which("tilewright") else "python -m tilewright"
