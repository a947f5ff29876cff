"""The three commands of a farm with TVM's options: tracker, server, query.

In: a command line.  Out: processes that serve until they are stopped; the table of the queues.
`python -m tilewright_tvm.exec.rpc_tracker` and `tilewright farm tracker` both call `tracker`.
Read next: `tracker.py`, `server.py`, `client.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.base.terminal import say
from tilewright.farm import address, bounds, wire
from tilewright.farm.network import check_installed, dask_security

_KEY_WIDTH = 10
_MOST_BUILDERS = 1024
# Of Dask: refused connections, and what is no consequence of a process that went away.
_LEVELS = {
    "distributed": logging.ERROR, "distributed.comm.tcp": logging.WARNING,
    "distributed.batched": logging.CRITICAL, "distributed.http.proxy": logging.ERROR,
}  # fmt: skip
_CERTIFICATES = (
    "folder with the certificates of the farm, or none to speak plainly (default: "
    "TILEWRIGHT_CERTIFICATES, or tilewright/farm in the user's configuration)"
)


def _within(least: int, most: int) -> Callable[[str], int]:
    """What argparse takes for a number from `least` to `most`."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no number from {least} to {most}")
        return value

    return number


_PORT = _within(0, 65535)


def tracker(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run a tracker until it is stopped."""
    parser = argparse.ArgumentParser(prog, description="Know devices by key, and lend them.")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default: %(default)s)"
    )
    parser.add_argument("--port", type=_PORT, default=address.PORT, help="default: %(default)s")
    parser.add_argument(
        "--port-end", type=_PORT, default=9199, help="last port to try (%(default)s)"
    )
    parser.add_argument("--silent", action="store_true", help="say errors only")
    parser.add_argument("--certificates", help=_CERTIFICATES)
    parser.add_argument(
        "--dashboard", metavar="HOST:PORT", help="serve Dask's pages there (needs bokeh)"
    )
    given = parser.parse_args(arguments)
    log = logging.getLogger("RPCTracker")

    def ready(at: str) -> None:
        log.info("bind to %s:%s", given.host, at.rpartition(":")[2])

    async def serve() -> None:
        _set_levels(log, given.silent)
        from tilewright.farm import plain_comm
        from tilewright.farm.tracker import house, run_tracker

        if given.dashboard is not None and find_spec("bokeh") is None:
            raise DeviceError(
                f"--dashboard {given.dashboard}", "the package bokeh is not installed",
                "Install it, or leave the pages out: `tilewright farm status` shows the devices.",
            )  # fmt: skip
        shown = address.listening(given.host, given.certificates)
        security = None if shown is None else dask_security(shown)
        plain_comm.use_plain_connections(house())
        ports = _ports(given.port, given.port_end)
        await run_tracker(given.host, ports, security, given.dashboard, ready)

    return _run(serve)


def server(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run a device until it is stopped."""
    parser = argparse.ArgumentParser(prog, description="Let a tracker lend this machine's device.")
    parser.add_argument(
        "--tracker", "--scheduler", required=True, metavar="HOST:PORT",
        help="also tls://HOST:PORT, of a tracker or of a Dask scheduler that has one",
    )  # fmt: skip
    parser.add_argument("--key", required=True, help="by which devices of one make are asked for")
    parser.add_argument(
        "--host", default="0.0.0.0", help="address to listen at (default: %(default)s)"
    )
    parser.add_argument("--port", type=_PORT, default=9090, help="default: %(default)s")
    parser.add_argument(
        "--port-end", type=_PORT, default=9199, help="last port to try (%(default)s)"
    )
    parser.add_argument(
        "--custom-addr", metavar="HOST[:PORT]", help="address by which others reach it"
    )
    parser.add_argument(
        "--builders", type=_within(0, _MOST_BUILDERS), default=0, metavar="N",
        help="be no device, but build for tuners, N candidates at once",
    )  # fmt: skip
    parser.add_argument("--silent", action="store_true", help="say errors only")
    parser.add_argument("--no-fork", action="store_true", help="accepted and not needed")
    parser.add_argument("--certificates", help=_CERTIFICATES)
    given = parser.parse_args(arguments)
    log = logging.getLogger("RPCServer")

    def ready(at: str) -> None:
        log.info("bind to %s, key %s", at.partition("://")[2], given.key)

    async def serve() -> None:
        _set_levels(log, given.silent)
        from tilewright.farm import plain_comm
        from tilewright.farm.server import house, run_server

        place = address.parsed(given.tracker)
        ports = _ports(given.port, given.port_end)
        if given.builders:
            _check_builds(given.builders)
        plain_comm.use_plain_connections(house(given.builders or 1))
        servers = [
            run_server(
                place, given.key, given.host, ports, given.certificates, ready, given.custom_addr,
                builds=given.builders > 0,
            )
            for _ in range(given.builders or 1)
        ]  # fmt: skip
        await asyncio.gather(*servers)

    return _run(serve)


def query(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Print which devices there are, how many are free and how many are waited for."""
    parser = argparse.ArgumentParser(prog, description="Show the devices of a tracker.")
    parser.add_argument("--host", help="default: TVM_TRACKER_HOST")
    parser.add_argument(
        "--port", type=_within(1, 65535), help=f"default: TVM_TRACKER_PORT, or {address.PORT}"
    )
    parser.add_argument("--certificates", help=_CERTIFICATES)
    given = parser.parse_args(arguments)

    async def ask() -> None:
        from tilewright.farm.client import summary

        host, port = address.tracker_address(given.host or None, given.port)
        say(f"Tracker address {host}:{port}\n")
        say(table(await summary(host, port, given.certificates)))

    return _run(ask)


def table(found: wire.Summary) -> str:
    """The servers and the queues, as TVM prints them.

    Names are one line each, and harmless: `wire` refuses others.
    """
    rule = "-" * 30
    lines = ["Server List", rule, "server-address           key", rule]
    for member in sorted(found.members, key=lambda m: (m.key, m.address)):
        lines.append(f"{member.address.partition('://')[2]:>21}    server:{member.key}")
    lines += [rule, "", "Queue Status"]
    width = max([len(row.key) for row in found.rows], default=0)
    width = max(width, _KEY_WIDTH)
    title = f"{'key':<{width}}   total  free  pending"
    rule = "-" * (len(title) + 1)
    lines += [rule, title, rule]
    for row in found.rows:
        cells = f"{row.key:<{width}}   {row.total:<5d}  {row.free:<4d}  {row.pending:<7d}"
        lines.append(cells.rstrip())
    return "\n".join([*lines, rule])


def _check_builds(count: int) -> None:
    """Raises DeviceError where nothing can be built."""
    try:
        import_module("tilewright.driver.build")
    except ImportError as error:
        raise DeviceError(
            f"--builders {count}", f"this installation runs kernels and cannot build ({error.name} "
            "is not in it)", "Install all of Tilewright here.",
        ) from None  # fmt: skip


def _ports(first: int, last: int) -> range:
    return range(first, max(first, last) + 1) if first else range(0, 1)


class _Few(logging.Filter):
    """Lets so many warnings pass in a time, and then says how many it kept back: whoever is
    refused again and again fills no disk."""

    def __init__(self) -> None:
        super().__init__()
        self._since, self._count = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._since > bounds.LOGGED_SECONDS:
            kept_back = self._count - bounds.LOGGED
            if kept_back > 0:
                record.msg = f"{record.getMessage()} ({kept_back} warnings before it are not shown)"
                record.args = ()
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= bounds.LOGGED


def _set_levels(log: logging.Logger, silent: bool) -> None:
    """Messages in the form of `INFO:RPCTracker:bind to 0.0.0.0:9190`; of Dask, warnings only."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    for ours in (log, logging.getLogger("tilewright.farm")):
        ours.setLevel(logging.ERROR if silent else logging.INFO)
    import distributed  # noqa: F401  # sets the levels of its loggers when it is imported

    for talks in ("tilewright.farm", "distributed.comm.tcp"):
        logging.getLogger(talks).addFilter(_Few())
    for theirs, level in _LEVELS.items():
        logging.getLogger(theirs).setLevel(level)


def _run(serve: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """An exit code: 1 for an error, which is told in one line; a signal to stop is no error."""

    async def until_stopped() -> None:
        task = asyncio.ensure_future(serve())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, task.cancel)
        with suppress(asyncio.CancelledError):
            await task

    try:
        check_installed()
        asyncio.run(until_stopped())
    except TilewrightError as error:
        say(f"error: {error.in_command()}", stream=sys.stderr)
        return 1
    return 0
