"""`tilewright report`, and --report of `tune` and `bench`: what a log tells, as files.

In: a command line.  Out: calls of `reporting/write.py`, a line for each file.
Read next: `../reporting/write.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tilewright.base.errors import TilewrightError
from tilewright.base.terminal import say
from tilewright.cli.options import (
    MODEL_HELP,
    File,
    batch_option,
    check_log,
    dtype_option,
    layout_option,
    shape_option,
)

if TYPE_CHECKING:
    from tilewright.cli.tables import BenchReport
    from tilewright.front import Network
    from tilewright.reporting.write import Document

FORMS = (
    ".html, a page that opens anywhere; .md, for pull requests; .csv, the table of kernels; .json "
    "or .json.gz, a trace for ui.perfetto.dev"
)


def check_form(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Files whose names say in which form they are to be, before anything takes long.

    Raises RecordError for those that could not be written then.
    """
    from tilewright.reporting.write import check_output, form_of

    for path in value if isinstance(value, tuple) else [value]:
        try:
            if path is not None:
                form_of(path)
        except TilewrightError as error:
            text = f"{str(path)!r}: {error.reason}.  {error.way_out}"
            raise click.BadParameter(text, ctx=ctx, param=param) from None
        if path is not None:
            check_output(path)
    return value


def report_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--report, given as `reports`."""
    return click.option(
        "--report", "reports", multiple=True, type=File(), callback=check_form, metavar="FILE",
        help=f"Write a report as well: {FORMS}; several times for several.",
    )(command)  # fmt: skip


@click.command(epilog=MODEL_HELP, short_help="Write what a log tells, as a page with pictures.")
@click.argument("log", type=File(), callback=check_log)
@click.option(
    "-o", "--output", multiple=True, type=File(), callback=check_form,
    help=f"File to write: {FORMS}; several times for several.  [default: LOG.html here]",
)  # fmt: skip
@click.option(
    "--model",
    help="MODEL that was tuned: rows are then its kernels, by the names of its layers, instead of "
    "the tasks of the log.",
)
@click.option(
    "--against", type=File(), callback=check_log,
    help="Another log, with which each task is compared.",
)  # fmt: skip
@click.option(
    "--task", "tasks", multiple=True, type=click.IntRange(0), metavar="NUMBER",
    help="Tell of this task alone, in full, by its number in a report; several times for several.",
)  # fmt: skip
@click.option(
    "--measure",
    is_flag=True,
    help="Measure what this machine's device can do, for the roofline; LOG must be of it.",
)
@layout_option
@shape_option
@batch_option
@dtype_option
def report(
    log: Path, output: tuple[Path, ...], model: str | None, against: Path | None,
    tasks: tuple[int, ...], measure: bool, dtype: str, batch: tuple[int, ...],
    shape: dict[str, Any], layout: str | None,
) -> None:  # fmt: skip
    """Write what LOG tells of a search: kernels, how near each is to what the device can do, how
    the search went, what was refused, and the loops of the best.

    Without --measure nothing is compiled or run, and the same log gives the same file.  --dtype,
    --batch, --shape and --desired-layout are those of --model, as it was tuned.
    """
    from tilewright.cli.models import loaded
    from tilewright.reporting.write import report as made
    from tilewright.schedule.task import Task
    from tilewright.targets.target import Target

    if model is None and (batch or shape or layout or dtype != "float32"):
        raise click.UsageError("--dtype, --batch, --shape and --desired-layout are of --model")
    network = None
    if model is not None:
        what = loaded(model, Target("llvm"), batch=batch, shape=shape, dtype=dtype, layout=layout)
        network = None if isinstance(what, Task) else what  # whose log needs no model
    files = output or (Path(f"{log.stem}.html"),)
    save(made(log, model=network, against=against, tasks=tasks, measure=measure), files)


def save(document: Document, files: Iterable[Path]) -> None:
    """Write the files and say so."""
    for path in files:
        size = document.save(path)
        ends = path.name.lower()
        hint = "  Open it in a browser." if ends.endswith((".html", ".htm")) else ""
        hint = "  Open it at ui.perfetto.dev." if ends.endswith((".json", ".json.gz")) else hint
        say(f"{path}: {size / 1e3:.0f} KB.{hint}")


def after_tuning(files: Sequence[Path], log: Path, network: Network | None) -> None:
    """--report of `tune`; network: None after that of an operator.

    Where the network and its log do not go together, the tasks of the log are told instead: what
    was searched for must not be lost.
    """
    from tilewright.reporting.write import report as made

    if not files:
        return
    try:
        document = made(log, model=network)
    except TilewrightError as error:
        say(f"The report is of the log alone: {error}")
        document = made(log)
    save(document, files)


def after_bench(files: Sequence[Path], found: BenchReport, log: Path | None) -> None:
    """--report of `bench`; log: that was used, if any."""
    from tilewright.reporting.bench import document_of

    if files:
        save(document_of(found, log), files)
