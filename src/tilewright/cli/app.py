"""The commands and their options; every one imports what it needs when it runs.

In: a command line.  Out: calls of `front.py`, tables, an exit code: 0, 1 for an error that is
told in one line, 2 for a wrong option, 130 after Ctrl-C.
Read next: `tune.py`, `deploy.py`, `../front.py`.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import TilewrightError, named
from tilewright.base.terminal import say
from tilewright.cli.deploy import compile_command, run
from tilewright.cli.farm import farm
from tilewright.cli.import_logs import import_logs
from tilewright.cli.knowledge import publish_logs, use_knowledge
from tilewright.cli.models import loaded, network
from tilewright.cli.options import (
    MODEL_HELP,
    File,
    check_log,
    default_log,
    devices_of,
    farm_options,
    log_option,
    network_options,
)
from tilewright.cli.report import after_bench, report, report_option
from tilewright.cli.tune import tune

if TYPE_CHECKING:
    from tilewright.targets.target import Target

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
        before = None if error.__suppress_context__ else error.__context__
        # Closing the log failed after it; what says the same in other words is one error.
        if isinstance(before, TilewrightError) and before.reason != error.reason:
            say(f"error: {before.in_command()}", stream=sys.stderr)
        say(f"error: {error.in_command()}", stream=sys.stderr)
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


for _command in (tune, report, compile_command, run, farm):
    cli.add_command(_command)


@cli.command(epilog=MODEL_HELP, short_help="Time MODEL untuned, tuned, and in other engines.")
@network_options
@log_option
@report_option
@farm_options
def bench(
    model: str, target: Target, dtype: str, batch: tuple[int, ...], shape: dict[str, Any],
    layout: str | None, weights: str | None, log: Path | None, reports: tuple[Path, ...],
    farm: str | None, key: str | None,
) -> None:  # fmt: skip
    """Time MODEL untuned, tuned, and in other engines, and compare what they compute.

    With several sizes, once for each.  With --farm, time it on a device there, as it is after
    tuning.
    """
    from tilewright import front
    from tilewright.cli import tables
    from tilewright.cli.bench import bench_network, bench_task, bench_there
    from tilewright.measure.database import Database
    from tilewright.measure.sources import check_history
    from tilewright.models import networks
    from tilewright.schedule.task import Task

    networks.check(model)
    path = log or default_log(model, target, dtype)
    devices = devices_of(farm, key)
    if reports and (devices is not None or len(batch) > 1):
        raise click.UsageError("--report is of one size on a device of this machine")
    target = front.as_described(target, devices)
    if devices is not None:
        net = network(
            model, target, batch=batch, shape=shape, dtype=dtype, layout=layout, weights=weights
        )
        for told in bench_there(net, target, path if path.exists() else None, devices):
            click.echo(told)
        return
    database = Database.load(path) if path.exists() else None
    if database is not None:
        check_history(database, path, target, f"a kernel of {model}")
    correct = True
    given: dict[str, Any] = {
        "batch": batch, "shape": shape, "dtype": dtype, "layout": layout, "weights": weights,
    }  # fmt: skip
    what = loaded(model, target, **given, as_it_is=True)
    if database is None:
        click.echo(f"There is no log {path}: only what is untuned is timed.", err=True)
    for one in [what] if isinstance(what, Task) else what.each():
        if isinstance(one, Task):
            found = bench_task(one, database, model)
        else:
            found = bench_network(one, target, database, dtype, layout, weights)
        tables.print_bench(found)
        correct &= found.correct
        after_bench(reports, found, path if database is not None else None)
    if not correct:
        raise click.ClickException("the results differ by more than rounding explains")


@cli.command("runtime-archive", short_help="Write the runtime alone to FILE, for boards.")
@click.argument("file", type=File())
@click.option(
    "--server", is_flag=True, help="With the server of a farm; the board needs Dask, too."
)
def runtime_archive(file: Path, server: bool) -> None:
    """Write the runtime alone to FILE, for boards: Python with numpy is all that it needs there.

    Put it into PYTHONPATH to use it, or run it: `python FILE` tells what the board is.
    """
    from tilewright.driver.archive import write_runtime

    with named(str(file), f"write_runtime({str(file)!r})"):
        size = write_runtime(file, server)
    say(f"{file}: {size / 1e3:.0f} KB.  Copy it to the board.")


class _WithDefault(click.Group):
    """A group whose command `show` may be left out: `records FILE` is `records show FILE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@cli.group(cls=_WithDefault, short_help="Tell what a log holds, distil it, share it.")
def records() -> None:
    """Tell what a log holds (`records FILE`), cut it down to the best (`records distill FILE`), or
    make one from TVM's (`records import OLD`).
    """


records.add_command(import_logs)
records.add_command(publish_logs)
records.add_command(use_knowledge)


@records.command(short_help="Tell what a log holds; `show` may be left out.")
@click.argument("file", type=File(), callback=check_log)
@click.option(
    "--failures", type=click.IntRange(0), default=12, show_default=True,
    help="Rows of the failure table.",
)  # fmt: skip
@click.option(
    "--pick-best", type=File(),
    help="Write the best record of each task to this file (merged with what it holds).",
)  # fmt: skip
def show(file: Path, failures: int, pick_best: Path | None) -> None:
    """Tell what a log holds: best result per task, counts, why candidates failed."""
    from tilewright.cli import tables
    from tilewright.measure.database import Database
    from tilewright.measure.database import pick_best as pick

    database = Database.load(file)
    database.check_readable(f"log {str(file)!r}")
    tables.print_records(database, failures)
    if pick_best is not None:
        click.echo(f"{pick(file, pick_best)} best records are in {pick_best}")


@records.command()
@click.argument("file", type=File(), callback=check_log)
@click.option(
    "-o", "--output", type=File(),
    help="Where to; merged with what it holds.  [default: FILE.best.json]",
)  # fmt: skip
def distill(file: Path, output: Path | None) -> None:
    """Write the best record of each task to a file of its own."""
    from tilewright.measure.database import pick_best

    output = output or Path(f"{file}.best.json")
    click.echo(f"{pick_best(file, output)} best records are in {output}")


@cli.command(short_help="Try every compiler and device.")
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
