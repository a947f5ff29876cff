"""`tilewright records publish` and `records use`: knowledge of a site.

In: logs; a folder or its address.  Out: folders of knowledge, and a table of those in force.
Read next: `search/publish.py`, `knowledge/install.py`.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from tilewright.cli.options import File

_FILE = File(exists=True)


@click.command("publish", short_help="Make a folder of knowledge out of logs.")
@click.argument("logs", metavar="LOG...", nargs=-1, required=True, type=_FILE)
@click.option(
    "--to", "folder", required=True, type=click.Path(file_okay=False, path_type=Path),
    help="Folder, made where it is missing; what it holds is added to.",
)  # fmt: skip
@click.option(
    "--device-class", help="Class of device that the records are of, where LOG is of another one."
)
def publish_logs(logs: tuple[Path, ...], folder: Path, device_class: str | None) -> None:
    """Make a folder of knowledge out of logs: the best of each task, and trees that predict others.

    Put it on a shared disk or a web server, and let others `tilewright records use` it.
    """
    from tilewright.cli import tables
    from tilewright.search.publish import publish

    report = publish(logs, folder, device_class)
    rows = [(p.device_class, str(p.tasks), str(p.taught or "-")) for p in report.published]
    tables.print_knowledge(("class of device", "tasks", "trials learned from"), rows)
    for reason, count in report.skipped.most_common():
        click.echo(f"left out: {count} records, {reason}", err=True)
    click.echo(f"{folder} is ready: tilewright records use {shlex.quote(str(folder))}")


@click.command("use", short_help="Install a folder of knowledge for this user.")
@click.argument("source", metavar="[DIR-or-URL]", required=False)
@click.option("--name", help="What it is called here.  [default: by its place]")
@click.option("--forget", "forgotten", metavar="NAME", help="Remove what was installed as NAME.")
def use_knowledge(source: str | None, name: str | None, forgotten: str | None) -> None:
    """Install a folder of knowledge for this user; without one, tell which are in force.

    Compiling takes from them what no log of yours has, and searches begin with their trees.
    Nothing is ever fetched but by this command.
    """
    from tilewright import knowledge
    from tilewright.cli import tables

    if forgotten is not None:
        knowledge.forget(forgotten)
        click.echo(f"{forgotten} is gone.")
    if source is not None:
        click.echo(f"Installed in {knowledge.use(source, name)}.")
    if source is None and forgotten is None:
        rows = [(str(folder), ", ".join(_classes(folder))) for folder in knowledge.folders()]
        if not rows:
            click.echo("No knowledge is used: TILEWRIGHT_KNOWLEDGE is off.")
            return
        tables.print_knowledge(("folder, the first counts most", "classes of devices"), rows)


def _classes(folder: Path) -> list[str]:
    from tilewright.knowledge import store

    return sorted(p.parent.name for p in folder.glob(f"*/{store.RECORDS}"))
