"""`tilewright farm`: tracker, server, status and certificates.

In: a command line.  Out: calls into the room `farm`, an exit code.  Read next: `farm/command.py`,
which holds the options, as `python -m tilewright_tvm.exec.rpc_tracker` has them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

_PASSED_ON = {"ignore_unknown_options": True, "help_option_names": []}


@click.group(short_help="Devices of other machines: track, lend, show.")
def farm() -> None:
    """Devices of other machines: run a tracker, lend a device, see what there is."""


@farm.command(context_settings=_PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tracker(arguments: tuple[str, ...]) -> None:
    """Know devices by key, and lend them to tuners.  --help tells the options."""
    from tilewright.farm import command

    sys.exit(command.tracker(arguments, "tilewright farm tracker"))


@farm.command(context_settings=_PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def server(arguments: tuple[str, ...]) -> None:
    """Let a tracker lend this machine's device.  --help tells the options."""
    from tilewright.farm import command

    sys.exit(command.server(arguments, "tilewright farm server"))


@farm.command(context_settings=_PASSED_ON)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def status(arguments: tuple[str, ...]) -> None:
    """Show the devices of a tracker.  --help tells the options."""
    from tilewright.farm import command

    sys.exit(command.query(arguments, "tilewright farm status"))


@farm.command(short_help="Make certificates, and an authority that signs them.")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), required=False)
@click.option("--host", multiple=True, help="Name of a machine, for the server's certificate.")
def certificates(folder: Path | None, host: tuple[str, ...]) -> None:
    """Make a private authority, unless FOLDER has one, and certificates signed by it.

    FOLDER is by default where trackers, servers and tuners of this user look for them.
    """
    from tilewright.farm import certificates as made

    place = folder or made.folder()
    if place is None:
        raise click.UsageError("TILEWRIGHT_CERTIFICATES is none: name a FOLDER")
    for path in made.make(place, host):
        click.echo(path)
    click.echo(
        f"Copy ca.pem, server.pem and server.key to the machines of devices and of the tracker, "
        f"ca.pem, client.pem and client.key to those of tuners, each into {place} there.  "
        "ca.key stays here."
    )
