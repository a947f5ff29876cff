"""The commands and their options; every one imports what it needs when it runs.

In: a command line.  Out: calls into `network.py` (tune, bench), tables, an exit code: 0, 1 for an
error that is told in one line, 2 for a wrong option, 130 after Ctrl-C.  Read next: `network.py`.
"""

from __future__ import annotations

import errno
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from tilewright.base.errors import TilewrightError
from tilewright.base.terminal import say
from tilewright.cli.farm import farm
from tilewright.cli.import_logs import import_logs
from tilewright.targets.kind import kinds
from tilewright.targets.target import Target

MODEL_HELP = "MODEL is resnet-18, resnet-18-v1, mobilenet, another network's name, or FILE.onnx."
DEFAULT_MINUTES = 5.0
_OUTPUT_LOST = (errno.EPIPE, errno.ENOSPC, errno.EIO, errno.EBADF)


def main(args: Sequence[str] | None = None) -> None:
    """Run a command line (default: `sys.argv`) and exit."""
    try:
        cli.main(args=args, prog_name="tilewright", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except TilewrightError as error:
        if isinstance(error.__context__, TilewrightError):  # closing the log failed after it
            say(f"error: {error.__context__}", stream=sys.stderr)
        say(f"error: {error}", stream=sys.stderr)
        _end_output()
        sys.exit(1)
    except OSError as error:  # rooms wrap those of files in a TilewrightError
        if error.errno not in _OUTPUT_LOST:
            raise
        if error.errno != errno.EPIPE:  # | head
            say(f"error: standard output: {error.strerror}", stream=sys.stderr)
        _end_output()
        sys.exit(1)
    _end_output()


def _end_output() -> None:
    """Where standard output is full or closed, Python shall not try it again at exit."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tilewright")
def cli() -> None:
    """Tune networks for the device at hand, and run them with what was found."""


cli.add_command(farm)


class _TargetType(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions of click
    name = "target"

    def convert(self, value: Any, param: Any, ctx: Any) -> Target:
        try:
            return Target(value)
        except (TilewrightError, ValueError) as error:
            self.fail(str(error), param, ctx)


def _check_positive(ctx: click.Context, param: click.Parameter, value: float | None) -> Any:
    if value is not None and not value > 0:
        raise click.BadParameter(f"{value:g} is not more than zero", ctx=ctx, param=param)
    return value


def _check_log(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and not value.exists():
        raise click.BadParameter(
            f"there is no file {str(value)!r}; `tilewright tune` writes one", ctx=ctx, param=param
        )
    return value


_target = click.option(
    "--target", type=_TargetType(), default="llvm", show_default=True,
    help=f"{', '.join(k.name for k in kinds())}, perhaps with options: 'cuda -arch=sm_90'.",
)  # fmt: skip


def _farm_options(command: Any) -> Any:
    """--farm and --key, given as one value `farm`."""
    place = click.option(
        "--farm", metavar="HOST:PORT",
        help="Tracker whose devices are used, instead of this machine's; see `tilewright farm`.",
    )  # fmt: skip
    key = click.option("--key", help="Which devices of --farm.")
    return place(key(command))


def _farm(place: str | None, key: str | None) -> Any:
    """Where the two options lead; None: to this machine.  Raises DeviceError for no address."""
    from tilewright.farm.address import Devices, parsed

    if (place is None) != (key is None):
        raise click.UsageError("--farm and --key belong together")
    return None if place is None or key is None else Devices(key, *parsed(place))


_dtype = click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), default="float32",
    show_default=True, help="Element type of contractions and what follows; sums stay float32.",
)  # fmt: skip


def _sizes(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")] if value else []
    if not all(part.isdigit() and int(part) for part in parts) or len({*parts}) < len(parts):
        raise click.BadParameter(f"{value!r} is no list such as 1,8,32", ctx=ctx, param=param)
    return tuple(map(int, parts))


_batch = click.option(
    "--batch", default="", callback=_sizes, metavar="N,N,...",
    help="Batch sizes, the first extent of each input.  [default: that of MODEL]",
)  # fmt: skip


def _shapes(ctx: click.Context, param: click.Parameter, value: Sequence[str]) -> dict[str, Any]:
    """`data:[1,3,224,224]`, several of them, or `batch:8` for an extent that has a name, or
    `seq:64,128` for several sizes of it."""
    found: dict[str, Any] = {}
    for text in (word for given in value for word in given.split()):
        name, _, extents = text.rpartition(":")  # names of inputs may have colons
        inner = extents.removeprefix("[").removesuffix("]")
        parts = inner.split(",") if inner else []
        is_list = extents == f"[{inner}]"
        if not name or not all(p.isdigit() for p in parts) or not (is_list or parts):
            raise click.BadParameter(
                f"{text!r} is no shape such as data:[1,3,224,224]", ctx=ctx, param=param
            )
        numbers = [int(p) for p in parts]
        found[name] = tuple(numbers) if is_list else numbers if len(numbers) > 1 else numbers[0]
    return found


_shape = click.option(
    "--shape", multiple=True, callback=_shapes, metavar="NAME:[N,N,...]",
    help="Shape of an input of FILE.onnx, or NAME:N for an extent that has a name, NAME:N,N,... "
    "for several sizes of it; for each that the file leaves open.",
)  # fmt: skip


@cli.command(epilog=MODEL_HELP)
@click.argument("model")
@_target
@_dtype
@_batch
@_shape
@click.option("--trials", type=int, callback=_check_positive, help="Candidates to measure, in all.")
@click.option(
    "--minutes", type=float, callback=_check_positive,
    help=f"Time to spend.  [default: {DEFAULT_MINUTES:g}, unless --trials is given]",
)  # fmt: skip
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path),
    help="File of the results; more are added to it.  [default: MODEL.TARGET.jsonl]",
)  # fmt: skip
@click.option(
    "--tuner", type=click.Choice(["xgb", "random", "auto-scheduler"]), default="xgb",
    show_default=True,
    help="How candidates are chosen; auto-scheduler: those that rules derive, for every kernel.",
)  # fmt: skip
@click.option(
    "--templates/--no-templates", default=True, show_default=True,
    help="Whether templates compete with the rules of --tuner auto-scheduler.",
)  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True, help="Of the search.")
@_farm_options
def tune(
    model: str, target: Target, dtype: str, batch: tuple[int, ...], shape: dict[str, Any],
    trials: int | None, minutes: float | None, log: Path | None, tuner: str, templates: bool,
    seed: int, farm: str | None, key: str | None,
) -> None:  # fmt: skip
    """Search for fast kernels for MODEL and write every result to a log.

    Started again with the same log, it goes on where it was: after Ctrl-C, a crash, or to search
    longer.
    """
    from tilewright.cli import network
    from tilewright.cli.progress import Progress
    from tilewright.measure.database import Database

    network.check_model(model)
    if not templates and tuner != "auto-scheduler":
        raise click.UsageError("--no-templates leaves nothing to search but with auto-scheduler")
    if trials is None and minutes is None:
        minutes = DEFAULT_MINUTES
    seconds = None if minutes is None else minutes * 60
    path = log or default_log(model, target, dtype)
    devices = _farm(farm, key)
    target = network.real_target(target, devices)
    with (
        Database(path, on_error=_warn) as database,
        Progress(trials, seconds) as progress,
        _termination_as_interrupt(),
    ):
        progress.note(f"tuning {model} for {target}, results in {path} ({len(database)} so far)")
        for told in database.skipped.told():
            progress.note(f"{path}: skipped {told}")
        try:
            network.tune(
                model, target, database, trials=trials, seconds=seconds, tuner=tuner,
                dtype=dtype, batch=batch, shapes=shape, templates=templates, seed=seed,
                farm=devices, progress=progress,
            )  # fmt: skip
        except KeyboardInterrupt:
            progress.note(
                f"Stopped.  {len(database)} results are in {path}; the same command goes on:\n"
                f"  {_command_line()}"
            )
            raise
    following = ["tilewright", "bench", model, "--target", str(target), "--log", str(path)]
    following += ["--dtype", dtype] if dtype != "float32" else []
    for name, given in shape.items():
        given = given[0] if isinstance(given, list) else given  # one of the sizes
        extents = given if isinstance(given, int) else f"[{','.join(map(str, given))}]"
        following += ["--shape", f"{name}:{extents}"]
    say(f"Done.  Next: {shlex.join(following)}")


@cli.command(epilog=MODEL_HELP)
@click.argument("model")
@_target
@_dtype
@_shape
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), callback=_check_log,
    help="Log of `tune`.  [default: MODEL.TARGET.jsonl where it exists]",
)  # fmt: skip
@_farm_options
def bench(
    model: str, target: Target, dtype: str, shape: dict[str, Any], log: Path | None,
    farm: str | None, key: str | None,
) -> None:  # fmt: skip
    """Time MODEL untuned, tuned, and in other engines, and compare what they compute.

    With --farm, time it on a device there, as it is after tuning.
    """
    from tilewright.auto_scheduler.records import check_history
    from tilewright.cli import network, tables
    from tilewright.measure.database import Database

    network.check_model(model)
    path = log or default_log(model, target, dtype)
    devices = _farm(farm, key)
    target = network.real_target(target, devices)
    if devices is not None:
        used = path if path.exists() else None
        click.echo(network.bench_there(model, target, used, devices, dtype, shape))
        return
    database = Database.load(path) if path.exists() else None
    if database is not None:
        check_history(database, path, target, f"a kernel of {model}")
    else:
        click.echo(f"There is no log {path}: only the untuned network is timed.", err=True)
    report = network.bench(model, target, database, dtype, shape)
    tables.print_bench(report)
    if not report.correct:
        raise click.ClickException("the results differ by more than rounding explains")


@cli.command("compile", epilog=MODEL_HELP)
@click.argument("model")
@_target
@_dtype
@_batch
@_shape
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), callback=_check_log,
    help="Log of `tune`.  [default: MODEL.TARGET.jsonl where it exists]",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="File that runtime.load_module reads: .so or .tar.  [default: MODEL.TARGET.tar]",
)  # fmt: skip
def compile_command(
    model: str, target: Target, dtype: str, batch: tuple[int, ...], shape: dict[str, Any],
    log: Path | None, output: Path | None,
) -> None:  # fmt: skip
    """Build MODEL with the best that is known, and write one file that runs without the compiler.

    With several batch sizes, the file holds kernels for each of them.
    """
    from tilewright.cli import network

    network.check_model(model)
    path = log or default_log(model, target, dtype)
    made = output or default_log(model, target, dtype).with_suffix(".tar")
    target = network.real_target(target)
    used = path if path.exists() else None
    if used is None:
        click.echo(f"There is no log {path}: the kernels are untuned.", err=True)
    library = network.compile_model(model, target, used, made, dtype, batch, shape)
    say(library.report.summary())
    say(f"Done.  The library is in {made}: {library!r}")


@cli.command("runtime-archive")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--server", is_flag=True, help="With the server of a farm; the board needs Dask, too."
)
def runtime_archive(file: Path, server: bool) -> None:
    """Write the runtime alone to FILE, for boards: Python with numpy is all that it needs there.

    Put it into PYTHONPATH to use it, or run it: `python FILE` tells what the board is.
    """
    from tilewright.driver.archive import write_runtime

    say(f"{file}: {write_runtime(file, server) / 1e3:.0f} KB.  Copy it to the board.")


class _WithDefault(click.Group):
    """A group whose command `show` may be left out: `records FILE` is `records show FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@cli.group(cls=_WithDefault)
def records() -> None:
    """Tell what a log holds (`records FILE`), cut it down to the best (`records distill FILE`), or
    make one from TVM's (`records import OLD`).
    """


records.add_command(import_logs)


@records.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), callback=_check_log)
@click.option("--failures", default=12, show_default=True, help="Rows of the failure table.")
@click.option(
    "--pick-best", type=click.Path(dir_okay=False, path_type=Path),
    help="Write the best record of each task to this file (merged with what it holds).",
)  # fmt: skip
def show(file: Path, failures: int, pick_best: Path | None) -> None:
    """Tell what a log holds: best result per task, counts, why candidates failed."""
    from tilewright.cli import tables
    from tilewright.measure.database import Database
    from tilewright.measure.database import pick_best as pick

    tables.print_records(Database.load(file), failures)
    if pick_best is not None:
        click.echo(f"{pick(file, pick_best)} best records are in {pick_best}")


@records.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), callback=_check_log)
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path),
    help="Where to; merged with what it holds.  [default: FILE.best.json]",
)  # fmt: skip
def distill(file: Path, output: Path | None) -> None:
    """Write the best record of each task to a file of its own."""
    from tilewright.measure.database import pick_best

    output = output or Path(f"{file}.best.json")
    click.echo(f"{pick_best(file, output)} best records are in {output}")


@cli.command()
def doctor() -> None:
    """Try every compiler and device, and say what to do about those that do not work.

    The exit code is 0 when kernels can be compiled and run on some device.
    """
    from tilewright.cli import tables
    from tilewright.driver.doctor import diagnose

    findings = diagnose()
    tables.print_findings(findings)
    if not any(f.works and f.what.startswith("device") for f in findings):
        sys.exit(1)


def _warn(error: TilewrightError) -> None:
    say(f"warning: {error}", stream=sys.stderr)


def default_log(model: str, target: Target, dtype: str = "float32") -> Path:
    """Where `tune` and `bench` look when no --log is given."""
    name = Path(model).stem if model.endswith(".onnx") else model
    kind = "" if dtype == "float32" else f".{dtype}"
    return Path(f"{name}.{target.kind}{kind}.jsonl")


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
    return shlex.join(["tilewright", *sys.argv[1:]])
